//! What a caller sees of an answer, as plain values that the model can predict.

use crate::common::noon;
use oncedb::{Busy, Cause, Error, Guard, InProgress, Mark, Outcome, Record, Response, Settled, Timestamp};
use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, SystemTime};

/// A moment, in nanoseconds since every history's start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct At(pub i64);

impl At {
    pub fn of(time: SystemTime) -> Self {
        let nanos = |duration: Duration| i64::try_from(duration.as_nanos()).expect("a time of this test");
        match time.duration_since(noon()) {
            Ok(after) => Self(nanos(after)),
            Err(before) => Self(-nanos(before.duration())),
        }
    }
}

impl fmt::Debug for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, nanos) = (if self.0 < 0 { "-" } else { "" }, self.0.unsigned_abs());
        write!(f, "{sign}{}", nanos / 1_000_000_000)?;
        if nanos % 1_000_000_000 > 0 { write!(f, ".{:09}s", nanos % 1_000_000_000) } else { write!(f, "s") }
    }
}

/// Bytes that are shown by their beginning and length.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub Vec<u8>);

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start = &self.0[..self.0.len().min(8)];
        write!(f, "\"{}\"", start.escape_ascii())?;
        if start.len() < self.0.len() { write!(f, "..{}", self.0.len()) } else { Ok(()) }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reply {
    None,
    Stored(Bytes),
    Omitted(u64),
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    pub id: Bytes,
    pub claimed_at: At,
    pub completed_at: Option<At>,
    pub expires_at: Option<At>,
    pub attempt: u32,
    pub print: Option<Bytes>,
    pub reply: Reply,
    pub refusal: bool,
}

/// A claim in progress, by the number that this test gave its guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Running {
    pub guard: usize,
    pub busy: Busy,
    pub attempt: u32,
    pub since: At,
    pub retry_after: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marked {
    pub entity: Bytes,
    pub timestamp: Timestamp,
    pub applied_at: At,
}

/// Why an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    Orphaned,
    Aborted,
    LeaseExpired,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Before {
    pub cause: Why,
    pub attempt: u32,
    pub note: Option<Bytes>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    Begun { attempt: u32, previous: Option<Before> },
    Claimed(Shown),
    Duplicate(Shown),
    Mismatch(Shown),
    Busy(Running),
    Stale(Marked),
    Applied,
    Found(Option<Shown>),
    LastApplied(Option<Marked>),
    Is(bool),
    Done,
    Completed(Shown),
    Released,
    StillRunning,
    Fails(String),
}

/// The guards that were given out, by their tokens.
pub type Tokens = BTreeMap<u64, usize>;

impl Shown {
    pub fn of(record: &Record) -> Self {
        let reply = match record.response() {
            Response::None => Reply::None,
            Response::Stored(bytes) => Reply::Stored(Bytes(bytes.to_vec())),
            Response::Omitted { len } => Reply::Omitted(len),
        };
        let stored = record.stored_response().map(|bytes| Reply::Stored(Bytes(bytes.to_vec())));
        assert_eq!(stored.is_some(), matches!(reply, Reply::Stored(_)), "response and stored_response agree");
        assert!(stored.is_none_or(|stored| stored == reply), "response and stored_response agree");
        Self {
            id: Bytes(record.id().to_vec()),
            claimed_at: At::of(record.claimed_at()),
            completed_at: record.completed_at().map(At::of),
            expires_at: record.expires_at().map(At::of),
            attempt: record.attempt(),
            print: record.fingerprint().map(|print| Bytes(print.to_vec())),
            reply,
            refusal: record.is_refusal(),
        }
    }
}

impl Marked {
    pub fn of(mark: &Mark) -> Self {
        Self {
            entity: Bytes(mark.entity().to_vec()),
            timestamp: mark.timestamp(),
            applied_at: At::of(mark.applied_at()),
        }
    }
}

pub fn running(running: &InProgress, tokens: &Tokens) -> Seen {
    Seen::Busy(Running {
        guard: tokens.get(&running.token()).copied().unwrap_or(usize::MAX),
        busy: running.busy(),
        attempt: running.attempt(),
        since: At::of(running.since()),
        retry_after: running.retry_after(),
    })
}

/// A claim's answer, and the handle to wait by if something is in progress.
pub fn outcome<N>(
    answer: oncedb::Result<Outcome<N>>,
    tokens: &Tokens,
    new: impl FnOnce(N) -> Seen,
) -> (Seen, Option<InProgress>) {
    match answer {
        Ok(Outcome::New(granted)) => (new(granted), None),
        Ok(Outcome::Duplicate(record)) => (Seen::Duplicate(Shown::of(&record)), None),
        Ok(Outcome::InProgress(handle)) => (running(&handle, tokens), Some(handle)),
        Ok(Outcome::Mismatch(record)) => (Seen::Mismatch(Shown::of(&record)), None),
        Ok(Outcome::Stale(mark)) => (Seen::Stale(Marked::of(&mark)), None),
        Err(error) => (fails(&error), None),
    }
}

pub fn begun(guard: &Guard) -> Seen {
    let previous = guard.previous().map(|previous| Before {
        cause: match previous.cause {
            Cause::Orphaned => Why::Orphaned,
            Cause::Aborted => Why::Aborted,
            Cause::LeaseExpired => Why::LeaseExpired,
            cause => panic!("a cause that nobody knows: {cause:?}"),
        },
        attempt: previous.attempt,
        note: previous.note.clone().map(Bytes),
    });
    Seen::Begun { attempt: guard.attempt(), previous }
}

pub fn settled(answer: oncedb::Result<Settled>) -> Seen {
    match answer {
        Ok(Settled::Completed(record)) => Seen::Completed(Shown::of(&record)),
        Ok(Settled::Released) => Seen::Released,
        Ok(Settled::Running) => Seen::StillRunning,
        Err(error) => fails(&error),
    }
}

pub fn done(answer: &oncedb::Result<()>) -> Seen {
    match answer {
        Ok(()) => Seen::Done,
        Err(error) => fails(error),
    }
}

/// An error by its name; what it says of the caller's input too.
pub fn fails(error: &Error) -> Seen {
    if let Error::TooFarAhead { ahead, limit, .. } = error {
        return too_far_ahead(*ahead, *limit);
    }
    let debug = format!("{error:?}");
    let name = debug.split([' ', '{', '(']).next().unwrap_or_default();
    Seen::Fails(name.to_owned())
}

pub fn too_far_ahead(ahead: Duration, limit: Duration) -> Seen {
    Seen::Fails(format!("TooFarAhead {ahead:?} of {limit:?}"))
}
