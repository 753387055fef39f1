//! What an engine says of itself.

use std::time::Duration;

use super::Engine;
use crate::live::State;
use crate::record::{Body, StoredRecord};
use crate::stats::Stats;
use crate::sync::atomic::{AtomicU64, Ordering};

impl Engine {
    /// A picture of the store.
    pub(crate) fn stats(&self) -> Stats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (live_keys, in_progress, oldest_in_progress) = self.census();
        let journal = &self.journal.counters;
        let runs = self.runs.current();
        let (syncs, frames) = (read(&journal.syncs), read(&journal.synced_frames));
        Stats {
            live_keys,
            in_progress,
            oldest_in_progress,
            orphans_found: self.orphans_found,
            new: read(&self.counters.new),
            duplicates: read(&self.counters.duplicate),
            conflicts: read(&self.counters.in_progress),
            mismatches: read(&self.counters.mismatch),
            stale: read(&self.counters.stale),
            journal_bytes: self.journal_bytes(),
            memory_bytes: (self.live.bytes() + runs.memory()) as u64,
            disk_bytes: self.disk_bytes(),
            runs: runs.run_count() as u64,
            syncs,
            #[expect(clippy::cast_precision_loss, reason = "a ratio for people to read")]
            claims_per_sync: if syncs == 0 { 0.0 } else { frames as f64 / syncs as f64 },
            sync_latency_p50: journal.sync_latency.percentile(50.0),
            sync_latency_p99: journal.sync_latency.percentile(99.0),
            sync_latency_p999: journal.sync_latency.percentile(99.9),
        }
    }

    /// What the store takes on disk.
    pub(crate) fn disk_bytes(&self) -> u64 {
        self.runs.bytes() + self.journal_bytes() + self.catalog.bytes()
    }

    fn journal_bytes(&self) -> u64 {
        self.segment_files.load(Ordering::Relaxed) * self.options.segment_len()
    }

    /// Live keys, claims in progress, and the age of the oldest of those.
    pub(crate) fn census(&self) -> (u64, u64, Duration) {
        let now = self.now();
        let (mut keys, mut running, mut oldest) = (self.runs.current().live_keys(now), 0, Duration::ZERO);
        for shard in self.live.shards() {
            for entry in shard.lock().entries() {
                match &entry.state {
                    // A fenced attempt stays in the map until its key is looked after.
                    State::Running(attempt) if attempt.has_ended() => {}
                    State::Running(attempt) => {
                        running += 1;
                        oldest = oldest.max(now.since(attempt.claimed_at));
                    }
                    State::Settled { record, .. } => {
                        if let Some(Body::Done(done)) = StoredRecord::decode(record).map(|record| record.body)
                        {
                            keys += u64::from(now < done.expires_at);
                        }
                    }
                }
            }
        }
        (keys, running, oldest)
    }
}
