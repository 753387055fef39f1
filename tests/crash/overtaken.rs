//! An attempt is an orphan if it was in progress when the power went. One whose lease had lapsed and
//! whose entity another event took was over before that: a flush says so, and the crash keeps it.

use crate::common::{SECOND, assert_follows, new};
use oncedb::simulation::MemoryDisk;
use oncedb::{Cause, Guard, ManualClock, Options, Scope, Store, Timestamp};

struct Place {
    disk: MemoryDisk,
    clock: ManualClock,
}

impl Place {
    fn new(seed: u64) -> Self {
        Self { disk: MemoryDisk::new(seed), clock: ManualClock::new(crate::common::noon()) }
    }

    fn open(&self) -> (Store, Scope) {
        let options: Options = Store::options().memory_limit(1 << 20).threads(false).segment_size(8 << 10);
        let store = options.clock(self.clock.clone()).disk(&self.disk).open("store").unwrap();
        let scope = store.scope("stripe").unwrap();
        (store, scope)
    }
}

/// Begins `id`, with a lease of a second, about the one entity there is.
fn begin(scope: &Scope, id: &str, number: u64) -> Guard {
    new(scope.request(id).order("acct", Timestamp::sequence(number)).lease(SECOND).begin())
}

#[test]
fn an_attempt_that_was_overtaken_by_another_event_is_over_if_a_flush_saw_it_so() {
    // Without the flush nothing on the disk tells it from one that was in progress: an orphan.
    for (maintained, cause) in [(true, Cause::LeaseExpired), (false, Cause::Orphaned)] {
        let place = Place::new(1);
        let (store, scope) = place.open();
        let old = begin(&scope, "old", 1);
        old.note("half way").unwrap();
        place.clock.advance(SECOND);
        let next = begin(&scope, "next", 2);
        if maintained {
            store.maintain().unwrap();
        }
        store.sync().unwrap();
        place.disk.crash();
        drop((old, next, scope, store));

        let (_store, scope) = place.open();
        let old = new(scope.begin("old"));
        assert_follows(&old, cause, Some(b"half way"));
        // Its successor was still at it, whatever was flushed.
        let next = new(scope.begin("next"));
        assert_follows(&next, Cause::Orphaned, None);
        assert_eq!((old.attempt(), next.attempt()), (2, 2));
    }
}

#[test]
fn an_attempt_whose_lease_lapsed_is_an_orphan_unless_somebody_took_over() {
    // A lapsed lease alone ends nothing: its owner might still have completed it.
    for maintained in [false, true] {
        for overtaken in [false, true] {
            let place = Place::new(2);
            let (store, scope) = place.open();
            let first = begin(&scope, "evt", 1);
            first.note("half way").unwrap();
            place.clock.advance(SECOND);
            let second = overtaken.then(|| begin(&scope, "evt", 1));
            if maintained {
                store.maintain().unwrap();
            }
            store.sync().unwrap();
            place.disk.crash();
            drop((first, second, scope, store));

            let (_store, scope) = place.open();
            let next = new(scope.begin("evt"));
            // The second attempt of its own id was in progress; the first is not what it is told of.
            assert_follows(&next, Cause::Orphaned, Some(b"half way"));
            assert_eq!(next.attempt(), if overtaken { 3 } else { 2 });
        }
    }
}

#[test]
fn a_crash_before_anything_was_durable_leaves_an_orphan_or_nothing() {
    // Whichever frames the crash keeps: never that a lease ran out which no takeover ended.
    for seed in 0..100 {
        let place = Place::new(seed);
        let (store, scope) = place.open();
        let old = begin(&scope, "old", 1);
        place.clock.advance(SECOND);
        let next = begin(&scope, "next", 2);
        store.tick();
        place.disk.crash();
        drop((old, next, scope, store));

        let (_store, scope) = place.open();
        for id in ["old", "next"] {
            let guard = new(scope.begin(id));
            match guard.previous() {
                None => assert_eq!(guard.attempt(), 1),
                Some(_) => assert_follows(&guard, Cause::Orphaned, None),
            }
        }
    }
}
