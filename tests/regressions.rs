//! What went wrong once and must not again, each for its whole kind.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, SystemTime};

use oncedb::simulation::MemoryDisk;
use oncedb::{
    Cause, Durability, Guard, ManualClock, Options, Outcome, Request, Retention, Scope, ScopeOptions,
    Settled, Store, Timestamp,
};

const SECOND: Duration = Duration::from_secs(1);

fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

struct Place {
    disk: MemoryDisk,
    clock: ManualClock,
}

impl Place {
    fn new() -> Self {
        let clock = ManualClock::new(SystemTime::UNIX_EPOCH + 1_000_000 * SECOND);
        Self { disk: MemoryDisk::new(1), clock }
    }

    fn options(&self) -> Options {
        Store::options().memory_limit(1 << 20).disk(&self.disk).clock(self.clock.clone())
    }

    fn open(&self) -> Store {
        self.options().open("store").unwrap()
    }
}

fn mark(scope: &Scope, entity: &str) -> Option<Timestamp> {
    scope.last_applied(entity).unwrap().map(|mark| mark.timestamp())
}

#[test]
fn a_scopes_lease_does_not_let_a_one_step_claim_lapse() {
    for drops in [false, true] {
        let place = Place::new();
        let store = place.open();
        let scope = store.scope_with("s", ScopeOptions::new().lease(30 * SECOND)).unwrap();
        let mut first = scope.request("a").order("e", Timestamp::from_secs(200)).claim_async();
        assert!(poll_once(&mut first).is_pending());
        store.sync().unwrap();
        place.clock.advance(31 * SECOND);
        let older = scope.request("b").order("e", Timestamp::from_secs(100)).claim().unwrap();
        assert!(older.is_in_progress(), "{older:?}");
        if drops {
            drop(first);
            assert_eq!(mark(&scope, "e"), None);
        } else {
            assert!(matches!(poll_once(&mut first), Poll::Ready(Ok(Outcome::New(_)))));
            assert_eq!(mark(&scope, "e"), Some(Timestamp::from_secs(200)));
        }
    }
}

#[test]
fn notes_of_changing_length_do_not_use_up_the_journal() {
    let place = Place::new();
    let store = place.options().memory_limit(1 << 20).open("store").unwrap();
    let scope = store.scope("s").unwrap();
    let guard = scope.begin("a").unwrap().into_new().unwrap();
    for _ in 0..1_000 {
        guard.note([7; 4096]).unwrap();
        guard.note("").unwrap();
    }
    for number in 0..50 {
        let claim = scope.request(format!("{number}")).claim_with(vec![1; 50_000]);
        assert!(claim.unwrap().is_new());
    }
    guard.complete().unwrap();
}

#[test]
fn waits_that_are_over_leave_nothing_behind() {
    let place = Place::new();
    let store = place.open();
    let scope = store.scope("s").unwrap();
    let guard = scope.begin("a").unwrap().into_new().unwrap();
    // With something left behind by each, this takes minutes.
    for _ in 0..100_000 {
        let Outcome::InProgress(running) = scope.begin("a").unwrap() else { panic!("it runs") };
        assert!(matches!(running.wait(Duration::ZERO).unwrap(), Settled::Running));
    }
    guard.complete().unwrap();
}

/// A store in which an attempt at "a" left a note that is over today's limit.
fn with_a_note_longer_than_the_limit(place: &Place) -> Store {
    let store = place.options().max_note_len(1 << 20).open("store").unwrap();
    let guard = store.scope("s").unwrap().begin("a").unwrap().into_new().unwrap();
    guard.note(vec![1; 900 << 10]).unwrap();
    drop(guard);
    store.close().unwrap();
    place.options().memory_limit(1 << 20).max_response_len(0).open("store").unwrap()
}

#[test]
fn a_note_from_before_a_lower_limit_hurts_nobody() {
    let store = with_a_note_longer_than_the_limit(&Place::new());
    let scope = store.scope("s").unwrap();
    let guard = scope.begin("a").unwrap().into_new().unwrap();
    let previous = guard.previous().unwrap();
    assert_eq!((previous.cause, previous.note.as_ref().map(Vec::len)), (Cause::Aborted, Some(900 << 10)));
    assert!(scope.claim("b").unwrap().is_new());
    guard.complete().unwrap();
    store.sync().unwrap();
}

#[test]
fn a_batch_larger_than_the_memory_is_claimed_whole() {
    let place = Place::new();
    let store = place.options().memory_limit(4 << 20).open("store").unwrap();
    let scope = store.scope("s").unwrap();
    let ids: Vec<_> = (0..60_000).map(|number| format!("evt_{number:020}")).collect();
    let outcomes = scope.claim_many(&ids).unwrap();
    assert!(outcomes.iter().all(Outcome::is_new));
    let again = scope.claim_many(&ids).unwrap();
    assert!(again.iter().all(Outcome::is_duplicate));
}

#[test]
fn maintenance_from_many_threads_keeps_each_record_once() {
    let place = Place::new();
    let store = place.open();
    let scope = store.scope("s").unwrap();
    std::thread::scope(|threads| {
        for thread in 0..4 {
            let (store, scope) = (&store, &scope);
            threads.spawn(move || {
                for round in 0..24 {
                    let ids = (0..50).map(|number| format!("{thread}-{round}-{number}"));
                    assert!(scope.claim_many(ids).unwrap().iter().all(Outcome::is_new));
                    store.maintain().unwrap();
                }
            });
        }
    });
    store.maintain().unwrap();
    let stats = store.stats();
    assert_eq!(stats.live_keys, 4 * 24 * 50);
    store.close().unwrap();
    drop(scope);
    let store = place.open();
    assert_eq!(store.stats().live_keys, 4 * 24 * 50);
}

#[test]
fn what_a_claim_leaves_when_it_is_taken_back_is_what_it_found() {
    let place = Place::new();
    let store = place.open();
    let day = 24 * 3600 * SECOND;
    let retention = ScopeOptions::new().mark_retention(Retention::For(day));
    let scope = store.scope_with("s", retention).unwrap();
    let guard = scope.begin("a").unwrap().into_new().unwrap();
    guard.note("half done").unwrap();
    drop(guard);
    assert!(scope.request("b").order("e", Timestamp::from_secs(1)).claim().unwrap().is_new());
    place.clock.advance(day / 2);
    let mut claim = scope.request("a").order("e", Timestamp::from_secs(2)).claim_async();
    assert!(poll_once(&mut claim).is_pending());
    drop(claim);
    let guard = scope.begin("a").unwrap().into_new().unwrap();
    assert_eq!(guard.attempt(), 3);
    assert_eq!(guard.previous().unwrap().note.as_deref(), Some(&b"half done"[..]));
    assert_eq!(mark(&scope, "e"), Some(Timestamp::from_secs(1)));
    place.clock.advance(day / 2);
    assert_eq!(mark(&scope, "e"), None, "the old mark keeps its own time");
}

#[test]
fn new_after_a_freed_completion_survives_a_crash() {
    for seed in 0..40 {
        let disk = MemoryDisk::new(seed);
        let options = || Store::options().memory_limit(1 << 20).disk(&disk);
        let store = options().open("store").unwrap();
        let scope = store.scope("s").unwrap();
        let mut taken = scope.claim_async("taken");
        assert!(poll_once(&mut taken).is_pending());
        store.sync().unwrap();
        drop(taken);
        assert!(scope.claim("forgotten").unwrap().is_new());
        let mut forgotten = scope.forget_async("forgotten");
        assert!(poll_once(&mut forgotten).is_pending());
        let guards = ["taken", "forgotten"].map(|id| scope.begin(id).unwrap().into_new().unwrap());
        disk.crash();
        std::mem::forget(guards);
        drop((forgotten, scope));
        // The dead store cannot write any more; its directory is free.
        let store = options().open("store").unwrap();
        let scope = store.scope("s").unwrap();
        for id in ["taken", "forgotten"] {
            assert!(
                matches!(scope.begin(id).unwrap(), Outcome::New(_)),
                "seed {seed}: {id} was given out as new"
            );
        }
    }
}

const SOON: Durability = Durability::Interval(Duration::from_secs(3600));

fn new(outcome: oncedb::Result<Outcome<Guard>>) -> Guard {
    outcome.unwrap().into_new().unwrap()
}

fn soon(scope: &Scope) -> Request {
    scope.request("a").durability(SOON)
}

fn event(scope: &Scope, at: i64) -> Request {
    scope.request("b").order("e", Timestamp::from_secs(at)).durability(SOON)
}

/// A crash does not bring back what was freed once somebody was told `New`, also where a third one has
/// had the key or the entity in between and waited for nothing.
#[test]
fn new_after_a_freed_key_that_somebody_else_has_had_survives_a_crash() {
    type Between = fn(&Store, &Scope, &ManualClock);
    let of_the_id: [(&str, Between); 5] = [
        ("aborted", |_, scope, _| new(soon(scope).begin()).abort().unwrap()),
        ("aborted twice", |_, scope, _| {
            new(soon(scope).begin()).abort().unwrap();
            new(soon(scope).begin()).abort().unwrap();
        }),
        ("lapsed", |_, scope, clock| {
            std::mem::forget(new(soon(scope).lease(SECOND).begin()));
            clock.advance(2 * SECOND);
        }),
        ("expired", |_, scope, clock| {
            assert!(soon(scope).window(SECOND).claim().unwrap().is_new());
            clock.advance(2 * SECOND);
        }),
        ("dropped", |store, scope, _| {
            assert!(poll_once(&mut store.begin_requests_async([scope.request("a")])).is_pending());
        }),
    ];
    let of_the_entity: [(&str, Between); 3] = [
        ("completed", |_, scope, _| new(event(scope, 1).begin()).complete().unwrap()),
        ("claimed", |_, scope, _| assert!(event(scope, 1).claim().unwrap().is_new())),
        ("advanced", |_, scope, _| {
            assert!(poll_once(&mut scope.advance_async("e", Timestamp::from_secs(1))).is_pending());
        }),
    ];
    let cases = of_the_id.map(|case| (false, case)).into_iter();
    let cases: Vec<_> = cases.chain(of_the_entity.map(|case| (true, case))).collect();
    let mut brought_back = BTreeSet::new();
    for seed in 0..3 {
        for &(ordered, (name, between)) in &cases {
            let place = Place { disk: MemoryDisk::new(seed), ..Place::new() };
            let open = || place.options().threads(false).memory_limit(1 << 20).open("store").unwrap();
            let ask = |scope: &Scope| {
                let id = scope.request("a");
                if ordered { id.order("e", Timestamp::from_secs(5)).begin() } else { id.begin() }
            };
            let store = open();
            let scope = store.scope("s").unwrap();
            if ordered {
                let mut taken_back = event(&scope, 10).durability(Durability::Sync).claim_async();
                assert!(poll_once(&mut taken_back).is_pending());
                store.sync().unwrap();
            } else {
                assert!(scope.claim("a").unwrap().is_new());
                assert!(poll_once(&mut scope.forget_async("a")).is_pending());
            }
            between(&store, &scope, &place.clock);
            let told = new(ask(&scope));
            place.disk.crash();
            std::mem::forget(told);
            drop((scope, store));
            if ask(&open().scope("s").unwrap()).unwrap().into_new().is_none() {
                brought_back.insert((name, seed));
            }
        }
    }
    assert!(brought_back.is_empty(), "no longer new, by seed: {brought_back:?}");
}

/// The same where a mark has replaced one that was to be kept for longer, and has expired.
#[test]
fn new_after_a_mark_that_has_expired_before_the_one_it_replaced_survives_a_crash() {
    let place = Place::new();
    let open = || place.options().threads(false).memory_limit(1 << 20).open("store").unwrap();
    let shortly = ScopeOptions::new().mark_retention(Retention::For(SECOND));
    let late = |scope: &Scope| scope.request("a").order("e", Timestamp::from_secs(5)).begin();
    let store = open();
    assert!(event(&store.scope("s").unwrap(), 10).claim().unwrap().is_new());
    store.close().unwrap();
    let store = open();
    let scope = store.scope_with("s", shortly.clone()).unwrap();
    let next = scope.request("c").order("e", Timestamp::from_secs(20));
    assert!(next.durability(SOON).claim().unwrap().is_new());
    place.clock.advance(2 * SECOND);
    let told = new(late(&scope));
    place.disk.crash();
    std::mem::forget(told);
    drop((scope, store));
    let again = late(&open().scope_with("s", shortly).unwrap()).unwrap();
    assert!(matches!(again, Outcome::New(_)), "it was given out as new: {again:?}");
}

#[test]
fn reopening_in_place_does_not_look_at_the_wall_clock() {
    let place = Place::new();
    let store = place.open();
    let scope = store.scope("s").unwrap();
    assert!(scope.claim("a").unwrap().is_new());
    let Outcome::New(guard) = scope.begin("b").unwrap() else { panic!("it is new") };
    let Outcome::InProgress(running) = scope.begin("b").unwrap() else { panic!("it runs") };
    place.clock.step_wall(30 * 24 * 3600);
    store.reopen().unwrap();
    assert!(scope.claim("a").unwrap().is_duplicate());
    assert!(matches!(running.wait(60 * SECOND).unwrap(), Settled::Released), "begin again");
    drop(guard);
    assert!(matches!(running.wait(60 * SECOND).unwrap(), Settled::Released));
    store.close().unwrap();
}

#[test]
fn one_batch_is_decided_in_its_order() {
    let place = Place::new();
    let store = place.open();
    let scope = store.scope("s").unwrap();
    let event = |id: &str, at| scope.request(id).order("e", Timestamp::from_secs(at));
    let begun = store.begin_requests([event("a", 1), event("b", 2), event("a", 1)]).unwrap();
    assert!(matches!(begun[0], Ok(Outcome::New(_))));
    assert!(matches!(begun[1], Ok(Outcome::InProgress(_))), "one event of an entity at a time");
    assert!(matches!(begun[2], Ok(Outcome::InProgress(_))));
    drop(begun);
    let claimed = store
        .claim_requests([event("c", 3), event("c", 3), event("d", 2), event("e", 4), event("f", 3)])
        .unwrap()
        .into_iter()
        .map(Result::unwrap)
        .collect::<Vec<_>>();
    assert!(claimed[0].is_new() && claimed[1].is_duplicate() && claimed[2].is_stale());
    assert!(claimed[3].is_new() && claimed[4].is_stale());
}

#[test]
fn an_interval_does_not_keep_claims_from_the_kernel() {
    let dir = tempfile::tempdir().unwrap();
    let hour = Durability::Interval(3600 * SECOND);
    let store = Store::options().durability(hour).open(dir.path()).unwrap();
    let id = b"an id to look for in the files";
    assert!(store.scope("s").unwrap().claim(id).unwrap().is_new());
    let is_written = || {
        let files = std::fs::read_dir(dir.path().join("journal")).unwrap();
        files
            .map(|file| std::fs::read(file.unwrap().path()).unwrap_or_default())
            .any(|bytes| bytes.windows(id.len()).any(|window| window == id))
    };
    // It takes 10 ms; the bound is only there to end a failing test.
    let begun = std::time::Instant::now();
    while !is_written() {
        assert!(begun.elapsed() < 60 * SECOND, "the claim is only in this process's memory");
        std::thread::yield_now();
    }
    assert_eq!(store.stats().syncs, 1, "and nothing but the start of the log was synced");
}

#[test]
fn new_after_a_mark_that_was_taken_back_survives_a_crash() {
    for seed in 0..40 {
        let disk = MemoryDisk::new(seed);
        let options = || Store::options().memory_limit(1 << 20).disk(&disk);
        let store = options().open("store").unwrap();
        let scope = store.scope("s").unwrap();
        let event = |id: &str, entity: &str, at| scope.request(id).order(entity, Timestamp::from_secs(at));
        let mut taken = event("a", "taken", 10).claim_async();
        assert!(poll_once(&mut taken).is_pending());
        assert!(event("b", "forgotten", 10).claim().unwrap().is_new());
        store.sync().unwrap();
        drop(taken);
        let begun = event("c", "taken", 5).begin().unwrap().into_new().unwrap();
        assert!(scope.forget_mark("forgotten").unwrap());
        let other = event("d", "forgotten", 5).begin().unwrap().into_new().unwrap();
        disk.crash();
        std::mem::forget((begun, other));
        drop(scope);
        let store = options().open("store").unwrap();
        let scope = store.scope("s").unwrap();
        for (id, entity) in [("c", "taken"), ("d", "forgotten")] {
            let again = scope.request(id).order(entity, Timestamp::from_secs(5)).begin().unwrap();
            assert!(matches!(again, Outcome::New(_)), "seed {seed}: {id} was given out as new");
        }
    }
}

#[test]
fn a_lost_catalog_is_damage_and_nothing_is_changed() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    assert!(store.scope("s").unwrap().claim("a").unwrap().is_new());
    store.close().unwrap();
    std::fs::remove_file(dir.path().join("catalog.redb")).unwrap();
    for _ in 0..2 {
        let error = Store::open(dir.path()).unwrap_err();
        assert!(error.is_corruption(), "{error}");
        assert!(!dir.path().join("catalog.redb").exists());
    }
}

#[test]
fn a_mark_that_a_batch_moves_twice_shows_only_when_it_is_delivered() {
    let place = Place::new();
    let store = place.open();
    let scope = store.scope("s").unwrap();
    let event = |id: &str, at| scope.request(id).order("e", Timestamp::from_secs(at));
    let mut batch = store.claim_requests_async([event("a", 10), event("b", 20)]);
    assert!(poll_once(&mut batch).is_pending());
    store.sync().unwrap();
    assert_eq!(mark(&scope, "e"), None);
    assert!(event("old", 5).claim().unwrap().is_in_progress(), "not stale: nothing is applied yet");
    drop(batch);
    assert_eq!(mark(&scope, "e"), None);
    assert!(event("old", 5).claim().unwrap().is_new());
}

#[test]
fn a_batch_may_have_very_many_events_of_one_entity() {
    let place = Place::new();
    let store = place.open();
    let scope = store.scope("s").unwrap();
    let events = (0..100_000).map(|at| scope.request(format!("{at}")).order("e", Timestamp::sequence(at)));
    let mut claimed = store.claim_requests(events).unwrap().into_iter();
    assert!(claimed.all(|outcome| outcome.unwrap().is_new()));
    assert_eq!(mark(&scope, "e"), Some(Timestamp::sequence(99_999)));
}

#[test]
fn a_long_note_of_an_earlier_attempt_does_not_keep_a_key_from_being_claimed() {
    let store = with_a_note_longer_than_the_limit(&Place::new());
    let outcomes = store.scope("s").unwrap().claim_many(["a", "b"]).unwrap();
    assert!(outcomes.iter().all(Outcome::is_new));
}

/// What a store accepted before a reopen that nothing forced is there after it, also where nobody
/// waited for the disk.
#[test]
fn a_reopen_keeps_what_was_accepted_while_it_began() {
    let disk = MemoryDisk::new(1);
    let interval = Durability::Interval(Duration::from_secs(3600));
    let store = Store::options().durability(interval).disk(&disk).open("store").unwrap();
    let scope = store.scope("stripe").unwrap();
    let stop = AtomicBool::new(false);
    let accepted: Vec<String> = thread::scope(|threads| {
        let claim = |worker: u32| {
            let mut accepted = Vec::new();
            for number in 0.. {
                if stop.load(Ordering::Relaxed) {
                    return accepted;
                }
                let id = format!("{worker}/{number}");
                if scope.claim(&id).is_ok() {
                    accepted.push(id);
                }
            }
            accepted
        };
        let workers: Vec<_> = (0..3).map(|worker| threads.spawn(move || claim(worker))).collect();
        for _ in 0..30 {
            store.reopen().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    store.reopen().unwrap();
    for id in &accepted {
        assert!(scope.contains(id).unwrap(), "{id} was accepted");
    }
}
