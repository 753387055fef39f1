//! Background work: segments made ready, states flushed to runs, runs merged, buckets expired, the
//! clock stamped.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::claim::released_record;
use super::drive::{Patience, Wait};
use super::open::{JOURNAL_DIR, stamp_edits};
use super::{Engine, Phase as EnginePhase};
use crate::catalog::{Catalog, CommitError, Edit, Meta};
use crate::clock::Time;
use crate::error::{Error, Result};
use crate::guard::Cause;
use crate::journal::segment::{self, Origin, Segment, Use};
use crate::journal::{Haste, Lead, Room};
use crate::live::attempt::wake;
use crate::live::{Attempt, Entry, State};
use crate::options::Options;
use crate::runs::{FlushError, Flushed};
use crate::sabotage::{self, Break};
use crate::stats::Maintenance;
use crate::sync::atomic::Ordering;

/// Segments kept ready beside the current one.
const READY_SEGMENTS: usize = 3;

/// Full segments that call for a flush, whatever memory says.
const USED_SEGMENTS: usize = 4;

/// Segments that even the smallest disk limit allows.
const FEWEST_SEGMENTS: u64 = 3;

/// Free segment files kept for recycling.
const FREE_SEGMENTS: usize = 3;

const STAMP_EVERY: Duration = Duration::from_secs(60);

/// Rounds of background work that a claim waits for while they make progress.
const MOST_ROUNDS: u32 = 16;

/// Segment files that hold nothing.
#[derive(Debug)]
pub(crate) struct SegmentPool {
    pub(crate) free: BTreeSet<u32>,
    pub(crate) next_file: u32,
    pub(crate) ordinal: u64,
    /// All segment files there are.
    pub(crate) files: u64,
}

impl SegmentPool {
    /// A segment of the next ordinal, ready and listed; `None` if the disk limit forbids it.
    pub(super) fn prepare(
        &mut self,
        options: &Options,
        dir: &Path,
        catalog: &Catalog,
        run_bytes: u64,
    ) -> Result<Option<Segment>, FlushError> {
        let size = options.segment_len();
        let recycled = self.free.first().copied();
        let file_id = recycled.unwrap_or(self.next_file);
        if let Some(limit) = options.disk_limit
            && recycled.is_none()
            && self.files >= FEWEST_SEGMENTS
            && run_bytes + catalog.bytes() + (self.files + 1) * size > limit
        {
            return Ok(None);
        }
        let ordinal = self.ordinal + 1;
        let dir = dir.join(JOURNAL_DIR);
        let origin = Origin {
            era: catalog.meta(Meta::Era),
            released: catalog.meta(Meta::Released),
            store_time: catalog.meta(Meta::StoreTime),
            wall_time: catalog.meta(Meta::WallTime),
        };
        let epoch = if sabotage::is(Break::ReuseEpoch) { 7 } else { options.disk.random() };
        let use_ = Use { file_id, ordinal, epoch, size, origin };
        let segment = Segment::prepare(&*options.disk, &dir, use_)
            .map_err(|error| FlushError::Write(segment::path(&dir, file_id), error))?;
        let next_file = self.next_file.max(file_id + 1);
        catalog
            .commit(vec![
                Edit::Segment { file_id, ordinal, epoch: segment.epoch },
                Edit::Meta(Meta::Ordinal, ordinal),
                Edit::Meta(Meta::NextSegment, next_file.into()),
            ])
            .map_err(FlushError::Catalog)?;
        self.ordinal = ordinal;
        self.free.remove(&file_id);
        self.next_file = next_file;
        self.files += u64::from(recycled.is_none());
        Ok(Some(segment))
    }
}

/// The sequence numbers up to which the last flushes went.
#[derive(Debug, Default)]
pub(crate) struct FlushHistory {
    pub(crate) last: u64,
    pub(crate) before: u64,
    pub(crate) stamped: Time,
}

/// After a jump of the clock at open, nothing is physically removed for a while.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold {
    pub(crate) until: Time,
    /// The time before the jump: what had expired by then may go.
    pub(crate) before: Time,
}

impl Engine {
    /// The time by which something must have expired to be removed now.
    fn removal_time(&self) -> Time {
        let now = self.now();
        if sabotage::is(Break::ExpireEarly) {
            return now.after(Duration::from_secs(60));
        }
        match self.hold {
            Some(hold) if now < hold.until => hold.before,
            _ => now,
        }
    }

    /// Memory over which a flush begins, and over which new claims wait.
    fn memory_marks(&self) -> (usize, usize) {
        let limit = self.options.memory_limit;
        (limit / 8 * 3, limit / 8 * 6)
    }

    /// Whether a claim of this cost must wait for room, and for what. Fails once waiting has not
    /// helped.
    pub(super) fn no_room(&self, cost: usize, patience: &Patience) -> Result<Option<Wait>> {
        let bytes = self.live.bytes();
        let (flush, stall) = self.memory_marks();
        if bytes > flush {
            self.work.kick();
        }
        // One that is larger than all there is must not wait for ever: a flush makes way for it.
        let full = if bytes + cost.min(stall - flush) > stall {
            Error::Full { limit: Some(self.options.memory_limit as u64), what: "the memory for claims" }
        } else {
            match self.options.disk_limit {
                Some(limit) if self.disk_bytes() + bytes as u64 > limit => {
                    Error::Full { limit: Some(limit), what: "the disk space of the store" }
                }
                _ => return Ok(None),
            }
        };
        self.await_round(patience, full).map(Some)
    }

    /// Waits for room in the journal.
    pub(super) fn await_room(&self, patience: &Patience) -> Result<Wait> {
        self.await_round(patience, Error::Full { limit: self.options.disk_limit, what: "the journal" })
    }

    fn await_round(&self, patience: &Patience, full: Error) -> Result<Wait> {
        self.check()?;
        let hopeful = patience.rounds < 2 || (self.work.made_progress() && patience.rounds < MOST_ROUNDS);
        if hopeful { Ok(Wait::Room(self.work.request())) } else { Err(full) }
    }

    /// One round of the flush thread; whether it got anything done.
    pub(super) fn background_round(&self) -> bool {
        let progress = self.flush_round();
        self.finish_handed_over();
        progress
    }

    fn flush_round(&self) -> bool {
        // Whoever ends the store holds the gate and waits for this thread.
        let Some(_gate) = self.gate.try_read() else { return false };
        if self.phase() != EnginePhase::Open || self.journal.failure().is_some() {
            return false;
        }
        let mut progress = self.prepare_segments();
        let (flush, _) = self.memory_marks();
        let (ready, used) = self.journal.segments();
        let wanted = self.live.bytes() > flush || used >= USED_SEGMENTS || ready == 0;
        if wanted {
            match self.flush(self.background_lead()) {
                Ok(records) => progress |= records > 0,
                Err(error) => self.background_failure(&error),
            }
            progress |= self.prepare_segments();
        }
        match self.expire() {
            Ok(buckets) => progress |= buckets > 0,
            Err(error) => self.background_failure(&error),
        }
        self.stamp_clock();
        progress
    }

    /// One round of the merge thread.
    pub(super) fn merge_round(&self) -> bool {
        let Some(_gate) = self.gate.try_read() else { return false };
        if self.phase() != EnginePhase::Open || self.journal.failure().is_some() {
            return false;
        }
        match self.merge_one() {
            Ok(merged) => {
                if merged {
                    // There may be more to do.
                    self.merges.request();
                }
                merged
            }
            Err(error) => {
                self.background_failure(&error);
                if matches!(error, FlushError::Store(Error::Corrupt { .. })) {
                    // Other buckets are not held up by a damaged one.
                    self.merges.request();
                }
                false
            }
        }
    }

    fn merge_one(&self) -> Result<bool, FlushError> {
        let idle_since = self.flushing.lock().before;
        // For a while a merge takes its space twice.
        let room = self.options.disk_limit.map_or(u64::MAX, |limit| limit.saturating_sub(self.disk_bytes()));
        self.runs.merge_one(&self.catalog, self.removal_time(), idle_since, room, || self.clock_edits())
    }

    fn expire(&self) -> Result<u64, FlushError> {
        self.runs.expire(&self.catalog, self.removal_time(), || self.clock_edits())
    }

    /// Poisons where going on could lose something. A lack of room is not that: the journal still
    /// holds it all, and the next round tries again.
    pub(super) fn background_failure(&self, error: &FlushError) {
        let fatal = match error {
            FlushError::Catalog(CommitError::Failed(error) | CommitError::Unknown(error)) => {
                Some(io::Error::new(error.kind(), format!("the catalog could not be written: {error}")))
            }
            _ => None,
        };
        if let Some(error) = fatal {
            self.journal.poison(Arc::new(error));
        }
    }

    /// What the background does, now. The error of whatever failed first.
    pub(crate) fn maintain(&self) -> Result<Maintenance> {
        let _gate = self.gate.read();
        self.check()?;
        let mut done = Maintenance::default();
        self.prepare_segments();
        let result = (|| {
            done.flushed = self.flush(self.background_lead())?;
            while self.merge_one()? {
                done.merged += 1;
            }
            done.expired = self.expire()?;
            Ok(())
        })();
        if let Err(error) = result {
            self.background_failure(&error);
            return Err(error.into());
        }
        self.prepare_segments();
        self.stamp_clock();
        Ok(done)
    }

    /// Moves every settled state whose frame is durable into runs, and frees the segments that
    /// nothing needs any more. Returns how many records were written.
    pub(super) fn flush(&self, lead: Lead) -> Result<u64, FlushError> {
        let wait = |seq| {
            if sabotage::is(Break::FlushUndurable) { Ok(()) } else { self.journal.wait_by(seq, lead) }
        };
        let mut history = self.flushing.lock();
        let upto = self.journal.appended();
        wait(upto).map_err(|fault| FlushError::Store(fault.into()))?;
        let Collected { states, oldest_begin } = self.collect(upto);
        let released = oldest_begin.map_or(upto, |seq| upto.min(seq - 1));
        let retirable = self.journal.retirable(released);
        if states.is_empty() && retirable.is_empty() {
            return Ok(0);
        }
        let free = |segment: &Segment| Edit::Segment { file_id: segment.file_id, ordinal: 0, epoch: 0 };
        if sabotage::is(Break::RecycleEarly) {
            let early = retirable.iter().map(free).collect();
            self.catalog.commit(early).map_err(FlushError::Catalog)?;
        }
        let records = self.runs.flush(&self.catalog, states, self.now(), self.removal_time(), || {
            // States collected before may have been replaced by newer ones, whose frames must be
            // durable before the older frames may go.
            let durable = self.journal.appended();
            wait(durable)?;
            let mut edits = self.clock_edits();
            edits.push(Edit::Meta(Meta::Released, released));
            edits.push(Edit::Meta(Meta::Durable, durable));
            edits.extend(retirable.iter().map(free));
            Ok(edits)
        })?;
        // Published, so runs answer for what leaves memory here.
        self.live.sweep(|entry| is_flushable(entry, upto) && !is_undelivered(entry));
        let retired: Vec<u32> = retirable.iter().map(|segment| segment.file_id).collect();
        self.journal.retire(&retired);
        self.pool.lock().free.extend(retired);
        history.before = history.last;
        history.last = upto;
        self.merges.kick();
        Ok(records)
    }

    /// The states to flush. Claims in progress whose frames are older than `upto` are appended
    /// again, so that their old frames may go.
    fn collect(&self, upto: u64) -> Collected {
        let mut collected = Collected { states: Vec::new(), oldest_begin: None };
        let mut full = false;
        for shard in self.live.shards() {
            let mut shard = shard.lock();
            let mut growth = (0, 0);
            for entry in shard.entries_mut().filter(|entry| entry.seq <= upto) {
                match &entry.state {
                    State::Settled { record, .. } => collected.states.push(Flushed {
                        hash: entry.hash,
                        seq: entry.seq,
                        record: Arc::clone(record),
                    }),
                    State::Running(_) if sabotage::is(Break::ForgetLiveBegins) => {}
                    State::Running(attempt) => {
                        let attempt = Arc::clone(attempt);
                        let before = entry.cost();
                        if !full && !self.append_again(entry, &attempt) {
                            full = true;
                        }
                        growth = (growth.0 + before, growth.1 + entry.cost());
                        if entry.seq <= upto {
                            let oldest = collected.oldest_begin.get_or_insert(entry.seq);
                            *oldest = entry.seq.min(*oldest);
                        }
                    }
                }
            }
            drop(shard);
            self.live.add_bytes(growth.0, growth.1);
        }
        collected
    }

    /// Gives a running claim a new frame; one that was fenced becomes a released state. Whether
    /// there was room.
    fn append_again(&self, entry: &mut Entry, attempt: &Arc<Attempt>) -> bool {
        let over = attempt.has_ended();
        let record = if over {
            released_record(attempt, Cause::LeaseExpired, self.now())
        } else {
            let note = attempt.progress().note.clone();
            attempt.begin_record(note.as_deref())
        };
        match self.journal.append(&[&record], Room::Claim { reserve: 0 }, Haste::Written) {
            Ok(seq) => {
                entry.seq = seq;
                if over {
                    entry.state = State::Settled { record: record.into(), undelivered: None };
                }
                true
            }
            Err(_) => false,
        }
    }

    /// Sees to it that segments stand ready; whether one was added.
    pub(super) fn prepare_segments(&self) -> bool {
        let mut added = false;
        loop {
            let mut pool = self.pool.lock();
            // A commit whose outcome is unknown may have listed the segment that would be tried again.
            if self.journal.failure().is_some() {
                return added;
            }
            let (ready, _) = self.journal.segments();
            // Frames that wait to be written have taken their room already.
            let roomy = self.journal.free_room() >= 2 * self.options.max_frame();
            if ready >= READY_SEGMENTS && roomy {
                drop(pool);
                self.drop_spare_segments();
                return added;
            }
            match pool.prepare(&self.options, &self.dir, &self.catalog, self.runs.bytes()) {
                Ok(Some(segment)) => {
                    self.segment_files.store(pool.files, Ordering::Relaxed);
                    // Under the pool's lock: ordinals must come in order.
                    self.journal.add_ready(segment);
                    added = true;
                }
                Ok(None) => return added,
                Err(error) => {
                    // Under the pool's lock: nobody tries the same segment again.
                    self.background_failure(&error);
                    return added;
                }
            }
        }
    }

    /// Removes segment files that a burst has left over.
    fn drop_spare_segments(&self) {
        let mut pool = self.pool.lock();
        while pool.free.len() > FREE_SEGMENTS
            && let Some(file_id) = pool.free.last().copied()
        {
            if let Err(error) = self.catalog.commit(vec![Edit::DropSegment(file_id)]) {
                return self.background_failure(&FlushError::Catalog(error));
            }
            pool.free.remove(&file_id);
            pool.files -= 1;
            self.segment_files.store(pool.files, Ordering::Relaxed);
            // Not listed any more; if it stays, the next open removes it.
            let path = segment::path(&self.dir.join(JOURNAL_DIR), file_id);
            let _ = self.options.disk.remove(&path);
        }
    }

    /// The pair of store time and wall time, to go on from at the next open.
    pub(super) fn clock_edits(&self) -> Vec<Edit> {
        stamp_edits(self.timeline.stamps())
    }

    fn stamp_clock(&self) {
        let now = self.now();
        let mut history = self.flushing.lock();
        if now.since(history.stamped) < STAMP_EVERY {
            return;
        }
        match self.catalog.commit(self.clock_edits()) {
            Ok(()) => history.stamped = now,
            Err(error) => self.background_failure(&FlushError::Catalog(error)),
        }
    }

    /// What the sync thread does after each round.
    pub(super) fn on_tick(&self) {
        if self.journal.failure().is_some() && !self.failure_announced.swap(true, Ordering::AcqRel) {
            self.wake_everyone();
        }
        let now = self.now();
        let mut lapsed = Vec::new();
        let mut leased = self.leased.lock();
        leased.retain(|attempt| {
            let held = attempt.is_held(now);
            if !held {
                lapsed.extend(attempt.take_waiters());
            }
            held
        });
        if !leased.is_empty() {
            self.journal.tick_soon();
        }
        drop(leased);
        wake(lapsed);
    }

    /// Has the sync thread wake an attempt's waiters when its lease lapses.
    pub(crate) fn watch_lease(&self, attempt: &Arc<Attempt>) {
        let mut leased = self.leased.lock();
        if !leased.iter().any(|known| Arc::ptr_eq(known, attempt)) {
            leased.push(Arc::clone(attempt));
        }
        drop(leased);
        self.journal.tick_soon();
    }

    /// Lets everyone who waits look again.
    pub(super) fn wake_everyone(&self) {
        self.work.wake_all();
        for shard in self.live.shards() {
            let mut woken = Vec::new();
            for entry in shard.lock().entries() {
                match &entry.state {
                    State::Running(attempt) | State::Settled { undelivered: Some(attempt), .. } => {
                        let mut next = Some(attempt);
                        while let Some(attempt) = next {
                            woken.extend(attempt.take_waiters());
                            next = attempt.order.as_ref().and_then(|order| order.set_by.as_ref());
                        }
                    }
                    State::Settled { .. } => {}
                }
            }
            wake(woken);
        }
    }
}

/// What one pass over the map found.
struct Collected {
    states: Vec<Flushed>,
    /// The oldest frame that a claim in progress still needs.
    oldest_begin: Option<u64>,
}

fn is_flushable(entry: &Entry, upto: u64) -> bool {
    entry.seq <= upto && matches!(entry.state, State::Settled { .. })
}

fn is_undelivered(entry: &Entry) -> bool {
    match &entry.state {
        State::Settled { undelivered: Some(attempt), .. } => attempt.is_undelivered(),
        _ => false,
    }
}
