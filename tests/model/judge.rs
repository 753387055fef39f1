//! Whether claims were answered rightly.

use crate::names::{Key, id_text};
use crate::run::{Checked, Held, Run, Waiting};
use crate::seen::{Before, Seen, Shown, Why, begun, outcome};
use crate::verdict::{End, Want};
use crate::world::{Moment, World};
use oncedb::{Guard, InProgress, Outcome, Record};

impl Run {
    pub fn check_claims(&mut self, wants: &[Want], answers: Vec<oncedb::Result<Outcome<Record>>>) -> Checked {
        let seen = answers
            .into_iter()
            .map(|answer| outcome(answer, &self.tokens, |record| Seen::Claimed(Shown::of(&record))))
            .collect();
        self.check(wants, seen)
    }

    pub fn check_begins(&mut self, wants: &[Want], answers: Vec<oncedb::Result<Outcome<Guard>>>) -> Checked {
        for (number, answer) in (self.next_guard..).zip(&answers) {
            let Ok(Outcome::New(guard)) = answer else { continue };
            if self.tokens.last_key_value().is_some_and(|(&last, _)| last >= guard.token()) {
                return Err(format!("the token {} is not later than {:?}", guard.token(), self.tokens));
            }
            self.tokens.insert(guard.token(), number);
        }
        let mut seen = Vec::new();
        for ((number, want), answer) in (self.next_guard..).zip(wants).zip(answers) {
            let mut granted = None;
            seen.push(outcome(answer, &self.tokens, |guard| {
                let seen = begun(&guard);
                granted = Some(guard);
                seen
            }));
            if let Some(guard) = granted {
                if guard.id() != id_text(want.key.1).as_bytes() {
                    return Err(format!("a guard of another id: {guard:?}"));
                }
                let synced = self.is_synced(want.sync);
                self.guards.push(Held { guard, number, synced });
            }
        }
        self.check(wants, seen)
    }

    /// Claims are answered as if they were made one after the other.
    fn check(&mut self, wants: &[Want], seen: Vec<(Seen, Option<InProgress>)>) -> Checked {
        if seen.len() != wants.len() {
            return Err(format!("{} answers to {} claims", seen.len(), wants.len()));
        }
        let first = self.next_guard;
        self.next_guard += wants.len();
        for (index, (want, (seen, running))) in wants.iter().zip(seen).enumerate() {
            let answers = |world: &mut World, at: Moment| vec![world.ask(at, want, first + index).0];
            self.model.expect(&[want.key], &seen, answers).map_err(|why| format!("claim {index}\n{why}"))?;
            self.follow(want, &seen);
            if let (Some(running), Seen::Busy(shown)) = (running, &seen) {
                let synced = self.is_synced(want.sync);
                self.waits.push(Waiting { running, number: shown.guard, synced, old: false });
            }
        }
        Ok(())
    }

    /// What an answer promises for after a crash.
    fn follow(&mut self, want: &Want, seen: &Seen) {
        let synced = self.is_synced(want.sync);
        match seen {
            Seen::Claimed(_) if synced => self.model.durable(),
            Seen::Begun { .. } if want.sync == Some(true) => self.model.durable(),
            Seen::Begun { .. } if synced => {
                // Its key is new or an orphan, and may be begun again.
                self.model.pin(&[want.key], |mut world, at| {
                    world.orphan_all(at.now, true);
                    matches!(world.ask(at, want, usize::MAX).0, Seen::Begun { .. })
                });
            }
            Seen::Duplicate(record) | Seen::Mismatch(record) if synced && record.completed_at.is_some() => {
                let found = Seen::Found(Some(record.clone()));
                self.model.pin(&[want.key], |world, at| world.get(at, want.key) == found);
            }
            Seen::Stale(mark) if synced => {
                let Some((entity, _)) = want.order else { return };
                let applied = Seen::LastApplied(Some(mark.clone()));
                self.model.pin(&[want.key], |world, at| world.last_applied(at, entity) == applied);
            }
            _ => {}
        }
    }

    /// The futures of these claims were dropped after a first poll.
    pub fn check_taken_back(&mut self, wants: &[Want]) -> Checked {
        let first = self.next_guard;
        self.next_guard += wants.len();
        let ids: Vec<Key> = wants.iter().map(|want| want.key).collect();
        let durable = self.model.is_durable();
        if durable
            && let [want] = wants
            && !self.model.can(|mut world, at| self.waits(&mut world, at, want))
        {
            return Err("a future is pending although there is nothing to wait for".to_owned());
        }
        // A begin on its own may wait before it is granted anything.
        let waits_first = wants
            .iter()
            .any(|want| want.begin && (!durable || self.model.can(|world, at| overtakes(&world, at, want))));
        let unchanged = waits_first.then(|| self.model.worlds.clone());
        self.model.change_stepwise(&ids, |mut world, at| {
            let mut steps = vec![world.clone()];
            let mut undo = Vec::new();
            for (index, want) in wants.iter().enumerate() {
                let (_, claimed) = world.ask(at, want, first + index);
                undo.push((first + index, claimed));
                steps.push(world.clone());
            }
            for (guard, claimed) in undo.into_iter().rev() {
                match claimed {
                    Some(undo) => world.take_back(at.now, &undo),
                    None => drop(world.settle(at, guard, &End::Abort)),
                }
                steps.push(world.clone());
            }
            steps
        });
        self.model.perhaps(unchanged.unwrap_or_default());
        Ok(())
    }

    /// Whether a claim may wait although everything so far is durable: for its own frame, or for that of a lapsed
    /// attempt, which a flush may have written anew just now.
    fn waits(&self, world: &mut World, at: Moment, want: &Want) -> bool {
        overtakes(world, at, want)
            || match world.ask(at, want, usize::MAX).0 {
                Seen::Claimed(_) => self.is_synced(want.sync),
                Seen::Begun { .. } => want.sync == Some(true),
                _ => false,
            }
    }
}

/// Whether it takes over from an attempt whose lease is over.
fn overtakes(world: &World, at: Moment, want: &Want) -> bool {
    let lapsed = |before: &Before| before.cause == Why::LeaseExpired;
    matches!(world.clone().ask(at, want, usize::MAX).0, Seen::Begun { previous: Some(before), .. } if lapsed(&before))
}
