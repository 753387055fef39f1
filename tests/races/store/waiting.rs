//! Waiters, and the ends of what they wait for.

use crate::common::{HOUR, Place, complete, in_progress, new};
use crate::harness::check;
use oncedb::{Cause, Error, Outcome, Settled};
use shuttle::future::block_on;
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread::spawn;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Whoever waits without a limit is always woken; with one, the time may be up first; and a waiter that
/// goes away takes nobody's wake-up with it.
#[test]
fn a_waiter_never_misses_the_end() {
    check(800, || {
        let place = Place::new();
        let (store, scope) = place.open();
        let guard = new(scope.begin("key").unwrap());
        let waiting = in_progress(scope.begin("key").unwrap());
        let patient = spawn({
            let waiting = waiting.clone();
            move || match block_on(waiting.wait_async()).unwrap() {
                Settled::Completed(record) => assert_eq!(record.id(), b"key"),
                other => panic!("{other:?}"),
            }
        });
        let hasty = spawn({
            let waiting = waiting.clone();
            move || match waiting.wait(HOUR).unwrap() {
                Settled::Completed(_) | Settled::Running => {}
                other @ Settled::Released => panic!("{other:?}"),
            }
        });
        let gone = spawn(move || {
            let mut wait = waiting.wait_async();
            for _ in 0..thread_rng().gen_range(0..3) {
                if Pin::new(&mut wait).poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                    return;
                }
                shuttle::thread::yield_now();
            }
        });
        complete(guard).unwrap();
        for waiter in [patient, hasty, gone] {
            waiter.join().unwrap();
        }
        store.close().unwrap();
    });
}

/// A dropped guard releases those who wait, and frees the key for exactly one of those who begin.
#[test]
fn a_dropped_guard_wakes_its_waiters_and_frees_the_key_once() {
    check(600, || {
        let place = Place::new();
        let (store, scope) = place.open();
        let guard = new(scope.begin("key").unwrap());
        let others: Vec<_> = (0..2)
            .map(|_| {
                let scope = scope.clone();
                spawn(move || {
                    loop {
                        match scope.begin("key").unwrap() {
                            Outcome::New(guard) => {
                                assert_eq!(guard.attempt(), 2);
                                assert_eq!(guard.previous().unwrap().cause, Cause::Aborted);
                                complete(guard).unwrap();
                                return 1;
                            }
                            Outcome::InProgress(other) => match block_on(other.wait_async()).unwrap() {
                                Settled::Released => {}
                                Settled::Completed(_) => return 0,
                                other @ Settled::Running => panic!("{other:?}"),
                            },
                            Outcome::Duplicate(_) => return 0,
                            other => panic!("{other:?}"),
                        }
                    }
                })
            })
            .collect();
        drop(guard);
        assert_eq!(others.into_iter().map(|other| other.join().unwrap()).sum::<u32>(), 1);
        store.close().unwrap();
    });
}

/// Of a completion and a takeover after the lease has lapsed exactly one wins, and the waiter is told of
/// the same end.
#[test]
fn a_lapsed_lease_and_a_completion_have_one_winner() {
    check(800, || {
        let place = Place::new();
        let (store, scope) = place.open();
        let guard = new(scope.request("key").lease(Duration::from_secs(10)).begin().unwrap());
        let waiting = in_progress(scope.begin("key").unwrap());
        let waiter = spawn(move || block_on(waiting.wait_async()).unwrap());
        let owner = spawn(move || match complete(guard) {
            Ok(()) => true,
            Err(Error::Fenced { .. }) => false,
            Err(other) => panic!("{other:?}"),
        });
        place.clock.advance(Duration::from_secs(11));
        let taken_over = match scope.begin("key").unwrap() {
            Outcome::New(guard) => {
                assert_eq!(guard.previous().unwrap().cause, Cause::LeaseExpired);
                complete(guard).unwrap();
                true
            }
            Outcome::Duplicate(_) => false,
            other => panic!("{other:?}"),
        };
        assert_ne!(owner.join().unwrap(), taken_over, "one of them owned the key");
        match waiter.join().unwrap() {
            Settled::Completed(_) => assert!(!taken_over),
            // The lease had lapsed; it may have been completed all the same.
            Settled::Released => {}
            other @ Settled::Running => panic!("{other:?}"),
        }
        assert!(scope.contains("key").unwrap());
        store.close().unwrap();
    });
}

/// A settlement whose future was polled once is carried out, and one that was not aborts; either way
/// the waiter is told.
#[test]
fn a_dropped_settlement_aborts_or_is_carried_out() {
    check(500, || {
        let place = Place::new();
        let (store, scope) = place.open();
        let guard = new(scope.begin("key").unwrap());
        let waiting = in_progress(scope.begin("key").unwrap());
        let waiter = spawn(move || block_on(waiting.wait_async()).unwrap());
        let polls = thread_rng().gen_range(0..3);
        let mut settling = guard.complete_async();
        for _ in 0..polls {
            if let Poll::Ready(done) = Pin::new(&mut settling).poll(&mut Context::from_waker(Waker::noop())) {
                done.unwrap();
                break;
            }
        }
        drop(settling);
        let completed = matches!(waiter.join().unwrap(), Settled::Completed(_));
        assert_eq!(completed, polls > 0);
        assert_eq!(scope.begin("key").unwrap().is_duplicate(), polls > 0);
        store.close().unwrap();
    });
}
