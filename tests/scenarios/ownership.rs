//! A key is owned by the attempt that was granted it until that attempt settles, dies or loses a
//! lease it asked for; what comes next is told how it ended.

use crate::child;
use crate::common::child::Child;
use crate::common::{
    DAY, HOUR, Place, SECOND, assert_error, assert_first, assert_follows, duplicate, in_progress, new,
};
use crate::doors::{Door, through_every_door};
use oncedb::{Cause, Response, ScopeOptions, Store};

through_every_door! {
    crash_between_claim_and_completion,
    killed_between_claim_and_completion,
    crash_after_an_outside_effect_before_completion,
    killed_after_an_outside_effect_before_completion,
    handler_slower_than_its_lease_still_alive,
    handler_without_a_lease_takes_years,
    lease_that_lapsed_unnoticed_still_completes,
    handler_fails_and_the_sender_retries,
    key_computed_again_at_completion,
    application_requeues_its_own_event,
}

fn crash_between_claim_and_completion(door: Door) {
    let place = Place::new();
    let (store, scope) = place.stripe();
    let dead = new(door.begin(&scope, "evt_1"));
    door.close(&store).unwrap();

    let (_store, scope) = place.stripe();
    assert!(!scope.contains("evt_1").unwrap(), "an orphan is not done");
    let guard = new(door.begin(&scope, "evt_1"));
    assert_eq!(guard.attempt(), 2);
    assert_follows(&guard, Cause::Orphaned, None);
    assert!(guard.token() > dead.token(), "tokens grow over reopening too");

    drop(dead);
    let running = in_progress(door.begin(&scope, "evt_1"));
    assert_eq!(running.token(), guard.token(), "the dead guard's drop frees nothing");
    door.complete(guard).unwrap();
    assert_eq!(duplicate(door.claim(&scope, "evt_1")).attempt(), 2);
}

fn killed_between_claim_and_completion(door: Door) {
    let place = Place::new();
    killed_once_it_says("begun", "begin", door, &place);

    for attempt in 2..5 {
        let store = Store::open(place.path()).unwrap();
        let scope = store.scope("stripe").unwrap();
        let guard = new(door.begin(&scope, "evt_1"));
        assert_eq!(guard.attempt(), attempt, "every crash is counted");
        assert_follows(&guard, Cause::Orphaned, None);
        door.close(&store).unwrap();
    }
}

fn killed_once_it_says(said: &str, role: &str, door: Door, place: &Place) {
    let mut child = Child::start(child::TEST, &format!("{role}/{}", door.name()), place.path());
    child.expect(said);
    child.kill();
    child.bury();
}

fn crash_after_an_outside_effect_before_completion(door: Door) {
    let place = Place::new();
    let (store, scope) = place.stripe();
    let dead = new(door.begin(&scope, "evt_1"));
    door.note(&dead, "about to charge").unwrap();
    door.note(&dead, "charged: ch_42").unwrap();
    door.close(&store).unwrap();

    let (_store, scope) = place.stripe();
    let guard = new(door.begin(&scope, "evt_1"));
    assert_follows(&guard, Cause::Orphaned, Some(b"charged: ch_42"));
}

fn killed_after_an_outside_effect_before_completion(door: Door) {
    let place = Place::new();
    killed_once_it_says("noted", "begin and note", door, &place);

    let store = Store::open(place.path()).unwrap();
    let scope = store.scope("stripe").unwrap();
    let guard = new(door.begin(&scope, "evt_1"));
    assert_eq!(guard.attempt(), 2);
    assert_follows(&guard, Cause::Orphaned, Some(b"charged: ch_42"));
}

fn handler_slower_than_its_lease_still_alive(door: Door) {
    let place = Place::new();
    let store = place.open();
    let options = ScopeOptions::new().lease(30 * SECOND);
    let scope = store.scope_with("stripe", options).unwrap();
    let slow = new(door.begin(&scope, "evt_1"));

    place.clock.advance(29 * SECOND);
    in_progress(door.begin(&scope, "evt_1"));
    slow.renew().unwrap();
    place.clock.advance(29 * SECOND);
    in_progress(door.begin(&scope, "evt_1"));

    place.clock.advance(2 * SECOND);
    let successor = new(door.begin(&scope, "evt_1"));
    assert_eq!(successor.attempt(), 2);
    assert_follows(&successor, Cause::LeaseExpired, None);
    assert_error!(door.complete_with(slow, "too late"), Fenced);
    door.complete_with(successor, "in time").unwrap();
    let record = duplicate(door.claim(&scope, "evt_1"));
    assert_eq!(record.response(), Response::Stored(b"in time"));
}

fn handler_without_a_lease_takes_years(door: Door) {
    let place = Place::new();
    let (store, scope) = place.stripe();
    let slow = new(door.begin(&scope, "evt_1"));
    for _ in 0..10 {
        place.clock.advance(365 * DAY);
        store.maintain().unwrap();
        let running = in_progress(door.begin(&scope, "evt_1"));
        assert_eq!((running.attempt(), running.token()), (1, slow.token()));
    }
    door.complete(slow).unwrap();
    duplicate(door.claim(&scope, "evt_1"));
}

fn lease_that_lapsed_unnoticed_still_completes(door: Door) {
    let place = Place::new();
    let (_store, scope) = place.stripe();
    let slow = new(door.begin_request(scope.request("evt_1").lease(10 * SECOND)));
    place.clock.advance(HOUR);
    door.complete(slow).expect("nobody took the key over, so it is still this guard's");
    duplicate(door.claim(&scope, "evt_1"));
}

fn handler_fails_and_the_sender_retries(door: Door) {
    let place = Place::new();
    let (_store, scope) = place.stripe();
    let first = new(door.begin(&scope, "evt_1"));
    assert_first(&first);
    door.note(&first, "got as far as the mail").unwrap();
    drop(first);
    assert!(!scope.contains("evt_1").unwrap(), "a failed attempt leaves no record");

    let second = new(door.begin(&scope, "evt_1"));
    assert_follows(&second, Cause::Aborted, Some(b"got as far as the mail"));
    door.abort(second).unwrap();
    let record = new(door.claim(&scope, "evt_1"));
    assert_eq!(record.attempt(), 3, "a claim counts as an attempt too");
    duplicate(door.begin(&scope, "evt_1"));
}

fn key_computed_again_at_completion(door: Door) {
    let place = Place::new();
    let (_store, scope) = place.stripe();
    let mut id = b"evt_1".to_vec();
    let guard = new(door.begin(&scope, &id));
    id[4] = b'2';
    assert_eq!(guard.id(), b"evt_1", "the guard owns its key");
    door.complete(guard).unwrap();
    duplicate(door.claim(&scope, "evt_1"));
    new(door.claim(&scope, &id));
}

fn application_requeues_its_own_event(door: Door) {
    let place = Place::new();
    let (_store, scope) = place.stripe();
    for attempt in 1..=5 {
        let guard = new(door.begin(&scope, "evt_1"));
        assert_eq!(guard.attempt(), attempt);
        door.abort(guard).unwrap();
    }
    door.complete(new(door.begin(&scope, "evt_1"))).unwrap();
    duplicate(door.claim(&scope, "evt_1"));
}
