//! One life of a store on a simulated disk, from its opening to its end.

use oncedb::conformance::Setup;
use oncedb::simulation::{Call, Fault, FaultKind, MemoryDisk};
use oncedb::{Downtime, ManualClock, Result, Scope, ScopeOptions, Store};

/// What a stored reply takes beside its body.
const HEADERS: usize = 1 << 10;

pub struct Life {
    pub store: Store,
    options: ScopeOptions,
}

impl Life {
    pub fn open(setup: &Setup, disk: &MemoryDisk, clock: &ManualClock, threads: bool) -> Result<Self> {
        Self::open_with(setup, disk, clock, threads, setup.max_response_len)
    }

    /// For replies that are stored with their headers.
    pub fn open_for_replies(setup: &Setup, disk: &MemoryDisk, clock: &ManualClock) -> Result<Self> {
        Self::open_with(setup, disk, clock, true, setup.max_response_len + HEADERS)
    }

    fn open_with(
        setup: &Setup,
        disk: &MemoryDisk,
        clock: &ManualClock,
        threads: bool,
        max_response_len: usize,
    ) -> Result<Self> {
        let downtime =
            setup.downtime_at_most.map_or(Downtime::Counts, |at_most| Downtime::Pauses { at_most });
        let store = Store::options()
            .window(setup.window)
            .max_response_len(max_response_len)
            .memory_limit(1 << 20)
            .downtime(downtime)
            .clock(clock.clone())
            .disk(disk)
            .threads(threads)
            .open("store")?;
        let options = ScopeOptions::new().ties(setup.ties).max_ahead(setup.max_ahead);
        Ok(Self { store, options })
    }

    pub fn scope(&self, source: &str) -> Result<Scope> {
        self.store.scope_with(source, self.options.clone())
    }
}

pub fn break_disk(disk: &MemoryDisk, broken: bool) {
    if broken {
        disk.inject(Fault::new(FaultKind::Io).on(Call::Sync).lasting());
    } else {
        disk.heal();
    }
}

pub fn fill_disk(disk: &MemoryDisk, full: bool) {
    disk.set_capacity(full.then(|| disk.used()));
}
