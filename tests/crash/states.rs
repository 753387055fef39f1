//! What a key and an entity can be known as.

use oncedb::{Cause, Record, Response};
use std::time::{Duration, SystemTime};

/// Nanoseconds since the clock of these tests began.
pub type At = u64;

pub const SECOND: At = 1_000_000_000;

/// Never, for times.
pub const NEVER: At = At::MAX;

/// A scope and an id, both by number.
pub type Key = (usize, usize);

/// A scope and an entity, both by number.
pub type Entity = (usize, usize);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    Absent,
    Running(Running),
    Done(Done),
    Released(Released),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    pub attempt: u32,
    pub note: Option<Vec<u8>>,
    pub print: Option<Vec<u8>>,
    pub claimed: At,
    pub window: At,
    pub lease_until: At,
    pub order: Option<(Entity, u64)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    pub attempt: u32,
    pub print: Option<Vec<u8>>,
    pub reply: Reply,
    pub refusal: bool,
    pub claimed: At,
    pub completed: At,
    pub expires: At,
}

/// Given up; remembered surely until the one time, perhaps until the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Released {
    pub attempt: u32,
    pub cause: Cause,
    pub note: Option<Vec<u8>>,
    pub window: At,
    pub sure: At,
    pub perhaps: At,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    None,
    Stored(Vec<u8>),
    Omitted(u64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    pub number: u64,
    pub applied: At,
    pub expires: At,
}

impl Mark {
    /// What the store shows of it: not until when it is kept.
    pub fn shown(&self) -> (u64, At) {
        (self.number, self.applied)
    }
}

impl State {
    /// The same, some time later.
    pub fn at(self, now: At) -> Self {
        match self {
            Self::Done(done) if done.expires <= now => Self::Absent,
            Self::Released(released) if released.perhaps <= now => Self::Absent,
            state => state,
        }
    }

    /// What a recovery now makes of it, when the store `ended` then.
    pub fn recovered(self, ended: At, now: At) -> Self {
        match self {
            Self::Running(running) => Self::Released(Released {
                attempt: running.attempt,
                cause: Cause::Orphaned,
                note: running.note,
                window: running.window,
                sure: ended + running.window,
                perhaps: now + running.window,
            }),
            // Its begin may still be in the journal, and be found there anew.
            Self::Released(released) if released.cause == Cause::Orphaned => {
                Self::Released(Released { perhaps: released.perhaps.max(now + released.window), ..released })
            }
            state => state,
        }
    }

    pub fn done(&self) -> Option<&Done> {
        match self {
            Self::Done(done) => Some(done),
            _ => None,
        }
    }
}

impl Done {
    /// What the store shows of one.
    pub fn seen(record: &Record, epoch: SystemTime) -> Self {
        let at = |time: Option<SystemTime>| {
            let since = time.and_then(|time| time.duration_since(epoch).ok()).unwrap_or(Duration::MAX);
            At::try_from(since.as_nanos()).unwrap_or(NEVER)
        };
        Self {
            attempt: record.attempt(),
            print: record.fingerprint().map(<[u8]>::to_vec),
            reply: match record.response() {
                Response::None => Reply::None,
                Response::Stored(bytes) => Reply::Stored(bytes.to_vec()),
                Response::Omitted { len } => Reply::Omitted(len),
            },
            refusal: record.is_refusal(),
            claimed: at(Some(record.claimed_at())),
            completed: at(record.completed_at()),
            expires: at(record.expires_at()),
        }
    }
}
