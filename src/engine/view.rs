//! What is known of a key right now: from memory, or else from runs.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::Engine;
use crate::clock::Time;
use crate::error::{Error, Result};
use crate::guard::{Cause, Previous};
use crate::key::Key;
use crate::live::map::Locked;
use crate::live::{Attempt, Shard, State};
use crate::record::{Body, Done, Reply, StoredRecord};
use crate::runs::{Found, RunSet};
use crate::sabotage::{self, Break};
use crate::timestamp::Timestamp;

/// What runs say of one key, kept over the retries of one call.
///
/// Runs are read outside the shard lock. What was read counts only while the list of runs is still
/// the same: a state that leaves memory has been published first, in a newer list.
#[derive(Debug, Default)]
pub(crate) struct Lookup {
    found: Option<(Arc<RunSet>, Option<Found>)>,
    pending: Option<Arc<RunSet>>,
}

impl Lookup {
    /// Whether the key's state is known, under its shard's lock. If not, unlock, [`read`](Self::read)
    /// and try again.
    pub(crate) fn is_ready(&mut self, engine: &Engine, shard: &Shard, key: &Key, now: Time) -> bool {
        if shard.find(key).is_some() {
            return true;
        }
        let set = engine.runs.current();
        if self.found.as_ref().is_some_and(|(read, _)| read.version == set.version) {
            return true;
        }
        if set.may_contain(key.hash, now) {
            self.pending = Some(set);
            return false;
        }
        self.found = Some((set, None));
        true
    }

    /// Reads the runs.
    pub(crate) fn read(&mut self, key: &Key, now: Time) -> Result<()> {
        if let Some(set) = self.pending.take() {
            let found = set.find(key.hash, &key.bytes, now)?;
            self.found = Some((set, found));
        }
        Ok(())
    }

    fn stored(&self) -> Option<&Found> {
        self.found.as_ref()?.1.as_ref()
    }

    /// The large response of a record that came from a run; read before the list is let go.
    pub(crate) fn response(&self, record: &[u8]) -> Result<Option<Arc<[u8]>>> {
        let Some(Body::Done(Done { reply: Reply::Far(far), .. })) =
            StoredRecord::decode(record).map(|record| record.body)
        else {
            return Ok(None);
        };
        match &self.found {
            Some((set, _)) => set.response(far).map(Some),
            None => Ok(None),
        }
    }
}

impl Engine {
    /// Locks the shard of a key, and that of a second one, once the first one's state is known.
    pub(super) fn lock_known(
        &self,
        key: &Key,
        second: Option<&Key>,
        lookup: &mut Lookup,
    ) -> Result<(Locked<'_>, Time)> {
        loop {
            let mut locked = self.live.lock(key, second);
            self.check()?;
            let now = self.now();
            if lookup.is_ready(self, locked.first(), key, now) {
                return Ok((locked, now));
            }
            drop(locked);
            lookup.read(key, now)?;
        }
    }
}

/// The state of an id.
#[derive(Debug)]
pub(crate) enum IdView {
    Absent(Past),
    Done { record: Arc<[u8]>, seq: u64 },
    Running(Arc<Attempt>),
}

/// What remains of earlier states of an absent key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Past {
    /// New records of the key must last until then.
    pub(crate) shadow: Time,
    pub(crate) previous: Option<Previous>,
    /// The frame that says so; 0 if nothing does.
    pub(crate) seq: u64,
    /// The key was forgotten or released, rather than expired or never seen.
    pub(crate) freed: bool,
    /// It hides a completion that a crash could bring back while its frame is not durable.
    pub(crate) hides: bool,
    /// Its lease lapsed; whoever takes the key over fences it.
    pub(crate) lapsed: Option<Arc<Attempt>>,
}

impl Past {
    pub(crate) fn next_attempt(&self) -> u32 {
        self.previous.as_ref().map_or(1, |previous| previous.attempt.saturating_add(1))
    }
}

/// The state of an entity's mark.
#[derive(Debug, Default)]
pub(crate) struct MarkView {
    pub(crate) mark: Option<LiveMark>,
    pub(crate) shadow: Time,
    pub(crate) seq: u64,
    /// It hides a mark that a crash could bring back while its frame is not durable.
    pub(crate) hides: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct LiveMark {
    pub(crate) record: Arc<[u8]>,
    pub(crate) timestamp: Timestamp,
}

/// The state of an id. The lookup is ready.
pub(crate) fn id_view(shard: &Shard, key: &Key, lookup: &Lookup, now: Time) -> Result<IdView> {
    match shard.find(key) {
        Some(entry) => match &entry.state {
            State::Running(attempt) if attempt.is_held(now) => Ok(IdView::Running(Arc::clone(attempt))),
            State::Running(attempt) => Ok(IdView::Absent(lapsed(attempt, entry.seq))),
            State::Settled { record, .. } => id_of_record(record, entry.seq, now),
        },
        None => match lookup.stored() {
            Some(found) => id_of_record(&found.record, found.seq, now),
            None => Ok(IdView::Absent(Past::default())),
        },
    }
}

fn lapsed(attempt: &Arc<Attempt>, seq: u64) -> Past {
    let note = attempt.progress().note.as_deref().map(<[u8]>::to_vec);
    Past {
        shadow: attempt.shadow,
        previous: Some(Previous { cause: Cause::LeaseExpired, attempt: attempt.number, note }),
        seq,
        freed: true,
        hides: attempt.hides,
        lapsed: Some(Arc::clone(attempt)),
    }
}

fn id_of_record(bytes: &Arc<[u8]>, seq: u64, now: Time) -> Result<IdView> {
    let record = decode(bytes)?;
    if record.purge_at <= now {
        return Ok(IdView::Absent(Past::default()));
    }
    let shadow = if sabotage::is(Break::DropTombstone) { Time(0) } else { record.purge_at };
    let past = Past { shadow, seq, ..Past::default() };
    let late = Duration::from_secs(u64::from(sabotage::is(Break::ExpireLate)));
    Ok(match record.body {
        Body::Done(done) if now < done.expires_at.after(late) => {
            IdView::Done { record: Arc::clone(bytes), seq }
        }
        Body::Released(released) => {
            let previous = (now < released.expires_at).then(|| Previous {
                cause: released.cause,
                attempt: released.attempt,
                note: released.note.map(<[u8]>::to_vec),
            });
            IdView::Absent(Past { freed: previous.is_some(), previous, hides: released.hides, ..past })
        }
        Body::Tombstone { .. } => IdView::Absent(Past { freed: true, hides: true, ..past }),
        // It has expired before what it replaced would have.
        _ => IdView::Absent(Past { hides: !sabotage::is(Break::HideOnce), ..past }),
    })
}

/// The state of a mark, as a claim of `batch` sees it (0: of none). The lookup is ready.
///
/// A mark moved by a claim that may still be taken back shows only within that claim's batch;
/// everyone else sees the one before.
pub(crate) fn mark_view(
    shard: &Shard,
    entity: &Key,
    lookup: &Lookup,
    now: Time,
    batch: u64,
) -> Result<MarkView> {
    let mut before = None;
    let (bytes, seq) = match (shard.find(entity), lookup.stored()) {
        (Some(entry), _) => match &entry.state {
            State::Settled { record, undelivered } => {
                before =
                    undelivered.as_ref().filter(|attempt| !attempt.is_of(batch) && attempt.is_undelivered());
                (record, entry.seq)
            }
            State::Running(_) => return Ok(MarkView::default()),
        },
        (None, Some(found)) => (&found.record, found.seq),
        (None, None) => return Ok(MarkView::default()),
    };
    let StoredRecord { purge_at: shadow, body, .. } = decode(bytes)?;
    let hides = match body {
        // Expired before what it replaced would have.
        Body::Mark(mark) => mark.hides || (mark.expires_at <= now && !sabotage::is(Break::HideOnce)),
        _ => true,
    };
    let shown = match before {
        Some(attempt) => attempt.order.as_ref().and_then(|order| order.outer_before.as_ref()),
        None => Some(bytes),
    };
    let mark = match shown {
        Some(bytes) => match decode(bytes)? {
            StoredRecord { body: Body::Mark(mark), .. } if now < mark.expires_at => {
                Some(LiveMark { record: Arc::clone(bytes), timestamp: mark.timestamp })
            }
            _ => None,
        },
        None => None,
    };
    Ok(MarkView { mark, shadow: if now < shadow { shadow } else { Time(0) }, seq, hides })
}

fn decode(bytes: &[u8]) -> Result<StoredRecord<'_>> {
    StoredRecord::decode(bytes)
        .ok_or_else(|| Error::corrupt(Path::new("runs"), 0, "a record with a good checksum does not decode"))
}
