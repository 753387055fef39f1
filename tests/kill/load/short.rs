//! A few ids with windows so short that they end under the load, and begin again.

use super::Worker;

const IDS: u64 = 64;

impl Worker {
    pub fn turn_a_short_one(&mut self, _: u64) {
        let id = format!("{}-{}", self.name, self.dice.below(IDS));
        if let Some(at) = self.held.iter().position(|(held, _)| *held == id) {
            let (id, guard) = self.held.swap_remove(at);
            return self.settle(&id, guard);
        }
        match self.dice.below(12) {
            0..=3 => self.claim_id(&id),
            4..=7 => {
                if let Some(guard) = self.begin_id(&id) {
                    self.go_on(id, guard);
                }
            }
            8..=10 => self.get(&id),
            _ => self.forget(&id),
        }
    }
}
