//! Claims in one step, each by every way there is.

use super::{Worker, say_claimed, trying};
use crate::common::block_on;
use crate::facts::{Intent, Line};
use crate::words;
use oncedb::Durability;
use std::time::Duration;

impl Worker {
    pub fn claim(&mut self, number: u64) {
        let id = self.id(number);
        self.claim_id(&id);
        if self.dice.below(20) == 0 {
            self.store.maintain().unwrap();
        }
        if self.dice.below(15) == 0 {
            Line::Syncing.say();
            self.store.sync().unwrap();
            Line::Synced.say();
        }
    }

    pub fn claim_id(&mut self, id: &str) {
        let way = self.dice.below(6);
        let reply = way < 3;
        let request = words::request(&self.scope, id);
        let asked = trying(id, Intent::Claim { reply });
        let outcome = match way {
            0 | 1 => request.claim_with(words::reply(id, 0)),
            2 => block_on(request.claim_with_async(words::reply(id, 0))),
            3 => block_on(request.claim_async()),
            4 => request.durability(Durability::Interval(Duration::from_millis(5))).claim(),
            _ => request.claim(),
        };
        say_claimed(id, asked, way != 4, outcome.unwrap());
    }
}
