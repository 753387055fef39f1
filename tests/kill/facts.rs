//! What a child says of its store, one line each, and what a store can be heard to say of a key.
//!
//! Whatever changes a key is said before it is asked for, and its answer afterwards. So what the
//! parent has heard of at the kill is all that was tried, and all that was acknowledged.

use crate::common::child::say;
use crate::words;
use oncedb::{Cause, Guard, Record, Response};
use serde::{Deserialize, Serialize};
use std::time::{SystemTime, UNIX_EPOCH};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Line {
    Key { id: String, span: Span, word: Word },
    Trying { entity: String, number: u64 },
    Applied { entity: String, number: u64 },
    Syncing,
    Synced,
    Opening,
    Open,
    Closing,
    Closed,
    Failed(String),
}

/// A time, in microseconds since 1970.
pub type Micros = u64;

/// When something was asked, and by when it was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    pub asked: Micros,
    pub told: Micros,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Word {
    /// About to be asked for.
    Try(Intent),
    /// The claim that was asked for is durable, or is in the log.
    Claimed {
        attempt: u32,
        completed: Micros,
        expires: Micros,
        durable: bool,
    },
    Granted(Grant),
    /// The attempt did what was asked.
    Did {
        attempt: u32,
    },
    Forgot {
        was_done: bool,
    },
    Found(Found),
    Missing,
    Busy,
    Fenced {
        attempt: u32,
    },
    /// It was overtaken as intended.
    Overtaken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Intent {
    Claim {
        reply: bool,
    },
    Begin {
        leased: bool,
    },
    Settle {
        attempt: u32,
        reply: bool,
        refusal: bool,
    },
    Note {
        number: u32,
    },
    Abort,
    Forget,
    /// Another event of its entity is to be granted once the lease of this one has lapsed.
    Overtake,
    /// A claim whose future is dropped: done, taken back, or never made.
    Drop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Why {
    Orphaned,
    Aborted,
    LeaseExpired,
}

/// The attempt that wrote a note, and which of its notes it is.
pub type Note = (u32, u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Previous {
    pub why: Why,
    pub attempt: u32,
    pub note: Option<Note>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    pub attempt: u32,
    pub token: u64,
    pub previous: Option<Previous>,
}

/// A reply and the number it was made with: 0 by a claim in one step, else the attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    None,
    Whole(u32),
    Omitted(u32),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    pub attempt: u32,
    pub refusal: bool,
    pub reply: Reply,
    pub completed: Micros,
    pub expires: Micros,
}

impl Line {
    pub fn say(&self) {
        say(&serde_json::to_string(self).expect("a line is plain data"));
    }

    pub fn parse(said: &str) -> Self {
        serde_json::from_str(said).unwrap_or_else(|error| Self::Failed(format!("no line: {error}: {said}")))
    }
}

pub fn micros(time: SystemTime) -> Micros {
    let since = time.duration_since(UNIX_EPOCH).expect("a time after 1970");
    u64::try_from(since.as_micros()).expect("a time of this age")
}

pub fn now() -> Micros {
    micros(SystemTime::now())
}

impl Span {
    pub fn since(asked: Micros) -> Self {
        Self { asked, told: now() }
    }
}

impl Grant {
    /// An error if the note is none that was ever written.
    pub fn of(id: &str, guard: &Guard) -> Result<Self, String> {
        let previous = guard.previous().map(|previous| {
            let why = match previous.cause {
                Cause::Orphaned => Why::Orphaned,
                Cause::Aborted => Why::Aborted,
                Cause::LeaseExpired => Why::LeaseExpired,
                other => return Err(format!("{id} was given up for {other:?}")),
            };
            let note = previous.note.as_deref().map(|note| words::which_note(id, note)).transpose()?;
            Ok(Previous { why, attempt: previous.attempt, note })
        });
        if guard.id() != id.as_bytes() {
            return Err(format!("a guard of {id} is one of {:?}", guard.id()));
        }
        Ok(Self { attempt: guard.attempt(), token: guard.token(), previous: previous.transpose()? })
    }
}

impl Found {
    /// An error if anything in the record is not, byte for byte, what was handed in.
    pub fn of(id: &str, record: &Record) -> Result<Self, String> {
        let attempt = record.attempt();
        if record.id() != id.as_bytes() {
            return Err(format!("a record of {id} is one of {:?}", record.id()));
        }
        if record.fingerprint() != words::fingerprint(id).as_ref().map(<[u8; 8]>::as_slice) {
            return Err(format!("the fingerprint of {id} is {:?}", record.fingerprint()));
        }
        let made = |right: &dyn Fn(&[u8]) -> bool| {
            [0, attempt].into_iter().find(|&number| right(&words::reply(id, number)))
        };
        let reply = match record.response() {
            Response::None => Some(Reply::None),
            Response::Stored(bytes) => made(&|reply| reply == bytes).map(Reply::Whole),
            Response::Omitted { len } => made(&|reply| reply.len() as u64 == len).map(Reply::Omitted),
        };
        let reply = reply.ok_or_else(|| format!("the reply of {id} is not its own: {record:?}"))?;
        let (Some(completed), Some(expires)) = (record.completed_at(), record.expires_at()) else {
            return Err(format!("{id} is done and has no end: {record:?}"));
        };
        let (completed, expires) = (micros(completed), micros(expires));
        Ok(Self { attempt, refusal: record.is_refusal(), reply, completed, expires })
    }
}
