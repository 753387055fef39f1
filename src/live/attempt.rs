//! One attempt at one event: who owns a key, until when, and who waits for the end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use crate::clock::Time;
use crate::guard::Previous;
use crate::key::Key;
use crate::options::{Durability, Retention};
use crate::record::{Begin, Body, StoredRecord};
use crate::sync::{Mutex, MutexGuard};
use crate::timestamp::Timestamp;

/// A claim in progress, shared by its guard, the live map and everyone who waits for it.
///
/// Its phase alone says whether it still owns its id and its entity: ending it in one place fences
/// it everywhere.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) key: Key,
    pub(crate) token: u64,
    pub(crate) number: u32,
    pub(crate) claimed_at: Time,
    pub(crate) window: Duration,
    pub(crate) lease: Option<Duration>,
    pub(crate) durability: Option<Durability>,
    pub(crate) fingerprint: Option<Arc<[u8]>>,
    pub(crate) order: Option<Order>,
    pub(crate) previous: Option<Previous>,
    /// The batch of one-step claims it is part of; 0 for none. Within its batch a claim that has not
    /// been delivered counts as completed: they are delivered or taken back together.
    pub(crate) batch: u64,
    /// The `purge_at` of what this attempt replaced; its own records must last as long.
    pub(crate) shadow: Time,
    /// The frame that freed the key hides a completion and was not durable when this began.
    pub(crate) hides: bool,
    progress: Mutex<Progress>,
}

/// The entity an attempt holds besides its id.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) entity: Key,
    pub(crate) timestamp: Timestamp,
    pub(crate) retention: Retention,
    /// The `purge_at` of the entity's mark when the attempt began.
    pub(crate) shadow: Time,
    /// The frame that made that mark hides a later one and was not durable when the attempt began.
    pub(crate) hides: bool,
    /// The entity's mark, in case the attempt is taken back after it was replaced.
    pub(crate) mark_before: Option<Arc<[u8]>>,
    /// The claim of the same batch that set that mark.
    pub(crate) set_by: Option<Arc<Attempt>>,
    /// The mark before the whole batch: what everyone else is shown until it is delivered.
    pub(crate) outer_before: Option<Arc<[u8]>>,
}

impl Drop for Order {
    fn drop(&mut self) {
        // A batch may link very many: one after the other, not one inside the other.
        let mut next = self.set_by.take();
        while let Some(mut attempt) = next.and_then(Arc::into_inner) {
            next = attempt.order.as_mut().and_then(|order| order.set_by.take());
        }
    }
}

/// What changes while an attempt runs. A leaf lock: nothing is locked under it.
#[derive(Debug)]
pub(crate) struct Progress {
    pub(crate) phase: Phase,
    pub(crate) note: Option<Arc<[u8]>>,
    pub(crate) lease_until: Option<Time>,
    /// Bytes set aside in the journal for the settlement.
    pub(crate) reserved: u64,
    /// The longest note that `reserved` covers.
    pub(crate) note_room: usize,
    waiters: BTreeMap<u64, Waker>,
    next_waiter: u64,
}

#[derive(Clone, Debug)]
pub(crate) enum Phase {
    Running,
    /// Completed by the frame `seq`, which need not be durable yet.
    Completed {
        seq: u64,
        record: Arc<[u8]>,
    },
    /// Aborted, taken over, or left behind by a close.
    Released,
}

/// What a waiter finds.
#[derive(Debug)]
pub(crate) enum Standing {
    Held,
    /// Still running, but anyone may take over.
    Lapsed,
    Completed {
        seq: u64,
        record: Arc<[u8]>,
    },
    Released,
}

impl Attempt {
    #[expect(clippy::too_many_arguments, reason = "a plain constructor of a plain record")]
    pub(crate) fn new(
        key: Key,
        token: u64,
        claimed_at: Time,
        (number, previous): (u32, Option<Previous>),
        (window, lease): (Duration, Option<Duration>),
        durability: Option<Durability>,
        fingerprint: Option<Arc<[u8]>>,
        order: Option<Order>,
        (batch, shadow, hides): (u64, Time, bool),
        max_note: usize,
    ) -> Self {
        // A note from before the limit was lowered is still in `previous`.
        let note = previous.as_ref().and_then(|previous| previous.note.as_deref());
        let note = note.filter(|note| note.len() <= max_note);
        let progress = Progress {
            phase: Phase::Running,
            note_room: note.map_or(0, <[u8]>::len),
            note: note.map(Arc::from),
            lease_until: lease.map(|lease| claimed_at.after(lease)),
            reserved: 0,
            waiters: BTreeMap::new(),
            next_waiter: 0,
        };
        let progress = Mutex::new(progress);
        Self {
            key,
            token,
            number,
            claimed_at,
            window,
            lease,
            durability,
            fingerprint,
            order,
            previous,
            batch,
            shadow,
            hides,
            progress,
        }
    }

    pub(crate) fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock()
    }

    /// Whether nobody may take it over: it runs, and its lease, if any, has not lapsed.
    pub(crate) fn is_held(&self, now: Time) -> bool {
        let progress = self.progress.lock();
        matches!(progress.phase, Phase::Running) && progress.lease_until.is_none_or(|until| now < until)
    }

    /// Whether it belongs to this batch.
    pub(crate) fn is_of(&self, batch: u64) -> bool {
        batch != 0 && self.batch == batch
    }

    /// Whether it owns nothing any more.
    pub(crate) fn has_ended(&self) -> bool {
        !matches!(self.progress.lock().phase, Phase::Running)
    }

    /// Whether a one-step claim may still be taken back.
    pub(crate) fn is_undelivered(&self) -> bool {
        !self.has_ended()
    }

    /// What is left of the lease; `None` without one.
    pub(crate) fn lease_left(&self, now: Time) -> Option<Duration> {
        self.progress.lock().lease_until.map(|until| until.since(now))
    }

    /// Ends the attempt in a phase other than running; returns those to wake once no lock is held.
    /// Does nothing if it has ended before.
    pub(crate) fn end(&self, phase: Phase) -> Vec<Waker> {
        let mut progress = self.progress.lock();
        if matches!(progress.phase, Phase::Running) {
            progress.phase = phase;
        }
        std::mem::take(&mut progress.waiters).into_values().collect()
    }

    /// Those to wake because something outside the attempt has changed.
    pub(crate) fn take_waiters(&self) -> Vec<Waker> {
        std::mem::take(&mut self.progress.lock().waiters).into_values().collect()
    }

    /// A place among those who wait.
    pub(crate) fn waiter(self: &Arc<Self>) -> Waiter {
        let mut progress = self.progress.lock();
        progress.next_waiter += 1;
        Waiter { attempt: Arc::clone(self), number: progress.next_waiter }
    }

    /// How the attempt stands, in one look; `waker` is woken when that changes.
    fn register(&self, waker: &Waker, number: u64, now: Time) -> Standing {
        let mut progress = self.progress.lock();
        match &progress.phase {
            Phase::Completed { seq, record } => Standing::Completed { seq: *seq, record: Arc::clone(record) },
            Phase::Released => Standing::Released,
            Phase::Running if progress.lease_until.is_some_and(|until| until <= now) => Standing::Lapsed,
            Phase::Running => {
                progress.waiters.insert(number, waker.clone());
                Standing::Held
            }
        }
    }

    /// The journal record that keeps this attempt through a crash, with the given note.
    pub(crate) fn begin_record(&self, note: Option<&[u8]>) -> Vec<u8> {
        let body = Body::Begin(Begin {
            claimed_at: self.claimed_at,
            window: self.window,
            attempt: self.number,
            fingerprint: self.fingerprint.as_deref(),
            note,
        });
        StoredRecord { key: &self.key.bytes, purge_at: self.shadow, body }.to_bytes()
    }
}

/// One who waits for the end of an attempt. Nothing of it stays when it goes.
#[derive(Debug)]
pub(crate) struct Waiter {
    attempt: Arc<Attempt>,
    number: u64,
}

impl Waiter {
    pub(crate) fn attempt(&self) -> &Arc<Attempt> {
        &self.attempt
    }

    /// How the attempt stands, in one look; `waker` is woken when that changes.
    pub(crate) fn look(&self, waker: &Waker, now: Time) -> Standing {
        self.attempt.register(waker, self.number, now)
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.attempt.progress.lock().waiters.remove(&self.number);
    }
}

/// Wakes all; call it with no lock held.
pub(crate) fn wake(wakers: Vec<Waker>) {
    wakers.into_iter().for_each(Waker::wake);
}
