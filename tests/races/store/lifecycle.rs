//! Closing, reopening and letting go.

use crate::common::{HOUR, Place, claim, complete, in_progress, new};
use crate::harness::check;
use oncedb::simulation::{Call, Fault, FaultKind};
use oncedb::{Error, Outcome, Scope, Settled, Store, Timestamp};
use shuttle::future::block_on;
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread::{spawn, yield_now};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

/// Opens what others are about to let go of.
fn open_when_free(place: &Place) -> (Store, Scope) {
    loop {
        match place.options().open("store") {
            Ok(store) => {
                let scope = store.scope("s").unwrap();
                return (store, scope);
            }
            Err(Error::Locked { .. }) => yield_now(),
            Err(other) => panic!("{other:?}"),
        }
    }
}

/// Closing answers everybody who waits, keeps what was acknowledged and refuses everything later.
#[test]
fn close_answers_everybody() {
    check(500, || {
        let place = Place::new();
        let (store, scope) = place.open();
        let guard = new(scope.begin("held").unwrap());
        let waiting = in_progress(scope.begin("held").unwrap());
        let ended = |settled: oncedb::Result<Settled>| match settled {
            Ok(Settled::Released | Settled::Running) | Err(Error::Closed { .. }) => {}
            other => panic!("{other:?}"),
        };
        let waiters = [
            spawn({
                let waiting = waiting.clone();
                move || ended(block_on(waiting.wait_async()))
            }),
            spawn(move || ended(waiting.wait(HOUR))),
        ];
        let claims: Vec<_> = ["a", "b"]
            .into_iter()
            .map(|id| {
                let scope = scope.clone();
                spawn(move || match claim(&scope, id) {
                    Ok(outcome) => {
                        assert!(outcome.is_new());
                        Some(id)
                    }
                    Err(Error::Closed { .. }) => None,
                    Err(other) => panic!("{other:?}"),
                })
            })
            .collect();
        store.close().unwrap();
        assert!(matches!(scope.claim("c"), Err(Error::Closed { .. })));
        assert!(matches!(guard.complete(), Err(Error::Closed { .. })));
        for waiter in waiters {
            waiter.join().unwrap();
        }
        let acknowledged: Vec<_> = claims.into_iter().filter_map(|claim| claim.join().unwrap()).collect();
        let (store, scope) = open_when_free(&place);
        for id in acknowledged {
            assert!(scope.contains(id).unwrap(), "{id} was acknowledged");
        }
        assert!(scope.begin("held").unwrap().into_new().is_some_and(|guard| guard.attempt() == 2));
        store.close().unwrap();
    });
}

/// Closing answers those who wait for an entity that a claim holds which nobody has been told of yet.
#[test]
fn close_answers_those_who_wait_for_an_undelivered_claim() {
    check(300, || {
        let place = Place::new();
        let (store, scope) = place.open();
        let mut claim = scope.request("first").order("entity", Timestamp::sequence(1)).claim_async();
        if Pin::new(&mut claim).poll(&mut Context::from_waker(Waker::noop())).is_ready() {
            return store.close().unwrap();
        }
        let second = scope.request("second").order("entity", Timestamp::sequence(2)).begin().unwrap();
        let waiting = in_progress(second);
        let waiter = spawn(move || block_on(waiting.wait_async()));
        store.close().unwrap();
        match waiter.join().unwrap() {
            Ok(Settled::Released) | Err(Error::Closed { .. }) => {}
            other => panic!("{other:?}"),
        }
        drop(claim);
    });
}

/// A store whose sync failed is reopened by whoever is told so, beside claims: each claim ends with an
/// answer that stays true.
#[test]
fn claims_go_on_after_a_reopen() {
    check(400, || {
        let place = Place::new();
        let (store, scope) = place.open();
        place.disk.inject(Fault::new(FaultKind::Io).on(Call::Sync).after(thread_rng().gen_range(0..3)));
        let claims: Vec<_> = ["a", "b", "c"]
            .into_iter()
            .map(|id| {
                let (store, scope) = (store.clone(), scope.clone());
                spawn(move || {
                    loop {
                        match claim(&scope, id) {
                            Ok(outcome) => return assert!(outcome.is_new() || outcome.is_duplicate()),
                            Err(error) if error.needs_reopen() => drop(store.reopen()),
                            Err(other) => panic!("{other:?}"),
                        }
                    }
                })
            })
            .collect();
        for claim in claims {
            claim.join().unwrap();
        }
        place.disk.heal();
        if scope.claim("last").is_err() {
            store.reopen().unwrap();
        }
        for id in ["a", "b", "c"] {
            assert!(scope.contains(id).unwrap(), "{id} was acknowledged");
        }
        store.close().unwrap();
    });
}

/// Guards and waiters from before a reopen are told so, and their keys are free.
#[test]
fn a_reopen_fences_guards_and_releases_waiters() {
    check(400, || {
        let place = Place::new();
        let (store, scope) = place.open();
        let guard = new(scope.begin("key").unwrap());
        let waiting = in_progress(scope.begin("key").unwrap());
        let waiter = spawn(move || block_on(waiting.wait_async()));
        let owner = spawn(move || complete(guard));
        store.reopen().unwrap();
        let completed = match owner.join().unwrap() {
            Ok(()) => true,
            Err(Error::Fenced { .. } | Error::OutcomeUnknown { .. } | Error::Poisoned { .. }) => false,
            Err(other) => panic!("{other:?}"),
        };
        match waiter.join().unwrap() {
            Ok(Settled::Completed(_)) => assert!(scope.contains("key").unwrap()),
            Ok(Settled::Released) => {}
            other => panic!("{other:?}"),
        }
        match scope.begin("key").unwrap() {
            Outcome::New(guard) => {
                assert!(!completed, "it was told that it is done");
                guard.complete().unwrap();
            }
            Outcome::Duplicate(_) => {}
            other => panic!("{other:?}"),
        }
        store.close().unwrap();
    });
}

/// Whichever of several threads lets go last closes the store, once, and what it acknowledged stays.
#[test]
fn the_last_of_many_handles_closes_the_store() {
    check(400, || {
        let place = Place::new();
        let (store, scope) = place.open();
        let guard = new(scope.begin("held").unwrap());
        let threads = [
            spawn(move || drop(guard)),
            spawn(move || assert!(claim(&scope, "key").unwrap().is_new())),
            spawn(move || drop(store)),
        ];
        for thread in threads {
            thread.join().unwrap();
        }
        let (store, scope) = open_when_free(&place);
        assert!(scope.contains("key").unwrap());
        store.close().unwrap();
    });
}

/// Runs foreign code when it is woken.
struct Then<F>(Mutex<Option<F>>);

impl<F: FnOnce() + Send + 'static> Wake for Then<F> {
    fn wake(self: Arc<Self>) {
        let then = self.0.lock().unwrap().take();
        if let Some(then) = then {
            then();
        }
    }
}

fn waker(then: impl FnOnce() + Send + 'static) -> Waker {
    Waker::from(Arc::new(Then(Mutex::new(Some(then)))))
}

/// A waker that drops the last handle closes the store, on whatever thread it runs.
#[test]
fn a_waker_may_drop_the_last_handle() {
    check(400, || {
        let place = Place::new();
        let (store, scope) = place.open();
        let guard = new(scope.begin("key").unwrap());
        let mut waiting = in_progress(scope.begin("key").unwrap()).wait_async();
        let last = store.clone();
        let waker = waker(move || drop(last));
        assert!(Pin::new(&mut waiting).poll(&mut Context::from_waker(&waker)).is_pending());
        drop((waker, store, scope));
        let owner = spawn(move || complete(guard).unwrap());
        owner.join().unwrap();
        // The wait may still be for the disk, with a waker that has done its work.
        let _ = Pin::new(&mut waiting).poll(&mut Context::from_waker(Waker::noop()));
        drop(waiting);
        let (store, scope) = open_when_free(&place);
        assert!(scope.contains("key").unwrap());
        store.close().unwrap();
    });
}

/// A waker that closes the store from within a close, a reopen or the store's own threads blocks
/// nobody, and the store is closed in the end.
#[test]
fn a_waker_may_close_the_store() {
    check(600, || {
        let place = Place::new();
        let (store, scope) = place.open();
        let guard = new(scope.begin("key").unwrap());
        let waiting = in_progress(scope.begin("key").unwrap());
        let (woken, closing) = (Arc::new(AtomicBool::new(false)), store.clone());
        let waker = waker({
            let woken = Arc::clone(&woken);
            move || {
                woken.store(true, Ordering::SeqCst);
                closing.close().unwrap();
            }
        });
        let mut wait = waiting.wait_async();
        assert!(Pin::new(&mut wait).poll(&mut Context::from_waker(&waker)).is_pending());
        let mut syncing = scope.claim_async("other");
        let polled = Pin::new(&mut syncing).poll(&mut Context::from_waker(&waker));
        assert!(!matches!(polled, Poll::Ready(Err(_))), "the store is open");
        let ending = spawn({
            let store = store.clone();
            move || {
                if thread_rng().r#gen() {
                    store.close().unwrap();
                } else {
                    match store.reopen() {
                        Ok(()) | Err(Error::Closed { .. }) => {}
                        Err(other) => panic!("{other:?}"),
                    }
                }
            }
        });
        let owner = spawn(move || drop(guard));
        ending.join().unwrap();
        owner.join().unwrap();
        store.close().unwrap();
        assert!(woken.load(Ordering::SeqCst));
        assert!(matches!(scope.claim("later"), Err(Error::Closed { .. })));
        drop((wait, syncing));
        let (store, _scope) = open_when_free(&place);
        store.close().unwrap();
    });
}
