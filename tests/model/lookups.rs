//! Lookups, what an operator does by hand, and input that is refused.

use crate::common::block_on;
use crate::names::{Key, LONGEST_KEY, When, entity_text, id_text};
use crate::ops::{Door, Wrong};
use crate::run::{Checked, Run, polled_once};
use crate::seen::{Marked, Seen, Shown, fails, running};
use crate::world::{State, World};
use oncedb::{Advance, Durability, Error, ScopeOptions};
use std::time::Duration;

fn is(answer: oncedb::Result<bool>) -> Seen {
    answer.map_or_else(|error| fails(&error), Seen::Is)
}

impl Run {
    pub fn get(&mut self, door: Door, key: Key) -> Checked {
        let (scope, name) = (self.scope(key.0), id_text(key.1));
        let answer = match door {
            Door::Blocking => scope.get(name),
            Door::Async | Door::PolledOnce => block_on(scope.get_async(name)),
            Door::NeverPolled => {
                drop(scope.get_async(name));
                return Ok(());
            }
        };
        let seen = match answer {
            Ok(record) => Seen::Found(record.as_ref().map(Shown::of)),
            Err(error) => fails(&error),
        };
        self.model.expect(&[], &seen, |world, at| vec![world.get(at, key)])?;
        if self.synced {
            self.model.pin(&[], |world, at| world.get(at, key) == seen);
        }
        Ok(())
    }

    pub fn contains(&mut self, key: Key) -> Checked {
        let seen = is(self.scope(key.0).contains(id_text(key.1)));
        let contains = |found: &Seen| Seen::Is(matches!(found, Seen::Found(Some(_))));
        self.model.expect(&[], &seen, |world, at| vec![contains(&world.get(at, key))])?;
        if self.synced {
            self.model.pin(&[], |world, at| contains(&world.get(at, key)) == seen);
        }
        Ok(())
    }

    pub fn forget(&mut self, door: Door, key: Key) -> Checked {
        let (scope, name) = (self.scope(key.0), id_text(key.1));
        let seen = is(match door {
            Door::Blocking => scope.forget(name),
            Door::Async | Door::PolledOnce => block_on(scope.forget_async(name)),
            Door::NeverPolled => {
                drop(scope.forget_async(name));
                return Ok(());
            }
        });
        let is_forgotten = |world: &World| matches!(world.ids.get(&key), Some(State::Forgotten { .. }));
        let before = self.model.worlds.iter().any(is_forgotten);
        self.model.expect(&[key], &seen, |world, at| vec![world.forget(at.now, key)])?;
        if self.synced && (seen == Seen::Is(true) || (!before && self.model.worlds.iter().all(is_forgotten)))
        {
            self.model.durable();
        }
        Ok(())
    }

    pub fn advance(&mut self, door: Door, key: Key, when: When) -> Checked {
        let (scope, name) = (self.scope(key.0), entity_text(key.1));
        let answer = match door {
            Door::Blocking => Some(scope.advance(name, when.timestamp())),
            Door::Async => Some(block_on(scope.advance_async(name, when.timestamp()))),
            Door::PolledOnce => polled_once(scope.advance_async(name, when.timestamp())),
            Door::NeverPolled => {
                drop(scope.advance_async(name, when.timestamp()));
                return Ok(());
            }
        };
        let rules = self.rules(key.0);
        let seen = match answer {
            Some(Ok(Advance::Applied)) => Seen::Applied,
            Some(Ok(Advance::Stale(mark))) => Seen::Stale(Marked::of(&mark)),
            Some(Ok(Advance::InProgress(handle))) => running(&handle, &self.tokens),
            Some(Err(error)) => fails(&error),
            None => {
                // Carried out all the same.
                self.model.change_stepwise(&[], |mut world, at| {
                    world.advance(at, rules, key, when);
                    vec![world]
                });
                return Ok(());
            }
        };
        self.model.expect(&[], &seen, |world, at| vec![world.advance(at, rules, key, when)])?;
        match &seen {
            Seen::Applied if self.synced => self.model.durable(),
            Seen::Stale(mark) if self.synced => {
                let applied = Seen::LastApplied(Some(mark.clone()));
                self.model.pin(&[], |world, at| world.last_applied(at, key) == applied);
            }
            _ => {}
        }
        Ok(())
    }

    pub fn last_applied(&mut self, key: Key) -> Checked {
        let seen = match self.scope(key.0).last_applied(entity_text(key.1)) {
            Ok(mark) => Seen::LastApplied(mark.as_ref().map(Marked::of)),
            Err(error) => fails(&error),
        };
        self.model.expect(&[], &seen, |world, at| vec![world.last_applied(at, key)])?;
        if self.synced {
            self.model.pin(&[], |world, at| world.last_applied(at, key) == seen);
        }
        Ok(())
    }

    pub fn forget_mark(&mut self, key: Key) -> Checked {
        let seen = is(self.scope(key.0).forget_mark(entity_text(key.1)));
        self.model.expect(&[], &seen, |world, at| vec![world.forget_mark(at.now, key)])?;
        if self.synced && seen == Seen::Is(true) {
            self.model.durable();
        }
        Ok(())
    }

    pub fn invalid(&mut self, wrong: Wrong, scope: u8) -> Checked {
        let scope = self.scope(scope);
        let request = || scope.request("invalid");
        let answer = match wrong {
            Wrong::EmptyId => scope.claim("").map(drop),
            Wrong::EmptyEntity => request().order("", When::Step(0).timestamp()).begin().map(drop),
            Wrong::LongId => scope.begin([b'i'; LONGEST_KEY + 1]).map(drop),
            Wrong::LongPrint => request().fingerprint([b'p'; 65]).claim().map(drop),
            Wrong::NoWindow => request().window(Duration::ZERO).claim().map(drop),
            Wrong::NoLease => request().lease(Duration::ZERO).begin().map(drop),
            Wrong::NoInterval => request().durability(Durability::Interval(Duration::ZERO)).claim().map(drop),
            Wrong::EmptyInBatch => scope.claim_many(["invalid", ""]).map(drop),
            Wrong::OtherOptions => {
                let options = ScopeOptions::new().window(Duration::from_secs(77));
                self.store().scope_with(scope.name(), options).map(drop)
            }
        };
        let expected = match (wrong, &answer) {
            (Wrong::EmptyId | Wrong::EmptyEntity | Wrong::EmptyInBatch, Err(Error::EmptyId { .. }))
            | (Wrong::LongId, Err(Error::KeyTooLong { .. }))
            | (Wrong::LongPrint, Err(Error::FingerprintTooLong { .. }))
            | (Wrong::NoWindow | Wrong::NoLease | Wrong::NoInterval, Err(Error::InvalidOption { .. }))
            | (Wrong::OtherOptions, Err(Error::ScopeOptions { .. })) => {
                !scope.contains("invalid").unwrap_or(true)
            }
            _ => false,
        };
        if expected { Ok(()) } else { Err(format!("{wrong:?} is answered with {answer:?}")) }
    }
}
