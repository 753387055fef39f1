//! What the histories are about: a few scopes, ids and entities whose names are chosen to be mixed
//! up, and many ids that only fill the store.

use crate::common::{DAY, noon};
use crate::seen::Bytes;
use oncedb::{Retention, ScopeOptions, Ties, Timestamp};
use std::time::Duration;

pub const SECOND: i64 = 1_000_000_000;

/// Joined with the ids these could collide; so could a scope without a name.
pub const SCOPES: [&str; 3] = ["s", "st", ""];
const IDS: [&str; 4] = ["x", "tx", "y", "an-id-of-thirty-bytes-as-usual"];
const ENTITIES: [&str; 2] = ["x", "tx"];

/// Numbers from here on are fillers.
pub const FIRST_FILLER: u16 = 100;

pub const LONGEST_KEY: usize = 48;
pub const LONGEST_RESPONSE: usize = 3000;
pub const LONGEST_NOTE: usize = 64;
pub const STORE_WINDOW: i64 = 100 * SECOND;

/// A scope's number, and an id's or an entity's.
pub type Key = (u8, u16);

pub fn id_text(id: u16) -> String {
    match id.checked_sub(FIRST_FILLER) {
        Some(number) => format!("filler-{number}"),
        None => IDS[usize::from(id) % IDS.len()].to_owned(),
    }
}

pub fn entity_text(entity: u16) -> &'static str {
    ENTITIES[usize::from(entity) % ENTITIES.len()]
}

pub fn id_name(key: Key) -> Bytes {
    Bytes(id_text(key.1).into_bytes())
}

pub fn entity_name(key: Key) -> Bytes {
    Bytes(entity_text(key.1).into())
}

pub fn print_bytes(print: u8) -> Bytes {
    Bytes(format!("print-{print}").into_bytes())
}

pub fn note_bytes(note: u8) -> Vec<u8> {
    format!("note-{note}").into_bytes()
}

pub fn response_bytes(len: usize) -> Vec<u8> {
    let mut bytes = format!("r{len}-").into_bytes();
    bytes.resize(len, b'z');
    bytes
}

/// A sender's timestamp: a step of half a minute from before the start, or a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum When {
    Step(i8),
    Number(u8),
}

impl When {
    pub fn timestamp(self) -> Timestamp {
        match self {
            Self::Step(_) => {
                let start = Timestamp::from(noon()).as_micros().expect("it is a time");
                Timestamp::from_micros(start + self.nanos().expect("it is a time") / 1000)
            }
            Self::Number(number) => Timestamp::sequence(number.into()),
        }
    }

    /// Since the start, if it is a time.
    pub fn nanos(self) -> Option<i64> {
        match self {
            Self::Step(step) => Some((i64::from(step) - 2) * 30 * SECOND),
            Self::Number(_) => None,
        }
    }
}

/// A scope's options.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub window: i64,
    pub lease: Option<i64>,
    pub rejects_ties: bool,
    /// How long a mark is kept, `None` for ever.
    pub retention: Option<i64>,
    pub max_ahead: Option<i64>,
}

const PLAIN: Rules = Rules {
    window: STORE_WINDOW,
    lease: None,
    rejects_ties: false,
    retention: Some(30 * 24 * 3600 * SECOND),
    max_ahead: None,
};

const STRICT: Rules = Rules {
    window: 10 * SECOND,
    lease: Some(5 * SECOND),
    rejects_ties: true,
    retention: Some(20 * SECOND),
    max_ahead: Some(60 * SECOND),
};

const LONG: Rules =
    Rules { window: 1000 * SECOND, lease: None, rejects_ties: false, retention: None, max_ahead: None };

/// The options of the scopes in one deploy; another one may change them.
pub fn rules(deploy: u8, scope: u8) -> Rules {
    match (deploy % 3, scope) {
        (_, 0) => PLAIN,
        (0, 1) | (1, 2) => STRICT,
        (0, _) => LONG,
        (1, _) => Rules { retention: Some(5 * SECOND), rejects_ties: false, ..STRICT },
        (_, 1) => Rules { lease: Some(30 * SECOND), retention: None, max_ahead: None, ..STRICT },
        _ => Rules { rejects_ties: true, lease: Some(SECOND / 2), retention: Some(60 * SECOND), ..LONG },
    }
}

/// As the store is told them; `None` for a scope with no options of its own.
pub fn scope_options(deploy: u8, scope: u8) -> Option<ScopeOptions> {
    let rules = rules(deploy, scope);
    let length = |nanos: i64| Duration::from_nanos(nanos.unsigned_abs());
    let retention = rules.retention.map_or(Retention::Forever, |nanos| Retention::For(length(nanos)));
    assert!(scope != 0 || retention == Retention::For(30 * DAY), "the default");
    (scope != 0).then(|| {
        ScopeOptions::new()
            .window(length(rules.window))
            .lease(rules.lease.map(length))
            .ties(if rules.rejects_ties { Ties::Reject } else { Ties::Accept })
            .mark_retention(retention)
            .max_ahead(rules.max_ahead.map(length))
    })
}
