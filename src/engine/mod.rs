//! One open store: what recovery builds, and what `reopen` replaces as a whole.
//!
//! [`open`] recovers, [`view`] reads a key's state, [`claim`] reaches verdicts, [`settle`] ends
//! claims, [`marks`] keeps order, [`drive`] waits for both kinds of callers, [`maintain`] runs in the
//! background, [`close`] ends it all; [`verify`] reads every file.
//!
//! Lock order: shard, attempt's progress; shard, journal. Nothing is waited for under a shard lock.

pub(crate) mod batch;
mod census;
pub(crate) mod claim;
mod close;
mod deferred;
pub(crate) mod drive;
mod handover;
mod maintain;
pub(crate) mod marks;
mod open;
mod rebuild;
pub(crate) mod salvage;
mod settle;
mod threadless;
mod verify;
pub(crate) mod view;
mod work;

use std::path::PathBuf;
use std::sync::Arc;

use crate::catalog::{Catalog, Edit};
use crate::clock::{Time, Timeline, WallMapping};
use crate::error::{Error, Result};
use crate::identity::Identity;
use crate::journal::{Haste, Journal};
use crate::key::{Key, KeyHasher, Kind};
use crate::live::{Attempt, LiveMap};
use crate::options::{Durability, Options};
use crate::runs::{FlushError, RunStore};
use crate::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use crate::sync::thread::{self, ThreadId};
use crate::sync::{Mutex, RwLock};

pub(crate) use claim::{Ask, Verdict};
use handover::Handover;
pub(crate) use settle::Settlement;
use work::Work;

/// The highest number that a scope gets.
const LAST_SCOPE: u32 = u32::MAX - 1;

/// Bits of a token that count within one opening.
const TOKEN_BITS: u32 = 40;

#[derive(Debug)]
pub(crate) struct Engine {
    options: Options,
    dir: PathBuf,
    timeline: Timeline,
    hasher: KeyHasher,
    journal: Journal,
    live: LiveMap,
    runs: RunStore,
    catalog: Catalog,
    phase: Life,
    next_token: AtomicU64,
    work: Work,
    merges: Work,
    handover: Handover,
    pool: Mutex<maintain::SegmentPool>,
    /// How many segment files there are, for those who must not wait for the pool.
    segment_files: AtomicU64,
    flushing: Mutex<maintain::FlushHistory>,
    hold: Option<maintain::Hold>,
    /// Held while background work runs; taken alone to end it.
    gate: RwLock<()>,
    /// The length of both copies of the identity, once this engine has written them and nothing failed.
    identity_len: Mutex<Option<u64>>,
    leased: Mutex<Vec<Arc<Attempt>>>,
    failure_announced: AtomicBool,
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
    thread_ids: Mutex<Vec<ThreadId>>,
    pub(crate) counters: Counters,
    pub(crate) orphans_found: u64,
}

/// Verdicts given since the store was opened.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) new: AtomicU64,
    pub(crate) duplicate: AtomicU64,
    pub(crate) in_progress: AtomicU64,
    pub(crate) mismatch: AtomicU64,
    pub(crate) stale: AtomicU64,
}

impl Counters {
    pub(crate) fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Where an engine is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Phase {
    Open = 0,
    Closed = 1,
    /// Another engine has taken over the directory.
    Superseded = 2,
}

/// An engine's phase, for those who may outlive it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Life(Arc<AtomicU8>);

impl Life {
    fn phase(&self) -> Phase {
        match self.0.load(Ordering::Acquire) {
            0 => Phase::Open,
            2 => Phase::Superseded,
            _ => Phase::Closed,
        }
    }

    /// Whether the store was reopened: nobody owns anything there any more.
    pub(crate) fn is_superseded(&self) -> bool {
        self.phase() == Phase::Superseded
    }
}

impl Engine {
    fn phase(&self) -> Phase {
        self.phase.phase()
    }

    fn set_phase(&self, phase: Phase) {
        self.phase.0.store(phase as u8, Ordering::Release);
    }

    pub(crate) fn life(&self) -> Life {
        self.phase.clone()
    }

    /// Fails if no verdict can be given. Checked under the shard lock where it matters: closing
    /// changes the phase before it visits the shards.
    fn check(&self) -> Result<()> {
        match self.phase() {
            Phase::Closed => return Err(Error::Closed),
            // The journal of a superseded one is poisoned at once.
            Phase::Open | Phase::Superseded => {}
        }
        match self.journal.failure() {
            None => Ok(()),
            Some(fault) => Err(fault.into()),
        }
    }

    /// Whether the store was reopened: nobody owns anything here any more.
    pub(crate) fn is_superseded(&self) -> bool {
        self.phase() == Phase::Superseded
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    pub(crate) fn key(&self, kind: Kind, scope: u32, name: &[u8]) -> Key {
        Key::new(&self.hasher, kind, scope, name)
    }

    pub(crate) fn mapping(&self) -> WallMapping {
        self.timeline.mapping()
    }

    fn now(&self) -> Time {
        self.timeline.now()
    }

    fn token(&self) -> u64 {
        self.next_token.fetch_add(1, Ordering::Relaxed)
    }

    /// A number for a batch of claims, not 0.
    fn batch_number(&self) -> u64 {
        // Any number that no other batch has.
        self.token()
    }

    /// A call's durability: what it asked for, or else the store's.
    fn durability(&self, asked: Option<Durability>) -> Durability {
        asked.unwrap_or(self.options.durability)
    }

    /// The last frame accepted so far.
    pub(crate) fn accepted(&self) -> Result<u64> {
        self.check()?;
        Ok(self.journal.appended())
    }

    /// The number of a scope, given to it at its first use.
    pub(crate) fn register_scope(&self, name: &str) -> Result<u32> {
        let _gate = self.gate.read();
        self.check()?;
        if let Some(number) = self.catalog.scope(name) {
            return Ok(number);
        }
        // A higher one would be taken for damage. The caller has the lock of all names.
        if self.catalog.last_scope() >= LAST_SCOPE {
            return Err(Error::Full {
                limit: None,
                what: "the count of scopes, whose numbers have 32 bits,",
            });
        }
        let mut number = 0;
        let committed = self.catalog.commit_with(|contents| {
            number = contents.last_scope + 1;
            // Before the catalog knows it: the copies must not know less.
            let (disk, dir) = (&*self.options.disk, &*self.dir);
            let mut written = self.identity_len.lock();
            let len = if let Some(len) = written.take() {
                Identity::append(disk, dir, len, name, number)?
            } else {
                let mut identity = Identity::of(contents);
                identity.scopes.insert(name.into(), number);
                identity.write(disk, dir)?
            };
            *written = Some(len);
            Ok(vec![Edit::Scope(name.into(), number)])
        });
        match committed {
            Ok(()) => Ok(number),
            Err(error) => {
                // They name a scope that has no number.
                *self.identity_len.lock() = None;
                let error = FlushError::Catalog(error);
                self.background_failure(&error);
                Err(error.into())
            }
        }
    }
}

impl Durability {
    fn haste(self) -> Haste {
        match self {
            Self::Sync => Haste::Awaited,
            Self::Interval(within) => Haste::Synced(within),
        }
    }

    fn is_sync(self) -> bool {
        self == Self::Sync
    }
}
