//! The end of an engine, orderly or not.

use std::io;
use std::sync::Arc;

use super::claim::released_record;
use super::{Engine, Phase as EnginePhase};
use crate::catalog::{Edit, Meta};
use crate::error::Result;
use crate::guard::Cause;
use crate::journal::{End, Haste, Lead, Room};
use crate::live::attempt::wake;
use crate::live::{Phase, State};
use crate::runs::FlushError;
use crate::sync::thread::{self, ThreadId};

impl Engine {
    /// Ends the store: claims in progress become orphans, everything is flushed and durable.
    pub(crate) fn close(&self) -> Result<()> {
        self.end_handover();
        self.set_phase(EnginePhase::Closed);
        let orphans = self.orphan_all();
        self.wake_everyone();
        self.stop_background();
        // A flush under way may wait for a sync that only this thread can lead.
        let _ = self.journal.end(End::Closed);
        let _gate = self.gate.write();
        let flushed = match self.journal.failure() {
            Some(fault) => Err(fault.into()),
            None => self.close_files(orphans),
        };
        self.end_threads();
        self.catalog.close().and(flushed)
    }

    /// Ends without writing anything: what is on the disk will be read anew. Its guards are fenced.
    pub(crate) fn abandon(&self) {
        let error = Arc::new(io::Error::other("the store is being reopened"));
        // A sound journal keeps what it was given; a poisoned one has said already that it may not.
        let _ = self.journal.end(End::Abandoned(Arc::clone(&error)));
        // In this order: a waiter that meets the failure is told to begin again.
        self.set_phase(EnginePhase::Superseded);
        self.journal.poison(error);
        self.wake_everyone();
        self.stop_background();
        let _gate = self.gate.write();
        self.journal.quiesce();
        self.end_threads();
        // What fails here has been seen by reading the file again.
        let _ = self.catalog.close();
    }

    /// Ends the sync thread and waits for all; nobody is left waiting.
    fn end_threads(&self) {
        self.journal.stop();
        self.join();
        self.journal.answer_rest();
        self.end_handover();
    }

    /// Whether ending this engine waits for that thread.
    pub(crate) fn is_own_thread(&self, thread: ThreadId) -> bool {
        self.thread_ids.lock().contains(&thread)
    }

    fn stop_background(&self) {
        self.work.stop();
        self.merges.stop();
    }

    /// Waits for the threads, except for the one that calls: a waker run by it may drop the last
    /// handle.
    fn join(&self) {
        let threads = std::mem::take(&mut *self.threads.lock());
        for handle in threads {
            if handle.thread().id() != thread::current().id() {
                // A panic there has been reported on its own.
                let _ = handle.join();
            }
        }
    }

    /// Gives every claim in progress up for its next attempt to find; how many.
    fn orphan_all(&self) -> u64 {
        let mut orphans = 0;
        for shard in self.live.shards() {
            let mut woken = Vec::new();
            let mut costs = (0, 0);
            let mut shard = shard.lock();
            for entry in shard.entries_mut() {
                let State::Running(attempt) = &entry.state else { continue };
                let attempt = Arc::clone(attempt);
                let cause = if attempt.has_ended() { Cause::LeaseExpired } else { Cause::Orphaned };
                orphans += u64::from(cause == Cause::Orphaned);
                let record = released_record(&attempt, cause, self.now());
                let room = Room::Settle { reserved: attempt.progress().reserved };
                // If it cannot be written, its begin is still in the journal: an orphan all the same.
                if let Ok(seq) = self.journal.append(&[&record], room, Haste::Written) {
                    costs.0 += entry.cost();
                    entry.seq = seq;
                    entry.state = State::Settled { record: record.into(), undelivered: None };
                    costs.1 += entry.cost();
                }
                woken.extend(attempt.end(Phase::Released));
            }
            drop(shard);
            self.live.add_bytes(costs.0, costs.1);
            wake(woken);
        }
        orphans
    }

    fn close_files(&self, orphans: u64) -> Result<()> {
        self.journal.end(End::Closed)?;
        let written = self.flush(Lead::Always).and_then(|_| {
            let mut edits = self.clock_edits();
            edits.push(Edit::Meta(Meta::Orphans, orphans));
            if self.catalog.meta(Meta::Released) == self.journal.appended() {
                // Nothing in the journal is needed any more.
                let segments = self.catalog.contents().segments;
                let free = |file_id| Edit::Segment { file_id, ordinal: 0, epoch: 0 };
                edits.extend(segments.into_keys().map(free));
            }
            self.catalog.commit(edits).map_err(FlushError::Catalog)
        });
        match written {
            // The journal still holds it all, and the next open replays it.
            Err(error) if error.is_no_space() => Ok(()),
            written => Ok(written?),
        }
    }
}
