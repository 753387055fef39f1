//! Group commit: appends go into a queue in memory; one leader at a time writes and syncs all that
//! has gathered, for everyone who waits.
//!
//! Lock order: log, then queue. Neither is ever held while a waker runs.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use super::batch::{Batch, Fault};
use super::check::Extent;
use super::frame;
use super::segment::{SEGMENT_HEADER, Segment};
use super::ticker::Ticker;
use crate::disk;
use crate::error::Error;
use crate::histogram::Histogram;
use crate::sabotage::{self, Break};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Instant, Mutex, OnceLock};

/// The longest an append stays in this process's memory when nobody waits for it.
pub(crate) const WRITE_WITHIN: Duration = Duration::from_millis(10);

/// How soon an append must get where.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Haste {
    /// The caller is about to wait for it.
    Awaited,
    /// To the kernel, within [`WRITE_WITHIN`].
    Written,
    /// Synced within this time.
    Synced(Duration),
}

/// How an append counts against the room in the ready segments.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Room {
    /// A new claim: needs free room, and sets `reserve` bytes aside for its later settlement.
    Claim { reserve: u64 },
    /// Uses the reservation of an earlier claim.
    Settle { reserved: u64 },
}

/// Who makes a frame durable that a blocked caller waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lead {
    /// The caller, unless somebody has seen to it.
    IfFirst,
    /// The caller in any case: it may run on the sync thread, which others have left it to.
    Always,
    /// The sync thread: the caller holds what a woken stranger who drops the last handle waits for.
    Never,
}

/// Why a journal ends that has not failed.
#[derive(Clone, Debug)]
pub(crate) enum End {
    Closed,
    /// Another engine takes over; this is what callers of this one are told.
    Abandoned(Arc<io::Error>),
}

/// Why nothing was appended.
#[derive(Debug)]
pub(crate) enum AppendError {
    /// The ready segments have no free room; see to another one and try again.
    NoRoom,
    /// It would not fit into a segment: something recorded under larger limits than today's.
    TooLarge,
    Fault(Fault),
    Closed,
}

#[derive(Debug)]
pub(crate) struct Journal {
    log: Mutex<Log>,
    queue: Mutex<Queue>,
    durable: AtomicU64,
    failure: OnceLock<Failure>,
    ticker: Ticker,
    max_frame: u64,
    pub(crate) counters: Counters,
}

/// What poisoned the journal.
#[derive(Debug)]
struct Failure {
    error: Arc<io::Error>,
    /// Frames up to here may have been written; later ones never were.
    reached: AtomicU64,
}

/// What the journal has done, for statistics.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) syncs: AtomicU64,
    pub(crate) synced_frames: AtomicU64,
    pub(crate) sync_latency: Histogram,
}

/// Frames that are not written yet.
#[derive(Debug)]
struct Queue {
    bytes: Vec<u8>,
    next_seq: u64,
    /// Waits for every frame from `batch_first` on.
    batch: Arc<Batch>,
    batch_first: u64,
    /// The batch before, which is being synced or has been.
    syncing: Arc<Batch>,
    /// Bytes of frames that surely fit into the segments there are, less those already appended.
    room: u64,
    /// The part of `room` that belongs to claims in progress.
    reserved: u64,
    write_due: bool,
    sync_due: Option<Instant>,
    /// Why nothing more is taken, although nothing has failed.
    ended: Option<End>,
}

/// The segments; whoever holds it is the leader.
#[derive(Debug)]
struct Log {
    current: Segment,
    offset: u64,
    /// The last frame written, synced or not.
    written: u64,
    ready: VecDeque<Segment>,
    used: Vec<Used>,
    /// The queue's other buffer.
    spare: Vec<u8>,
}

/// A segment that is full, or was found at open.
#[derive(Clone, Debug)]
pub(crate) struct Used {
    pub(crate) segment: Segment,
    pub(crate) last_seq: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Goal {
    Write,
    Sync,
}

impl Journal {
    /// A journal that goes on after `last_seq`, in a fresh segment. `used` are the segments found at
    /// open that still hold something needed.
    pub(crate) fn new(current: Segment, last_seq: u64, used: Vec<Used>, max_frame: u64) -> Self {
        let log = Log {
            current,
            offset: SEGMENT_HEADER,
            written: last_seq,
            ready: VecDeque::new(),
            used,
            spare: Vec::new(),
        };
        let queue = Queue {
            bytes: Vec::new(),
            next_seq: last_seq + 1,
            batch: Arc::default(),
            batch_first: last_seq + 1,
            syncing: Arc::default(),
            room: log.capacity(max_frame),
            reserved: 0,
            write_due: false,
            sync_due: None,
            ended: None,
        };
        Self {
            log: Mutex::new(log),
            queue: Mutex::new(queue),
            durable: AtomicU64::new(last_seq),
            failure: OnceLock::new(),
            ticker: Ticker::default(),
            max_frame,
            counters: Counters::default(),
        }
    }

    /// For [`Break::AppendToReplayed`].
    pub(crate) fn append_to_replayed(&self) {
        let mut log = self.log.lock();
        if let Some(used) = log.used.pop() {
            log.offset = super::replay::end_of(&used);
            log.current = used.segment;
            self.recount(&log, 0);
        }
    }

    /// The last sequence number that a crash cannot take back.
    pub(crate) fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// The last sequence number given out.
    pub(crate) fn appended(&self) -> u64 {
        self.queue.lock().next_seq - 1
    }

    /// The failure that poisoned the journal, if one did.
    pub(crate) fn failure(&self) -> Option<Fault> {
        if sabotage::is(Break::SkipPoison) {
            return None;
        }
        self.failure.get().map(|failure| Fault::Poisoned(Arc::clone(&failure.error)))
    }

    /// Poisons from outside: something that the journal relies on has failed.
    pub(crate) fn poison(&self, error: Arc<io::Error>) {
        let queue = self.queue.lock();
        // Under the lock: no frame gets a number in between.
        let _ = self.failure.set(Failure { error, reached: AtomicU64::new(queue.next_seq - 1) });
        drop(queue);
        self.ticker.sync_now();
    }

    /// What became of a frame, once that is known.
    fn outcome(&self, seq: u64) -> Option<Result<(), Fault>> {
        // In this order: the leader that fails may have made this frame durable just before.
        let failure = self.failure.get();
        if seq <= self.durable() {
            return Some(Ok(()));
        }
        let failure = failure?;
        let fault = if seq <= failure.reached.load(Ordering::Acquire) {
            Fault::Unknown
        } else if sabotage::is(Break::SkipPoison) {
            return None;
        } else {
            Fault::Poisoned
        };
        Some(Err(fault(Arc::clone(&failure.error))))
    }

    /// Puts one frame with these records into the log, in order. It is durable only once
    /// [`wait`](Self::wait) says so.
    pub(crate) fn append(&self, records: &[&[u8]], room: Room, haste: Haste) -> Result<u64, AppendError> {
        let mut queue = self.queue.lock();
        if let Some(fault) = self.failure() {
            return Err(AppendError::Fault(fault));
        }
        match &queue.ended {
            None => {}
            Some(End::Closed) => return Err(AppendError::Closed),
            Some(End::Abandoned(error)) => {
                return Err(AppendError::Fault(Fault::Poisoned(Arc::clone(error))));
            }
        }
        let start = queue.bytes.len();
        let seq = queue.next_seq;
        frame::append(&mut queue.bytes, seq, records);
        let len = (queue.bytes.len() - start) as u64;
        if len > self.max_frame {
            queue.bytes.truncate(start);
            return Err(AppendError::TooLarge);
        }
        let (before, after) = match room {
            Room::Claim { reserve } => (queue.reserved, queue.reserved + reserve),
            Room::Settle { reserved } => {
                let others = queue.reserved.saturating_sub(reserved);
                (others, others)
            }
        };
        if queue.room < len.saturating_add(before).max(after.saturating_add(len)) {
            queue.bytes.truncate(start);
            return Err(AppendError::NoRoom);
        }
        queue.room -= len;
        queue.reserved = after;
        queue.next_seq += 1;
        let (mut write_at, mut sync_at) = (None, None);
        if !matches!(haste, Haste::Awaited) && !queue.write_due {
            queue.write_due = true;
            write_at = Some(Instant::now() + WRITE_WITHIN);
        }
        if let Haste::Synced(within) = haste {
            let due = Instant::now() + within;
            if queue.sync_due.is_none_or(|known| due < known) {
                queue.sync_due = Some(due);
                sync_at = Some(due);
            }
        }
        drop(queue);
        if let Some(due) = write_at {
            self.ticker.write_at(due);
        }
        if let Some(due) = sync_at {
            self.ticker.sync_at(due);
        }
        Ok(seq)
    }

    /// Gives back a reservation that will not be used.
    pub(crate) fn unreserve(&self, reserved: u64) {
        let mut queue = self.queue.lock();
        queue.reserved = queue.reserved.saturating_sub(reserved);
    }

    /// Blocks until `seq` is durable, leading the commit if nobody else does.
    pub(crate) fn wait(&self, seq: u64) -> Result<(), Fault> {
        self.wait_by(seq, Lead::IfFirst)
    }

    /// The same, with a choice of who leads.
    pub(crate) fn wait_by(&self, seq: u64, lead: Lead) -> Result<(), Fault> {
        loop {
            if let Some(outcome) = self.outcome(seq) {
                return outcome;
            }
            let (batch, pending) = self.batch_of(seq);
            match lead {
                Lead::IfFirst if pending && batch.lead() => self.commit(Goal::Sync, Some(seq)),
                Lead::IfFirst => {}
                Lead::Always => self.commit(Goal::Sync, Some(seq)),
                Lead::Never => self.ticker.sync_now(),
            }
            batch.wait();
        }
    }

    /// The same for a future: never syncs on the polling thread.
    pub(crate) fn poll(&self, seq: u64, waker: &Waker) -> Poll<Result<(), Fault>> {
        loop {
            if let Some(outcome) = self.outcome(seq) {
                return Poll::Ready(outcome);
            }
            let (batch, pending) = self.batch_of(seq);
            if batch.register(waker) {
                continue;
            }
            if pending && batch.lead() {
                self.ticker.sync_now();
            }
            return Poll::Pending;
        }
    }

    /// Has the sync thread sync everything now; for frames that nobody waits for.
    pub(crate) fn sync_soon(&self) {
        self.ticker.sync_now();
    }

    /// The batch that makes `seq` durable, and whether it still gathers.
    fn batch_of(&self, seq: u64) -> (Arc<Batch>, bool) {
        let queue = self.queue.lock();
        if seq >= queue.batch_first {
            (Arc::clone(&queue.batch), true)
        } else {
            (Arc::clone(&queue.syncing), false)
        }
    }

    /// Takes what has gathered, writes it, and for [`Goal::Sync`] syncs and answers the batch.
    /// Does nothing if the batch of `wanted` has been taken by the time it is this caller's turn:
    /// whoever took it answers it.
    fn commit(&self, goal: Goal, wanted: Option<u64>) {
        let mut log = self.log.lock();
        let mut queue = self.queue.lock();
        if wanted.is_some_and(|seq| seq < queue.batch_first) {
            return;
        }
        let spare = std::mem::take(&mut log.spare);
        let mut bytes = std::mem::replace(&mut queue.bytes, spare);
        let last = queue.next_seq - 1;
        queue.write_due = false;
        let failed = self.failure().is_some();
        let batch = (goal == Goal::Sync || failed).then(|| queue.end_batch());
        drop(queue);
        let done = if failed {
            Ok(())
        } else {
            self.write(&mut log, &mut bytes).and_then(|()| match goal {
                Goal::Write => Ok(()),
                Goal::Sync => self.sync_current(&mut log, last),
            })
        };
        bytes.clear();
        log.spare = bytes;
        let batch = match done {
            Ok(()) => batch,
            Err(error) => {
                let mut queue = self.queue.lock();
                // Set under the queue's lock: whoever appends sees it.
                let failure = Failure { error: Arc::new(error), reached: AtomicU64::new(last) };
                if let Err(failure) = self.failure.set(failure) {
                    // Poisoned from outside meanwhile.
                    let reached = failure.reached.into_inner();
                    self.failure.get().map(|known| known.reached.fetch_max(reached, Ordering::AcqRel));
                }
                // Answers those who gathered meanwhile, too.
                self.ticker.sync_now();
                Some(batch.unwrap_or_else(|| queue.end_batch()))
            }
        };
        drop(log);
        if let Some(batch) = batch {
            batch.end();
        }
    }

    /// Seals and writes frames, going on to the next segment where one is full.
    fn write(&self, log: &mut Log, bytes: &mut [u8]) -> io::Result<()> {
        let durable = self.durable();
        let mut rest = bytes;
        while !rest.is_empty() {
            let mut end = 0;
            while end < rest.len() {
                let len = frame::size(&rest[end..]);
                if log.offset + (end + len) as u64 > log.current.size {
                    break;
                }
                frame::seal(&mut rest[end..end + len], durable, log.current.epoch);
                end += len;
                log.written += 1;
            }
            let (piece, after) = rest.split_at_mut(end);
            disk::write_all_at(&*log.current.file, piece, log.offset)?;
            log.offset += end as u64;
            rest = after;
            if !rest.is_empty() {
                self.next_segment(log, rest.len())?;
            }
        }
        Ok(())
    }

    /// Starts the next segment, once the one before is durable. `pending` bytes are still to be
    /// written.
    fn next_segment(&self, log: &mut Log, pending: usize) -> io::Result<()> {
        let written = log.written;
        self.sync_current(log, written)?;
        let Some(next) = log.ready.pop_front() else {
            return Err(io::Error::other("no journal segment is ready; the accounting of room is wrong"));
        };
        let full = std::mem::replace(&mut log.current, next);
        log.used.push(Used { segment: full, last_seq: written });
        log.offset = SEGMENT_HEADER;
        self.recount(log, pending as u64);
        Ok(())
    }

    fn sync_current(&self, log: &mut Log, last: u64) -> io::Result<()> {
        let before = self.durable();
        if last == before {
            return Ok(());
        }
        let started = Instant::now();
        if sabotage::is(Break::AckBeforeSync) {
            self.durable.store(last, Ordering::Release);
        }
        if !sabotage::is(Break::SkipSync) {
            let synced = disk::sync(&*log.current.file);
            if synced.is_err() && sabotage::is(Break::RetrySync) {
                disk::sync(&*log.current.file)?;
            } else {
                synced?;
            }
        }
        self.counters.sync_latency.record(started.elapsed());
        self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        self.counters.synced_frames.fetch_add(last - before, Ordering::Relaxed);
        self.durable.store(last, Ordering::Release);
        Ok(())
    }

    /// Sets the room anew from the segments there are; `pending` bytes have left the queue and are
    /// not written yet.
    fn recount(&self, log: &Log, pending: u64) {
        let mut queue = self.queue.lock();
        let taken = pending + queue.bytes.len() as u64;
        queue.room = log.capacity(self.max_frame).saturating_sub(taken);
    }

    /// Adds a prepared segment; ordinals must come in order.
    pub(crate) fn add_ready(&self, segment: Segment) {
        let mut log = self.log.lock();
        log.ready.push_back(segment);
        self.recount(&log, 0);
    }

    /// How many segments stand ready, and how many are full.
    pub(crate) fn segments(&self) -> (usize, usize) {
        let log = self.log.lock();
        (log.ready.len(), log.used.len())
    }

    /// The full segments that hold nothing after `seq`.
    pub(crate) fn retirable(&self, seq: u64) -> Vec<Segment> {
        let log = self.log.lock();
        log.used.iter().filter(|used| used.last_seq <= seq).map(|used| used.segment.clone()).collect()
    }

    /// The segments that hold the log now.
    pub(crate) fn extent(&self) -> Extent {
        let log = self.log.lock();
        let durable = self.durable();
        let current = Used { segment: log.current.clone(), last_seq: durable };
        let begun = log.used.iter().cloned().chain([current]).collect();
        Extent { begun, ready: log.ready.iter().cloned().collect(), durable }
    }

    /// Whether a segment of this ordinal belongs to the log or stands ready: nobody has prepared its
    /// file for another use.
    pub(crate) fn holds(&self, ordinal: u64) -> bool {
        let log = self.log.lock();
        let used = log.used.iter().map(|used| &used.segment);
        used.chain([&log.current]).chain(&log.ready).any(|segment| segment.ordinal == ordinal)
    }

    /// Gives up full segments, by their file ids.
    pub(crate) fn retire(&self, file_ids: &[u32]) {
        self.log.lock().used.retain(|used| !file_ids.contains(&used.segment.file_id));
    }

    /// Bytes free for new claims, beyond what claims in progress have set aside.
    pub(crate) fn free_room(&self) -> u64 {
        let queue = self.queue.lock();
        queue.room.saturating_sub(queue.reserved)
    }

    /// Waits until no write is under way; for a poisoned journal there will be no other.
    pub(crate) fn quiesce(&self) {
        drop(self.log.lock());
    }

    /// Refuses further appends and makes everything before durable: what was accepted stays.
    pub(crate) fn end(&self, why: End) -> Result<(), Fault> {
        let last = {
            let mut queue = self.queue.lock();
            queue.ended = Some(why);
            queue.next_seq - 1
        };
        self.wait_by(last, Lead::Always)
    }

    /// The body of the sync thread: leads when no blocked caller does, until [`stop`](Self::stop).
    /// `on_tick` runs after each round.
    pub(crate) fn run_ticker(&self, mut on_tick: impl FnMut()) {
        while let Some(sync) = self.ticker.next() {
            self.commit(if sync { Goal::Sync } else { Goal::Write }, None);
            on_tick();
        }
    }

    /// One round of the sync thread, on the calling thread; whether there was anything to do.
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) fn tick(&self) -> bool {
        let due = self.ticker.take();
        if let Some(sync) = due {
            self.commit(if sync { Goal::Sync } else { Goal::Write }, None);
        }
        due.is_some()
    }

    /// Answers those who gathered after the sync thread had ended; for a poisoned journal.
    pub(crate) fn answer_rest(&self) {
        if self.failure.get().is_some() {
            self.commit(Goal::Sync, None);
        }
    }

    /// Hands everything to the kernel, as the sync thread does when nobody waits.
    #[cfg(test)]
    pub(crate) fn write_now(&self) {
        self.commit(Goal::Write, None);
    }

    /// Has the sync thread run `on_tick` within [`WRITE_WITHIN`].
    pub(crate) fn tick_soon(&self) {
        self.ticker.write_at(Instant::now() + WRITE_WITHIN);
    }

    /// Ends the sync thread.
    pub(crate) fn stop(&self) {
        self.ticker.stop();
    }
}

impl Queue {
    /// Ends the gathering batch, which the caller now answers.
    fn end_batch(&mut self) -> Arc<Batch> {
        self.sync_due = None;
        self.batch_first = self.next_seq;
        self.syncing = std::mem::take(&mut self.batch);
        Arc::clone(&self.syncing)
    }
}

impl Log {
    /// Bytes of frames of any sizes up to `max_frame` that surely fit: each segment may lose almost
    /// one frame's length at its end.
    fn capacity(&self, max_frame: u64) -> u64 {
        let current = (self.current.size - self.offset).saturating_sub(max_frame);
        let ready =
            self.ready.iter().map(|segment| (segment.size - SEGMENT_HEADER).saturating_sub(max_frame));
        current + ready.sum::<u64>()
    }
}

impl From<Fault> for AppendError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl AppendError {
    /// The error for a caller whom more room cannot help.
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::NoRoom => Error::Full { limit: None, what: "the journal" },
            Self::TooLarge => {
                Error::Full { limit: None, what: "a journal segment, for a record of this size," }
            }
            Self::Fault(fault) => fault.into(),
            Self::Closed => Error::Closed,
        }
    }
}
