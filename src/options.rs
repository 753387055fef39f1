//! Options of a store and of a scope.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, SystemClock};
use crate::disk::{Disk, RealDisk};
use crate::error::{Error, Result};
use crate::journal::frame::frame_bound;
use crate::journal::segment::SEGMENT_HEADER;
use crate::key::KEY_PREFIX;
use crate::record::RECORD_OVERHEAD;
use crate::salvage::Salvaged;
use crate::store::Store;

/// The longest fingerprint, in bytes.
pub(crate) const MAX_FINGERPRINT: usize = 64;

pub(crate) const DAY: Duration = Duration::from_secs(24 * 3600);
const SHORTEST_WINDOW: Duration = Duration::from_secs(1);
pub(crate) const LONGEST_WINDOW: Duration = Duration::from_secs(100 * 366 * 24 * 3600);

/// When a call that promises durability returns.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let store = oncedb::Store::open(dir.path())?;
/// use oncedb::Durability;
/// use std::time::Duration;
///
/// // This one claim need not survive a power cut in the next 50 ms.
/// let soon = Durability::Interval(Duration::from_millis(50));
/// assert!(store.scope("clicks")?.request("click_1").durability(soon).claim()?.is_new());
/// # Ok::<(), oncedb::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// After the disk has been synced: a power cut loses nothing that was answered.
    Sync,
    /// At once; the sync follows within this time. A power cut may take back what was answered in
    /// the interval before it. A killed process loses at most the last 10 ms.
    Interval(Duration),
}

/// What the time does for which a store was closed.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// use oncedb::{Downtime, ManualClock, Store};
/// use std::time::{Duration, SystemTime};
///
/// let clock = ManualClock::new(SystemTime::UNIX_EPOCH);
/// let an_hour = Downtime::Pauses { at_most: Duration::from_secs(3600) };
/// let open = || Store::options().downtime(an_hour).clock(clock.clone()).open(dir.path());
/// let store = open()?;
/// assert!(store.scope("s")?.claim("evt_1")?.is_new());
/// store.close()?;
/// clock.advance(Duration::from_secs(7 * 24 * 3600)); // a long outage, then everything is redelivered
/// assert!(open()?.scope("s")?.claim("evt_1")?.is_duplicate());
/// # Ok::<(), oncedb::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Downtime {
    /// It counts: a key expires a window after its completion, whatever happened meanwhile.
    Counts,
    /// It counts for at most this long, so that after a long outage the redelivered events still
    /// meet their keys.
    Pauses {
        /// The most that one closed period counts for.
        at_most: Duration,
    },
}

/// How a store is opened. See [`Store::options`].
#[derive(Clone)]
pub struct Options {
    pub(crate) window: Duration,
    pub(crate) durability: Durability,
    pub(crate) memory_limit: usize,
    pub(crate) disk_limit: Option<u64>,
    pub(crate) max_key_len: usize,
    pub(crate) max_response_len: usize,
    pub(crate) max_note_len: usize,
    pub(crate) downtime: Downtime,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) disk: Arc<dyn Disk>,
    /// Whether the store has threads of its own; if not, calls do their work.
    pub(crate) threads: bool,
    /// The size of a journal segment, in place of the one that follows from the limits.
    pub(crate) segment_size: Option<u64>,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("window", &self.window)
            .field("durability", &self.durability)
            .field("memory_limit", &self.memory_limit)
            .field("disk_limit", &self.disk_limit)
            .field("max_key_len", &self.max_key_len)
            .field("max_response_len", &self.max_response_len)
            .field("max_note_len", &self.max_note_len)
            .field("downtime", &self.downtime)
            .finish_non_exhaustive()
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            window: DAY,
            durability: Durability::Sync,
            memory_limit: 64 << 20,
            disk_limit: None,
            max_key_len: 1024,
            max_response_len: 256 << 10,
            max_note_len: 4 << 10,
            downtime: Downtime::Counts,
            clock: Arc::new(SystemClock),
            disk: Arc::new(RealDisk),
            threads: true,
            segment_size: None,
        }
    }
}

impl Options {
    /// How long a completed key is kept, counted from its completion: 1 second to 100 years,
    /// 24 hours by default. A scope or a request can ask for another window.
    #[must_use]
    pub fn window(mut self, length: Duration) -> Self {
        self.window = length;
        self
    }

    /// When `claim`, `complete`, `refuse`, `advance` and `forget` return: [`Durability::Sync`] by
    /// default. An interval is 1 ms to 1 hour.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Bytes for recent claims and caches: at least 1 MiB, 64 MiB by default. The filters of
    /// flushed keys come on top, 2 to 3 bytes a key. Writers wait for the background flush when it
    /// is reached; when claims in progress alone fill it, new ones fail with [`Error::Full`].
    #[must_use]
    pub fn memory_limit(mut self, bytes: usize) -> Self {
        self.memory_limit = bytes;
        self
    }

    /// Bytes on disk over which new claims fail with [`Error::Full`]; `None`, the default, for no
    /// limit but the disk's. The journal alone takes a few segments of an eighth of the memory limit
    /// (or a sixteenth of this limit, where that is less).
    #[must_use]
    pub fn disk_limit(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.disk_limit = bytes.into();
        self
    }

    /// The longest scope name and id, or scope name and entity, in bytes together: 1 to 32,768,
    /// 1,024 by default.
    #[must_use]
    pub fn max_key_len(mut self, bytes: usize) -> Self {
        self.max_key_len = bytes;
        self
    }

    /// The longest response that is kept, in bytes: up to 64 MiB, 256 KiB by default. A longer one
    /// is recorded as [`Response::Omitted`](crate::Response::Omitted).
    #[must_use]
    pub fn max_response_len(mut self, bytes: usize) -> Self {
        self.max_response_len = bytes;
        self
    }

    /// The longest note on a claim in progress, in bytes: up to 1 MiB, 4 KiB by default.
    #[must_use]
    pub fn max_note_len(mut self, bytes: usize) -> Self {
        self.max_note_len = bytes;
        self
    }

    /// What the time does for which the store is closed: [`Downtime::Counts`] by default.
    #[must_use]
    pub fn downtime(mut self, downtime: Downtime) -> Self {
        self.downtime = downtime;
        self
    }

    /// The clock: [`SystemClock`] by default, [`ManualClock`](crate::ManualClock) in tests.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Keeps the store on a disk in memory, for tests.
    #[cfg(any(test, feature = "simulation"))]
    #[must_use]
    pub fn disk(mut self, disk: &crate::disk::memory::MemoryDisk) -> Self {
        self.disk = Arc::new(disk.mounted());
        self
    }

    /// Whether the store has threads of its own, as it does by default. Without them a test runs the
    /// same way every time: what they would do is done by [`Store::tick`], and by blocking calls that
    /// wait for it. A future that waits is woken by those only.
    #[cfg(any(test, feature = "simulation"))]
    #[must_use]
    pub fn threads(mut self, threads: bool) -> Self {
        self.threads = threads;
        self
    }

    /// The size of a journal segment in bytes, in place of the one that follows from the limits, so
    /// that a short test goes through many; still with room for two of the longest frames.
    #[cfg(any(test, feature = "simulation"))]
    #[must_use]
    pub fn segment_size(mut self, bytes: u64) -> Self {
        self.segment_size = Some(bytes);
        self
    }

    /// Opens the store in a directory, creating it if it is not there, and recovers what an earlier
    /// process left.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`], [`Error::Locked`], [`Error::Version`], [`Error::Corrupt`],
    /// [`Error::Full`] where there is no room for the journal, [`Error::Io`].
    pub fn open(self, path: impl AsRef<Path>) -> Result<Store> {
        self.check()?;
        Store::open_with(self, path.as_ref())
    }

    /// Opens a damaged store as [`Store::salvage`] does, with these options.
    ///
    /// # Errors
    ///
    /// As [`Store::salvage`].
    pub fn salvage(self, path: impl AsRef<Path>) -> Result<Salvaged> {
        self.check()?;
        Store::salvage_with(self, path.as_ref())
    }

    fn check(&self) -> Result<()> {
        check_window("window", self.window)?;
        check_durability(self.durability)?;
        in_range("memory_limit", self.memory_limit, 1 << 20, usize::MAX / 2, "it is at least 1 MiB")?;
        in_range("max_key_len", self.max_key_len, 1, 32_768, "it is 1 to 32,768 bytes")?;
        in_range("max_response_len", self.max_response_len, 0, 64 << 20, "it is at most 64 MiB")?;
        in_range("max_note_len", self.max_note_len, 0, 1 << 20, "it is at most 1 MiB")
    }

    /// The longest frame that can occur: a completion of the longest key with the longest response
    /// and a mark, or a begin with the longest note.
    pub(crate) fn max_frame(&self) -> u64 {
        let key = KEY_PREFIX + self.max_key_len;
        let tail = self.max_response_len.max(self.max_note_len);
        frame_bound(3 * key + MAX_FINGERPRINT + tail + 2 * RECORD_OVERHEAD)
    }

    /// The size of a journal segment: an eighth of the memory limit, but room for two of the longest
    /// frames.
    pub(crate) fn segment_len(&self) -> u64 {
        const PAGE: u64 = 4096;
        let memory = self.memory_limit as u64 / 8;
        let size = self.disk_limit.map_or(memory, |limit| memory.min(limit / 16));
        self.segment_size.unwrap_or(size).max(SEGMENT_HEADER + 2 * self.max_frame()).next_multiple_of(PAGE)
    }
}

fn in_range(
    option: &'static str,
    value: usize,
    least: usize,
    most: usize,
    reason: &'static str,
) -> Result<()> {
    if (least..=most).contains(&value) { Ok(()) } else { Err(Error::InvalidOption { option, reason }) }
}

pub(crate) fn check_window(option: &'static str, window: Duration) -> Result<()> {
    if (SHORTEST_WINDOW..=LONGEST_WINDOW).contains(&window) {
        Ok(())
    } else {
        Err(Error::InvalidOption { option, reason: "it is 1 second to 100 years" })
    }
}

pub(crate) fn check_lease(lease: Option<Duration>) -> Result<()> {
    match lease {
        Some(lease) if lease < Duration::from_millis(1) || lease > LONGEST_WINDOW => {
            Err(Error::InvalidOption { option: "lease", reason: "it is 1 ms to 100 years" })
        }
        _ => Ok(()),
    }
}

pub(crate) fn check_durability(durability: Durability) -> Result<()> {
    match durability {
        Durability::Interval(within)
            if within < Duration::from_millis(1) || within > Duration::from_secs(3600) =>
        {
            Err(Error::InvalidOption { option: "durability", reason: "an interval is 1 ms to 1 hour" })
        }
        _ => Ok(()),
    }
}

/// Options of a scope, for new claims from now on; they are not stored.
///
/// ```
/// use oncedb::{ScopeOptions, Ties};
/// use std::time::Duration;
///
/// let three_days = ScopeOptions::new().window(Duration::from_secs(72 * 3600)).ties(Ties::Reject);
/// # assert_ne!(three_days, ScopeOptions::new());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScopeOptions {
    pub(crate) window: Option<Duration>,
    pub(crate) lease: Option<Duration>,
    pub(crate) ties: Ties,
    pub(crate) mark_retention: Retention,
    pub(crate) max_ahead: Option<Duration>,
}

impl ScopeOptions {
    /// The defaults: the store's window, no lease, ties accepted, marks kept for 30 days, any
    /// timestamp.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How long a completed key is kept: 1 second to 100 years. The store's window by default.
    #[must_use]
    pub fn window(mut self, length: Duration) -> Self {
        self.window = Some(length);
        self
    }

    /// After how long without [`renew`](crate::Guard::renew) another attempt may take a claim over:
    /// at least 1 ms. `None`, the default: never while its guard lives.
    #[must_use]
    pub fn lease(mut self, length: impl Into<Option<Duration>>) -> Self {
        self.lease = length.into();
        self
    }

    /// Whether an event as old as the last applied one is applied: [`Ties::Accept`] by default.
    #[must_use]
    pub fn ties(mut self, ties: Ties) -> Self {
        self.ties = ties;
        self
    }

    /// How long an entity's mark is kept after it last moved: 30 days by default.
    #[must_use]
    pub fn mark_retention(mut self, retention: Retention) -> Self {
        self.mark_retention = retention;
        self
    }

    /// How far a time may lie ahead of the clock; `None`, the default, for any. Further ahead is
    /// [`Error::TooFarAhead`]. It does not apply to sequence numbers.
    #[must_use]
    pub fn max_ahead(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.max_ahead = limit.into();
        self
    }

    pub(crate) fn check(&self) -> Result<()> {
        if let Some(window) = self.window {
            check_window("window", window)?;
        }
        if let Retention::For(length) = self.mark_retention {
            check_window("mark_retention", length)?;
        }
        check_lease(self.lease)
    }
}

/// What to do with another event of the same timestamp as the last applied one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ties {
    /// Apply it: nothing is lost where a sender's timestamps are coarse.
    #[default]
    Accept,
    /// It is stale: timestamps are exact.
    Reject,
}

/// How long something is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Retention {
    /// For this long: 1 second to 100 years.
    For(Duration),
    /// Until it is forgotten on purpose. Disk use grows with the number of entities.
    Forever,
}

impl Default for Retention {
    fn default() -> Self {
        Self::For(30 * DAY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_holds_two_of_the_longest_frames() {
        for options in [
            Options::default(),
            Options::default().memory_limit(1 << 20).max_response_len(64 << 20).max_note_len(1 << 20),
            Options::default().disk_limit(1).max_response_len(0).max_key_len(1),
        ] {
            assert!(options.segment_len() >= SEGMENT_HEADER + 2 * options.max_frame());
        }
        assert_eq!(Options::default().segment_len(), 8 << 20);
    }

    #[test]
    fn options_out_of_range_are_refused() {
        let tiny = Duration::from_millis(999);
        for options in [
            Options::default().window(tiny),
            Options::default().window(Duration::MAX),
            Options::default().durability(Durability::Interval(Duration::ZERO)),
            Options::default().memory_limit(1000),
            Options::default().max_key_len(0),
            Options::default().max_response_len(usize::MAX),
        ] {
            assert!(matches!(options.check(), Err(Error::InvalidOption { .. })), "{options:?}");
        }
        assert!(ScopeOptions::new().window(tiny).check().is_err());
        assert!(ScopeOptions::new().lease(Duration::ZERO).check().is_err());
        assert!(ScopeOptions::new().mark_retention(Retention::For(tiny)).check().is_err());
        assert!(ScopeOptions::new().check().is_ok());
    }
}
