//! Whole histories of a store on a disk that loses power and fails, judged by the oracle of the crash
//! tests. The fuzzer makes the choices that are drawn there.
#![no_main]
#![allow(
    dead_code,
    clippy::pedantic,
    reason = "the crash tests use more of their parts, and have lints of their own"
)]

mod common;

#[path = "../../../tests/crash/calls.rs"]
mod calls;
#[path = "../../../tests/crash/faults.rs"]
mod faults;
#[path = "../../../tests/crash/history.rs"]
mod history;
#[path = "../../../tests/crash/oracle.rs"]
mod oracle;
#[path = "../../../tests/crash/states.rs"]
mod states;
#[path = "../../../tests/crash/world.rs"]
mod world;

use libfuzzer_sys::fuzz_target;
use oncedb::simulation::{Call, FaultKind};

const KINDS: [FaultKind; 4] = [FaultKind::Io, FaultKind::NoSpace, FaultKind::Short, FaultKind::Interrupted];

// The head of an input: the kind of history, a call number, and the seed of the disk.
fuzz_target!(|data: &[u8]| {
    let Some((&[kind, high, low, disk], choices)) = data.split_first_chunk() else { return };
    common::set_input(choices);
    let (seed, number) = (u64::from(disk), u64::from(u16::from_be_bytes([high, low])) % 2_000);
    let pick = usize::from(kind) / 8;
    let _ = match kind % 8 {
        0 => history::cut_at(seed, None, number),
        1 => history::cut_at(seed, Some(Call::ALL[pick % Call::ALL.len()]), number % 100),
        2 => history::cut_in_recovery(seed, number % 100),
        3 | 4 => faults::fault_at(seed, KINDS[pick % 4], pick / 4 % 2 == 1, number),
        5 => Some(faults::full_disk(seed)),
        _ => Some(history::random(seed, false)),
    };
});
