//! `run` does an event's work once: what it returns settles the claim, and whatever keeps it from
//! returning frees the key.

use crate::common::{
    Place, SECOND, assert_error, assert_first, assert_follows, block_on, duplicate, new, poll_once,
};
use crate::doors::{Door, through_every_door};
use oncedb::{Cause, Error, Guard, Outcome, Request, Response, Scope, Settle, Timestamp};
use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

through_every_door! {
    work_is_done_once,
    what_the_work_returns_settles_the_claim,
    an_error_of_the_work_frees_the_key,
    a_panic_of_the_work_frees_the_key,
    the_work_sees_what_the_attempt_before_left,
    no_verdict_but_new_runs_the_work,
    errors_of_the_store_come_as_the_callers_own,
    work_that_outlived_its_lease_is_fenced,
}

/// A caller's own error.
#[derive(Debug)]
enum Failure {
    Store(Error),
    Work(&'static str),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

fn run<T: Settle, E: From<Error>>(
    door: Door,
    request: Request,
    work: impl FnOnce(&Guard) -> Result<T, E>,
) -> Result<Outcome<T>, E> {
    match door {
        Door::Blocking => request.run(work),
        Door::Async => block_on(request.run_async(async |guard: &Guard| work(guard))),
    }
}

fn must_not_run(_: &Guard) -> Result<(), Error> {
    panic!("the work ran although the claim is not new")
}

fn work_is_done_once(door: Door) {
    let place = Place::new();
    let (store, scope) = place.stripe();
    let mut done = 0;
    let outcome = run(door, scope.request("evt_1"), |guard| {
        assert_first(guard);
        done += 1;
        Ok::<_, Error>(b"paid")
    });
    assert_eq!(outcome.unwrap().into_new(), Some(b"paid"), "the caller gets the value itself");
    for _ in 0..3 {
        let outcome = run(door, scope.request("evt_1"), must_not_run).unwrap();
        let Outcome::Duplicate(record) = outcome else { panic!("{outcome:?}") };
        assert_eq!(record.response(), Response::Stored(b"paid"));
    }
    assert_eq!(done, 1);

    store.close().unwrap();
    let (_store, scope) = place.stripe();
    assert!(run(door, scope.request("evt_1"), must_not_run).unwrap().is_duplicate());
}

fn what_the_work_returns_settles_the_claim(door: Door) {
    let place = Place::new();
    let (_store, scope) = place.stripe();
    let settled = |id: &str, value: Box<dyn Settle>| {
        let outcome = run(door, scope.request(id), |_| Ok::<_, Error>(value));
        assert!(matches!(outcome, Ok(Outcome::New(_))), "{id}");
        scope.get(id).unwrap().expect("it is completed")
    };
    for (id, value, response, refusal) in [
        ("unit", Box::new(()) as Box<dyn Settle>, Response::None, false),
        ("none", Box::new(None::<String>), Response::None, false),
        ("empty", Box::new(""), Response::Stored(b""), false),
        ("string", Box::new(String::from("ok")), Response::Stored(b"ok"), false),
        ("bytes", Box::new(vec![0, 255]), Response::Stored(&[0, 255]), false),
        ("some", Box::new(Some([7])), Response::Stored(&[7]), false),
        ("ok", Box::new(Ok::<_, ()>("yes")), Response::Stored(b"yes"), false),
        ("err", Box::new(Err::<(), _>("no")), Response::Stored(b"no"), true),
        ("some err", Box::new(Some(Err::<(), _>("no"))), Response::Stored(b"no"), true),
    ] {
        let record = settled(id, value);
        assert_eq!(record.response(), response, "{id}");
        assert_eq!(record.is_refusal(), refusal, "{id}");
    }
}

fn an_error_of_the_work_frees_the_key(door: Door) {
    let place = Place::new();
    let (_store, scope) = place.stripe();
    let failed = run(door, scope.request("evt_1"), |_| Err::<(), _>(Failure::Work("no route")));
    assert!(matches!(failed, Err(Failure::Work("no route"))), "{failed:?}");
    let retried = run(door, scope.request("evt_1"), |guard| {
        assert_follows(guard, Cause::Aborted, None);
        Ok::<_, Error>(())
    });
    assert!(matches!(retried, Ok(Outcome::New(()))));
}

fn a_panic_of_the_work_frees_the_key(door: Door) {
    let place = Place::new();
    let (_store, scope) = place.stripe();
    let fails = || run(door, scope.request("evt_1"), |_| -> Result<(), Error> { resume_unwind(Box::new(7)) });
    let panic = catch_unwind(AssertUnwindSafe(fails)).expect_err("the panic goes on");
    assert_eq!(panic.downcast_ref(), Some(&7));
    assert_follows(&new(scope.begin("evt_1")), Cause::Aborted, None);
}

fn the_work_sees_what_the_attempt_before_left(door: Door) {
    let place = Place::new();
    let (store, scope) = place.stripe();
    let guard = new(scope.begin("evt_1"));
    guard.note("charge 17").unwrap();
    store.close().unwrap();
    drop(guard);
    let (_store, scope) = place.stripe();
    let outcome = run(door, scope.request("evt_1"), |guard| {
        assert_follows(guard, Cause::Orphaned, Some(b"charge 17"));
        Ok::<_, Error>(())
    });
    assert!(matches!(outcome, Ok(Outcome::New(()))));
}

fn no_verdict_but_new_runs_the_work(door: Door) {
    let place = Place::new();
    let (_store, scope) = place.stripe();
    let ordered = |id: &str, at| scope.request(id).fingerprint(id).order("acct_7", Timestamp::from_secs(at));
    let outcome = run(door, ordered("evt_2", 200), |_| {
        assert!(run(door, ordered("evt_2", 200), must_not_run).unwrap().is_in_progress());
        Ok::<_, Error>(())
    });
    assert!(matches!(outcome, Ok(Outcome::New(()))));
    assert!(run(door, ordered("evt_2", 200), must_not_run).unwrap().is_duplicate());
    assert!(run(door, scope.request("evt_2").fingerprint("other"), must_not_run).unwrap().is_mismatch());
    assert!(run(door, ordered("evt_1", 100), must_not_run).unwrap().is_stale());
}

fn errors_of_the_store_come_as_the_callers_own(door: Door) {
    let place = Place::new();
    let (store, scope) = place.stripe();
    let nothing = |_: &Guard| Ok::<_, Failure>(());
    let error = run(door, scope.request(""), nothing).unwrap_err();
    assert!(matches!(error, Failure::Store(Error::EmptyId { .. })), "{error:?}");

    let closed_meanwhile = run(door, scope.request("evt_1"), |_| {
        store.close().unwrap();
        Ok::<_, Failure>(())
    });
    assert!(matches!(closed_meanwhile, Err(Failure::Store(Error::Closed { .. }))), "{closed_meanwhile:?}");
    let closed = run(door, scope.request("evt_2"), nothing);
    assert!(matches!(closed, Err(Failure::Store(Error::Closed { .. }))), "{closed:?}");
}

fn work_that_outlived_its_lease_is_fenced(door: Door) {
    let place = Place::new();
    let (_store, scope) = place.stripe();
    let late = run(door, scope.request("evt_1").lease(10 * SECOND), |_| {
        place.clock.advance(11 * SECOND);
        new(scope.begin("evt_1")).complete_with("the successor's").unwrap();
        Ok::<_, Error>("late")
    });
    assert_error!(late, Fenced);
    assert_eq!(duplicate(scope.begin("evt_1")).response(), Response::Stored(b"the successor's"));
}

#[test]
fn dropped_while_the_work_runs_it_frees_the_key() {
    let place = Place::new();
    let (_store, scope) = place.stripe();
    let mut running = Box::pin(scope.run_async("evt_1", async |_| {
        pending::<()>().await;
        Ok::<_, Error>(())
    }));
    assert!(poll_once(running.as_mut()).is_pending());
    assert!(scope.begin("evt_1").unwrap().is_in_progress());
    drop(running);
    assert_follows(&new(scope.begin("evt_1")), Cause::Aborted, None);
}

#[test]
fn dropped_after_the_work_it_completes_all_the_same() {
    let place = Place::new();
    let (_store, scope) = place.stripe();
    for number in 0..10 {
        let id = format!("evt_{number}");
        let mut running = Box::pin(scope.run_async(&id, async |_| Ok::<_, Error>("paid")));
        drop(poll_once(running.as_mut()));
        drop(running);
        assert_eq!(duplicate(scope.begin(&id)).response(), Response::Stored(b"paid"));
    }
}

#[test]
fn never_polled_it_does_nothing() {
    let place = Place::new();
    let (_store, scope) = place.stripe();
    drop(scope.run_async("evt_1", async |_| Ok::<_, Error>(())));
    assert_first(&new(scope.begin("evt_1")));
}

/// Compiles: a server's handler is spawned with all that it owns, and with what it borrows inside.
#[test]
fn its_future_can_be_spawned() {
    fn spawned<F: Future + Send + 'static>(handler: F) -> F::Output {
        block_on(handler)
    }
    async fn handle(scope: Scope, id: String, mut lines: Vec<String>) -> Result<usize, Error> {
        let outcome = scope
            .run_async(&id, async |guard| {
                guard.note_async(&lines[0]).await?;
                lines.push(id.clone());
                Ok::<_, Error>(lines.concat())
            })
            .await?;
        Ok(outcome.into_new().map_or(0, |reply| reply.len()))
    }
    let place = Place::new();
    let (_store, scope) = place.stripe();
    assert_eq!(spawned(handle(scope.clone(), "evt_1".into(), vec!["a".into()])).unwrap(), 6);
    assert_eq!(spawned(handle(scope, "evt_1".into(), vec!["a".into()])).unwrap(), 0, "a duplicate");
}
