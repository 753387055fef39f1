//! Whatever a crash leaves, a store recovers to a state that holds everything it had acknowledged and
//! nothing that was never asked for, and goes on from there.
//!
//! Every history runs on a simulated disk without threads of its own, so a seed and a number replay
//! it: `ONCEDB_SEED` is printed with every failure. `ONCEDB_CRASH_SECONDS` asks for longer campaigns.

#[path = "../common/mod.rs"]
mod common;

mod calls;
mod campaign;
mod concurrent;
mod damage;
mod faults;
mod history;
mod linear;
mod oracle;
mod overtaken;
mod room;
mod states;
mod world;

use campaign::{for_seconds, seconds, seed, seed_of};
use history::Tally;
use oncedb::simulation::{Call, FaultKind};
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn power_cuts_at_random_moments() {
    let seed = seed();
    campaign::run("random power cuts", for_seconds(seconds() / 2), |number| {
        history::random(seed_of(seed, number), false)
    });
}

#[test]
fn power_cuts_under_the_work_of_background_threads() {
    let seed = seed();
    campaign::run("power cuts with threads", for_seconds(seconds() / 4), |number| {
        history::random(seed_of(seed, number), true)
    });
}

#[test]
fn a_power_cut_at_every_sync_point() {
    let seed = seed();
    for call in [Call::Sync, Call::SyncDir, Call::Create, Call::Remove, Call::SetLen] {
        let name = format!("cut at every {call:?}");
        at_every_call(&name, |number| history::cut_at(seed_of(seed, 1), Some(call), number));
    }
}

#[test]
fn a_power_cut_at_every_call_of_a_recovery() {
    let seed = seed();
    at_every_call("cut at every call of a recovery", |number| {
        history::cut_in_recovery(seed_of(seed, 0), number)
    });
}

/// Runs histories with 0, 1, 2, ... until one has no call left to hit.
fn at_every_call(name: &str, history: impl Fn(u64) -> Option<Tally> + Sync) {
    let over = AtomicBool::new(false);
    campaign::run(
        name,
        |_| !over.load(Ordering::Relaxed),
        |number| {
            history(number).unwrap_or_else(|| {
                over.store(true, Ordering::Relaxed);
                Tally::default()
            })
        },
    );
}

#[test]
fn a_failure_at_every_call() {
    let seed = seed();
    for kind in [FaultKind::Io, FaultKind::NoSpace, FaultKind::Short, FaultKind::Interrupted] {
        for lasting in [false, true] {
            let name = format!("{}{kind:?} at every call", if lasting { "lasting " } else { "" });
            at_every_call(&name, |number| faults::fault_at(seed_of(seed, 7), kind, lasting, number));
        }
    }
}

#[test]
fn one_kind_of_call_that_fails_from_every_call_on() {
    let seed = seed();
    for call in Call::ALL {
        let name = format!("every {call:?} fails from one on");
        at_every_call(&name, |number| faults::kind_of_call_fails(seed_of(seed, 9), call, number));
    }
}

#[test]
fn a_failure_of_every_sync_alone() {
    let seed = seed();
    at_every_call("one sync fails", |number| faults::sync_fails(seed_of(seed, 11), number));
}

#[test]
fn what_one_caller_freed_is_durable_before_another_one_is_told() {
    let seed = seed();
    campaign::run("two callers", for_seconds(seconds() / 20), |number| {
        history::two_callers(seed_of(seed, number))
    });
}

#[test]
fn room_for_a_completion_is_kept_until_it_is_used() {
    let seed = seed();
    campaign::run("promised room", for_seconds(seconds() / 20), |number| {
        room::promised_room(seed_of(seed, number))
    });
}

#[test]
fn a_disk_that_is_full_for_a_while() {
    let seed = seed();
    campaign::run("full disk", for_seconds(seconds() / 10), |number| {
        faults::full_disk(seed_of(seed, number))
    });
}

#[test]
fn a_changed_byte_after_a_power_cut() {
    let seed = seed();
    campaign::run("changed byte", for_seconds(seconds() / 10), |number| {
        damage::damaged(seed_of(seed, number))
    });
}

#[test]
fn a_torn_tail_with_whole_frames_behind_it() {
    let seed = seed();
    campaign::run("torn tail", for_seconds(seconds() / 20), |number| {
        history::torn_tail(seed_of(seed, number))
    });
}

#[test]
fn threads_are_told_one_linear_order_of_every_key() {
    let seed = seed();
    campaign::run("concurrent", for_seconds(seconds() / 6), |number| {
        concurrent::concurrent(seed_of(seed, number))
    });
}
