//! What the parent knows of all the processes it has killed, and what a reopened store must say of
//! each key for it to be true.

use crate::common::Dice;
use crate::reply;
use oncedb::{Cause, Guard, Outcome, Record, Response, Scope, Timestamp};
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

/// The most that is known of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// Granted and never settled: it is not done, whatever happened.
    Begun,
    /// About to be settled: done or not, but the one or the other for good.
    Settling,
    /// Acknowledged, with no reply.
    Claimed,
    /// Acknowledged, with its reply.
    Done,
    /// Acknowledged as a refusal, with its reply.
    Refused,
}

#[derive(Debug)]
struct Key {
    known: Known,
    noted: bool,
    won: bool,
    /// The attempt this process itself made last.
    attempt: Option<u32>,
    checks: u32,
}

#[derive(Debug, Default)]
struct Entity {
    tried: u64,
    applied: u64,
}

#[derive(Debug, Default)]
pub struct History {
    keys: BTreeMap<String, Key>,
    entities: BTreeMap<String, Entity>,
    token: u64,
}

impl History {
    pub fn hear(&mut self, said: &str) {
        let (what, rest) = said.split_once(' ').expect("a word and what it is about");
        let (id, number) = rest.split_once(' ').unwrap_or((rest, ""));
        let number = || number.parse().expect("a number");
        match what {
            "claimed" | "known" => self.learn(id, Known::Claimed),
            "won" => {
                self.learn(id, Known::Claimed);
                let key = self.key(id);
                assert!(!key.won, "{id} was new to two callers");
                key.won = true;
            }
            "begun" => {
                self.learn(id, Known::Begun);
                self.token = self.token.max(number());
            }
            "noted" => self.key(id).noted = true,
            "settling" => self.learn(id, Known::Settling),
            "done" => self.learn(id, Known::Done),
            "refused" => self.learn(id, Known::Refused),
            "trying" => {
                let entity = self.entity(id);
                entity.tried = entity.tried.max(number());
            }
            "applied" => {
                let entity = self.entity(id);
                entity.applied = entity.applied.max(number());
            }
            _ => panic!("the load failed: {said}"),
        }
    }

    fn key(&mut self, id: &str) -> &mut Key {
        self.keys.entry(id.to_owned()).or_insert(Key {
            known: Known::Begun,
            noted: false,
            won: false,
            attempt: None,
            checks: 0,
        })
    }

    /// Two workers may speak of one key, the later event first.
    fn learn(&mut self, id: &str, known: Known) {
        let key = self.key(id);
        if (key.known as u8) < known as u8 {
            key.known = known;
        }
    }

    fn entity(&mut self, id: &str) -> &mut Entity {
        self.entities.entry(id.to_owned()).or_default()
    }

    /// The store says of every key and entity what is known; what was open before is settled by
    /// this, so that a second check demands the same again. Of the keys that had two checks, one in
    /// `sample` is looked at once more.
    pub fn check(&mut self, scope: &Scope, sample: u64, dice: &mut Dice) {
        for (id, key) in &mut self.keys {
            if key.checks < 2 || dice.below(sample) == 0 {
                check_key(scope, id, key, self.token);
                key.checks += 1;
            }
        }
        for (entity, known) in &mut self.entities {
            check_entity(scope, entity, known);
        }
    }
}

fn check_key(scope: &Scope, id: &str, key: &mut Key, token: u64) {
    let found = scope.get(id).unwrap();
    assert_eq!(scope.contains(id).unwrap(), found.is_some(), "get and contains of {id}");
    match scope.begin(id).unwrap() {
        Outcome::Duplicate(record) => {
            let found = found.unwrap_or_else(|| panic!("begin knows {id}, get does not"));
            assert_eq!(found.response(), record.response(), "get and begin of {id}");
            check_record(id, key, &record);
        }
        Outcome::New(guard) => {
            assert!(found.is_none(), "get knows {id}, begin does not");
            assert!(guard.token() > token, "the token of {id} is not one of before");
            check_grant(id, key, &guard);
        }
        other @ (Outcome::InProgress(_) | Outcome::Mismatch(_) | Outcome::Stale(_)) => {
            panic!("{id} is {key:?} and told {other:?}")
        }
    }
}

fn check_record(id: &str, key: &mut Key, record: &Record) {
    assert_eq!(record.id(), id.as_bytes());
    let reply = reply(id);
    let (expected, refused) = match key.known {
        Known::Begun => panic!("{id} was never settled and is a duplicate: {record:?}"),
        Known::Claimed => (Response::None, false),
        Known::Settling => (Response::Stored(&reply), record.is_refusal()),
        Known::Done => (Response::Stored(&reply), false),
        Known::Refused => (Response::Stored(&reply), true),
    };
    assert_eq!(record.response(), expected, "the reply of {id}, byte for byte");
    assert_eq!(record.is_refusal(), refused, "whether {id} was refused");
    if key.known == Known::Settling {
        key.known = if refused { Known::Refused } else { Known::Done };
    }
}

fn check_grant(id: &str, key: &mut Key, guard: &Guard) {
    match key.known {
        Known::Begun | Known::Settling => key.known = Known::Begun,
        Known::Claimed | Known::Done | Known::Refused => {
            panic!("{id} was acknowledged as {:?} and is new, attempt {}", key.known, guard.attempt())
        }
    }
    match (guard.previous(), key.attempt) {
        (Some(previous), Some(attempt)) => {
            assert_eq!(previous.attempt, attempt, "the attempts of {id} are counted");
            assert_eq!(previous.cause, Cause::Aborted, "why attempt {attempt} of {id} ended");
            assert_eq!(previous.note.is_some(), key.noted, "the note of {id} is kept");
        }
        (Some(previous), None) => {
            assert_eq!(previous.attempt, 1, "{id} was tried once");
            assert!(
                matches!(previous.cause, Cause::Orphaned | Cause::Aborted),
                "{id} had no lease to lose: {previous:?}"
            );
            assert!(previous.note.is_some() || !key.noted, "the note of {id} was acknowledged");
            key.noted = previous.note.is_some();
        }
        (None, Some(attempt)) => panic!("attempt {attempt} of {id} is forgotten"),
        (None, None) => assert!(!key.noted, "a note makes the attempt of {id} durable"),
    }
    if let Some(note) = guard.previous().and_then(|previous| previous.note.as_deref()) {
        assert_eq!(note, format!("note of {id}").as_bytes(), "the note of {id}, byte for byte");
    }
    assert_eq!(guard.attempt(), guard.previous().map_or(1, |previous| previous.attempt + 1));
    key.attempt = Some(guard.attempt());
}

fn check_entity(scope: &Scope, entity: &str, known: &mut Entity) {
    let mark = scope.last_applied(entity).unwrap();
    let found = mark.map_or(0, |mark| mark.timestamp().as_sequence().expect("a sequence number"));
    let (applied, tried) = (known.applied, known.tried);
    assert!(found >= applied, "{entity} was told {applied} and is at {found}");
    assert!(found <= tried, "{entity} is at {found}, and nobody tried more than {tried}");
    *known = Entity { tried: found, applied: found };

    if found > 0 {
        let id = format!("older than {found}");
        let older = scope.request(&id).order(entity, Timestamp::sequence(found - 1));
        assert!(older.begin().unwrap().is_stale(), "{entity} is at {found}");
    }
}

impl Display for History {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let count = |known| self.keys.values().filter(|key| key.known == known).count();
        let acknowledged = [Known::Claimed, Known::Done, Known::Refused].map(count);
        write!(
            out,
            "acknowledged and there: {acknowledged:?}; never settled: {}; entities: {}",
            count(Known::Begun),
            self.entities.len()
        )
    }
}
