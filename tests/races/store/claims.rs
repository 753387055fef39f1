//! Many claims at once.

use crate::common::{Place, claim, complete, new};
use crate::harness::check;
use oncedb::{Outcome, Timestamp};
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread::spawn;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};

/// Of many who claim one key at once exactly one is told that it is new.
#[test]
fn one_claim_of_many_is_new() {
    check(600, || {
        let place = Place::new();
        let (store, scope) = place.open();
        let claims: Vec<_> = (0..3)
            .map(|_| {
                let scope = scope.clone();
                spawn(move || claim(&scope, "key").expect("an open store"))
            })
            .collect();
        let outcomes: Vec<_> = claims.into_iter().map(|claim| claim.join().unwrap()).collect();
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_new()).count(), 1, "{outcomes:?}");
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_duplicate()).count(), 2, "{outcomes:?}");
        store.close().unwrap();
    });
}

/// Nobody is told `New` or `Duplicate` before the claim is durable: whoever is told cuts the power at
/// once, and the key is there afterwards.
#[test]
fn nobody_is_told_of_a_claim_that_a_power_cut_takes_back() {
    check(1_200, || {
        let place = Place::new();
        let (store, scope) = place.open();
        let first_told = thread_rng().gen_range(1..4);
        let told = Arc::new(AtomicU32::new(0));
        let claims: Vec<_> = (0..3)
            .map(|_| {
                let (scope, disk, told) = (scope.clone(), place.disk.clone(), Arc::clone(&told));
                spawn(move || {
                    let answered = claim(&scope, "key").is_ok();
                    if answered && told.fetch_add(1, Ordering::SeqCst) + 1 == first_told {
                        disk.crash();
                    }
                    answered
                })
            })
            .collect();
        let answered = claims.into_iter().fold(false, |any, claim| claim.join().unwrap() || any);
        assert!(answered, "nothing fails before the power cut");
        let _ = store.close();
        drop((store, scope));
        let (store, scope) = place.open();
        assert!(scope.contains("key").unwrap(), "somebody was told of it");
        store.close().unwrap();
    });
}

/// At most one event of an entity is worked on, and the mark ends at the last that was completed.
#[test]
fn two_events_of_one_entity_are_worked_on_one_after_the_other() {
    check(500, || {
        let place = Place::new();
        let (store, scope) = place.open();
        let busy = Arc::new(AtomicU32::new(0));
        let workers: Vec<_> = (1..=3)
            .map(|number: u64| {
                let (scope, busy) = (scope.clone(), Arc::clone(&busy));
                spawn(move || {
                    let request =
                        || scope.request(number.to_le_bytes()).order("entity", Timestamp::sequence(number));
                    loop {
                        match request().begin().unwrap() {
                            Outcome::New(guard) => {
                                assert_eq!(busy.fetch_add(1, Ordering::SeqCst), 0, "two events at once");
                                shuttle::thread::yield_now();
                                busy.store(0, Ordering::SeqCst);
                                complete(guard).unwrap();
                                return number;
                            }
                            Outcome::InProgress(other) => {
                                let _ = shuttle::future::block_on(other.wait_async()).unwrap();
                            }
                            Outcome::Stale(mark) => {
                                assert!(mark.timestamp() > Timestamp::sequence(number));
                                return 0;
                            }
                            other => panic!("{other:?}"),
                        }
                    }
                })
            })
            .collect();
        let last = workers.into_iter().map(|worker| worker.join().unwrap()).max().unwrap();
        let mark = scope.last_applied("entity").unwrap().expect("a mark");
        assert_eq!((last, mark.timestamp()), (3, Timestamp::sequence(3)));
        store.close().unwrap();
    });
}

/// An asynchronous claim that is dropped is taken back, one that is ready stays: never both, whatever
/// happens to the key meanwhile.
#[test]
fn a_dropped_claim_is_taken_back_or_was_delivered() {
    check(800, || {
        let place = Place::new();
        let (store, scope) = place.open();
        let dropped = spawn({
            let scope = scope.clone();
            move || {
                let mut claim = scope.claim_async("key");
                for _ in 0..thread_rng().gen_range(0..4) {
                    match Pin::new(&mut claim).poll(&mut Context::from_waker(Waker::noop())) {
                        Poll::Ready(outcome) => return outcome.unwrap().is_new(),
                        Poll::Pending => shuttle::thread::yield_now(),
                    }
                }
                false
            }
        });
        let other = spawn({
            let scope = scope.clone();
            move || scope.claim("key").unwrap().is_new()
        });
        let new = [dropped.join().unwrap(), other.join().unwrap()];
        assert!(new != [true, true], "both were told that it is theirs");
        let left = scope.claim("key").unwrap();
        assert_eq!(left.is_new(), new == [false, false], "{new:?}, then {left:?}");
        store.close().unwrap();
    });
}

/// A batch decides in order, beside single claims of the same keys.
#[test]
fn batches_and_single_claims_share_keys() {
    check(400, || {
        let place = Place::new();
        let (store, scope) = place.open();
        let batches: Vec<_> = [["a", "b"], ["b", "a"]]
            .into_iter()
            .map(|ids| {
                let scope = scope.clone();
                spawn(move || {
                    scope.claim_many(ids).unwrap().iter().filter(|outcome| outcome.is_new()).count()
                })
            })
            .collect();
        let single = usize::from(scope.claim("a").unwrap().is_new());
        let all: usize = batches.into_iter().map(|batch| batch.join().unwrap()).sum();
        assert_eq!(all + single, 2, "each key is new once");
        new(scope.begin("c").unwrap()).complete().unwrap();
        store.close().unwrap();
    });
}
