//! Whatever ends a handler without an answer (a cancelled future, a panic, an early return) frees
//! its key, and a future that was dropped did either all of its work or none.

use crate::common::{Place, assert_first, assert_follows, block_on, duplicate, new, poll_once};
use oncedb::{Cause, Guard, Outcome, Pending, Response, Scope};
use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::Poll;

/// Polls a future once and drops it; `Some` if it was ready by then.
fn polled_and_dropped<T>(future: Pending<T>) -> Option<oncedb::Result<T>> {
    match poll_once(Box::pin(future).as_mut()) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}

#[test]
fn a_panic_frees_the_key() {
    let place = Place::new();
    let (_store, scope) = place.stripe();
    let handler = || {
        let _guard = new(scope.begin("evt_1"));
        resume_unwind(Box::new("the handler fails"));
    };
    catch_unwind(AssertUnwindSafe(handler)).expect_err("the handler panics");
    assert_follows(&new(scope.begin("evt_1")), Cause::Aborted, None);
}

#[test]
fn an_early_return_frees_the_key() {
    fn handle(guard: Guard, amount: &str) -> Result<u32, std::num::ParseIntError> {
        let amount = amount.parse()?;
        guard.complete_with("paid").unwrap();
        Ok(amount)
    }
    let place = Place::new();
    let (_store, scope) = place.stripe();
    handle(new(scope.begin("evt_1")), "a lot").unwrap_err();
    let guard = new(scope.begin("evt_1"));
    assert_follows(&guard, Cause::Aborted, None);
    handle(guard, "12").unwrap();
    duplicate(scope.claim("evt_1"));
}

#[test]
fn a_cancelled_future_frees_the_key() {
    let place = Place::new();
    let (_store, scope) = place.stripe();
    let guard = new(block_on(scope.begin_async("evt_1")));
    let mut handler = Box::pin(async move {
        pending::<()>().await;
        guard.complete_async().await
    });
    assert!(poll_once(handler.as_mut()).is_pending());
    drop(handler);
    assert_follows(&new(scope.begin("evt_1")), Cause::Aborted, None);
}

#[test]
fn a_future_that_is_never_polled_does_nothing() {
    let place = Place::new();
    let (store, scope) = place.stripe();
    drop(scope.claim_async("evt_1"));
    drop(scope.claim_many_async(["evt_1"]));
    drop(scope.begin_async("evt_1"));
    drop(scope.request("evt_1").begin_async());
    drop(scope.request("evt_1").claim_with_async("reply"));
    drop(store.claim_requests_async([scope.request("evt_1")]));
    drop(store.begin_requests_async([scope.request("evt_1")]));
    drop(scope.advance_async("acct_7", oncedb::Timestamp::from_secs(1)));
    drop(store.close_async());
    assert_first(&new(scope.begin("evt_1")));
    assert!(scope.last_applied("acct_7").unwrap().is_none(), "no mark was moved");

    new(scope.claim("evt_2"));
    drop(scope.forget_async("evt_2"));
    duplicate(scope.claim("evt_2"));
}

#[test]
fn a_begin_that_is_dropped_after_a_poll_frees_the_key() {
    let place = Place::new();
    let (store, scope) = place.stripe();
    for attempt in 1..20 {
        drop(polled_and_dropped(scope.begin_async("evt_1")));
        drop(polled_and_dropped(store.begin_requests_async([scope.request("evt_2")])));
        for id in ["evt_1", "evt_2"] {
            let guard = new(scope.begin(id));
            assert!(guard.attempt() >= attempt, "attempts are never counted backwards");
            drop(guard);
        }
    }
}

#[test]
fn a_claim_that_is_dropped_before_it_is_ready_is_taken_back() {
    let place = Place::new();
    let (store, scope) = place.stripe();
    for number in 0..20 {
        let [one, many, batch] = ["one", "many", "batch"].map(|kind| format!("evt_{number}_{kind}"));
        let ready = polled_and_dropped(scope.claim_async(&one)).is_some();
        assert_taken_back_unless(ready, &scope, &one);
        let ready = polled_and_dropped(scope.claim_many_async([&many])).is_some();
        assert_taken_back_unless(ready, &scope, &many);
        let requests = [scope.request(&batch)];
        let ready = polled_and_dropped(store.claim_requests_async(requests)).is_some();
        assert_taken_back_unless(ready, &scope, &batch);
    }
}

#[track_caller]
fn assert_taken_back_unless(ready: bool, scope: &Scope, id: &str) {
    match scope.begin(id).unwrap() {
        Outcome::New(guard) => {
            assert!(!ready, "an answered claim stays");
            assert_eq!(guard.attempt(), 2, "the claim that was taken back counts");
            assert_follows(&guard, Cause::Aborted, None);
        }
        Outcome::Duplicate(_) => assert!(ready, "a claim that nobody was told of is taken back"),
        other @ (Outcome::InProgress(_) | Outcome::Mismatch(_) | Outcome::Stale(_)) => {
            panic!("a claim that was dropped is {other:?}")
        }
    }
}

#[test]
fn a_completion_that_is_never_polled_aborts() {
    let place = Place::new();
    let (_store, scope) = place.stripe();
    let settle: [fn(Guard) -> Pending<()>; 4] = [
        Guard::complete_async,
        |guard| guard.complete_with_async("reply"),
        |guard| guard.refuse_async("reply"),
        Guard::abort_async,
    ];
    for settle in settle {
        drop(settle(new(scope.begin("evt_1"))));
        let guard = new(scope.begin("evt_1"));
        assert_follows(&guard, Cause::Aborted, None);
    }
}

#[test]
fn a_completion_that_was_polled_is_carried_out() {
    let place = Place::new();
    let (store, scope) = place.stripe();
    for number in 0..10 {
        let id = format!("evt_{number}");
        let guard = new(scope.begin(&id));
        drop(polled_and_dropped(guard.complete_with_async("reply")));
        let record = duplicate(scope.begin(&id));
        assert_eq!(record.response(), Response::Stored(b"reply"));

        let id = format!("refused_{number}");
        drop(polled_and_dropped(new(scope.begin(&id)).refuse_async("sold out")));
        assert!(duplicate(scope.begin(&id)).is_refusal());
    }
    store.close().unwrap();

    let (_store, scope) = place.stripe();
    for number in 0..10 {
        let record = duplicate(scope.begin(format!("evt_{number}")));
        assert_eq!(record.response(), Response::Stored(b"reply"), "also after reopening");
    }
}

#[test]
fn a_dropped_wait_leaves_the_attempt_alone() {
    let place = Place::new();
    let (_store, scope) = place.stripe();
    let guard = new(scope.begin("evt_1"));
    for _ in 0..100 {
        let running = crate::common::in_progress(scope.begin("evt_1"));
        let answer = polled_and_dropped(running.wait_async());
        assert!(answer.is_none(), "the attempt still runs");
    }
    guard.complete().unwrap();
    duplicate(scope.claim("evt_1"));
}
