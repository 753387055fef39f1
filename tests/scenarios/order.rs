//! An event that is older than what was last applied to its entity is never applied after it, and
//! nothing that was not applied keeps an older one out.

use crate::common::{DAY, HOUR, Place, duplicate, in_progress, new, noon, stale};
use crate::doors::{Door, through_every_door};
use oncedb::{Advance, Busy, InProgress, Request, Scope, ScopeOptions, Store, Ties, Timestamp};

through_every_door! {
    older_event_lands_after_a_newer_one,
    older_event_lands_after_the_newer_ones_id_has_expired,
    equal_timestamps_are_accepted_by_default,
    equal_timestamps_are_rejected_where_asked,
    two_events_of_one_entity_at_the_same_time,
    newer_event_fails_after_the_older_was_to_wait,
    newer_event_dies_in_a_crash,
}

pub fn open(place: &Place, options: ScopeOptions) -> (Store, Scope) {
    let store = place.open();
    let scope = store.scope_with("stripe", options).unwrap();
    (store, scope)
}

pub fn at(secs: i64) -> Timestamp {
    Timestamp::from_secs(secs)
}

pub fn event(scope: &Scope, id: &str, secs: i64) -> Request {
    scope.request(id).order("acct_7", at(secs))
}

#[track_caller]
pub fn assert_mark(scope: &Scope, expected: Option<Timestamp>) {
    let mark = scope.last_applied("acct_7").unwrap();
    assert_eq!(mark.map(|mark| mark.timestamp()), expected, "what was last applied");
}

#[track_caller]
fn advance_in_progress(answer: oncedb::Result<Advance>) -> InProgress {
    match answer {
        Ok(Advance::InProgress(running)) => running,
        other => panic!("expected InProgress, got {other:?}"),
    }
}

#[track_caller]
pub fn assert_applied(answer: &oncedb::Result<Advance>) {
    assert!(matches!(answer, Ok(Advance::Applied)), "expected Applied, got {answer:?}");
}

#[track_caller]
pub fn assert_advance_stale(answer: &oncedb::Result<Advance>, expected: Timestamp) {
    match answer {
        Ok(Advance::Stale(mark)) => assert_eq!(mark.timestamp(), expected),
        other => panic!("expected Stale, got {other:?}"),
    }
}

fn older_event_lands_after_a_newer_one(door: Door) {
    let place = Place::new();
    let (store, scope) = open(&place, ScopeOptions::new());
    new(door.claim_request(event(&scope, "first", 10)));
    door.complete(new(door.begin_request(event(&scope, "newer", 30)))).unwrap();

    let assert_refused = |scope: &Scope| {
        let mark = stale(door.claim_request(event(scope, "older", 20)));
        assert_eq!(mark.timestamp(), at(30));
        assert_eq!(mark.entity(), b"acct_7");
        assert_eq!(mark.applied_at(), noon());
        stale(door.begin_request(event(scope, "older", 29)));
        assert_mark(scope, Some(at(30)));
        duplicate(door.claim_request(event(scope, "first", 10)));
    };
    assert_refused(&scope);
    door.close(&store).unwrap();
    let (_store, scope) = open(&place, ScopeOptions::new());
    assert_refused(&scope);
    new(door.claim_request(scope.request("older").order("acct_8", at(20))));
}

fn older_event_lands_after_the_newer_ones_id_has_expired(door: Door) {
    let place = Place::new();
    let options = || ScopeOptions::new().window(HOUR);
    let (store, scope) = open(&place, options());
    new(door.claim_request(event(&scope, "newer", 30)));
    place.clock.advance(DAY);
    store.maintain().unwrap();
    assert!(!scope.contains("newer").unwrap(), "the id has expired");
    stale(door.claim_request(event(&scope, "older", 20)));
    stale(door.claim_request(event(&scope, "newer", 30)));
    door.close(&store).unwrap();

    let (_store, scope) = open(&place, options());
    stale(door.claim_request(event(&scope, "older", 20)));
    stale(door.claim_request(event(&scope, "newer", 30)));
    new(door.claim_request(event(&scope, "newest", 31)));
}

fn equal_timestamps_are_accepted_by_default(door: Door) {
    let place = Place::new();
    let (_store, scope) = open(&place, ScopeOptions::new().window(HOUR));
    new(door.claim_request(event(&scope, "one", 30)));
    duplicate(door.claim_request(event(&scope, "one", 30)));
    new(door.claim_request(event(&scope, "two", 30)));
    duplicate(door.claim_request(event(&scope, "two", 30)));

    place.clock.advance(HOUR);
    stale(door.claim_request(event(&scope, "two", 30)));
    new(door.claim_request(event(&scope, "three", 30)));
}

fn equal_timestamps_are_rejected_where_asked(door: Door) {
    let place = Place::new();
    let (_store, scope) = open(&place, ScopeOptions::new().window(HOUR).ties(Ties::Reject));
    new(door.claim_request(event(&scope, "one", 30)));
    duplicate(door.claim_request(event(&scope, "one", 30)));
    stale(door.claim_request(event(&scope, "two", 30)));
    assert_advance_stale(&door.advance(&scope, "acct_7", at(30)), at(30));

    place.clock.advance(HOUR);
    stale(door.claim_request(event(&scope, "one", 30)));
    new(door.claim_request(event(&scope, "two", 31)));
}

fn two_events_of_one_entity_at_the_same_time(door: Door) {
    let place = Place::new();
    let (_store, scope) = open(&place, ScopeOptions::new());
    new(door.claim_request(event(&scope, "applied", 10)));
    let guard = new(door.begin_request(event(&scope, "running", 20)));
    for (id, secs) in [("newer", 30), ("older", 15), ("equal", 20)] {
        let running = in_progress(door.begin_request(event(&scope, id, secs)));
        assert_eq!((running.busy(), running.token()), (Busy::Entity, guard.token()));
        in_progress(door.claim_request(event(&scope, id, secs)));
    }
    assert_eq!(in_progress(door.begin_request(event(&scope, "running", 20))).busy(), Busy::Id);
    assert_eq!(advance_in_progress(door.advance(&scope, "acct_7", at(40))).busy(), Busy::Entity);
    stale(door.begin_request(event(&scope, "oldest", 5)));
    drop(new(door.begin_request(scope.request("other").order("acct_8", at(1)))));
    drop(new(door.begin(&scope, "unordered")));

    door.complete(guard).unwrap();
    stale(door.begin_request(event(&scope, "older", 15)));
    new(door.claim_request(event(&scope, "newer", 30)));
    assert_mark(&scope, Some(at(30)));
}

fn newer_event_fails_after_the_older_was_to_wait(door: Door) {
    let place = Place::new();
    let (_store, scope) = open(&place, ScopeOptions::new());
    let newer = new(door.begin_request(event(&scope, "newer", 30)));
    in_progress(door.begin_request(event(&scope, "older", 20)));
    door.abort(newer).unwrap();
    assert_mark(&scope, None);
    let older = new(door.begin_request(event(&scope, "older", 20)));
    drop(older);
    new(door.claim_request(event(&scope, "older", 20)));
    assert_mark(&scope, Some(at(20)));
    assert_eq!(new(door.begin_request(event(&scope, "newer", 30))).attempt(), 2);
}

fn newer_event_dies_in_a_crash(door: Door) {
    let place = Place::new();
    let (store, scope) = open(&place, ScopeOptions::new());
    let _newer = new(door.begin_request(event(&scope, "newer", 30)));
    door.close(&store).unwrap();
    let (_store, scope) = open(&place, ScopeOptions::new());
    assert_mark(&scope, None);
    new(door.claim_request(event(&scope, "older", 20)));
    new(door.claim_request(event(&scope, "newer", 30)));
}
