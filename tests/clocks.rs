//! A clock may be stepped, stopped, or years wrong: nobody loses a window to it for longer than it is
//! wrong, and no key is given out twice because of it.
#![expect(clippy::unchecked_time_subtraction, reason = "a day is longer than what is taken off it")]

#[path = "common/mod.rs"]
mod common;

use common::{DAY, HOUR, SECOND, assert_error, duplicate, in_progress, new, stale};
use oncedb::simulation::MemoryDisk;
use oncedb::{Clock, Downtime, Options, Record, Retention, Scope, ScopeOptions, Store, Timestamp};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

const NANO: Duration = Duration::from_nanos(1);
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// A clock whose two hands are moved one by one.
#[derive(Clone, Debug)]
struct Hands(Arc<Mutex<(SystemTime, Duration)>>);

impl Clock for Hands {
    fn wall(&self) -> SystemTime {
        self.0.lock().unwrap().0
    }

    fn elapsed(&self) -> Duration {
        self.0.lock().unwrap().1
    }
}

impl Hands {
    fn set_wall(&self, wall: SystemTime) {
        self.0.lock().unwrap().0 = wall;
    }

    /// Lets time pass that the wall clock does not see.
    fn pass_unseen(&self, by: Duration) {
        self.0.lock().unwrap().1 += by;
    }

    fn pass(&self, by: Duration) {
        self.pass_unseen(by);
        let wall = self.wall();
        self.set_wall(wall.checked_add(by).unwrap_or(wall));
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Close,
    PowerCut,
}

const ENDS: [End; 2] = [End::Close, End::PowerCut];

struct Place {
    disk: MemoryDisk,
    clock: Hands,
    downtime: Downtime,
}

impl Place {
    fn new() -> Self {
        Self::at(common::noon())
    }

    fn at(wall: SystemTime) -> Self {
        let clock = Hands(Arc::new(Mutex::new((wall, Duration::ZERO))));
        Self { disk: MemoryDisk::new(7), clock, downtime: Downtime::Counts }
    }

    fn options(&self) -> Options {
        let options = Store::options().disk(&self.disk).clock(self.clock.clone());
        options.memory_limit(1 << 20).window(DAY).downtime(self.downtime)
    }

    fn open(&self) -> (Store, Scope) {
        let store = self.options().open("store").unwrap();
        let scope = store.scope("s").unwrap();
        (store, scope)
    }

    /// The store ends, the wall clock shows another time, the store is opened.
    fn again(&self, store: Store, scope: Scope, end: End, wall: SystemTime) -> (Store, Scope) {
        match end {
            End::Close => store.close().unwrap(),
            End::PowerCut => self.disk.crash(),
        }
        drop((store, scope));
        self.clock.set_wall(wall);
        self.open()
    }
}

/// The last time that can be told.
fn last_time() -> SystemTime {
    (0..64).rev().fold(SystemTime::UNIX_EPOCH, |time, bit| {
        time.checked_add(Duration::from_secs(1 << bit)).unwrap_or(time)
    })
}

fn first_time() -> SystemTime {
    (0..64).rev().fold(SystemTime::UNIX_EPOCH, |time, bit| {
        time.checked_sub(Duration::from_secs(1 << bit)).unwrap_or(time)
    })
}

/// Times that no clock should show.
fn wild_times() -> [SystemTime; 7] {
    let epoch = SystemTime::UNIX_EPOCH;
    [
        first_time(),
        epoch - 200 * YEAR,
        epoch - SECOND,
        epoch,
        epoch + 330 * YEAR,
        epoch + 600 * YEAR,
        last_time(),
    ]
}

#[track_caller]
fn assert_there(scope: &Scope, id: &str) -> Record {
    assert!(scope.contains(id).unwrap(), "{id} is within its window");
    duplicate(scope.claim(id))
}

/// A claim made now lives for its window to the nanosecond.
#[track_caller]
fn assert_whole_window(place: &Place, scope: &Scope, id: &str) {
    new(scope.claim(id));
    place.clock.pass(DAY - NANO);
    assert_there(scope, id);
    place.clock.pass(NANO);
    assert!(!scope.contains(id).unwrap(), "{id} has expired");
}

/// What a record says of its times goes together, and agrees with the clock as it is set now.
#[track_caller]
fn assert_times(record: &Record, wall: SystemTime, age: Duration, window: Duration) {
    assert_eq!(Some(record.claimed_at()), wall.checked_sub(age));
    assert_eq!(record.completed_at(), Some(record.claimed_at()));
    assert_eq!(record.expires_at(), record.claimed_at().checked_add(window));
}

#[test]
fn steps_of_the_wall_clock_move_nothing_while_a_store_is_open() {
    for step in [SECOND, HOUR, 50 * YEAR] {
        let place = Place::new();
        let options = ScopeOptions::new().mark_retention(Retention::For(DAY));
        let store = place.options().open("store").unwrap();
        let scope = store.scope_with("s", options).unwrap();
        new(scope.request("short").window(HOUR).claim());
        place.clock.pass(2 * HOUR);
        new(scope.request("long").order("e", Timestamp::sequence(1)).claim());
        let _guard = new(scope.request("running").lease(50 * SECOND).begin());
        place.clock.pass(10 * SECOND);
        let right = place.clock.wall();
        for wall in [right + step, right, right - step, right, right + step, right - step] {
            place.clock.set_wall(wall);
            store.maintain().unwrap();
            assert!(!scope.contains("short").unwrap(), "what has expired does not revive");
            let record = duplicate(scope.claim("long"));
            assert_times(&record, wall, 10 * SECOND, DAY);
            let mark = scope.last_applied("e").unwrap().unwrap();
            assert_eq!(mark.applied_at(), wall - 10 * SECOND);
            let running = in_progress(scope.begin("running"));
            assert_eq!(running.retry_after(), 40 * SECOND);
            assert_eq!(running.since(), wall - 10 * SECOND);
        }
        place.clock.pass(DAY - 10 * SECOND - NANO);
        assert_there(&scope, "long");
        assert!(scope.last_applied("e").unwrap().is_some());
        place.clock.pass(NANO);
        assert!(!scope.contains("long").unwrap());
        assert!(scope.last_applied("e").unwrap().is_none());
    }
}

#[test]
fn suspended_time_counts_whether_or_not_the_wall_clock_saw_it() {
    for seen in [true, false] {
        let place = Place::new();
        let (store, scope) = place.open();
        new(scope.claim("a"));
        let guard = new(scope.request("b").lease(SECOND).begin());
        let suspend = |by| if seen { place.clock.pass(by) } else { place.clock.pass_unseen(by) };
        suspend(DAY - NANO);
        assert_there(&scope, "a");
        assert_eq!(new(scope.begin("b")).attempt(), 2, "the lease has lapsed");
        assert_error!(guard.complete(), Fenced);
        suspend(NANO);
        assert!(!scope.contains("a").unwrap());
        // Time that the wall clock missed is not taken back at the next open.
        new(scope.claim("a"));
        let (_store, scope) = place.again(store, scope, End::Close, place.clock.wall());
        assert_whole_window(&place, &scope, "c");
    }
}

#[test]
fn clock_that_was_behind_at_one_open_costs_no_key_its_window() {
    for end in ENDS {
        for behind in wild_times().into_iter().filter(|time| *time < common::noon()) {
            let place = Place::new();
            let (mut store, mut scope) = place.open();
            new(scope.claim("old"));
            place.clock.pass(HOUR);
            // A board whose clock has no battery starts over, again and again.
            for start in 0..3 {
                let right = place.clock.wall();
                (store, scope) = place.again(store, scope, end, behind);
                assert_there(&scope, "old");
                new(scope.claim(format!("while behind {start}")));
                place.clock.pass(HOUR);
                (store, scope) = place.again(store, scope, end, right + 2 * HOUR);
                assert_there(&scope, "old");
            }
            // Six hours and one have passed, and count as that.
            assert_there(&scope, "while behind 0");
            place.clock.pass(17 * HOUR - NANO);
            assert_times(&assert_there(&scope, "old"), place.clock.wall(), DAY - NANO, DAY);
            place.clock.pass(NANO);
            assert!(!scope.contains("old").unwrap(), "{end:?}: nor does it live longer");
            assert_whole_window(&place, &scope, "new");
        }
    }
}

#[test]
fn clock_that_was_behind_and_is_corrected_while_open_costs_no_key_its_window() {
    for end in ENDS {
        let place = Place::new();
        let (store, scope) = place.open();
        new(scope.claim("old"));
        place.clock.pass(HOUR);
        let right = place.clock.wall();
        let (store, scope) = place.again(store, scope, end, SystemTime::UNIX_EPOCH);
        place.clock.pass(60 * SECOND);
        place.clock.set_wall(right + HOUR);
        place.clock.pass(HOUR);
        store.maintain().unwrap();
        let (store, scope) = place.again(store, scope, end, place.clock.wall() + HOUR);
        assert_there(&scope, "old");
        // And one that goes wrong while open, and is right at the next open.
        let right = place.clock.wall();
        place.clock.set_wall(SystemTime::UNIX_EPOCH);
        place.clock.pass(HOUR);
        new(scope.claim("while behind"));
        let (_store, scope) = place.again(store, scope, end, right + 2 * HOUR);
        assert_there(&scope, "old");
        assert_there(&scope, "while behind");
        place.clock.pass(DAY);
        assert!(!scope.contains("old").unwrap());
        assert!(!scope.contains("while behind").unwrap());
    }
}

#[test]
fn clock_that_is_ahead_at_every_start_and_set_right_then_counts_each_hour_once() {
    let place = Place::new();
    let (mut store, mut scope) = place.open();
    new(scope.claim("old"));
    // The first start costs two hours, the later ones nothing.
    for _ in 0..5 {
        let right = place.clock.wall();
        (store, scope) = place.again(store, scope, End::Close, right + 2 * HOUR + 60 * SECOND);
        place.clock.set_wall(right + 60 * SECOND);
        place.clock.pass(HOUR);
    }
    place.clock.pass(16 * HOUR);
    assert_there(&scope, "old");
    place.clock.pass(HOUR);
    assert!(!scope.contains("old").unwrap());
    drop(store);
}

#[test]
fn clock_that_was_ahead_at_one_open_expires_what_is_old_and_nothing_that_is_new() {
    for end in ENDS {
        for ahead in [common::noon() + 50 * YEAR].into_iter().chain(wild_times()) {
            if ahead < common::noon() {
                continue;
            }
            let place = Place::new();
            let (store, scope) = place.open();
            new(scope.claim("old"));
            place.clock.pass(HOUR);
            let right = place.clock.wall();
            let (store, scope) = place.again(store, scope, end, ahead);
            assert!(!scope.contains("old").unwrap(), "nobody can tell this from years of downtime");
            assert_whole_window(&place, &scope, "while ahead");
            new(scope.claim("just before"));
            let (store, scope) = place.again(store, scope, end, right + DAY);
            // What was once told to have expired stays so: time does not go back.
            assert!(!scope.contains("old").unwrap());
            assert_times(&assert_there(&scope, "just before"), right + DAY, Duration::ZERO, DAY);
            place.clock.pass(HOUR);
            let (_store, scope) = place.again(store, scope, end, right + DAY + 3 * HOUR);
            place.clock.pass(21 * HOUR - NANO);
            assert_there(&scope, "just before");
            place.clock.pass(NANO);
            assert!(!scope.contains("just before").unwrap(), "{end:?}: nor does it live for ever");
            assert_whole_window(&place, &scope, "new");
        }
    }
}

#[test]
fn paused_downtime_bounds_what_a_wrong_clock_costs() {
    for end in ENDS {
        for wrong in wild_times() {
            let mut place = Place::new();
            place.downtime = Downtime::Pauses { at_most: 2 * HOUR };
            let (store, scope) = place.open();
            new(scope.claim("old"));
            let right = place.clock.wall();
            let (store, scope) = place.again(store, scope, end, wrong);
            assert_there(&scope, "old");
            let (_store, scope) = place.again(store, scope, end, right + HOUR);
            assert_there(&scope, "old");
            place.clock.pass(22 * HOUR - NANO);
            assert_there(&scope, "old");
            place.clock.pass(HOUR + NANO);
            assert!(!scope.contains("old").unwrap(), "{end:?}, {wrong:?}");
            assert_whole_window(&place, &scope, "new");
        }
    }
}

#[test]
fn however_often_a_clock_goes_wild_new_claims_live_their_window() {
    for end in ENDS {
        let place = Place::new();
        let (mut store, mut scope) = place.open();
        let mut right = place.clock.wall();
        for flip in 0..12 {
            let wild = [last_time(), SystemTime::UNIX_EPOCH, last_time(), first_time()];
            for (number, wall) in wild.into_iter().enumerate() {
                (store, scope) = place.again(store, scope, end, wall);
                let id = format!("wild {flip} {number}");
                new(scope.claim(&id));
                place.clock.pass(HOUR);
                assert_there(&scope, &id);
            }
            right += HOUR;
            (store, scope) = place.again(store, scope, end, right);
            assert_whole_window(&place, &scope, &format!("right {flip}"));
            right += DAY;
        }
        drop(store);
    }
}

#[test]
fn store_can_be_made_and_used_at_any_time() {
    for end in ENDS {
        for wall in wild_times() {
            let place = Place::at(wall);
            let (store, scope) = place.open();
            let century = scope.request("century").window(100 * YEAR);
            let record = new(century.order("e", Timestamp::from(wall)).claim());
            assert_eq!(record.claimed_at(), wall);
            assert!(record.expires_at() >= record.completed_at());
            assert_whole_window(&place, &scope, "a");
            store.maintain().unwrap();
            let (store, scope) = place.again(store, scope, end, wall);
            assert_there(&scope, "century");
            assert!(scope.last_applied("e").unwrap().unwrap().applied_at() <= wall);
            // And then the clock is right.
            let (_store, scope) = place.again(store, scope, end, common::noon());
            assert_whole_window(&place, &scope, "b");
            assert!(scope.get("century").unwrap().is_none_or(|record| record.claimed_at() < common::noon()));
        }
    }
}

#[test]
fn key_has_expired_for_every_call_at_its_last_nanosecond() {
    type Look = fn(&Scope) -> bool;
    let looks: [(&str, Look); 9] = [
        ("contains", |scope| scope.contains("a").unwrap()),
        ("get", |scope| scope.get("a").unwrap().is_some()),
        ("last_applied", |scope| scope.last_applied("e").unwrap().is_some()),
        ("claim", |scope| !scope.claim("a").unwrap().is_new()),
        ("claim_with", |scope| !scope.request("a").claim_with("b").unwrap().is_new()),
        ("claim_many", |scope| !scope.claim_many(["a"]).unwrap()[0].is_new()),
        ("begin", |scope| match scope.begin("a").unwrap().into_new() {
            Some(guard) => guard.attempt() != 1 || guard.previous().is_some(),
            None => true,
        }),
        ("fingerprint", |scope| scope.request("a").fingerprint("other").claim().unwrap().is_mismatch()),
        ("order", |scope| scope.request("b").order("e", Timestamp::sequence(1)).claim().unwrap().is_stale()),
    ];
    for kept in ["in memory", "flushed", "merged", "reopened"] {
        for (name, look) in looks {
            let place = Place::new();
            let options = || ScopeOptions::new().mark_retention(Retention::For(DAY));
            let mut store = place.options().open("store").unwrap();
            let mut scope = store.scope_with("s", options()).unwrap();
            let claim = scope.request("a").fingerprint("one").order("e", Timestamp::sequence(2));
            new(claim.claim_with([7; 3000]));
            let guard = new(scope.request("given up").begin());
            guard.note("half done").unwrap();
            drop(guard);
            match kept {
                "flushed" => assert!(store.maintain().unwrap().flushed > 0),
                "merged" => {
                    for number in 0..20 {
                        new(scope.claim(format!("filler {number}")));
                        store.maintain().unwrap();
                    }
                    assert!(store.stats().runs < 12, "runs of one bucket are merged");
                }
                "reopened" => {
                    store.close().unwrap();
                    drop(scope);
                    store = place.options().open("store").unwrap();
                    scope = store.scope_with("s", options()).unwrap();
                }
                _ => {}
            }
            place.clock.pass(DAY - NANO);
            assert!(look(&scope), "{name}, {kept}: it is there until then");
            place.clock.pass(NANO);
            // What the first look may have left counts from then.
            assert!(
                !look(&scope)
                    || matches!(name, "claim" | "claim_with" | "claim_many") && scope.contains("a").unwrap(),
                "{name}, {kept}: it has expired"
            );
            let guard = new(scope.begin("given up"));
            assert!(guard.previous().is_none(), "{kept}: what was given up has expired, too");
        }
    }
}

#[test]
fn timestamps_ahead_are_measured_by_the_wall_clock_as_it_is_set() {
    let place = Place::new();
    let store = place.options().open("store").unwrap();
    let scope = store.scope_with("s", ScopeOptions::new().max_ahead(HOUR)).unwrap();
    let at = Timestamp::from(place.clock.wall() + HOUR);
    let right = place.clock.wall();
    for (wall, fits) in [(right, true), (right - SECOND, false), (right + 50 * YEAR, true), (right, true)] {
        place.clock.set_wall(wall);
        let answer = scope.advance("e", at);
        if fits {
            assert!(matches!(answer, Ok(oncedb::Advance::Applied)), "{answer:?}");
        } else {
            assert_error!(answer, TooFarAhead);
        }
    }
    place.clock.set_wall(first_time());
    assert_error!(scope.advance("e", at), TooFarAhead);
    assert_error!(scope.request("a").order("e", Timestamp::from_secs(i64::MAX)).claim(), TooFarAhead);
    stale(scope.request("a").order("e", Timestamp::from_secs(i64::MIN)).claim());
    place.clock.set_wall(last_time());
    assert!(matches!(scope.advance("e", at), Ok(oncedb::Advance::Applied)));
    new(scope.request("a").order("e", Timestamp::from_micros(i64::MAX)).claim());
}

#[test]
fn after_a_jump_past_the_largest_window_files_stay_for_ten_minutes() {
    let month = 30 * DAY;
    // Whether a key of a month is there, and how far the clock jumps while the store is closed.
    for (monthly, jump, held) in [
        (false, HOUR, false),
        (false, 2 * DAY, true),
        (true, 2 * DAY, false),
        (true, 31 * DAY, true),
        (false, 50 * YEAR, true),
    ] {
        for flushed in [true, false] {
            let place = Place::new();
            let (store, scope) = place.open();
            new(scope.request("hour").window(HOUR).claim());
            if monthly {
                new(scope.request("month").window(month).claim());
            }
            store.maintain().unwrap();
            if !flushed {
                // Not in a run yet when the store is opened.
                new(scope.request("hour and a half").window(HOUR + HOUR / 2).claim());
            }
            let wall = place.clock.wall() + jump;
            let end = if flushed { End::Close } else { End::PowerCut };
            let (store, scope) = place.again(store, scope, end, wall);
            assert!(!scope.contains("hour").unwrap(), "verdicts do not wait");
            place.clock.pass(600 * SECOND - NANO);
            store.maintain().unwrap();
            let runs = store.stats().runs;
            let left = if held { 1 } else { u64::from(monthly) };
            assert!(
                runs >= left && (held || runs <= left + u64::from(!flushed)),
                "jump {jump:?}: {runs} runs"
            );
            place.clock.pass(DAY);
            store.maintain().unwrap();
            assert_eq!(store.stats().runs, u64::from(monthly && jump < month), "jump {jump:?}");
        }
    }
}
