//! Ids of earlier rounds come again, known or not, and some were never tried.

use super::{Worker, said, say_found, trying};
use crate::facts::{Intent, Word, now};

impl Worker {
    pub fn look_again(&mut self, _: u64) {
        let round = self.dice.below(self.round + 1);
        let number = self.dice.below(400);
        let id = match self.dice.below(3) {
            _ if round == self.round => format!("again-{round}-{number}"),
            0 => format!("claim-{round}-{number}"),
            1 => format!("guard-{round}-{number}"),
            _ => format!("lapsed-{round}-{}", number / 10),
        };
        if let Some(at) = self.held.iter().position(|(held, _)| *held == id) {
            let (id, guard) = self.held.swap_remove(at);
            return self.settle(&id, guard);
        }
        match self.dice.below(8) {
            0..=2 => self.claim_id(&id),
            3..=5 => {
                if let Some(guard) = self.begin_id(&id) {
                    self.go_on(id, guard);
                }
            }
            6 => self.get(&id),
            _ => self.forget(&id),
        }
    }

    pub fn get(&mut self, id: &str) {
        let asked = now();
        match self.scope.get(id).unwrap() {
            Some(record) => say_found(id, asked, &record),
            None => said(id, asked, Word::Missing),
        }
    }

    pub fn forget(&mut self, id: &str) {
        let asked = trying(id, Intent::Forget);
        let was_done = self.scope.forget(id).unwrap();
        said(id, asked, Word::Forgot { was_done });
    }
}
