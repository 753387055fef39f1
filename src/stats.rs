//! What a store says of itself.

use std::time::Duration;

/// A picture of a store at one moment. See [`Store::stats`](crate::Store::stats).
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let store = oncedb::Store::open(dir.path())?;
/// let _ = store.scope("s")?.claim_many(["a", "b", "a"])?;
/// let stats = store.stats();
/// assert_eq!((stats.live_keys, stats.new, stats.duplicates), (2, 2, 1));
/// # Ok::<(), oncedb::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Completed keys that have not expired. Exact for recent ones; an estimate while older ones
    /// are expiring.
    pub live_keys: u64,
    /// Claims in progress.
    pub in_progress: u64,
    /// The age of the oldest claim in progress; zero if there is none.
    pub oldest_in_progress: Duration,
    /// Claims whose owner was gone when the store was opened.
    pub orphans_found: u64,
    /// Claims granted since the store was opened.
    pub new: u64,
    /// `Duplicate` verdicts since then.
    pub duplicates: u64,
    /// `InProgress` verdicts since then.
    pub conflicts: u64,
    /// `Mismatch` verdicts since then.
    pub mismatches: u64,
    /// `Stale` verdicts since then.
    pub stale: u64,
    /// Bytes of the journal on disk.
    pub journal_bytes: u64,
    /// Bytes of recent states and filters in memory, estimated.
    pub memory_bytes: u64,
    /// Bytes of all files on disk.
    pub disk_bytes: u64,
    /// Runs that lookups consult.
    pub runs: u64,
    /// Journal syncs since the store was opened.
    pub syncs: u64,
    /// Journal frames per sync: how many claims shared one.
    pub claims_per_sync: f64,
    /// The journal sync latency that half of the syncs did not exceed.
    pub sync_latency_p50: Duration,
    /// The latency that 99 % did not exceed.
    pub sync_latency_p99: Duration,
    /// The latency that 99.9 % did not exceed.
    pub sync_latency_p999: Duration,
}

/// What [`Store::maintain`](crate::Store::maintain) did.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let store = oncedb::Store::open(dir.path())?;
/// let _ = store.scope("s")?.claim("a")?;
/// assert_eq!(store.maintain()?.flushed, 1);
/// # Ok::<(), oncedb::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Maintenance {
    /// Records written to runs.
    pub flushed: u64,
    /// Merges of runs.
    pub merged: u64,
    /// Buckets whose files were let go.
    pub expired: u64,
}
