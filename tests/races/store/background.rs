//! What goes on behind the callers' backs.

use crate::common::{HOUR, Place, claim, complete, new};
use crate::harness::check;
use oncedb::{Cause, Store};
use shuttle::thread::spawn;

/// A key is found at every moment while it goes from memory to runs, runs are merged and others expire.
#[test]
fn a_key_is_never_absent_while_it_moves() {
    check(250, || {
        let place = Place::new();
        let (store, scope) = place.open();
        let short = scope.request("old").window(HOUR);
        assert!(short.claim().unwrap().is_new());
        assert!(scope.claim("kept").unwrap().is_new());
        store.maintain().unwrap();
        assert!(scope.claim("later").unwrap().is_new());
        let maintaining = |store: &Store| {
            let store = store.clone();
            spawn(move || {
                store.maintain().unwrap();
            })
        };
        let rounds = [maintaining(&store), maintaining(&store)];
        let reader = spawn({
            let scope = scope.clone();
            move || {
                for id in ["kept", "later", "kept"] {
                    assert!(scope.contains(id).unwrap(), "{id} is absent");
                    assert!(claim(&scope, id).unwrap().is_duplicate(), "{id} is new again");
                }
            }
        });
        place.clock.advance(2 * HOUR);
        assert!(claim(&scope, "fresh").unwrap().is_new());
        assert!(scope.contains("fresh").unwrap());
        assert!(scope.claim("old").unwrap().is_new(), "its window is over, whatever was collected");
        for thread in rounds {
            thread.join().unwrap();
        }
        reader.join().unwrap();
        store.maintain().unwrap();
        for id in ["kept", "later", "fresh", "old"] {
            assert!(scope.contains(id).unwrap());
        }
        store.close().unwrap();
    });
}

/// Claims go on while segments are left behind and recycled; a claim in progress that began in the first
/// one is found as an orphan after a power cut, its note with it.
#[test]
fn recycling_segments_loses_no_claim_in_progress() {
    check(150, || {
        let place = Place::new();
        let (store, scope) = place.open();
        let held = new(scope.begin("held").unwrap());
        held.note("about to").unwrap();
        let claims: Vec<_> = (0..2_u8)
            .map(|thread| {
                let scope = scope.clone();
                spawn(move || {
                    for number in 0..3 {
                        let response = [number; 64];
                        let ids: Vec<_> = (0..7).map(|of| [thread, number, of]).collect();
                        let guards: Vec<_> = ids.iter().map(|id| new(scope.begin(id).unwrap())).collect();
                        drop(guards);
                        for id in ids {
                            let _ = scope.request(id).claim_with(response).unwrap();
                        }
                    }
                })
            })
            .collect();
        let flushing = spawn({
            let store = store.clone();
            move || {
                store.maintain().unwrap();
                store.maintain().unwrap();
            }
        });
        for claims in claims {
            claims.join().unwrap();
        }
        flushing.join().unwrap();
        store.maintain().unwrap();
        place.disk.crash();
        drop(held);
        let _ = store.close();
        drop((store, scope));
        let (store, scope) = place.open();
        for thread in 0..2_u8 {
            assert!(scope.contains([thread, 2, 6]).unwrap());
        }
        let again = new(scope.begin("held").unwrap());
        let previous = again.previous().expect("an attempt before");
        assert_eq!((previous.cause, previous.note.as_deref()), (Cause::Orphaned, Some(&b"about to"[..])));
        complete(again).unwrap();
        store.close().unwrap();
    });
}

/// Claims that find the memory full wait for a flush and are granted then, blocked ones and futures.
#[test]
fn claims_that_find_no_memory_are_granted_after_a_flush() {
    check(150, || {
        const RESPONSE: usize = 200_000;
        let place = Place::new();
        let options = place.options().max_response_len(RESPONSE).segment_size(500_000);
        let store = options.open("store").unwrap();
        let scope = store.scope("s").unwrap();
        let claims: Vec<_> = (0..2_u8)
            .map(|thread| {
                let scope = scope.clone();
                spawn(move || {
                    for number in 0..3 {
                        let request = scope.request([thread, number]);
                        let response = vec![thread; RESPONSE];
                        let outcome = if thread == 0 {
                            request.claim_with(response)
                        } else {
                            shuttle::future::block_on(request.claim_with_async(response))
                        };
                        assert!(outcome.unwrap().is_new());
                    }
                })
            })
            .collect();
        for claims in claims {
            claims.join().unwrap();
        }
        assert!(scope.contains([1, 2]).unwrap());
        store.close().unwrap();
    });
}
