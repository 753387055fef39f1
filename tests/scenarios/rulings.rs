//! Where the contract leaves a choice, the choice that was made stays made.

use crate::common::{
    DAY, HOUR, Place, SECOND, assert_error, assert_first, assert_follows, duplicate, in_progress, mismatch,
    new, stale,
};
use crate::doors::{Door, through_every_door};
use oncedb::{Cause, Durability, Timestamp};
use std::time::Duration;

through_every_door! {
    verdicts_are_looked_for_in_the_stated_order,
    running_key_is_not_there_for_get,
    released_key_keeps_its_attempts_for_its_window,
    forget_starts_again_but_leaves_the_mark,
    everything_after_close_is_closed,
    interval_is_durable_after_a_sync,
    tokens_grow_with_every_begin,
}

fn verdicts_are_looked_for_in_the_stated_order(door: Door) {
    let place = Place::new();
    let (_store, scope) = place.stripe();
    let at = Timestamp::from_secs;
    let request =
        |id: &str, print: &str, secs| scope.request(id).fingerprint(print).order("acct_7", at(secs));
    new(door.claim_request(request("done", "a", 20)));
    let _guard = new(door.begin_request(request("running", "a", 30)));

    mismatch(door.claim_request(request("done", "b", 10)));
    mismatch(door.claim_request(request("running", "b", 10)));
    duplicate(door.claim_request(request("done", "a", 10)));
    in_progress(door.claim_request(request("running", "a", 10)));
    stale(door.claim_request(request("other", "a", 10)));
    in_progress(door.claim_request(request("other", "a", 40)));
    let bad = request("done", "b", 10).window(Duration::ZERO);
    assert_error!(door.claim_request(bad), InvalidOption);
}

fn running_key_is_not_there_for_get(door: Door) {
    let place = Place::new();
    let (_store, scope) = place.stripe();
    let guard = new(door.begin(&scope, "evt_1"));
    assert!(!scope.contains("evt_1").unwrap());
    assert!(door.get(&scope, "evt_1").unwrap().is_none());
    door.complete(guard).unwrap();
    assert!(scope.contains("evt_1").unwrap());
    assert_eq!(door.get(&scope, "evt_1").unwrap().unwrap().id(), b"evt_1");
}

fn released_key_keeps_its_attempts_for_its_window(door: Door) {
    let place = Place::new();
    let open = || {
        let store = place.open_with(place.options().window(DAY));
        let scope = store.scope("stripe").unwrap();
        (store, scope)
    };
    let (store, scope) = open();
    let guard = new(door.begin(&scope, "evt_1"));
    door.note(&guard, "half way").unwrap();
    door.abort(guard).unwrap();
    place.clock.advance(DAY - SECOND);
    store.maintain().unwrap();
    door.close(&store).unwrap();

    let (store, scope) = open();
    let guard = new(door.begin(&scope, "evt_1"));
    assert_follows(&guard, Cause::Aborted, Some(b"half way"));
    door.abort(guard).unwrap();
    place.clock.advance(DAY);
    store.maintain().unwrap();
    assert_first(&new(door.begin(&scope, "evt_1")));
}

fn forget_starts_again_but_leaves_the_mark(door: Door) {
    let place = Place::new();
    let (store, scope) = place.stripe();
    let event = || scope.request("evt_1").order("acct_7", Timestamp::from_secs(10));
    assert!(!door.forget(&scope, "evt_1").unwrap(), "there is nothing to forget");
    let guard = new(door.begin_request(event()));
    assert_error!(door.forget(&scope, "evt_1"), InProgress);
    door.abort(guard).unwrap();
    assert_eq!(new(door.claim_request(event())).attempt(), 2);
    assert!(door.forget(&scope, "evt_1").unwrap());
    assert!(!scope.contains("evt_1").unwrap());
    assert!(scope.last_applied("acct_7").unwrap().is_some(), "marks stay");
    door.close(&store).unwrap();

    let (_store, scope) = place.stripe();
    assert_first(&new(door.begin(&scope, "evt_1")));
}

fn everything_after_close_is_closed(door: Door) {
    let place = Place::new();
    let (store, scope) = place.stripe();
    let (other_store, other_scope) = (store.clone(), scope.clone());
    let request = scope.request("evt_3");
    let [guard, settled, batched] = ["a", "b", "c"].map(|id| new(door.begin(&scope, id)));
    let running = in_progress(door.begin(&scope, "a"));
    door.close(&store).unwrap();

    assert_error!(other_store.scope("stripe"), Closed);
    assert_error!(door.sync(&other_store), Closed);
    assert_error!(other_store.maintain(), Closed);
    assert_error!(door.claim(&other_scope, "evt_2"), Closed);
    assert_error!(door.begin(&scope, "evt_2"), Closed);
    assert_error!(door.begin_request(request), Closed);
    assert_error!(door.claim_many(&scope, ["evt_2"]), Closed);
    assert_error!(scope.contains("evt_2"), Closed);
    assert_error!(door.get(&scope, "evt_2"), Closed);
    assert_error!(scope.last_applied("acct_7"), Closed);
    assert_error!(door.advance(&scope, "acct_7", Timestamp::from_secs(1)), Closed);
    assert_error!(door.complete_all(&store, vec![batched]), Closed);
    assert_error!(guard.renew(), Closed);
    assert_error!(door.note(&guard, "late"), Closed);
    assert_error!(door.complete(guard), Closed);
    assert_error!(door.abort(settled), Closed);
    assert_error!(door.wait(&running), Closed);

    let (_store, scope) = place.stripe();
    for id in ["a", "b", "c"] {
        assert_follows(&new(door.begin(&scope, id)), Cause::Orphaned, None);
    }
    assert_first(&new(door.begin(&scope, "evt_2")));
}

#[test]
fn what_was_told_outlives_the_store_and_holds_nothing_open() {
    let place = Place::new();
    let (store, scope) = place.stripe();
    let ordered = |secs| scope.request("evt_1").order("acct_7", Timestamp::from_secs(secs));
    let record = new(ordered(10).claim_with("reply"));
    let mark = scope.last_applied("acct_7").unwrap().unwrap();
    let guard = new(scope.begin("evt_2"));
    let running = in_progress(scope.begin("evt_2"));
    drop((guard, scope, store));

    let (_store, scope) = place.stripe();
    duplicate(scope.claim("evt_1"));
    assert_eq!(record.stored_response().as_deref(), Some(&b"reply"[..]));
    assert_eq!((mark.entity(), running.attempt()), (&b"acct_7"[..], 1));
}

fn interval_is_durable_after_a_sync(door: Door) {
    let place = Place::new();
    let (store, scope) = place.stripe();
    let interval = Durability::Interval(HOUR);
    new(door.claim_request(scope.request("evt_1").durability(interval)));
    duplicate(door.claim_request(scope.request("evt_1").durability(interval)));
    duplicate(door.claim(&scope, "evt_1"));
    let batch = ["a", "b"].map(|id| scope.request(id).durability(interval)).into();
    for answer in door.claim_requests(&store, batch).unwrap() {
        new(answer);
    }
    door.sync(&store).unwrap();
    door.close(&store).unwrap();
    let (_store, scope) = place.stripe();
    for id in ["evt_1", "a", "b"] {
        duplicate(door.claim(&scope, id));
    }
}

fn tokens_grow_with_every_begin(door: Door) {
    let place = Place::new();
    let mut last = 0;
    for _ in 0..4 {
        let (store, scope) = place.stripe();
        for id in ["a", "b", "a"] {
            let guard = new(door.begin(&scope, id));
            assert!(guard.token() > last, "also over reopening");
            last = guard.token();
            door.abort(guard).unwrap();
        }
        door.close(&store).unwrap();
    }
}
