//! Two workers and one id.

use super::{Worker, said, say_begun, say_claimed, say_did, say_found, trying, unexpected};
use crate::common::PATIENCE;
use crate::facts::{Intent, Word, now};
use crate::words;
use oncedb::{Error, Outcome, Settled};
use std::thread;
use std::time::Duration;

impl Worker {
    pub fn contest_a_claim(&mut self, number: u64) {
        let id = self.id(number);
        let asked = trying(&id, Intent::Claim { reply: false });
        say_claimed(&id, asked, true, words::request(&self.scope, &id).claim().unwrap());
    }

    pub fn contest_a_begin(&mut self, number: u64) {
        let id = self.id(number);
        let asked = trying(&id, Intent::Begin { leased: false });
        match words::request(&self.scope, &id).begin().unwrap() {
            Outcome::InProgress(running) => match running.wait(PATIENCE).unwrap() {
                Settled::Completed(record) => say_found(&id, asked, &record),
                other @ (Settled::Released | Settled::Running) => unexpected(&id, &other),
            },
            outcome => {
                let Some(guard) = say_begun(&id, asked, outcome) else { return };
                let attempt = guard.attempt();
                let asked = trying(&id, Intent::Settle { attempt, reply: true, refusal: false });
                guard.complete_with(words::reply(&id, attempt)).unwrap();
                say_did(&id, asked, attempt);
            }
        }
    }

    /// Leases of a moment, and two who want the id: whoever is too late is fenced.
    pub fn contest_a_lease(&mut self, number: u64) {
        let id = self.id(number);
        loop {
            let asked = trying(&id, Intent::Begin { leased: true });
            let request = words::request(&self.scope, &id).lease(Duration::from_millis(1));
            let outcome = match request.begin().unwrap() {
                Outcome::InProgress(running) => match running.wait(PATIENCE).unwrap() {
                    Settled::Completed(record) => return say_found(&id, asked, &record),
                    Settled::Released => {
                        said(&id, asked, Word::Busy);
                        continue;
                    }
                    Settled::Running => unexpected(&id, &"that a lease of 1 ms runs on"),
                },
                outcome => outcome,
            };
            let Some(guard) = say_begun(&id, asked, outcome) else { return };
            let attempt = guard.attempt();
            // Some hold it for longer than the lease: the other worker may take over then.
            let until = now() + self.dice.below(3000);
            while now() < until {
                thread::yield_now();
            }
            let asked = trying(&id, Intent::Settle { attempt, reply: true, refusal: false });
            match guard.complete_with(words::reply(&id, attempt)) {
                Ok(()) => return say_did(&id, asked, attempt),
                Err(Error::Fenced { .. }) => said(&id, asked, Word::Fenced { attempt }),
                Err(other) => unexpected(&id, &other),
            }
        }
    }
}
