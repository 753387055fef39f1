//! The rules of a ledger: which verdict, what is written, what is removed.

use std::cmp::Ordering;
use std::convert::Infallible;
use std::time::SystemTime;

use crate::clock::{Time, WallMapping};
use crate::error::{Error, Result};
use crate::key::Kind;
use crate::ledger::draft::Wish;
use crate::ledger::rows::{NewRow, Rows, RowsMut};
use crate::ledger::sealed::{full_key, kind_byte, row_name};
use crate::ledger::terms::{MAX_RESPONSE, Terms};
use crate::options::{Retention, Ties};
use crate::outcome::{Mark, Outcome, Record};
use crate::record::{self, Body, Done, Reply, StoredRecord};
use crate::timestamp::Timestamp;

/// Expired rows that a new claim removes at most. It adds two at most, so fewer would not keep up.
const COLLECTED: usize = 4;

/// Rows that are looked for at once.
const BATCH: usize = 256;

/// A ledger's times are those of the wall clock.
const MAPPING: WallMapping = WallMapping { now: Time(0), wall: SystemTime::UNIX_EPOCH };

/// A ledger's time, and the latest one in its rows.
#[derive(Clone, Copy)]
struct Moment {
    now: Time,
    latest: Option<Time>,
}

/// What is known of an id.
enum IdView<'a> {
    Done(Done<'a>, StoredRecord<'a>),
    /// Forgotten on purpose, and its window is not over.
    Forgotten,
    Absent,
}

impl Terms {
    pub(crate) fn claim<R: RowsMut>(
        &self,
        wish: &Wish<'_>,
        open: impl FnOnce() -> Result<R>,
    ) -> Result<Outcome<Record, Infallible>> {
        self.check_wish(wish)?;
        let mut rows = open()?;
        let moment = self.moment(&rows)?;
        let mark_value = match wish.order {
            Some((entity, _)) => rows.row(Kind::Mark, entity)?,
            None => None,
        };
        let mut old_mark = None;
        let mut mark = None;
        if let (Some((entity, at)), Some(value)) = (wish.order, &mark_value) {
            let stored = self.seal.open(Kind::Mark, entity, value)?;
            old_mark = Some(stored.purge_at);
            mark = live_mark(&stored, moment.now).map(|mark| (mark, stored));
            if mark.is_some_and(|(mark, _)| mark.timestamp.partial_cmp(&at).is_none()) {
                return Err(Error::TimestampKind);
            }
        }
        let id_value = rows.row(Kind::Id, wish.id)?;
        let stored = id_value.as_deref().map(|value| self.seal.open(Kind::Id, wish.id, value)).transpose()?;
        let old_id = stored.map(|stored| stored.purge_at);
        let view = id_view(stored, moment.now);
        if let IdView::Done(done, stored) = view {
            let record = shown_record(wish.id, stored);
            let differs = matches!((wish.fingerprint, done.fingerprint), (Some(a), Some(b)) if a != b);
            return Ok(if differs { Outcome::Mismatch(record) } else { Outcome::Duplicate(record) });
        }
        if let (Some((entity, at)), Some((mark, stored))) = (wish.order, mark) {
            let freed = matches!(view, IdView::Forgotten);
            if self.is_stale(at, wish.id, &mark, freed) {
                return Ok(Outcome::Stale(shown_mark(entity, stored)));
            }
        }
        self.collect(&mut rows, moment.now, COLLECTED)?;
        self.set_latest(&mut rows, moment)?;
        self.grant(&mut rows, wish, moment.now, (old_id, old_mark)).map(Outcome::New)
    }

    /// Writes a new claim's rows.
    fn grant<R: RowsMut>(
        &self,
        rows: &mut R,
        wish: &Wish<'_>,
        now: Time,
        (old_id, old_mark): (Option<Time>, Option<Time>),
    ) -> Result<Record> {
        let expires_at = now.after(wish.window.unwrap_or(self.window));
        let reply = wish.response.map_or(Reply::None, reply_of);
        let body = Body::Done(Done {
            claimed_at: now,
            completed_at: now,
            expires_at,
            attempt: 1,
            refusal: false,
            fingerprint: wish.fingerprint,
            reply,
        });
        let value = self.seal.record(Kind::Id, wish.id, expires_at, body);
        let id = NewRow { kind: Kind::Id, name: wish.id, value: &value, expires_at, replaced: old_id };
        match wish.order {
            None => rows.put(&[id])?,
            Some((entity, timestamp)) => {
                let expires_at = match self.mark_retention {
                    Retention::For(length) => now.after(length),
                    Retention::Forever => Time::NEVER,
                };
                let setter = Some(wish.id);
                let mark = record::Mark { timestamp, applied_at: now, expires_at, hides: false, setter };
                let value = self.seal.record(Kind::Mark, entity, expires_at, Body::Mark(mark));
                let (name, value) = (entity, &value[..]);
                let mark = NewRow { kind: Kind::Mark, name, value, expires_at, replaced: old_mark };
                rows.put(&[id, mark])?;
            }
        }
        Ok(shown_record(wish.id, StoredRecord { key: b"", purge_at: expires_at, body }))
    }

    /// Whether an event is older than its entity's mark, or the same one again.
    fn is_stale(&self, at: Timestamp, id: &[u8], mark: &record::Mark<'_>, freed: bool) -> bool {
        match at.partial_cmp(&mark.timestamp) {
            Some(Ordering::Greater) => false,
            // The event that set the mark, again: it may pass only if it was freed on purpose.
            Some(Ordering::Equal) if mark.setter == Some(id) => !freed,
            Some(Ordering::Equal) => self.ties == Ties::Reject,
            Some(Ordering::Less) | None => true,
        }
    }

    pub(crate) fn get<R: Rows>(
        &self,
        id: &[u8],
        open: impl FnOnce() -> Result<Option<R>>,
    ) -> Result<Option<Record>> {
        self.check_name(id)?;
        let Some(rows) = open()? else { return Ok(None) };
        let now = self.moment(&rows)?.now;
        let Some(value) = rows.row(Kind::Id, id)? else { return Ok(None) };
        Ok(match id_view(Some(self.seal.open(Kind::Id, id, &value)?), now) {
            IdView::Done(_, stored) => Some(shown_record(id, stored)),
            IdView::Forgotten | IdView::Absent => None,
        })
    }

    pub(crate) fn last_applied<R: Rows>(
        &self,
        entity: &[u8],
        open: impl FnOnce() -> Result<Option<R>>,
    ) -> Result<Option<Mark>> {
        self.check_name(entity)?;
        let Some(rows) = open()? else { return Ok(None) };
        let now = self.moment(&rows)?.now;
        let Some(value) = rows.row(Kind::Mark, entity)? else { return Ok(None) };
        let stored = self.seal.open(Kind::Mark, entity, &value)?;
        Ok(live_mark(&stored, now).map(|_| shown_mark(entity, stored)))
    }

    /// Puts a response in place of the one that an id has; whether there is such an id.
    pub(crate) fn respond<R: RowsMut>(
        &self,
        id: &[u8],
        response: &[u8],
        open: impl FnOnce() -> Result<Option<R>>,
    ) -> Result<bool> {
        self.check_name(id)?;
        let Some(mut rows) = open()? else { return Ok(false) };
        let now = self.moment(&rows)?.now;
        let Some(value) = rows.row(Kind::Id, id)? else { return Ok(false) };
        let stored = self.seal.open(Kind::Id, id, &value)?;
        let IdView::Done(done, _) = id_view(Some(stored), now) else { return Ok(false) };
        let expires_at = done.expires_at;
        let body = Body::Done(Done { reply: reply_of(response), ..done });
        let value = self.seal.record(Kind::Id, id, expires_at, body);
        let replaced = Some(expires_at);
        rows.put(&[NewRow { kind: Kind::Id, name: id, value: &value, expires_at, replaced }])?;
        Ok(true)
    }

    /// A forgotten id leaves a row for the rest of its window, which tells it from an expired one.
    pub(crate) fn forget<R: RowsMut>(
        &self,
        id: &[u8],
        open: impl FnOnce() -> Result<Option<R>>,
    ) -> Result<bool> {
        self.check_name(id)?;
        let Some(mut rows) = open()? else { return Ok(false) };
        let moment = self.moment(&rows)?;
        let Some(value) = rows.row(Kind::Id, id)? else { return Ok(false) };
        let stored = self.seal.open(Kind::Id, id, &value)?;
        let IdView::Done(Done { expires_at, .. }, _) = id_view(Some(stored), moment.now) else {
            return Ok(false);
        };
        let value = self.seal.record(Kind::Id, id, expires_at, Body::Tombstone { forgotten_at: moment.now });
        self.set_latest(&mut rows, moment)?;
        let replaced = Some(expires_at);
        rows.put(&[NewRow { kind: Kind::Id, name: id, value: &value, expires_at, replaced }])?;
        Ok(true)
    }

    pub(crate) fn forget_mark<R: RowsMut>(
        &self,
        entity: &[u8],
        open: impl FnOnce() -> Result<Option<R>>,
    ) -> Result<bool> {
        self.check_name(entity)?;
        let Some(mut rows) = open()? else { return Ok(false) };
        let moment = self.moment(&rows)?;
        let Some(value) = rows.row(Kind::Mark, entity)? else { return Ok(false) };
        let stored = self.seal.open(Kind::Mark, entity, &value)?;
        if live_mark(&stored, moment.now).is_none() {
            return Ok(false);
        }
        rows.remove(Kind::Mark, entity, stored.purge_at)?;
        Ok(true)
    }

    pub(crate) fn expire<R: RowsMut>(
        &self,
        at_most: usize,
        open: impl FnOnce() -> Result<Option<R>>,
    ) -> Result<usize> {
        self.check()?;
        let Some(mut rows) = open()? else { return Ok(0) };
        let moment = self.moment(&rows)?;
        let mut removed = 0;
        while removed < at_most {
            let asked = BATCH.min(at_most - removed);
            let collected = self.collect(&mut rows, moment.now, asked)?;
            removed += collected;
            if collected < asked {
                break;
            }
        }
        if removed > 0 {
            self.set_latest(&mut rows, moment)?;
        }
        Ok(removed)
    }

    /// Removes the rows that expired first.
    fn collect<R: RowsMut>(&self, rows: &mut R, now: Time, at_most: usize) -> Result<usize> {
        let due = rows.due(now, at_most)?;
        for row in &due {
            // The order of expiry alone takes nothing away: the row has to say the same.
            if row.stored != Some(row.expires_at) {
                let name = row_name(kind_byte(row.kind), &row.name);
                return Err(self.seal.damaged(&name, "it does not expire when the order of expiry says"));
            }
        }
        for row in &due {
            rows.remove(row.kind, &row.name, row.expires_at)?;
        }
        Ok(due.len())
    }

    /// The later of the clock and the latest time in the rows: what has expired once stays so.
    fn moment<R: Rows>(&self, rows: &R) -> Result<Moment> {
        let latest = match rows.head()? {
            Some(head) => Some(self.seal.open_head(&head)?),
            None if rows.is_empty()? => None,
            None => return Err(self.seal.damaged("the head", "it is missing, and other rows are there")),
        };
        let wall = self.wall();
        Ok(Moment { now: latest.map_or(wall, |latest| latest.max(wall)), latest })
    }

    fn set_latest<R: RowsMut>(&self, rows: &mut R, moment: Moment) -> Result<()> {
        if moment.latest == Some(moment.now) {
            return Ok(());
        }
        rows.set_head(&self.seal.head(moment.now))
    }
}

fn reply_of(response: &[u8]) -> Reply<'_> {
    if response.len() <= MAX_RESPONSE {
        Reply::Inline(response)
    } else {
        Reply::Omitted { len: response.len() as u64 }
    }
}

fn id_view(stored: Option<StoredRecord<'_>>, now: Time) -> IdView<'_> {
    match stored {
        Some(stored) if now < stored.purge_at => match stored.body {
            Body::Done(done) => IdView::Done(done, stored),
            _ => IdView::Forgotten,
        },
        _ => IdView::Absent,
    }
}

fn live_mark<'a>(stored: &StoredRecord<'a>, now: Time) -> Option<record::Mark<'a>> {
    match stored.body {
        Body::Mark(mark) if now < stored.purge_at => Some(mark),
        _ => None,
    }
}

fn shown_record(id: &[u8], stored: StoredRecord<'_>) -> Record {
    let record = StoredRecord { key: &full_key(Kind::Id, id), ..stored };
    Record::whole(record.to_bytes().into(), MAPPING)
}

fn shown_mark(entity: &[u8], stored: StoredRecord<'_>) -> Mark {
    let record = StoredRecord { key: &full_key(Kind::Mark, entity), ..stored };
    Mark::new(record.to_bytes().into(), MAPPING)
}
