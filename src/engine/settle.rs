//! The end of a claim in progress, and what its owner may do until then.

use std::sync::Arc;
use std::task::Waker;

use super::Engine;
use super::claim::{Shown, mark_record, released_record};
use super::drive::{Patience, Step};
use super::view::{IdView, Lookup, id_view};
use crate::clock::Time;
use crate::error::{Error, Result};
use crate::guard::Cause;
use crate::journal::{AppendError, Haste, Room};
use crate::key::Key;
use crate::live::attempt::wake;
use crate::live::map::Locked;
use crate::live::{Attempt, Phase, State};
use crate::record::{Body, Done, Reply, StoredRecord};
use crate::sabotage::{self, Break};

/// How a claim in progress is completed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settlement<'a> {
    pub(crate) refusal: bool,
    pub(crate) response: Option<&'a [u8]>,
}

impl Engine {
    /// Locks what an attempt holds, if it still holds it.
    fn lock_held(&self, attempt: &Attempt) -> Result<Locked<'_>> {
        let locked = self.live.lock(&attempt.key, attempt.order.as_ref().map(|order| &order.entity));
        if self.is_superseded() {
            return Err(Error::Fenced);
        }
        self.check()?;
        // A lapsed lease alone takes nothing away: only a successor does.
        if attempt.has_ended() { Err(Error::Fenced) } else { Ok(locked) }
    }

    /// Completes an attempt; the frame that does it.
    pub(crate) fn settle(
        &self,
        attempt: &Attempt,
        settlement: Settlement<'_>,
        patience: &mut Patience,
    ) -> Result<Step<u64>> {
        let mut locked = self.lock_held(attempt)?;
        let result = match self.append_done(&mut locked, attempt, settlement, self.reply(settlement.response))
        {
            Err(AppendError::NoRoom) => match (self.await_room(patience), settlement.response) {
                (Ok(wait), _) => return Ok(Step::Wait(wait)),
                // The completion is what counts; room for it was set aside.
                (Err(_), response) => {
                    let reply =
                        response.map_or(Reply::None, |bytes| Reply::Omitted { len: bytes.len() as u64 });
                    self.append_done(&mut locked, attempt, settlement, reply)
                }
            },
            result => result,
        };
        let (seq, woken) = result.map_err(AppendError::into_error)?;
        drop(locked);
        wake(woken);
        Ok(Step::Done(seq))
    }

    fn append_done(
        &self,
        locked: &mut Locked<'_>,
        attempt: &Attempt,
        settlement: Settlement<'_>,
        reply: Reply<'_>,
    ) -> Result<(u64, Vec<Waker>), AppendError> {
        let now = self.now();
        let expires_at = now.after(attempt.window);
        let done = Done {
            claimed_at: attempt.claimed_at,
            completed_at: now,
            expires_at,
            attempt: attempt.number,
            refusal: settlement.refusal,
            fingerprint: attempt.fingerprint.as_deref(),
            reply,
        };
        let purge_at = expires_at.max(attempt.shadow);
        let record = StoredRecord { key: &attempt.key.bytes, purge_at, body: Body::Done(done) }.to_bytes();
        let mark = attempt.order.as_ref().map(|order| {
            let setter = Some(attempt.key.name());
            mark_record(
                &order.entity,
                order.timestamp,
                order.retention,
                now,
                (order.shadow, order.hides),
                setter,
            )
        });
        let room = Room::Settle { reserved: attempt.progress().reserved };
        let haste = self.durability(attempt.durability).haste();
        let seq = match &mark {
            Some(mark) if sabotage::is(Break::SplitMark) => {
                self.journal.append(&[mark], Room::Claim { reserve: 0 }, haste)?;
                self.journal.append(&[&record], room, haste)?
            }
            Some(mark) => self.journal.append(&[&record, mark], room, haste)?,
            None => self.journal.append(&[&record], room, haste)?,
        };
        attempt.progress().reserved = 0;
        let record: Arc<[u8]> = record.into();
        locked.set_first(
            &attempt.key,
            seq,
            State::Settled { record: Arc::clone(&record), undelivered: None },
        );
        if let (Some(order), Some(mark)) = (&attempt.order, mark) {
            locked.set_second(&order.entity, seq, State::Settled { record: mark.into(), undelivered: None });
            locked.second().disown(&order.entity, |owner| owner.token == attempt.token);
        }
        Ok((seq, attempt.end(Phase::Completed { seq, record })))
    }

    /// Whether settling an attempt waits for the disk.
    pub(crate) fn settles_durably(&self, attempt: &Attempt) -> bool {
        self.durability(attempt.durability).is_sync()
    }

    /// Gives a key back. Waits for nothing.
    pub(crate) fn abort(&self, attempt: &Attempt) -> Result<()> {
        let mut locked = self.lock_held(attempt)?;
        let record = released_record(attempt, Cause::Aborted, self.now());
        let woken = self.append_release(&mut locked, attempt, record).map_err(AppendError::into_error)?;
        drop(locked);
        wake(woken);
        Ok(())
    }

    /// Records that an attempt is over without a result.
    pub(super) fn append_release(
        &self,
        locked: &mut Locked<'_>,
        attempt: &Attempt,
        record: Vec<u8>,
    ) -> Result<Vec<Waker>, AppendError> {
        let room = Room::Settle { reserved: attempt.progress().reserved };
        let seq = self.journal.append(&[&record], room, Haste::Written)?;
        attempt.progress().reserved = 0;
        locked.set_first(&attempt.key, seq, State::Settled { record: record.into(), undelivered: None });
        if let Some(order) = &attempt.order {
            locked.second().disown(&order.entity, |owner| owner.token == attempt.token);
        }
        Ok(attempt.end(Phase::Released))
    }

    /// Starts the lease anew.
    pub(crate) fn renew(&self, attempt: &Attempt) -> Result<()> {
        let locked = self.lock_held(attempt)?;
        attempt.progress().lease_until = attempt.lease.map(|lease| self.now().after(lease));
        drop(locked);
        Ok(())
    }

    /// Keeps a note with the claim; the frame that does it.
    pub(crate) fn note(&self, attempt: &Attempt, note: &[u8], patience: &mut Patience) -> Result<Step<u64>> {
        let mut locked = self.lock_held(attempt)?;
        let record = attempt.begin_record(Some(note));
        let before = attempt.progress().note.as_ref().map_or(0, |note| note.len());
        // A later release repeats the note.
        let reserve = note.len().saturating_sub(attempt.progress().note_room) as u64;
        match self.journal.append(&[&record], Room::Claim { reserve }, Haste::Awaited) {
            Ok(seq) => {
                let mut progress = attempt.progress();
                progress.note = Some(note.into());
                progress.reserved += reserve;
                progress.note_room = progress.note_room.max(note.len());
                drop(progress);
                if let Some(entry) = locked.first().find_mut(&attempt.key) {
                    entry.seq = seq;
                }
                self.live.add_bytes(before, note.len());
                Ok(Step::Done(seq))
            }
            Err(AppendError::NoRoom) => self.await_room(patience).map(Step::Wait),
            Err(error) => Err(error.into_error()),
        }
    }

    /// Takes everything from an attempt that somebody else has overtaken; those to wake.
    pub(super) fn fence(&self, attempt: &Attempt) -> Vec<Waker> {
        let reserved = std::mem::take(&mut attempt.progress().reserved);
        self.journal.unreserve(reserved);
        if sabotage::is(Break::GiveRoomBackTwice) {
            self.journal.unreserve(reserved);
        }
        if sabotage::is(Break::SkipFence) {
            return Vec::new();
        }
        attempt.end(Phase::Released)
    }

    /// A completed, unexpired key.
    pub(crate) fn get(&self, key: &Key, lookup: &mut Lookup) -> Result<Step<Option<Shown>>> {
        let (mut locked, now) = self.lock_known(key, None, lookup)?;
        let view = id_view(locked.first(), key, lookup, now)?;
        let begun = locked.first().find(key).map_or(0, |entry| entry.seq);
        drop(locked);
        let (found, seq) = match view {
            IdView::Done { record, seq } => (Some(record), seq),
            IdView::Absent(past) => (None, past.seq),
            // What it replaced must not come back.
            IdView::Running(attempt) if attempt.shadow > Time(0) => (None, begun),
            IdView::Running(_) => (None, 0),
        };
        if let Some(wait) = self.undurable(self.options.durability, seq) {
            return Ok(Step::Wait(wait));
        }
        let Some(record) = found else { return Ok(Step::Done(None)) };
        let response = lookup.response(&record)?;
        Ok(Step::Done(Some(Shown { record, response })))
    }

    /// Forgets a key: the frame that does it, if there was anything, and whether it was completed.
    pub(crate) fn forget(
        &self,
        key: &Key,
        lookup: &mut Lookup,
        patience: &mut Patience,
    ) -> Result<Step<(Option<u64>, bool)>> {
        let (mut locked, now) = self.lock_known(key, None, lookup)?;
        let (purge_at, completed, lapsed) = match id_view(locked.first(), key, lookup, now)? {
            IdView::Running(_) => return Err(Error::InProgress),
            IdView::Done { record, .. } => {
                (StoredRecord::decode(&record).map_or(now, |record| record.purge_at), true, None)
            }
            IdView::Absent(past) if past.previous.is_none() => {
                // Forgotten by somebody else: so that this holds, too, when it returns.
                return Ok(Step::Done((past.hides.then_some(past.seq), false)));
            }
            // Given up, but remembered: attempts are to start again at 1.
            IdView::Absent(past) => {
                let kept = past.lapsed.as_ref().map_or(now, |attempt| now.after(attempt.window));
                (past.shadow.max(kept), false, past.lapsed)
            }
        };
        let body = Body::Tombstone { forgotten_at: now };
        let record = StoredRecord { key: &key.bytes, purge_at, body }.to_bytes();
        let haste = self.options.durability.haste();
        let seq = match self.journal.append(&[&record], Room::Claim { reserve: 0 }, haste) {
            Ok(seq) => seq,
            Err(AppendError::NoRoom) => return self.await_room(patience).map(Step::Wait),
            Err(error) => return Err(error.into_error()),
        };
        locked.set_first(key, seq, State::Settled { record: record.into(), undelivered: None });
        let woken = lapsed.map_or_else(Vec::new, |attempt| self.fence(&attempt));
        drop(locked);
        wake(woken);
        Ok(Step::Done((Some(seq), completed)))
    }
}
