//! Marks on their own: the order guard without an id.

use std::sync::Arc;

use super::Engine;
use super::claim::{AskOrder, mark_record};
use super::drive::{Patience, Step};
use super::view::{Lookup, MarkView, mark_view};
use crate::error::{Error, Result};
use crate::journal::{AppendError, Room};
use crate::key::Key;
use crate::live::attempt::wake;
use crate::live::map::Locked;
use crate::live::{Attempt, State};
use crate::options::Ties;
use crate::record::{Body, StoredRecord};

/// Whether a mark moved.
#[derive(Debug)]
pub(crate) enum Advanced {
    /// By this frame.
    Applied(u64),
    /// No: its record.
    Stale(Arc<[u8]>),
    /// An event of the entity is being worked on.
    Busy(Arc<Attempt>),
}

impl Engine {
    /// Locks an entity's shard and reads its mark.
    fn locked_mark(&self, entity: &Key, lookup: &mut Lookup) -> Result<(Locked<'_>, MarkView)> {
        let (mut locked, now) = self.lock_known(entity, None, lookup)?;
        let mark = mark_view(locked.first(), entity, lookup, now, 0)?;
        Ok((locked, mark))
    }

    /// The record of an entity's mark.
    pub(crate) fn last_applied(&self, entity: &Key, lookup: &mut Lookup) -> Result<Step<Option<Arc<[u8]>>>> {
        let (locked, mark) = self.locked_mark(entity, lookup)?;
        drop(locked);
        Ok(match self.undurable(self.options.durability, mark.seq) {
            Some(wait) => Step::Wait(wait),
            None => Step::Done(mark.mark.map(|mark| mark.record)),
        })
    }

    /// Moves a mark, unless the event is stale or another one is in progress.
    pub(crate) fn advance(
        &self,
        order: &AskOrder,
        lookup: &mut Lookup,
        patience: &mut Patience,
    ) -> Result<Step<Advanced>> {
        let (mut locked, mark) = self.locked_mark(&order.entity, lookup)?;
        let now = self.now();
        self.check_timestamp(order, mark.mark.as_ref())?;
        let owner = locked.first().owner(&order.entity).cloned();
        let held = owner.clone().filter(|owner| owner.is_held(now));
        if let Some(known) = &mark.mark {
            let tie = known.timestamp == order.timestamp && order.ties == Ties::Reject;
            if order.timestamp < known.timestamp || tie {
                drop(locked);
                return Ok(match self.undurable(self.options.durability, mark.seq) {
                    Some(wait) => Step::Wait(wait),
                    None => Step::Done(Advanced::Stale(Arc::clone(&known.record))),
                });
            }
        }
        if let Some(held) = held {
            return Ok(Step::Done(Advanced::Busy(held)));
        }
        if let Some(wait) = self.no_room(super::claim::cost_of_mark(&order.entity), patience)? {
            return Ok(Step::Wait(wait));
        }
        let before = (mark.shadow, self.still_hides(mark.hides, mark.seq));
        let record = mark_record(&order.entity, order.timestamp, order.retention, now, before, None);
        let haste = self.options.durability.haste();
        let seq = match self.journal.append(&[&record], Room::Claim { reserve: 0 }, haste) {
            Ok(seq) => seq,
            Err(AppendError::NoRoom) => return self.await_room(patience).map(Step::Wait),
            Err(error) => return Err(error.into_error()),
        };
        locked.set_first(&order.entity, seq, State::Settled { record: record.into(), undelivered: None });
        // A lapsed owner that this overtook must not move the mark back.
        let woken = owner.map_or_else(Vec::new, |lapsed| self.fence(&lapsed));
        locked.first().disown(&order.entity, |_| true);
        drop(locked);
        wake(woken);
        Ok(Step::Done(Advanced::Applied(seq)))
    }

    /// Forgets a mark: the frame to wait for, and whether there was one.
    pub(crate) fn forget_mark(
        &self,
        entity: &Key,
        lookup: &mut Lookup,
        patience: &mut Patience,
    ) -> Result<Step<(Option<u64>, bool)>> {
        let (mut locked, mark) = self.locked_mark(entity, lookup)?;
        if let Some(State::Settled { undelivered: Some(attempt), .. }) =
            locked.first().find(entity).map(|entry| &entry.state)
            && attempt.is_undelivered()
        {
            return Err(Error::InProgress);
        }
        if mark.mark.is_none() {
            return Ok(Step::Done((mark.hides.then_some(mark.seq), false)));
        }
        let body = Body::Tombstone { forgotten_at: self.now() };
        let record = StoredRecord { key: &entity.bytes, purge_at: mark.shadow, body }.to_bytes();
        let haste = self.options.durability.haste();
        match self.journal.append(&[&record], Room::Claim { reserve: 0 }, haste) {
            Ok(seq) => {
                locked.set_first(entity, seq, State::Settled { record: record.into(), undelivered: None });
                Ok(Step::Done((Some(seq), true)))
            }
            Err(AppendError::NoRoom) => self.await_room(patience).map(Step::Wait),
            Err(error) => Err(error.into_error()),
        }
    }
}
