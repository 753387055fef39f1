//! What was begun can be completed, whatever else was asked for since: on a disk that is full, with a
//! journal that others have filled to the end.

use crate::common::{Dice, duplicate, poll_once};
use crate::history::Tally;
use oncedb::simulation::MemoryDisk;
use oncedb::{Error, Guard, ManualClock, Options, Outcome, Scope, Store};
use std::pin::Pin;
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(10);

fn options(disk: &MemoryDisk, clock: &ManualClock) -> Options {
    Store::options()
        .memory_limit(1 << 20)
        .max_key_len(64)
        .max_response_len(1000)
        .max_note_len(64)
        .threads(false)
        .segment_size(8 << 10)
        .clock(clock.clone())
        .disk(disk)
}

/// Claims that take over others or are given up, then a full disk, then as much of everything as there
/// is room for: each guard that is left still completes.
pub fn promised_room(seed: u64) -> Tally {
    let (disk, clock) = (MemoryDisk::new(seed), ManualClock::new(crate::common::noon()));
    let mut dice = Dice::new(seed);
    let store = options(&disk, &clock).open("store").expect("a new store opens");
    let scope = store.scope("stripe").expect("a new scope opens");
    let mut held: Vec<(u64, Guard)> = Vec::new();
    for number in 0..8 + dice.below(24) {
        held.push((number, begin(&scope, number).expect("there is room")));
    }
    if dice.below(2) == 0 {
        // What was set aside to take these back is free again, and no more than that.
        let others = scope.claim_many((0..8 + dice.below(24)).map(|number| format!("other_{number}")));
        assert!(others.expect("there is room").iter().all(Outcome::is_new));
    }
    for _ in 0..dice.below(4) {
        change_hands(&mut held, &scope, &clock, &mut dice);
    }
    disk.set_capacity(Some(disk.used()));
    fill(&held, &scope, &mut dice);
    let mut completed = Vec::new();
    for (number, guard) in held {
        guard.complete_with([7; 100]).unwrap_or_else(|error| panic!("{number} cannot be completed: {error}"));
        completed.push(number);
    }
    disk.crash();
    disk.set_capacity(None);
    drop((scope, store));
    let store = options(&disk, &clock).open("store").expect("the store opens again");
    let scope = store.scope("stripe").expect("its scope opens");
    for number in completed {
        duplicate(scope.claim(name(number)));
    }
    let (crashes, disk_calls) = (disk.crashes(), disk.calls());
    Tally { histories: 1, crashes, faults: disk.injected(), disk_calls, violations: 0 }
}

fn name(number: u64) -> String {
    format!("evt_{number}")
}

fn begin(scope: &Scope, number: u64) -> oncedb::Result<Guard> {
    match scope.request(name(number)).lease(LEASE).begin()? {
        Outcome::New(guard) => Ok(guard),
        other => panic!("{number} is told {other:?}"),
    }
}

/// Lets the leases lapse; some keys are taken over, some go through a claim that is taken back.
fn change_hands(held: &mut Vec<(u64, Guard)>, scope: &Scope, clock: &ManualClock, dice: &mut Dice) {
    clock.advance(LEASE);
    for (number, guard) in std::mem::take(held) {
        let kept = match dice.below(4) {
            0 => guard,
            1 => {
                guard.renew().expect("nobody took over");
                guard
            }
            2 => {
                drop(guard);
                let mut claim = scope.request(name(number)).claim_async();
                assert!(poll_once(Pin::new(&mut claim)).is_pending());
                drop(claim);
                begin(scope, number).expect("there is room")
            }
            _ => begin(scope, number).expect("there is room"),
        };
        held.push((number, kept));
    }
}

/// Claims and notes until there is no room for the smallest of them.
fn fill(held: &[(u64, Guard)], scope: &Scope, dice: &mut Dice) {
    let mut refused = 0;
    for number in 1000.. {
        let result = match dice.below(3) {
            0 => scope.claim(name(number)).map(drop),
            1 => scope.request(name(number)).claim_with([7; 900]).map(drop),
            _ => {
                let (_, guard) = &held[usize::try_from(number).unwrap_or(0) % held.len()];
                guard.note([1; 20])
            }
        };
        match result {
            Ok(()) => refused = 0,
            Err(Error::Full { .. }) => refused += 1,
            Err(error) => panic!("a full disk is answered with: {error}"),
        }
        if refused == 12 {
            return;
        }
    }
}
