//! Collection only removes what every reader already calls expired, whenever it runs.

use crate::common::{HOUR, Place, SECOND, assert_follows, in_progress, new};
use crate::doors::{Door, through_every_door};
use oncedb::Cause;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

through_every_door! {
    collection_against_claims,
    collection_against_a_claim_in_progress,
}

fn collection_against_claims(door: Door) {
    let place = Place::new();
    let (store, scope) = place.stripe_with(place.options().window(60 * SECOND));
    for round in 0..25 {
        let claiming = AtomicUsize::new(4);
        let news: Vec<usize> = thread::scope(|threads| {
            threads.spawn(|| {
                for _ in 0..10_000 {
                    store.maintain().unwrap();
                    if claiming.load(Ordering::Relaxed) == 0 {
                        break;
                    }
                }
            });
            let claim_all = || {
                let ids = (0..30).map(|number| format!("evt_{number}"));
                let news = ids.filter(|id| door.claim(&scope, id).unwrap().is_new()).count();
                claiming.fetch_sub(1, Ordering::Relaxed);
                news
            };
            let workers: Vec<_> = (0..4).map(|_| threads.spawn(claim_all)).collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).collect()
        });
        assert_eq!(news.iter().sum::<usize>(), 30, "round {round}: each key is new to one");
        place.clock.advance(60 * SECOND);
    }
}

fn collection_against_a_claim_in_progress(door: Door) {
    let place = Place::new();
    let (store, scope) = place.stripe_with(place.options().window(HOUR).memory_limit(1 << 20));
    let guard = new(door.begin(&scope, "running"));
    door.note(&guard, "half way").unwrap();
    for hour in 0..30 {
        let ids: Vec<_> = (0..200).map(|number| format!("evt_{hour}_{number}")).collect();
        door.claim_many(&scope, &ids).unwrap();
        place.clock.advance(HOUR);
        store.maintain().unwrap();
        let running = in_progress(door.begin(&scope, "running"));
        assert_eq!(running.token(), guard.token(), "what runs is never collected");
    }
    door.close(&store).unwrap();

    let (_store, scope) = place.stripe();
    let successor = new(door.begin(&scope, "running"));
    assert_follows(&successor, Cause::Orphaned, Some(b"half way"));
}
