//! What a recovered store may show.
//!
//! The log is one sequence, so whatever a crash leaves is the state after some prefix of the steps
//! that were taken, and that prefix holds every step that anybody was promised. Whole states are
//! compared, so an acknowledged step that is gone, a step nobody took, and two steps whose order was
//! turned round are all found by the same comparison.

use crate::states::{At, Done, Entity, Key, Mark, State};
use std::collections::{BTreeMap, BTreeSet};

/// What one frame of the log changes, all of it or nothing.
#[derive(Clone, Debug)]
pub struct Step {
    pub key: Option<(Key, State)>,
    pub mark: Option<(Entity, Option<Mark>)>,
}

#[derive(Clone, Debug, Default)]
pub struct Known {
    keys: BTreeMap<Key, State>,
    marks: BTreeMap<Entity, Option<Mark>>,
}

/// What a store shows without being changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    pub done: BTreeMap<Key, Option<Done>>,
    /// The number of each and when it was applied.
    pub marks: BTreeMap<Entity, Option<(u64, At)>>,
}

#[derive(Debug, Default)]
pub struct Oracle {
    /// The state at the last recovery, or at the beginning.
    base: Known,
    steps: Vec<Step>,
    /// Steps that nothing may take back.
    promised: usize,
    /// The same before the last sync: what a later frame vouches for.
    vouched: usize,
    tip: Known,
    /// Keys that a call left in one of several states; nothing is asked of them any more.
    pub hazy: BTreeSet<Key>,
}

impl Known {
    pub fn key(&self, key: Key, now: At) -> State {
        self.keys.get(&key).cloned().unwrap_or(State::Absent).at(now)
    }

    pub fn mark(&self, entity: Entity, now: At) -> Option<Mark> {
        self.marks.get(&entity).cloned().flatten().filter(|mark| now < mark.expires)
    }

    fn take(&mut self, step: &Step) {
        if let Some((key, state)) = &step.key {
            self.keys.insert(*key, state.clone());
        }
        if let Some((entity, mark)) = &step.mark {
            self.marks.insert(*entity, mark.clone());
        }
    }

    fn recovered(mut self, ended: At, now: At) -> Self {
        for state in self.keys.values_mut() {
            *state = std::mem::replace(state, State::Absent).recovered(ended, now);
        }
        self
    }

    fn shows(&self, seen: &Seen, hazy: &BTreeSet<Key>, now: At) -> bool {
        let done = |(key, done): (&Key, &Option<Done>)| {
            hazy.contains(key) || self.key(*key, now).done() == done.as_ref()
        };
        let mark = |(entity, mark): (&Entity, &Option<(u64, At)>)| self.shown_mark(*entity, now) == *mark;
        seen.done.iter().all(done) && seen.marks.iter().all(mark)
    }

    pub fn shown_mark(&self, entity: Entity, now: At) -> Option<(u64, At)> {
        self.mark(entity, now).as_ref().map(Mark::shown)
    }

    /// Whether a claim would be told that it is done, or stale.
    fn denies(&self, key: Key, order: Option<(Entity, u64)>, now: At) -> bool {
        let is_stale =
            |(entity, number)| self.mark(entity, now).is_some_and(|mark: Mark| number < mark.number);
        self.key(key, now).done().is_some() || order.is_some_and(is_stale)
    }
}

impl Oracle {
    /// The state after every step.
    pub fn tip(&self) -> &Known {
        &self.tip
    }

    /// A frame was appended, or may have been.
    pub fn step(&mut self, step: Step) {
        self.tip.take(&step);
        self.steps.push(step);
    }

    /// A change that no frame tells of.
    pub fn renew(&mut self, key: Key, state: State) {
        self.tip.keys.insert(key, state);
    }

    /// Every step so far is there for good.
    pub fn promise_all(&mut self) {
        self.promise_up_to(self.steps.len());
    }

    /// Somebody was told of a key's completion: the last step that changed it is there for good.
    pub fn promise_key(&mut self, key: Key) {
        self.promise_last(|step| step.key.as_ref().is_some_and(|(other, _)| *other == key));
    }

    pub fn promise_mark(&mut self, entity: Entity) {
        self.promise_last(|step| step.mark.as_ref().is_some_and(|(other, _)| *other == entity));
    }

    /// Somebody was told that a key is new: whatever a crash leaves must say the same.
    pub fn promise_new(&mut self, key: Key, order: Option<(Entity, u64)>, now: At) {
        let mut known = self.base.clone();
        let mut denied = None;
        for (index, step) in self.steps.iter().enumerate() {
            if index >= self.promised && known.denies(key, order, now) {
                denied = Some(index);
            }
            known.take(step);
        }
        self.promise_up_to(denied.map_or(0, |step| step + 1));
    }

    fn promise_last(&mut self, wanted: impl Fn(&Step) -> bool) {
        let last = self.steps.iter().rposition(wanted);
        self.promise_up_to(last.map_or(0, |last| last + 1));
    }

    fn promise_up_to(&mut self, step: usize) {
        if step > self.promised {
            self.vouched = self.promised;
            self.promised = step;
        }
    }

    /// Every state that a recovery may find which keeps so many steps, oldest first.
    fn candidates(&self, kept: usize, ended: At, now: At) -> Vec<Known> {
        let mut known = self.base.clone();
        let mut candidates = Vec::new();
        for (index, step) in self.steps.iter().enumerate() {
            if index >= kept {
                candidates.push(known.clone());
            }
            known.take(step);
        }
        candidates.push(known);
        candidates.into_iter().map(|known| known.recovered(ended, now)).collect()
    }

    /// A recovered store shows this; the states it may be in. Panics if there is none.
    pub fn recovered(&self, seen: &Seen, ended: At, now: At) -> Vec<Known> {
        let candidates = self.candidates(self.promised, ended, now);
        let fitting: Vec<_> =
            candidates.iter().filter(|known| known.shows(seen, &self.hazy, now)).cloned().collect();
        assert!(!fitting.is_empty(), "{}", self.explain(seen, &candidates, now));
        fitting
    }

    /// A store in which one byte was damaged shows this. Damage to the frames of the last sync looks
    /// like a torn tail; nothing says that they were promised.
    pub fn recovered_from_damage(&self, seen: &Seen, ended: At, now: At) {
        let candidates = self.candidates(self.vouched, ended, now);
        let fits = candidates.iter().any(|known| known.shows(seen, &self.hazy, now));
        assert!(fits, "damage is passed over: {}", self.explain(seen, &candidates, now));
    }

    /// A store that recovered again shows what it did before.
    pub fn still_shows(&self, seen: &Seen, known: &[Known], now: At) {
        let known: Vec<_> = known.iter().cloned().map(|known| known.recovered(now, now)).collect();
        let fits = known.iter().any(|known| known.shows(seen, &self.hazy, now));
        assert!(fits, "a second recovery shows something else: {}", self.explain(seen, &known, now));
    }

    /// The recovered state is this one; nothing takes it back.
    pub fn settle(&mut self, known: Known) {
        self.base = known.clone();
        self.tip = known;
        self.steps.clear();
        self.promised = 0;
        self.vouched = 0;
    }

    /// What differs from the nearest state that would have been right.
    fn explain(&self, seen: &Seen, candidates: &[Known], now: At) -> String {
        let differences = |known: &Known| {
            let mut lines = Vec::new();
            for (key, done) in seen.done.iter().filter(|(key, _)| !self.hazy.contains(key)) {
                let expected = known.key(*key, now);
                if expected.done() != done.as_ref() {
                    lines.push(format!("key {key:?} is {done:?}, expected {expected:?}"));
                }
            }
            for (entity, mark) in &seen.marks {
                let expected = known.shown_mark(*entity, now);
                if expected != *mark {
                    lines.push(format!("mark {entity:?} is {mark:?}, expected {expected:?}"));
                }
            }
            lines
        };
        let nearest = candidates.iter().map(differences).min_by_key(Vec::len).unwrap_or_default();
        format!(
            "no prefix of the log from step {} to step {} gives what is there; the nearest differs in\n  {}",
            self.promised,
            self.steps.len(),
            nearest.join("\n  ")
        )
    }
}
