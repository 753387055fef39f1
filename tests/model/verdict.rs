//! What each operation does to a world, and what it answers there.

use crate::names::{Key, Rules, When};
use crate::seen::{Before, Reply, Seen, Why, too_far_ahead};
use crate::world::{Attempt, Finished, LastApplied, Moment, NEVER, State, View, World, before};
use oncedb::Busy;
use std::time::Duration;

/// A claim with all its options, the scope's among them.
#[derive(Clone, Debug)]
pub struct Want {
    pub key: Key,
    pub print: Option<u8>,
    pub order: Option<(Key, When)>,
    pub window: i64,
    pub lease: Option<i64>,
    /// The durability asked for: `Sync` or an interval.
    pub sync: Option<bool>,
    pub begin: bool,
    pub reply: Reply,
    pub rules: Rules,
}

/// What taking a one-step claim back needs to know.
#[derive(Clone, Debug)]
pub struct Undo {
    key: Key,
    number: u32,
    window: i64,
    note: Option<u8>,
    mark: Option<(Key, Option<LastApplied>)>,
}

/// How a guard is settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    Complete(Reply),
    Refuse(Reply),
    Abort,
}

impl World {
    /// A claim; if it is a new one-step claim, how to take it back.
    pub fn ask(&mut self, at: Moment, want: &Want, guard: usize) -> (Seen, Option<Undo>) {
        if let Some((entity, when)) = want.order
            && let Err(error) = self.check_timestamp(at, want.rules, entity, when)
        {
            return (error, None);
        }
        let differs = |print: Option<u8>| matches!((want.print, print), (Some(a), Some(b)) if a != b);
        let (previous, on_purpose) = match self.view(at.now, want.key) {
            View::Finished(finished) => {
                let record = finished.record(at, want.key);
                let verdict = if differs(finished.print) { Seen::Mismatch } else { Seen::Duplicate };
                return (verdict(record), None);
            }
            View::Running(attempt) if differs(attempt.print) => {
                return (Seen::Mismatch(attempt.record(at, want.key)), None);
            }
            View::Running(attempt) => return (Seen::Busy(attempt.shown(at, Busy::Id)), None),
            View::Free { previous, on_purpose } => (previous, on_purpose),
        };
        if let Some((entity, when)) = want.order {
            if let Some(mark) = self.mark(at.now, entity) {
                let stale = match (when == mark.when, mark.setter == Some(want.key)) {
                    (false, _) => when.timestamp() < mark.when.timestamp(),
                    (true, true) => !on_purpose,
                    (true, false) => want.rules.rejects_ties,
                };
                if stale {
                    return (Seen::Stale(mark.shown(at, entity)), None);
                }
            }
            if let Some(owner) = self.owner(at.now, entity) {
                return (Seen::Busy(owner.shown(at, Busy::Entity)), None);
            }
            self.fence_lapsed(at.now, entity);
        }
        let number = previous.map_or(1, |(_, number, _)| number + 1);
        let note = previous.and_then(|(.., note)| note);
        self.grant(at, want, guard, (number, note, previous.map(before)))
    }

    fn grant(
        &mut self,
        at: Moment,
        want: &Want,
        guard: usize,
        (number, note, previous): (u32, Option<u8>, Option<Before>),
    ) -> (Seen, Option<Undo>) {
        let attempt = Attempt {
            guard,
            number,
            claimed_at: at.now,
            window: want.window,
            lease: want.lease,
            lease_until: want.lease.map_or(NEVER, |lease| at.now + lease),
            print: want.print,
            order: want.order.map(|(entity, when)| (entity, when, want.rules.retention)),
            note,
        };
        if want.begin {
            self.ids.insert(want.key, State::Running(attempt));
            return (Seen::Begun { attempt: number, previous }, None);
        }
        let mark = want.order.map(|(entity, _)| (entity, self.marks.get(&entity).cloned()));
        let undo = Undo { key: want.key, number, window: want.window, note, mark };
        let finished = self.finish(at.now, want.key, &attempt, &want.reply, false);
        (Seen::Claimed(finished.record(at, want.key)), Some(undo))
    }

    /// The end of a one-step claim whose future was dropped.
    pub fn take_back(&mut self, now: i64, undo: &Undo) {
        let attempt = Attempt {
            guard: usize::MAX,
            number: undo.number,
            claimed_at: now,
            window: undo.window,
            lease: None,
            lease_until: NEVER,
            print: None,
            order: None,
            note: undo.note,
        };
        self.release(now, undo.key, &attempt, Why::Aborted);
        if let Some((entity, mark)) = &undo.mark {
            self.marks.remove(entity);
            self.marks.extend(mark.clone().map(|mark| (*entity, mark)));
        }
    }

    fn check_timestamp(&self, at: Moment, rules: Rules, entity: Key, when: When) -> Result<(), Seen> {
        if let (Some(limit), Some(time)) = (rules.max_ahead, when.nanos()) {
            let ahead = time.div_euclid(1000) - at.wall.div_euclid(1000);
            if ahead * 1000 > limit {
                let limit = Duration::from_nanos(limit.unsigned_abs());
                return Err(too_far_ahead(Duration::from_micros(ahead.unsigned_abs()), limit));
            }
        }
        let mark = self.mark(at.now, entity).map(|mark| mark.when);
        match mark {
            Some(mark) if mark.nanos().is_some() != when.nanos().is_some() => {
                Err(Seen::Fails("TimestampKind".to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// Takes an entity from whoever had it with a lease that has lapsed.
    fn fence_lapsed(&mut self, now: i64, entity: Key) {
        for state in self.ids.values_mut() {
            let State::Running(attempt) = state else { continue };
            if attempt.order.is_some_and(|(ordered, ..)| ordered == entity) && !attempt.is_held(now) {
                // It is remembered for its window at least, and a recovery may find its begin.
                let mut memory = attempt.released(Why::LeaseExpired, now);
                memory.perhaps = NEVER;
                memory.taken_over = true;
                *state = State::Released(memory);
            }
        }
    }

    fn finish(&mut self, now: i64, key: Key, attempt: &Attempt, reply: &Reply, refusal: bool) -> Finished {
        let expires_at = now.saturating_add(attempt.window);
        let finished = Finished {
            claimed_at: attempt.claimed_at,
            completed_at: now,
            expires_at,
            attempt: attempt.number,
            print: attempt.print,
            reply: reply.clone(),
            refusal,
        };
        self.shadow(key, expires_at);
        self.ids.insert(key, State::Finished(finished.clone()));
        if let Some((entity, when, retention)) = attempt.order {
            self.set_mark(now, entity, when, Some(key), retention);
        }
        finished
    }

    fn set_mark(&mut self, now: i64, entity: Key, when: When, setter: Option<Key>, retention: Option<i64>) {
        let until = retention.map_or(NEVER, |retention| now + retention);
        self.marks.insert(entity, LastApplied { when, applied_at: now, setter, until });
    }

    fn shadow(&mut self, key: Key, until: i64) {
        let shadow = self.shadows.entry(key).or_insert(0);
        *shadow = until.max(*shadow);
    }

    fn release(&mut self, now: i64, key: Key, attempt: &Attempt, cause: Why) {
        let memory = attempt.released(cause, now);
        self.shadow(key, memory.sure);
        self.ids.insert(key, State::Released(memory));
    }

    /// Ends a guard's attempt.
    pub fn settle(&mut self, at: Moment, guard: usize, end: &End) -> Seen {
        let Some((key, attempt)) = self.attempt(guard) else { return fenced() };
        let attempt = attempt.clone();
        let (reply, refusal) = match end {
            End::Complete(reply) => (reply, false),
            End::Refuse(reply) => (reply, true),
            End::Abort => {
                self.release(at.now, key, &attempt, Why::Aborted);
                return Seen::Done;
            }
        };
        let finished = self.finish(at.now, key, &attempt, reply, refusal);
        self.completed.insert(guard, (key, finished));
        Seen::Done
    }

    /// Changes a guard's attempt, if that has not lost it.
    pub fn change(&mut self, guard: usize, change: impl FnOnce(&mut Attempt)) -> Seen {
        let held = self.ids.values_mut().find_map(|state| match state {
            State::Running(attempt) if attempt.guard == guard => Some(attempt),
            _ => None,
        });
        match held {
            Some(attempt) => {
                change(attempt);
                Seen::Done
            }
            None => fenced(),
        }
    }

    pub fn get(&self, at: Moment, key: Key) -> Seen {
        Seen::Found(match self.view(at.now, key) {
            View::Finished(finished) => Some(finished.record(at, key)),
            View::Running(_) | View::Free { .. } => None,
        })
    }

    pub fn forget(&mut self, now: i64, key: Key) -> Seen {
        let (sure, completed) = match (self.view(now, key), self.ids.get(&key)) {
            (View::Running(_), _) => return Seen::Fails("InProgress".to_owned()),
            (View::Finished(finished), _) => (finished.expires_at, true),
            (View::Free { previous: None, .. }, _) => return Seen::Is(false),
            (_, Some(State::Running(lapsed))) => (now.saturating_add(lapsed.window), false),
            (_, Some(State::Released(memory))) => (memory.sure, false),
            _ => return Seen::Is(false),
        };
        self.shadow(key, sure);
        let hazy =
            matches!(self.ids.get(&key), Some(State::Released(memory)) if memory.perhaps > memory.sure);
        let perhaps = if hazy { NEVER } else { self.shadows[&key] };
        self.ids.insert(key, State::Forgotten { sure, perhaps });
        Seen::Is(completed)
    }

    pub fn last_applied(&self, at: Moment, entity: Key) -> Seen {
        Seen::LastApplied(self.mark(at.now, entity).map(|mark| mark.shown(at, entity)))
    }

    pub fn advance(&mut self, at: Moment, rules: Rules, entity: Key, when: When) -> Seen {
        if let Err(error) = self.check_timestamp(at, rules, entity, when) {
            return error;
        }
        if let Some(mark) = self.mark(at.now, entity)
            && (when.timestamp() < mark.when.timestamp() || (when == mark.when && rules.rejects_ties))
        {
            return Seen::Stale(mark.shown(at, entity));
        }
        if let Some(owner) = self.owner(at.now, entity) {
            return Seen::Busy(owner.shown(at, Busy::Entity));
        }
        self.fence_lapsed(at.now, entity);
        self.set_mark(at.now, entity, when, None, rules.retention);
        Seen::Applied
    }

    pub fn forget_mark(&mut self, now: i64, entity: Key) -> Seen {
        let known = self.mark(now, entity).is_some();
        if known {
            self.marks.remove(&entity);
        }
        Seen::Is(known)
    }
}

pub fn fenced() -> Seen {
    Seen::Fails("Fenced".to_owned())
}
