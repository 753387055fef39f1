//! One state that the store may be in: a plain map of ids, a plain map of marks.
//!
//! Where the contract leaves the store a choice, or a crash hides what became of something, a memory
//! is hazy; looking at it splits the world into those in which it is not.

use crate::names::{Key, When, entity_name, id_name, note_bytes, print_bytes};
use crate::seen::{At, Before, Bytes, Marked, Reply, Running, Shown, Why};
use oncedb::Busy;
use std::collections::BTreeMap;
use std::time::Duration;

/// Never, for times.
pub const NEVER: i64 = i64::MAX;

/// The store's time, and the wall clock's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    pub now: i64,
    pub wall: i64,
}

impl Moment {
    /// The wall time to be shown for a moment of the store's time.
    pub fn shown(self, at: i64) -> At {
        At(self.wall + (at - self.now))
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct World {
    pub ids: BTreeMap<Key, State>,
    /// Until when there were records of a key.
    pub shadows: BTreeMap<Key, i64>,
    pub marks: BTreeMap<Key, LastApplied>,
    /// The attempts that completed since the store was opened.
    pub completed: BTreeMap<usize, (Key, Finished)>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    Running(Attempt),
    Finished(Finished),
    Released(Memory),
    /// Freed on purpose: surely until the one time, perhaps until the other.
    Forgotten {
        sure: i64,
        perhaps: i64,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attempt {
    pub guard: usize,
    pub number: u32,
    pub claimed_at: i64,
    pub window: i64,
    pub lease: Option<i64>,
    pub lease_until: i64,
    pub print: Option<u8>,
    /// The entity, the event's time, and how long the mark is to be kept.
    pub order: Option<(Key, When, Option<i64>)>,
    pub note: Option<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finished {
    pub claimed_at: i64,
    pub completed_at: i64,
    pub expires_at: i64,
    pub attempt: u32,
    pub print: Option<u8>,
    pub reply: Reply,
    pub refusal: bool,
}

/// What is remembered of an attempt that was given up: surely until the one time, perhaps until the
/// other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Memory {
    pub attempt: u32,
    /// More than one where it is not known which.
    pub causes: Vec<Why>,
    pub note: Option<u8>,
    pub window: i64,
    pub sure: i64,
    pub perhaps: i64,
    /// Whether the begin is in the journal only, so that a recovery makes an orphan of it once more.
    pub journaled: bool,
    /// Whether it lost only its entity to another event, which no record of its own tells.
    pub taken_over: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LastApplied {
    pub when: When,
    pub applied_at: i64,
    pub setter: Option<Key>,
    /// When it expires.
    pub until: i64,
}

/// A key as the next claim finds it.
pub enum View<'a> {
    Running(&'a Attempt),
    Finished(&'a Finished),
    Free { previous: Option<(Why, u32, Option<u8>)>, on_purpose: bool },
}

impl Attempt {
    pub fn is_held(&self, now: i64) -> bool {
        now < self.lease_until
    }

    /// As an answer shows it.
    pub fn shown(&self, at: Moment, busy: Busy) -> Running {
        let left = self.lease.map_or(0, |_| (self.lease_until - at.now).max(0));
        let secs = u64::try_from(left).expect("it is not negative").div_ceil(1_000_000_000);
        Running {
            guard: self.guard,
            busy,
            attempt: self.number,
            since: at.shown(self.claimed_at),
            retry_after: Duration::from_secs(secs.clamp(1, 60)),
        }
    }

    pub fn record(&self, at: Moment, key: Key) -> Shown {
        Shown {
            id: id_name(key),
            claimed_at: at.shown(self.claimed_at),
            completed_at: None,
            expires_at: None,
            attempt: self.number,
            print: self.print.map(print_bytes),
            reply: Reply::None,
            refusal: false,
        }
    }

    /// What is remembered of it if it ends for `cause` now.
    pub fn released(&self, cause: Why, now: i64) -> Memory {
        let until = now.saturating_add(self.window);
        Memory {
            attempt: self.number,
            causes: vec![cause],
            note: self.note,
            window: self.window,
            sure: until,
            perhaps: until,
            journaled: false,
            taken_over: false,
        }
    }
}

impl Finished {
    pub fn record(&self, at: Moment, key: Key) -> Shown {
        Shown {
            id: id_name(key),
            claimed_at: at.shown(self.claimed_at),
            completed_at: Some(at.shown(self.completed_at)),
            expires_at: Some(at.shown(self.expires_at)),
            attempt: self.attempt,
            print: self.print.map(print_bytes),
            reply: self.reply.clone(),
            refusal: self.refusal,
        }
    }
}

impl LastApplied {
    pub fn shown(&self, at: Moment, entity: Key) -> Marked {
        Marked {
            entity: entity_name(entity),
            timestamp: self.when.timestamp(),
            applied_at: at.shown(self.applied_at),
        }
    }
}

pub fn before((cause, attempt, note): (Why, u32, Option<u8>)) -> Before {
    Before { cause, attempt, note: note.map(note_bytes).map(Bytes) }
}

impl World {
    /// The same without haze over these.
    pub fn clear(self, now: i64, ids: &[Key]) -> Vec<Self> {
        let split = |worlds: Vec<Self>, &key: &Key| {
            worlds.into_iter().flat_map(|world| world.clear_id(now, key)).collect()
        };
        ids.iter().fold(vec![self], split)
    }

    fn clear_id(self, now: i64, key: Key) -> Vec<Self> {
        let with = |state: State| {
            let mut world = self.clone();
            world.ids.insert(key, state);
            world
        };
        match self.ids.get(&key) {
            Some(State::Released(memory)) if now < memory.perhaps => {
                let remembered = memory.causes.iter().map(|&cause| Memory {
                    causes: vec![cause],
                    sure: memory.sure.max(now + 1),
                    ..memory.clone()
                });
                let mut worlds: Vec<_> = remembered.map(|memory| with(State::Released(memory))).collect();
                if memory.sure <= now {
                    worlds.push(with(State::Released(Memory { perhaps: now, ..memory.clone() })));
                }
                worlds
            }
            Some(&State::Forgotten { sure, perhaps }) if sure <= now && now < perhaps => {
                let passes = with(State::Forgotten { sure: now + 1, perhaps });
                vec![passes, with(State::Forgotten { sure, perhaps: now })]
            }
            _ => vec![self],
        }
    }

    pub fn view(&self, now: i64, key: Key) -> View<'_> {
        match self.ids.get(&key) {
            Some(State::Running(attempt)) if attempt.is_held(now) => View::Running(attempt),
            Some(State::Running(attempt)) => {
                let previous = Some((Why::LeaseExpired, attempt.number, attempt.note));
                View::Free { previous, on_purpose: true }
            }
            Some(State::Finished(finished)) if now < finished.expires_at => View::Finished(finished),
            Some(State::Released(memory)) if now < memory.perhaps => {
                let previous = Some((memory.causes[0], memory.attempt, memory.note));
                View::Free { previous, on_purpose: true }
            }
            Some(&State::Forgotten { perhaps, .. }) => {
                View::Free { previous: None, on_purpose: now < perhaps }
            }
            _ => View::Free { previous: None, on_purpose: false },
        }
    }

    pub fn mark(&self, now: i64, entity: Key) -> Option<&LastApplied> {
        self.marks.get(&entity).filter(|mark| now < mark.until)
    }

    /// Who holds an entity.
    pub fn owner(&self, now: i64, entity: Key) -> Option<&Attempt> {
        self.ids.values().find_map(|state| match state {
            State::Running(attempt) if attempt.is_held(now) => {
                attempt.order.is_some_and(|(ordered, ..)| ordered == entity).then_some(attempt)
            }
            _ => None,
        })
    }

    /// The attempt of a guard, if that has not lost it.
    pub fn attempt(&self, guard: usize) -> Option<(Key, &Attempt)> {
        self.ids.iter().find_map(|(&key, state)| match state {
            State::Running(attempt) if attempt.guard == guard => Some((key, attempt)),
            _ => None,
        })
    }
}
