//! A duplicate that comes while the first attempt runs is told so, may wait, and learns the real
//! end of that attempt: it is never acknowledged for work that then fails.

use crate::common::{
    HOUR, PATIENCE, Place, SECOND, assert_error, block_on, in_progress, new, noon, poll_once,
};
use crate::doors::{Door, through_every_door};
use oncedb::{Busy, InProgress, Record, Response, Result, Settled, Timestamp};
use std::sync::Barrier;
use std::task::Poll;
use std::thread;
use std::time::Duration;

through_every_door! {
    duplicate_while_the_first_attempt_runs,
    duplicate_while_the_first_attempt_runs_which_then_fails,
    duplicate_waits_for_the_real_result,
    every_waiting_copy_is_answered,
    completion_is_never_taken_for_a_release,
    wait_is_for_one_attempt_only,
    wait_on_a_busy_entity_ends_with_its_release,
    lapsed_lease_ends_a_wait,
    closing_the_store_answers_those_who_wait,
}

#[track_caller]
fn completed(settled: Result<Settled>) -> Record {
    match settled {
        Ok(Settled::Completed(record)) => record,
        other => panic!("expected Completed, got {other:?}"),
    }
}

#[track_caller]
fn assert_released(settled: &Result<Settled>) {
    assert!(matches!(settled, Ok(Settled::Released)), "expected Released, got {settled:?}");
}

fn duplicate_while_the_first_attempt_runs(door: Door) {
    let place = Place::new();
    let (_store, scope) = place.stripe();
    let guard = new(door.begin(&scope, "evt_1"));
    place.clock.advance(7 * SECOND);

    for running in [
        in_progress(door.begin(&scope, "evt_1")),
        in_progress(door.claim(&scope, "evt_1")),
        in_progress(door.claim_many(&scope, ["evt_1"]).map(|mut all| all.remove(0))),
    ] {
        assert_eq!(running.busy(), Busy::Id);
        assert_eq!(running.attempt(), 1);
        assert_eq!(running.token(), guard.token());
        assert_eq!(running.since(), noon());
        assert_eq!(running.retry_after(), SECOND, "without a lease the hint is one second");
    }
}

#[test]
fn retry_hint_is_what_is_left_of_the_lease_within_a_minute() {
    let place = Place::new();
    let (_store, scope) = place.stripe();
    let hint = |lease: Duration, passed: Duration| {
        let guard = new(scope.request("evt_1").lease(lease).begin());
        place.clock.advance(passed);
        let hint = in_progress(scope.begin("evt_1")).retry_after();
        guard.abort().unwrap();
        hint
    };
    assert_eq!(hint(30 * SECOND, Duration::ZERO), 30 * SECOND);
    assert_eq!(hint(30 * SECOND, 12 * SECOND), 18 * SECOND);
    assert_eq!(hint(30 * SECOND, 29_500 * Duration::from_millis(1)), SECOND, "never less");
    assert_eq!(hint(HOUR, Duration::ZERO), 60 * SECOND, "never more than a minute");
}

fn duplicate_while_the_first_attempt_runs_which_then_fails(door: Door) {
    let place = Place::new();
    let (_store, scope) = place.stripe();
    let guard = new(door.begin(&scope, "evt_1"));
    let running = in_progress(door.begin(&scope, "evt_1"));
    let settled = thread::scope(|threads| {
        let waiter = threads.spawn(|| door.wait(&running));
        drop(guard);
        waiter.join().unwrap()
    });
    assert_released(&settled);
    assert_eq!(new(door.begin(&scope, "evt_1")).attempt(), 2, "the copy does the work");
}

fn duplicate_waits_for_the_real_result(door: Door) {
    let place = Place::new();
    let (_store, scope) = place.stripe();
    for (id, refused) in [("evt_1", false), ("evt_2", true)] {
        let guard = new(door.begin(&scope, id));
        let running = in_progress(door.begin(&scope, id));
        let settled = thread::scope(|threads| {
            let waiter = threads.spawn(|| door.wait(&running));
            if refused {
                door.refuse(guard, "the reply").unwrap();
            } else {
                door.complete_with(guard, "the reply").unwrap();
            }
            waiter.join().unwrap()
        });
        let record = completed(settled);
        assert_eq!(record.id(), id.as_bytes());
        assert_eq!(record.response(), Response::Stored(b"the reply"));
        assert_eq!(record.is_refusal(), refused);
        completed(door.wait(&running));
    }
}

fn every_waiting_copy_is_answered(door: Door) {
    let place = Place::new();
    let (_store, scope) = place.stripe();
    let guard = new(door.begin(&scope, "evt_1"));
    let running: Vec<InProgress> = (0..40).map(|_| in_progress(door.begin(&scope, "evt_1"))).collect();
    thread::scope(|threads| {
        let waiters: Vec<_> = running.iter().map(|one| threads.spawn(move || door.wait(one))).collect();
        door.complete_with(guard, "the reply").unwrap();
        for waiter in waiters {
            let record = completed(waiter.join().unwrap());
            assert_eq!(record.response(), Response::Stored(b"the reply"));
        }
    });
}

/// How the attempt stands at this moment.
fn look(door: Door, running: &InProgress) -> Result<Settled> {
    match door {
        Door::Blocking => running.wait(Duration::ZERO),
        Door::Async => match poll_once(Box::pin(running.wait_async()).as_mut()) {
            Poll::Ready(answer) => answer,
            Poll::Pending => Ok(Settled::Running),
        },
    }
}

fn completion_is_never_taken_for_a_release(door: Door) {
    let place = Place::new();
    let (_store, scope) = place.stripe();
    for number in 0..300 {
        let id = format!("evt_{number}");
        let guard = new(door.begin(&scope, &id));
        let running = in_progress(door.begin(&scope, &id));
        let start = Barrier::new(2);
        let settled = thread::scope(|threads| {
            threads.spawn(|| {
                start.wait();
                door.complete(guard).unwrap();
            });
            start.wait();
            (0..10_000_000).map(|_| look(door, &running)).find(|seen| !matches!(seen, Ok(Settled::Running)))
        });
        completed(settled.expect("the attempt has ended"));
    }
}

fn wait_is_for_one_attempt_only(door: Door) {
    let place = Place::new();
    let (_store, scope) = place.stripe();
    let first = new(door.begin(&scope, "evt_1"));
    let running = in_progress(door.begin(&scope, "evt_1"));
    drop(first);
    let _second = new(door.begin(&scope, "evt_1"));
    assert_released(&door.wait(&running));
}

fn wait_on_a_busy_entity_ends_with_its_release(door: Door) {
    let place = Place::new();
    let (_store, scope) = place.stripe();
    let second = || scope.request("evt_2").order("acct_7", Timestamp::from_secs(20));
    let first = scope.request("evt_1").order("acct_7", Timestamp::from_secs(10));
    let guard = new(door.begin_request(first));
    let running = in_progress(door.begin_request(second()));
    assert_eq!((running.busy(), running.token()), (Busy::Entity, guard.token()));
    let settled = thread::scope(|threads| {
        let waiter = threads.spawn(|| door.wait(&running));
        door.complete_with(guard, "for the other event").unwrap();
        waiter.join().unwrap()
    });
    assert_released(&settled);
    new(door.claim_request(second()));
}

#[test]
fn a_wait_that_is_up_says_running() {
    let place = Place::new();
    let (_store, scope) = place.stripe();
    let guard = new(scope.begin("evt_1"));
    let running = in_progress(scope.begin("evt_1"));
    let up = running.wait(Duration::ZERO).unwrap();
    assert!(matches!(up, Settled::Running), "expected Running, got {up:?}");

    let mut waiting = Box::pin(running.wait_async());
    assert!(poll_once(waiting.as_mut()).is_pending(), "the attempt still runs");
    guard.complete().unwrap();
    completed(block_on(waiting));
    completed(running.wait(PATIENCE));
}

fn lapsed_lease_ends_a_wait(door: Door) {
    let place = Place::new();
    let (_store, scope) = place.stripe();
    let _slow = new(door.begin_request(scope.request("evt_1").lease(10 * SECOND)));
    let running = in_progress(door.begin(&scope, "evt_1"));
    place.clock.advance(11 * SECOND);
    assert_released(&door.wait(&running));
    assert_eq!(new(door.begin(&scope, "evt_1")).attempt(), 2);
}

fn closing_the_store_answers_those_who_wait(door: Door) {
    let place = Place::new();
    let (store, scope) = place.stripe();
    let _guard = new(door.begin(&scope, "evt_1"));
    let running = in_progress(door.begin(&scope, "evt_1"));
    let settled = thread::scope(|threads| {
        let waiter = threads.spawn(|| door.wait(&running));
        door.close(&store).unwrap();
        waiter.join().unwrap()
    });
    for answer in [settled, door.wait(&running)] {
        assert_error!(answer, Closed);
    }
}
