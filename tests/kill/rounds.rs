//! How many rounds, by which seed, and what they came to.

use crate::common::{Dice, announce, fresh_seed, number_from};
use crate::history::History;

pub struct Rounds {
    pub seed: u64,
    pub count: u64,
    pub dice: Dice,
    name: &'static str,
    answers: u64,
    violations: Vec<String>,
}

impl Rounds {
    /// One in `part` of the rounds that are asked for.
    pub fn new(name: &'static str, part: u64) -> Self {
        let seed = fresh_seed();
        let all = number_from("ONCEDB_KILL_ROUNDS").unwrap_or(if cfg!(debug_assertions) { 8 } else { 60 });
        let count = all.div_ceil(part);
        announce(&format!("{name}: ONCEDB_SEED={seed} ONCEDB_KILL_ROUNDS={all}"));
        Self { seed, count, dice: Dice::new(seed), name, answers: 0, violations: Vec::new() }
    }

    pub fn add(&mut self, history: History) {
        self.answers += history.answers;
        self.violations.extend(history.violations);
    }

    /// Says what it came to; the test fails if anything was wrong.
    pub fn end(self) {
        let Self { name, count, seed, answers, violations, .. } = self;
        let found = violations.len();
        announce(&format!("{name}: {count} rounds, {answers} acknowledged answers, {found} violations"));
        assert!(
            violations.is_empty(),
            "ONCEDB_SEED={seed} found {found} violations:\n{}",
            violations.join("\n")
        );
    }
}
