//! The runs that count at one moment.

use std::sync::Arc;

use super::bucket::{Bucket, alive};
use super::run::{Found, Run};
use crate::clock::Time;
use crate::error::{Error, Result};
use crate::record::Far;

/// An immutable list of buckets. Whoever holds it can read every file in it, even after the store
/// has gone on to another list.
#[derive(Debug, Default)]
pub(crate) struct RunSet {
    /// Grows with every change of the list.
    pub(crate) version: u64,
    /// In no particular order.
    pub(crate) buckets: Vec<Bucket>,
}

impl RunSet {
    fn runs(&self, now: Time) -> impl Iterator<Item = &Arc<Run>> {
        self.buckets.iter().flat_map(|bucket| &bucket.runs).filter(move |run| run.summary().last_purge > now)
    }

    /// Whether a key with this hash may be in a run, by the filters alone.
    pub(crate) fn may_contain(&self, hash: u64, now: Time) -> bool {
        self.runs(now).any(|run| run.may_contain(hash))
    }

    /// The newest record of a key; reads the disk.
    pub(crate) fn find(&self, hash: u64, key: &[u8], now: Time) -> Result<Option<Found>> {
        let mut newest: Option<Found> = None;
        for run in self.runs(now).filter(|run| run.may_contain(hash)) {
            if let Some(found) = run.find(hash, key)?
                && newest.as_ref().is_none_or(|newest| found.seq > newest.seq)
            {
                newest = Some(found);
            }
        }
        Ok(newest)
    }

    /// Reads a large response.
    pub(crate) fn response(&self, far: Far) -> Result<Arc<[u8]>> {
        let mut files = self.buckets.iter().flat_map(|bucket| &bucket.responses);
        match files.find(|file| file.id() == far.file) {
            Some(file) => file.read(far),
            None => Err(Error::corrupt(
                std::path::Path::new("runs"),
                far.offset,
                "a record points to a response file that is not listed",
            )),
        }
    }

    /// Completed keys that have not expired; an estimate where a run is expiring just now.
    pub(crate) fn live_keys(&self, now: Time) -> u64 {
        let live = |run: &Arc<Run>| {
            let summary = run.summary();
            alive(summary.done, summary.first_expiry, summary.last_expiry, now)
        };
        self.runs(now).map(live).sum()
    }

    /// When the last completed key expires.
    pub(crate) fn last_expiry(&self) -> Time {
        let runs = self.buckets.iter().flat_map(|bucket| &bucket.runs);
        runs.map(|run| run.summary().last_expiry).max().unwrap_or_default()
    }

    /// Bytes of the indexes and filters in memory.
    pub(crate) fn memory(&self) -> usize {
        self.buckets.iter().flat_map(|bucket| &bucket.runs).map(|run| run.memory()).sum()
    }

    pub(crate) fn run_count(&self) -> usize {
        self.buckets.iter().map(|bucket| bucket.runs.len()).sum()
    }
}
