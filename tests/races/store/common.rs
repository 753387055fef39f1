//! A small store on a simulated disk, and what every test does with it.

use oncedb::simulation::MemoryDisk;
use oncedb::{Guard, InProgress, ManualClock, Options, Outcome, Record, Scope, Store};
use shuttle::rand::{Rng, thread_rng};
use std::fmt::Debug;
use std::time::{Duration, SystemTime};

pub(crate) const HOUR: Duration = Duration::from_secs(3600);

pub(crate) struct Place {
    pub(crate) disk: MemoryDisk,
    pub(crate) clock: ManualClock,
}

impl Place {
    pub(crate) fn new() -> Self {
        let clock = ManualClock::new(SystemTime::UNIX_EPOCH + 500_000 * HOUR);
        Self { disk: MemoryDisk::new(thread_rng().r#gen()), clock }
    }

    pub(crate) fn options(&self) -> Options {
        Store::options()
            .disk(&self.disk)
            .clock(self.clock.clone())
            .memory_limit(1 << 20)
            .segment_size(4096)
            .max_key_len(32)
            .max_response_len(64)
            .max_note_len(64)
    }

    pub(crate) fn open(&self) -> (Store, Scope) {
        let store = self.options().open("store").expect("the store opens");
        let scope = store.scope("s").expect("the scope opens");
        (store, scope)
    }
}

#[track_caller]
pub(crate) fn new<N: Debug, P: Debug>(outcome: Outcome<N, P>) -> N {
    match outcome {
        Outcome::New(new) => new,
        other => panic!("not new: {other:?}"),
    }
}

#[track_caller]
pub(crate) fn in_progress(outcome: Outcome<Guard>) -> InProgress {
    match outcome {
        Outcome::InProgress(other) => other,
        other => panic!("not in progress: {other:?}"),
    }
}

/// Claims through one of the doors.
pub(crate) fn claim(scope: &Scope, id: &str) -> oncedb::Result<Outcome<Record>> {
    match thread_rng().gen_range(0..4) {
        0 => shuttle::future::block_on(scope.claim_async(id)),
        1 => scope.claim_many([id]).map(|mut outcomes| outcomes.remove(0)),
        _ => scope.claim(id),
    }
}

/// Completes through one of the doors.
pub(crate) fn complete(guard: Guard) -> oncedb::Result<()> {
    if thread_rng().r#gen() { guard.complete() } else { shuttle::future::block_on(guard.complete_async()) }
}
