//! Histories of several threads at once: what they are told of each key is one linear order, and so it
//! is with what a power cut in the middle leaves.

use crate::common::{Dice, block_on};
use crate::history::Tally;
use crate::linear::{Call, Rules, ends};
use oncedb::simulation::{Fault, FaultKind, MemoryDisk};
use oncedb::{Advance, Error, Guard, Options, Outcome, Scope, Store, Timestamp};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

const THREADS: u64 = 4;
const CALLS: u64 = 9;
const KEYS: usize = 3;

/// What a key is; a claim in progress is known by the number of the call that began it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    Absent,
    Running(u64),
    Done,
}

#[derive(Clone, Debug)]
enum Told {
    Claimed,
    Begun(u64),
    Completed(u64),
    Freed(u64),
    Duplicate,
    Busy,
    Forgotten,
    NothingToForget,
    Contained(bool),
}

impl Rules for Key {
    type Answer = Told;

    fn after(&self, told: &Told) -> Option<Self> {
        let stays = |right: bool| right.then(|| self.clone());
        match told {
            Told::Claimed => (*self == Self::Absent).then_some(Self::Done),
            Told::Begun(call) => (*self == Self::Absent).then_some(Self::Running(*call)),
            Told::Completed(call) => (*self == Self::Running(*call)).then_some(Self::Done),
            Told::Freed(call) => (*self == Self::Running(*call)).then_some(Self::Absent),
            Told::Duplicate => stays(*self == Self::Done),
            Told::Busy => stays(matches!(self, Self::Running(_))),
            Told::Forgotten => (*self == Self::Done).then_some(Self::Absent),
            Told::NothingToForget => stays(*self == Self::Absent),
            Told::Contained(contained) => stays(*contained == (*self == Self::Done)),
        }
    }
}

/// The mark of an entity.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Mark(Option<u64>);

#[derive(Clone, Debug)]
enum Moved {
    To(u64),
    Stale { at: u64, mark: u64 },
    Seen(Option<u64>),
}

impl Rules for Mark {
    type Answer = Moved;

    fn after(&self, moved: &Moved) -> Option<Self> {
        match moved {
            Moved::To(at) => self.0.is_none_or(|mark| mark <= *at).then_some(Self(Some(*at))),
            Moved::Stale { at, mark } => (self.0 == Some(*mark) && at < mark).then(|| self.clone()),
            Moved::Seen(mark) => (self.0 == *mark).then(|| self.clone()),
        }
    }
}

/// What all threads write down.
#[derive(Default)]
struct Notes {
    clock: AtomicU64,
    keys: [Mutex<Vec<Call<Told>>>; KEYS],
    mark: Mutex<Vec<Call<Moved>>>,
}

impl Notes {
    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// Makes a call and writes down what came of it: an answer, or if it failed what it may have done.
    fn key<T>(
        &self,
        key: usize,
        call: impl FnOnce() -> oncedb::Result<T>,
        told: impl FnOnce(&T, u64) -> Told,
        perhaps: Told,
    ) -> Option<T> {
        let began = self.now();
        let result = call();
        let returned = self.now();
        let (answer, unknown) = match &result {
            Ok(value) => (told(value, began), false),
            Err(Error::InProgress { .. }) => (Told::Busy, false),
            Err(_) => (perhaps, true),
        };
        self.keys[key].lock().expect("no panic").push(Call { answer, began, returned, unknown });
        result.ok()
    }
}

fn options(disk: &MemoryDisk) -> Options {
    Store::options()
        .memory_limit(1 << 20)
        .max_key_len(64)
        .max_response_len(1000)
        .max_note_len(64)
        .segment_size(8 << 10)
        .disk(disk)
}

/// One history; the odd ones end with a power cut somewhere in the middle.
pub fn concurrent(seed: u64) -> Tally {
    let disk = MemoryDisk::new(seed);
    let mut dice = Dice::new(seed);
    let notes = Notes::default();
    let store = options(&disk).open("store").expect("a new store opens");
    let scope = store.scope("stripe").expect("a new scope opens");
    if dice.below(2) == 0 {
        disk.inject(Fault::new(FaultKind::PowerCut).after(dice.below(150)));
    }
    thread::scope(|threads| {
        for _ in 0..THREADS {
            let (dice, notes, scope, store) = (Dice::new(dice.roll()), &notes, &scope, &store);
            threads.spawn(move || run(dice, notes, scope, store));
        }
    });
    disk.heal();
    drop(scope);
    drop(store);
    let cut = disk.crashes() > 0;
    let store = options(&disk).open("store").expect("the store opens again");
    let scope = store.scope("stripe").expect("its scope opens");
    for key in 0..KEYS {
        let mut calls = notes.keys[key].lock().expect("no panic").clone();
        // Whoever was still at it when the store ended is an orphan now.
        let ends: Vec<bool> = ends(&Key::Absent, &calls).into_iter().map(|end| end == Key::Done).collect();
        calls.sort_by_key(|call| call.began);
        assert!(!ends.is_empty(), "no order explains what was told of key {key}: {calls:#?}");
        let contained = scope.contains(name(key)).expect("the store answers");
        assert!(ends.contains(&contained), "key {key} is {contained} after {calls:#?}");
    }
    let mut calls = notes.mark.lock().expect("no panic").clone();
    let mark = scope.last_applied("acct").expect("the store answers");
    let mark = mark.and_then(|mark| mark.timestamp().as_sequence());
    let ends = ends(&Mark(None), &calls);
    calls.sort_by_key(|call| call.began);
    assert!(ends.contains(&Mark(mark)), "the mark is {mark:?} after {calls:#?}");
    Tally {
        histories: 1,
        crashes: u64::from(cut),
        faults: disk.injected(),
        disk_calls: disk.calls(),
        violations: 0,
    }
}

fn name(key: usize) -> String {
    format!("evt_{key}")
}

fn run(mut dice: Dice, notes: &Notes, scope: &Scope, store: &Store) {
    let mut held: Vec<(usize, u64, Guard)> = Vec::new();
    for _ in 0..CALLS {
        let key = usize::try_from(dice.below(KEYS as u64)).expect("a small number");
        match dice.below(12) {
            0..3 => claim(notes, scope, key, dice.below(2) == 0),
            3..6 => held.extend(begin(notes, scope, key, dice.below(2) == 0)),
            6..8 => {
                if let Some((key, call, guard)) = held.pop() {
                    let complete = || match dice.below(2) {
                        0 => guard.complete_with("reply"),
                        _ => block_on(guard.complete_async()),
                    };
                    notes.key(key, complete, |(), _| Told::Completed(call), Told::Completed(call));
                }
            }
            8 => {
                if let Some((key, call, guard)) = held.pop() {
                    notes.key(key, || guard.abort(), |(), _| Told::Freed(call), Told::Freed(call));
                }
            }
            9 => {
                let told =
                    |forgotten: &bool, _| if *forgotten { Told::Forgotten } else { Told::NothingToForget };
                notes.key(key, || scope.forget(name(key)), told, Told::Forgotten);
            }
            10 => {
                let told = |contained: &bool, _| Told::Contained(*contained);
                // A question that failed has no effect: whatever stands for it must be possible always.
                if scope.contains(name(key)).is_ok() {
                    notes.key(key, || scope.contains(name(key)), told, Told::Claimed);
                }
            }
            _ => advance(notes, scope, &mut dice),
        }
        if dice.below(8) == 0 {
            let _ = store.maintain();
        }
    }
    for (key, call, guard) in held {
        let let_go = || {
            drop(guard);
            Ok(())
        };
        notes.key(key, let_go, |(), _| Told::Freed(call), Told::Freed(call));
    }
}

fn told<N>(outcome: &Outcome<N>, new: Told) -> Told {
    match outcome {
        Outcome::New(_) => new,
        Outcome::Duplicate(_) => Told::Duplicate,
        Outcome::InProgress(_) => Told::Busy,
        Outcome::Mismatch(_) | Outcome::Stale(_) => panic!("nobody asked for that"),
    }
}

fn claim(notes: &Notes, scope: &Scope, key: usize, blocking: bool) {
    let call = || if blocking { scope.claim(name(key)) } else { block_on(scope.claim_async(name(key))) };
    notes.key(key, call, |outcome, _| told(outcome, Told::Claimed), Told::Claimed);
}

fn begin(notes: &Notes, scope: &Scope, key: usize, blocking: bool) -> Option<(usize, u64, Guard)> {
    let call = || if blocking { scope.begin(name(key)) } else { block_on(scope.begin_async(name(key))) };
    let mut number = 0;
    let told = |outcome: &Outcome<Guard>, began| {
        number = began;
        told(outcome, Told::Begun(began))
    };
    // A begin that fails has begun nothing.
    let outcome = notes.key(key, call, told, Told::Busy)?;
    outcome.into_new().map(|guard| (key, number, guard))
}

fn advance(notes: &Notes, scope: &Scope, dice: &mut Dice) {
    let at = dice.below(20);
    let began = notes.now();
    let result = scope.advance("acct", Timestamp::sequence(at));
    let returned = notes.now();
    let (answer, unknown) = match result {
        Ok(Advance::Applied) => (Moved::To(at), false),
        Ok(Advance::Stale(mark)) => {
            (Moved::Stale { at, mark: mark.timestamp().as_sequence().expect("a sequence") }, false)
        }
        Ok(Advance::InProgress(_)) => panic!("nobody claims in order"),
        Err(_) => (Moved::To(at), true),
    };
    notes.mark.lock().expect("no panic").push(Call { answer, began, returned, unknown });
    let began = notes.now();
    if let Ok(mark) = scope.last_applied("acct") {
        let seen = Moved::Seen(mark.and_then(|mark| mark.timestamp().as_sequence()));
        let returned = notes.now();
        notes.mark.lock().expect("no panic").push(Call { answer: seen, began, returned, unknown: false });
    }
}
