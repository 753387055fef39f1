//! Few entities and times that grow over all the rounds, but not one by one.

use super::{Worker, say_begun, say_claimed, say_did, trying, unexpected};
use crate::facts::{Intent, Line};
use crate::words;
use oncedb::{Advance, Outcome, Timestamp};

impl Worker {
    pub fn order(&mut self, number: u64) {
        let id = self.id(number);
        let entity = format!("entity-{}", self.dice.below(8));
        let last = self.scope.last_applied(&entity).unwrap();
        let last = last.and_then(|mark| mark.timestamp().as_sequence()).unwrap_or(10);
        if last > 10 {
            say_applied(&entity, last);
        }
        let next = last + self.dice.below(10) - 3;
        Line::Trying { entity: entity.clone(), number: next }.say();
        let at = Timestamp::sequence(next);
        let request = words::request(&self.scope, &id).order(&entity, at);
        match self.dice.below(3) {
            0 => {
                let asked = trying(&id, Intent::Claim { reply: true });
                match request.claim_with(words::reply(&id, 0)).unwrap() {
                    Outcome::Stale(mark) => say_applied_at(&entity, mark.timestamp()),
                    outcome => {
                        let is_new = outcome.is_new();
                        say_claimed(&id, asked, true, outcome);
                        if is_new {
                            say_applied(&entity, next);
                        }
                    }
                }
            }
            1 => {
                let asked = trying(&id, Intent::Begin { leased: false });
                match request.begin().unwrap() {
                    Outcome::Stale(mark) => say_applied_at(&entity, mark.timestamp()),
                    outcome => {
                        let guard = say_begun(&id, asked, outcome).expect("an entity of this worker");
                        let attempt = guard.attempt();
                        let asked = trying(&id, Intent::Settle { attempt, reply: true, refusal: false });
                        guard.complete_with(words::reply(&id, attempt)).unwrap();
                        say_did(&id, asked, attempt);
                        say_applied(&entity, next);
                    }
                }
            }
            _ => match self.scope.advance(&entity, at).unwrap() {
                Advance::Applied => say_applied(&entity, next),
                Advance::Stale(mark) => say_applied_at(&entity, mark.timestamp()),
                Advance::InProgress(running) => unexpected(&id, &running),
            },
        }
    }
}

fn say_applied(entity: &str, number: u64) {
    Line::Applied { entity: entity.to_owned(), number }.say();
}

fn say_applied_at(entity: &str, at: Timestamp) {
    say_applied(entity, at.as_sequence().expect("a sequence number"));
}
