//! An owner that lost its key changes nothing any more, however and however late it tries.

use crate::common::{Place, SECOND, assert_error, assert_follows, duplicate, in_progress, new, stale};
use crate::doors::{Door, through_every_door};
use oncedb::{Busy, Cause, Guard, Response, Result, Scope, Store, Timestamp};

through_every_door! {
    old_owner_finishes_late,
    old_owner_finishes_after_its_successor_is_done,
    old_owner_loses_its_entity_with_its_id,
    owner_from_before_a_reopen_is_fenced,
}

/// `None` where there is no answer to look at.
type Late = fn(Door, &Store, Guard) -> Option<Result<()>>;

/// Every way in which an old owner may try to end what is no longer its own.
const LATE: [(&str, Late); 7] = [
    ("complete", |door, _, guard| Some(door.complete(guard))),
    ("complete_with", |door, _, guard| Some(door.complete_with(guard, "late"))),
    ("refuse", |door, _, guard| Some(door.refuse(guard, "late"))),
    ("abort", |door, _, guard| Some(door.abort(guard))),
    ("complete_all", |door, store, guard| only(door.complete_all(store, vec![guard]))),
    ("complete_all_with", |door, store, guard| {
        only(door.complete_all_with(store, vec![(guard, b"late".to_vec())]))
    }),
    ("drop", |_, _, guard| {
        drop(guard);
        None
    }),
];

fn only(answers: Result<Vec<Result<()>>>) -> Option<Result<()>> {
    let mut answers = answers.expect("a fenced guard is an answer of its own, not the batch's");
    assert_eq!(answers.len(), 1, "an answer for every guard");
    answers.pop()
}

#[track_caller]
fn assert_fenced(answer: Result<()>) {
    assert_error!(answer, Fenced);
}

fn taken_over(door: Door, place: &Place, scope: &Scope, id: &str) -> (Guard, Guard) {
    let old = new(door.begin_request(scope.request(id).lease(10 * SECOND)));
    place.clock.advance(11 * SECOND);
    let successor = new(door.begin(scope, id));
    assert_follows(&successor, Cause::LeaseExpired, None);
    assert!(successor.token() > old.token(), "tokens grow with every claim");
    (old, successor)
}

fn old_owner_finishes_late(door: Door) {
    let place = Place::new();
    let (store, scope) = place.stripe();
    for (how, late) in LATE {
        let (old, successor) = taken_over(door, &place, &scope, how);
        assert_fenced(old.renew());
        assert_fenced(door.note(&old, "late"));
        late(door, &store, old).into_iter().for_each(assert_fenced);
        let running = in_progress(door.begin(&scope, how));
        assert_eq!(running.token(), successor.token(), "{how}: the successor still owns the key");

        door.complete_with(successor, "done").expect("the successor settles");
        let record = duplicate(door.claim(&scope, how));
        assert_eq!(record.response(), Response::Stored(b"done"), "{how}: the successor's result");
        assert_eq!(record.attempt(), 2);
    }
}

fn old_owner_finishes_after_its_successor_is_done(door: Door) {
    let place = Place::new();
    let (store, scope) = place.stripe();
    for (how, late) in LATE {
        let (old, successor) = taken_over(door, &place, &scope, how);
        door.complete_with(successor, "done").unwrap();
        late(door, &store, old).into_iter().for_each(assert_fenced);
        let record = duplicate(door.claim(&scope, how));
        assert_eq!(record.response(), Response::Stored(b"done"), "{how} changes nothing");
    }
}

fn old_owner_loses_its_entity_with_its_id(door: Door) {
    let place = Place::new();
    let (_store, scope) = place.stripe();
    let at = |secs| Timestamp::from_secs(secs);
    let request = scope.request("older").order("acct_7", at(10)).lease(10 * SECOND);
    let old = new(door.begin_request(request));
    place.clock.advance(11 * SECOND);
    let newer = new(door.begin_request(scope.request("newer").order("acct_7", at(20))));

    assert_fenced(old.renew());
    assert_fenced(door.complete(old));
    assert!(scope.last_applied("acct_7").unwrap().is_none(), "the old owner moved no mark");
    let again = scope.request("older").order("acct_7", at(10));
    let running = in_progress(door.begin_request(again));
    assert_eq!((running.busy(), running.token()), (Busy::Entity, newer.token()));

    door.complete(newer).unwrap();
    let again = scope.request("older").order("acct_7", at(10));
    assert_eq!(stale(door.begin_request(again)).timestamp(), at(20));
}

fn owner_from_before_a_reopen_is_fenced(door: Door) {
    let place = Place::new();
    let (store, scope) = place.stripe();
    new(door.claim(&scope, "done"));
    let old = new(door.begin(&scope, "evt_1"));
    door.reopen(&store).unwrap();

    assert_fenced(old.renew());
    assert_fenced(door.complete(old));
    duplicate(door.claim(&scope, "done"));
    let guard = new(door.begin(&scope, "evt_1"));
    assert_follows(&guard, Cause::Orphaned, None);
    door.complete(guard).unwrap();
    duplicate(door.claim(&scope, "evt_1"));
}
