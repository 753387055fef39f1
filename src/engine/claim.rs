//! Verdicts: whether a claim is new, and why not.

use std::sync::Arc;
use std::time::Duration;

use super::drive::{Patience, Step};
use super::view::{IdView, LiveMark, Lookup, MarkView, Past, id_view, mark_view};
use super::{Counters, Engine};
use crate::clock::{Time, nanos};
use crate::error::{Error, Result};
use crate::guard::Cause;
use crate::journal::frame::frame_bound;
use crate::journal::{AppendError, Haste, Room};
use crate::key::{Key, name_of};
use crate::live::attempt::{Order, wake};
use crate::live::map::{Locked, cost_of_claim};
use crate::live::{Attempt, Owner, State};
use crate::options::{Durability, Retention, Ties};
use crate::outcome::Busy;
use crate::record::{Body, Done, Mark, RECORD_OVERHEAD, Released, Reply, StoredRecord};
use crate::sabotage::{self, Break};
use crate::timestamp::Timestamp;

/// One claim, its input checked.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) key: Key,
    pub(crate) order: Option<AskOrder>,
    pub(crate) fingerprint: Option<Arc<[u8]>>,
    pub(crate) window: Duration,
    pub(crate) lease: Option<Duration>,
    pub(crate) durability: Option<Durability>,
    /// The batch it is part of; 0 for none.
    pub(crate) batch: u64,
    pub(crate) purpose: Purpose,
}

#[derive(Debug)]
pub(crate) struct AskOrder {
    pub(crate) entity: Key,
    pub(crate) timestamp: Timestamp,
    pub(crate) ties: Ties,
    pub(crate) retention: Retention,
    pub(crate) max_ahead: Option<Duration>,
}

/// What a claim becomes if it is new.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// A claim in progress.
    Begin,
    /// A completed one. `deferred`: its caller is a future, which can still take it back.
    Claim { response: Option<Box<[u8]>>, deferred: bool },
}

/// The answer. `Duplicate`, done `Mismatch` and `Stale` are given only on durable states (under
/// [`Durability::Interval`]: on accepted ones).
#[derive(Debug)]
pub(crate) enum Verdict {
    New(Granted),
    Duplicate(Shown),
    /// Who is busy, and whether a waiter is to be told only what is durable.
    InProgress(Arc<Attempt>, Busy, bool),
    Mismatch(Shown),
    /// The mark's record.
    Stale(Arc<[u8]>),
}

/// A record to show, with its response if that lay in a file of its own.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    pub(crate) record: Arc<[u8]>,
    pub(crate) response: Option<Arc<[u8]>>,
}

/// A new claim, with the frame that records it.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) seq: u64,
    pub(crate) grant: Grant,
}

#[derive(Debug)]
pub(crate) enum Grant {
    Running(Arc<Attempt>),
    Completed {
        record: Arc<[u8]>,
        /// The note that the key was left with before, should the claim be taken back.
        note: Option<Vec<u8>>,
        /// Bytes set aside in the journal for taking it back.
        reserved: u64,
        /// Holds the entity of a deferred claim until it is delivered.
        holder: Option<Arc<Attempt>>,
    },
}

/// What was read from runs for one claim.
#[derive(Debug, Default)]
pub(crate) struct Lookups {
    id: Lookup,
    mark: Lookup,
    /// In a batch: the frame that the verdict rests on, to be waited for with all others.
    pub(crate) frame: Option<u64>,
}

impl Ask {
    fn durable(&self, engine: &Engine) -> Durability {
        engine.durability(self.durability)
    }

    /// Memory that the claim will count for, where responses longer than `most` are omitted.
    fn cost(&self, most: usize) -> usize {
        let response = match &self.purpose {
            Purpose::Claim { response: Some(response), .. } if response.len() <= most => response.len(),
            _ => 0,
        };
        cost_of_claim(self.key.bytes.len() + self.entity_len(), response)
    }

    fn entity_len(&self) -> usize {
        self.order.as_ref().map_or(0, |order| order.entity.bytes.len())
    }

    /// The most that a frame takes which settles this claim without a response, or takes it back.
    fn settlement(&self, note: usize) -> u64 {
        let id = self.key.bytes.len();
        let fingerprint = self.fingerprint.as_ref().map_or(0, |bytes| bytes.len());
        let record = id + fingerprint.max(note) + RECORD_OVERHEAD;
        // A mark, with the id of its setter.
        let mark = self.order.as_ref().map_or(0, |order| order.entity.bytes.len() + id + RECORD_OVERHEAD);
        frame_bound(record + mark)
    }
}

impl Engine {
    /// Reaches a verdict on this thread and waits until it is durable.
    pub(crate) fn ask(&self, ask: &Ask) -> Result<Verdict> {
        let mut lookups = Lookups::default();
        let verdict = self.drive(|patience| self.decide(ask, &mut lookups, patience))?;
        if let Some(seq) = self.awaited(ask, &verdict) {
            self.wait_durable(seq)?;
        }
        Ok(verdict)
    }

    /// The frame a new claim's caller must wait for.
    pub(crate) fn awaited(&self, ask: &Ask, verdict: &Verdict) -> Option<u64> {
        let Verdict::New(granted) = verdict else { return None };
        let waits = match ask.purpose {
            // A claim in progress need not survive a crash, unless it was asked to.
            Purpose::Begin => ask.durability == Some(Durability::Sync),
            Purpose::Claim { .. } => ask.durable(self).is_sync(),
        };
        waits.then_some(granted.seq)
    }

    /// One try at a verdict. A new claim is appended and in the map when this returns, but need not
    /// be durable; every other verdict is final.
    pub(crate) fn decide(
        &self,
        ask: &Ask,
        lookups: &mut Lookups,
        patience: &mut Patience,
    ) -> Result<Step<Verdict>> {
        let step = loop {
            let entity = ask.order.as_ref().map(|order| &order.entity);
            let mut locked = self.live.lock(&ask.key, entity);
            self.check()?;
            let now = self.now();
            if !lookups.id.is_ready(self, locked.first(), &ask.key, now) {
                drop(locked);
                lookups.id.read(&ask.key, now)?;
                continue;
            }
            if let Some(entity) = entity
                && !lookups.mark.is_ready(self, locked.second(), entity, now)
            {
                drop(locked);
                lookups.mark.read(entity, now)?;
                continue;
            }
            break self.decide_locked(ask, lookups, patience, locked, now)?;
        };
        let counter = match &step {
            Step::Wait(_) => return Ok(step),
            Step::Done(Verdict::New(_)) => &self.counters.new,
            Step::Done(Verdict::Duplicate(_)) => &self.counters.duplicate,
            Step::Done(Verdict::InProgress(..)) => &self.counters.in_progress,
            Step::Done(Verdict::Mismatch(_)) => &self.counters.mismatch,
            Step::Done(Verdict::Stale(_)) => &self.counters.stale,
        };
        Counters::count(counter);
        Ok(step)
    }

    fn decide_locked(
        &self,
        ask: &Ask,
        lookups: &mut Lookups,
        patience: &mut Patience,
        mut locked: Locked<'_>,
        now: Time,
    ) -> Result<Step<Verdict>> {
        let mark = match &ask.order {
            Some(order) => {
                let mark = mark_view(locked.second(), &order.entity, &lookups.mark, now, ask.batch)?;
                self.check_timestamp(order, mark.mark.as_ref())?;
                mark
            }
            None => MarkView::default(),
        };
        let differs = |other: Option<&[u8]>| matches!((ask.fingerprint.as_deref(), other), (Some(mine), Some(theirs)) if mine != theirs);
        let past = match id_view(locked.first(), &ask.key, &lookups.id, now)? {
            IdView::Done { record, seq } => {
                drop(locked);
                if let Some(wait) = self.not_yet(ask, lookups, seq) {
                    return Ok(wait);
                }
                let response = lookups.id.response(&record)?;
                let mismatch = differs(done_fingerprint(&record));
                let shown = Shown { record, response };
                return Ok(Step::Done(if mismatch {
                    Verdict::Mismatch(shown)
                } else {
                    Verdict::Duplicate(shown)
                }));
            }
            IdView::Running(attempt) => {
                return Ok(Step::Done(if differs(attempt.fingerprint.as_deref()) {
                    let note = attempt.progress().note.clone();
                    let record = Arc::from(attempt.begin_record(note.as_deref()));
                    Verdict::Mismatch(Shown { record, response: None })
                } else {
                    Verdict::InProgress(attempt, Busy::Id, ask.durable(self).is_sync())
                }));
            }
            IdView::Absent(past) => past,
        };
        if let Some(order) = &ask.order {
            let owner = locked.second().owner(&order.entity).cloned();
            let owner = owner.filter(|owner| !owner.is_of(ask.batch) && owner.is_held(now));
            if let Some(stale) = mark.mark.as_ref().filter(|mark| is_stale(ask, order, mark, &past)) {
                drop(locked);
                return Ok(match self.not_yet(ask, lookups, mark.seq) {
                    Some(wait) => wait,
                    None => Step::Done(Verdict::Stale(Arc::clone(&stale.record))),
                });
            }
            if let Some(owner) = owner {
                return Ok(Step::Done(Verdict::InProgress(owner, Busy::Entity, ask.durable(self).is_sync())));
            }
        }
        // A completion or mark that is hidden only until a crash would make this claim wrong after it.
        let hiding = [past.hides.then_some(past.seq), mark.hides.then_some(mark.seq)];
        if let Some(seq) = hiding.into_iter().flatten().max()
            && !sabotage::is(Break::NewBeforeFreed)
            && let Some(wait) = self.not_yet(ask, lookups, seq)
        {
            return Ok(wait);
        }
        match self.no_room(ask.cost(self.options.max_response_len), patience)? {
            Some(wait) => Ok(Step::Wait(wait)),
            None => self.grant(ask, patience, locked, now, &past, &mark),
        }
    }

    /// Has the caller wait if what it would be told could still be taken back by a crash. A batch goes
    /// on in order and waits once, at its end.
    fn not_yet(&self, ask: &Ask, lookups: &mut Lookups, seq: u64) -> Option<Step<Verdict>> {
        let wait = self.undurable(ask.durable(self), seq)?;
        if ask.batch != 0 {
            lookups.frame = lookups.frame.max(Some(seq));
            return None;
        }
        Some(Step::Wait(wait))
    }

    pub(super) fn check_timestamp(&self, order: &AskOrder, mark: Option<&LiveMark>) -> Result<()> {
        if let Some(limit) = order.max_ahead {
            let ahead = order.timestamp.ahead_of(self.timeline.wall());
            if ahead > limit {
                return Err(Error::TooFarAhead { ahead, limit });
            }
        }
        match mark {
            Some(mark) if mark.timestamp.partial_cmp(&order.timestamp).is_none() => Err(Error::TimestampKind),
            _ => Ok(()),
        }
    }

    /// Records a new claim.
    fn grant(
        &self,
        ask: &Ask,
        patience: &mut Patience,
        mut locked: Locked<'_>,
        now: Time,
        past: &Past,
        mark: &MarkView,
    ) -> Result<Step<Verdict>> {
        let lapsed_owner = ask.order.as_ref().and_then(|order| locked.second().owner(&order.entity).cloned());
        let lapsed_owner = lapsed_owner.filter(|owner| !owner.is_of(ask.batch));
        let result = match &ask.purpose {
            Purpose::Begin => self.grant_begin(ask, &mut locked, now, past, mark),
            Purpose::Claim { response, deferred } => {
                self.grant_claim(ask, &mut locked, now, past, mark, response.as_deref(), *deferred)
            }
        };
        let granted = match result {
            Ok(granted) => granted,
            Err(AppendError::NoRoom) => {
                drop(locked);
                return self.await_room(patience).map(Step::Wait);
            }
            Err(error) => return Err(error.into_error()),
        };
        // Whoever was taken over is fenced before anyone can see the new owner.
        let mut woken = Vec::new();
        for attempt in past.lapsed.iter().chain(&lapsed_owner) {
            woken.extend(self.fence(attempt));
        }
        drop(locked);
        wake(woken);
        Ok(Step::Done(Verdict::New(granted)))
    }

    fn attempt(
        &self,
        ask: &Ask,
        now: Time,
        past: &Past,
        mark: &MarkView,
        set_by: Option<Arc<Attempt>>,
    ) -> Attempt {
        let mark_before = mark.mark.as_ref().map(|mark| Arc::clone(&mark.record));
        let outer_before = match set_by.as_ref().and_then(|earlier| earlier.order.as_ref()) {
            Some(earlier) => earlier.outer_before.clone(),
            None => mark_before.clone(),
        };
        let order = ask.order.as_ref().map(|order| Order {
            entity: order.entity.clone(),
            timestamp: order.timestamp,
            retention: order.retention,
            shadow: mark.shadow,
            hides: self.still_hides(mark.hides, mark.seq),
            mark_before,
            set_by,
            outer_before,
        });
        // What is completed in one step has no owner who could be late.
        let (lease, batch) = match ask.purpose {
            Purpose::Begin => (ask.lease, 0),
            Purpose::Claim { .. } => (None, ask.batch),
        };
        Attempt::new(
            ask.key.clone(),
            self.token(),
            now,
            (past.next_attempt(), past.previous.clone()),
            (ask.window, lease),
            ask.durability,
            ask.fingerprint.clone(),
            order,
            (batch, past.shadow, self.still_hides(past.hides, past.seq)),
            self.options.max_note_len,
        )
    }

    fn grant_begin(
        &self,
        ask: &Ask,
        locked: &mut Locked<'_>,
        now: Time,
        past: &Past,
        mark: &MarkView,
    ) -> Result<Granted, AppendError> {
        let attempt = self.attempt(ask, now, past, mark, None);
        let note = attempt.progress().note.clone();
        let record = attempt.begin_record(note.as_deref());
        let reserve = ask.settlement(note.as_ref().map_or(0, |note| note.len()));
        let haste = ask.durability.map_or(Haste::Written, Durability::haste);
        let seq = self.journal.append(&[&record], Room::Claim { reserve }, haste)?;
        attempt.progress().reserved = reserve;
        let attempt = Arc::new(attempt);
        locked.set_first(&ask.key, seq, State::Running(Arc::clone(&attempt)));
        if let Some(order) = &ask.order {
            locked.second().own(Owner { entity: order.entity.clone(), attempt: Arc::clone(&attempt) });
        }
        Ok(Granted { seq, grant: Grant::Running(attempt) })
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one decision")]
    fn grant_claim(
        &self,
        ask: &Ask,
        locked: &mut Locked<'_>,
        now: Time,
        past: &Past,
        mark_before: &MarkView,
        response: Option<&[u8]>,
        deferred: bool,
    ) -> Result<Granted, AppendError> {
        let expires_at = now.after(ask.window);
        let done = Done {
            claimed_at: now,
            completed_at: now,
            expires_at,
            attempt: past.next_attempt(),
            refusal: false,
            fingerprint: ask.fingerprint.as_deref(),
            reply: self.reply(response),
        };
        let purge_at = expires_at.max(past.shadow);
        let record = StoredRecord { key: &ask.key.bytes, purge_at, body: Body::Done(done) }.to_bytes();
        let mark_record = ask.order.as_ref().map(|order| {
            let hides = self.still_hides(mark_before.hides, mark_before.seq);
            mark_record(
                &order.entity,
                order.timestamp,
                order.retention,
                now,
                (mark_before.shadow, hides),
                Some(ask.key.name()),
            )
        });
        // Taking it back repeats the mark before.
        let mark_len = mark_before.mark.as_ref().map_or(0, |mark| mark.record.len() as u64);
        let note = past.previous.as_ref().and_then(|previous| previous.note.as_ref());
        let note = note.filter(|note| deferred && note.len() <= self.options.max_note_len).cloned();
        let note_len = note.as_ref().map_or(0, Vec::len);
        let reserve = if deferred { ask.settlement(note_len) + mark_len } else { 0 };
        let haste = ask.durable(self).haste();
        let seq = match &mark_record {
            Some(mark) => self.journal.append(&[&record, mark], Room::Claim { reserve }, haste)?,
            None => self.journal.append(&[&record], Room::Claim { reserve }, haste)?,
        };
        let record: Arc<[u8]> = record.into();
        locked.set_first(&ask.key, seq, State::Settled { record: Arc::clone(&record), undelivered: None });
        let mut holder = None;
        if let (Some(order), Some(mark)) = (&ask.order, mark_record) {
            if deferred {
                let owner = locked.second().owner(&order.entity).cloned();
                let set_by = owner.filter(|owner| owner.is_of(ask.batch));
                let attempt = Arc::new(self.attempt(ask, now, past, mark_before, set_by));
                locked.second().own(Owner { entity: order.entity.clone(), attempt: Arc::clone(&attempt) });
                holder = Some(attempt);
            }
            let state = State::Settled { record: mark.into(), undelivered: holder.clone() };
            locked.set_second(&order.entity, seq, state);
        }
        Ok(Granted { seq, grant: Grant::Completed { record, note, reserved: reserve, holder } })
    }

    /// A response as it is recorded.
    pub(super) fn reply<'a>(&self, response: Option<&'a [u8]>) -> Reply<'a> {
        match response {
            None => Reply::None,
            Some(bytes) if bytes.len() <= self.options.max_response_len => Reply::Inline(bytes),
            Some(bytes) => Reply::Omitted { len: bytes.len() as u64 },
        }
    }
}

/// Whether an event is older than its entity's mark, or the same one again.
fn is_stale(ask: &Ask, order: &AskOrder, mark: &LiveMark, past: &Past) -> bool {
    if order.timestamp < mark.timestamp {
        return true;
    }
    if order.timestamp > mark.timestamp {
        return false;
    }
    let setter = match StoredRecord::decode(&mark.record).map(|record| record.body) {
        Some(Body::Mark(mark)) => mark.setter,
        _ => None,
    };
    if setter == Some(name_of(&ask.key.bytes)) {
        // The event that set the mark, again: it may pass only if it was freed on purpose.
        !past.freed
    } else {
        order.ties == Ties::Reject
    }
}

fn done_fingerprint(record: &[u8]) -> Option<&[u8]> {
    match StoredRecord::decode(record).map(|record| record.body) {
        Some(Body::Done(done)) => done.fingerprint,
        _ => None,
    }
}

/// Memory that a mark counts for.
pub(super) fn cost_of_mark(entity: &Key) -> usize {
    cost_of_claim(entity.bytes.len(), 0)
}

/// The record of a mark that moves now.
pub(super) fn mark_record(
    entity: &Key,
    timestamp: Timestamp,
    retention: Retention,
    now: Time,
    (shadow, hides): (Time, bool),
    setter: Option<&[u8]>,
) -> Vec<u8> {
    let expires_at = match retention {
        Retention::For(length) => now.after(length),
        Retention::Forever => Time::NEVER,
    };
    let mark = Mark { timestamp, applied_at: now, expires_at, hides, setter };
    let purge_at = if sabotage::is(Break::ShortenMark) { expires_at } else { expires_at.max(shadow) };
    StoredRecord { key: &entity.bytes, purge_at, body: Body::Mark(mark) }.to_bytes()
}

/// The record of a claim that is given up.
pub(super) fn released_record(attempt: &Attempt, cause: Cause, now: Time) -> Vec<u8> {
    let note = attempt.progress().note.clone();
    let expires_at = now.after(attempt.window);
    let released = Released {
        given_up_at: now,
        expires_at,
        attempt: attempt.number,
        cause,
        hides: attempt.hides,
        note: note.as_deref(),
    };
    let body = Body::Released(released);
    StoredRecord { key: &attempt.key.bytes, purge_at: expires_at.max(attempt.shadow), body }.to_bytes()
}

/// Whole seconds, 1 to 60, after which asking again makes sense.
pub(crate) fn retry_after(attempt: &Attempt, now: Time) -> Duration {
    const SECOND: u64 = 1_000_000_000;
    let left = attempt.lease_left(now).map_or(1, |left| nanos(left).div_ceil(SECOND));
    Duration::from_secs(left.clamp(1, 60))
}
