//! One-step claims whose caller may still go away: delivered, or taken back.
//!
//! The id is completed at once, for duplicates too. A mark that such a claim moved shows only once the
//! claim is delivered; until then the claim holds the entity.

use std::sync::Arc;

use super::Engine;
use super::claim::{Grant, Granted};
use super::view::{IdView, Lookup, id_view};
use crate::clock::Time;
use crate::error::Result;
use crate::guard::Cause;
use crate::journal::{Haste, Room};
use crate::key::Key;
use crate::live::attempt::{Order, wake};
use crate::live::map::Locked;
use crate::live::{Attempt, Owner, Phase, State};
use crate::record::{Body, Mark, Released, StoredRecord, key_of};
use crate::sabotage::{self, Break};

impl Engine {
    /// The caller has its answer: from here on the claim stays.
    pub(crate) fn deliver(&self, granted: &Granted) {
        let Grant::Completed { record, reserved, holder, .. } = &granted.grant else { return };
        self.journal.unreserve(*reserved);
        if sabotage::is(Break::GiveRoomBackTwiceWhenDelivered) {
            self.journal.unreserve(*reserved);
        }
        if let Some(attempt) = holder {
            let phase = Phase::Completed { seq: granted.seq, record: Arc::clone(record) };
            self.release_entity(attempt, phase);
        }
    }

    fn release_entity(&self, attempt: &Attempt, phase: Phase) {
        let Some(order) = &attempt.order else { return };
        let mut locked = self.live.lock(&order.entity, None);
        if let Some(entry) = locked.first().find_mut(&order.entity)
            && let State::Settled { undelivered, .. } = &mut entry.state
            && undelivered.as_ref().is_some_and(|other| other.token == attempt.token)
        {
            *undelivered = None;
        }
        locked.first().disown(&order.entity, |owner| owner.token == attempt.token);
        let woken = attempt.end(phase);
        drop(locked);
        wake(woken);
    }

    /// The caller has gone: the key is free again, the mark is what it was. Where that cannot be
    /// recorded any more, the claim stays.
    pub(crate) fn take_back(&self, granted: &Granted) {
        match &granted.grant {
            // Closed or poisoned: then it becomes an orphan.
            Grant::Running(attempt) => drop(self.abort(attempt)),
            Grant::Completed { record, note, reserved, holder } => {
                if !self
                    .release_claim(granted.seq, record, note.as_deref(), *reserved, holder.as_ref())
                    .unwrap_or(false)
                {
                    self.journal.unreserve(*reserved);
                    if let Some(attempt) = holder {
                        self.release_entity(attempt, Phase::Released);
                    }
                }
            }
        }
    }

    /// Whether something of the claim was still there and is taken back now.
    fn release_claim(
        &self,
        seq: u64,
        record: &Arc<[u8]>,
        note: Option<&[u8]>,
        reserved: u64,
        holder: Option<&Arc<Attempt>>,
    ) -> Result<bool> {
        let bytes = key_of(record);
        let key = Key { hash: self.hasher.hash(bytes), bytes: bytes.into() };
        let order = holder.and_then(|attempt| attempt.order.as_ref());
        let mut lookup = Lookup::default();
        let (mut locked, now) = self.lock_known(&key, order.map(|order| &order.entity), &mut lookup)?;
        let claim = match id_view(locked.first(), &key, &lookup, now)? {
            IdView::Done { record, seq: found } if found == seq => Some(record),
            // Expired, forgotten or taken by somebody else meanwhile; only the mark is left of it.
            IdView::Done { .. } | IdView::Absent(_) | IdView::Running(_) => None,
        };
        let released = claim.and_then(|claim| {
            let StoredRecord { purge_at, body: Body::Done(done), .. } = StoredRecord::decode(&claim)? else {
                return None;
            };
            let released = Released {
                given_up_at: now.max(done.completed_at).min(done.expires_at),
                expires_at: done.expires_at,
                attempt: done.attempt,
                cause: Cause::Aborted,
                hides: true,
                note,
            };
            Some(StoredRecord { key: bytes, purge_at, body: Body::Released(released) }.to_bytes())
        });
        let limit = self.options.max_key_len;
        let mark = holder
            .zip(order)
            .and_then(|(attempt, order)| mark_taken_back(&mut locked, attempt, order, limit, now));
        let records: Vec<&[u8]> = released.iter().chain(&mark).map(Vec::as_slice).collect();
        if records.is_empty() {
            return Ok(false);
        }
        let Ok(seq) = self.journal.append(&records, Room::Settle { reserved }, Haste::Written) else {
            return Ok(false);
        };
        if let Some(released) = released {
            locked.set_first(&key, seq, State::Settled { record: released.into(), undelivered: None });
        }
        if let (Some(order), Some(mark)) = (order, mark) {
            // Within a batch the mark goes back step by step; the claim before holds it again.
            let undelivered = order.set_by.clone();
            if let Some(before) = &undelivered {
                let owner = Owner { entity: order.entity.clone(), attempt: Arc::clone(before) };
                locked.second().own(owner);
            }
            locked.set_second(&order.entity, seq, State::Settled { record: mark.into(), undelivered });
        }
        let mut woken = Vec::new();
        if let (Some(attempt), Some(order)) = (holder, order) {
            locked.second().disown(&order.entity, |owner| owner.token == attempt.token);
            woken = attempt.end(Phase::Released);
        }
        drop(locked);
        wake(woken);
        Ok(true)
    }
}

/// The record that puts a mark back to what it was before a claim. An id longer than today's `limit`
/// cannot come again, so that it set the mark is not needed, and may not fit into a frame.
fn mark_taken_back(
    locked: &mut Locked<'_>,
    attempt: &Attempt,
    order: &Order,
    limit: usize,
    now: Time,
) -> Option<Vec<u8>> {
    let entry = locked.second().find(&order.entity)?;
    let State::Settled { record, undelivered: Some(holder) } = &entry.state else { return None };
    if holder.token != attempt.token {
        return None;
    }
    let purge_at = StoredRecord::decode(record)?.purge_at;
    let before = order.mark_before.as_deref().and_then(StoredRecord::decode);
    let body = match before.map(|record| record.body) {
        Some(Body::Mark(mark)) => {
            let setter = mark.setter.filter(|setter| setter.len() <= limit);
            Body::Mark(Mark { hides: true, setter, ..mark })
        }
        _ => Body::Tombstone { forgotten_at: now },
    };
    Some(StoredRecord { key: &order.entity.bytes, purge_at, body }.to_bytes())
}
