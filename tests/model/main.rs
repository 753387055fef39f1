//! Whatever is done to a store, in whatever order, each of its answers is one that a plain map with a
//! virtual clock gives, and whatever it said was durable is there after every restart and power cut.

#![allow(unreachable_pub, clippy::unwrap_used, reason = "a test of one crate")]

#[path = "../common/mod.rs"]
mod common;

mod claims;
mod draw;
mod guards;
mod judge;
mod lifecycle;
mod lookups;
mod model;
mod names;
mod ops;
mod run;
mod seen;
mod verdict;
mod world;

use draw::{histories, histories_with_power_cuts};
use ops::History;
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestRunner};
use run::Run;
use std::time::SystemTime;

/// Checks histories: as many as `PROPTEST_CASES` says, and those of `PROPTEST_RNG_SEED`.
fn check(cases: u32, histories: impl Strategy<Value = History>) {
    let mut config = Config { failure_persistence: None, ..Config::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = cases;
    }
    let seed = match config.rng_seed {
        RngSeed::Fixed(seed) => seed,
        RngSeed::Random => {
            let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
            u64::from(now.subsec_nanos()) ^ now.as_secs()
        }
    };
    config.rng_seed = RngSeed::Fixed(seed);
    config.max_shrink_iters = 10_000;
    let failed = |why: String| TestCaseError::fail(format!("{why}\nPROPTEST_RNG_SEED={seed}"));
    let result = TestRunner::new(config).run(&histories, |history| Run::all(&history).map_err(failed));
    if let Err(error) = result {
        panic!("{error}");
    }
}

#[test]
fn every_answer_is_one_of_the_models() {
    check(700, histories());
}

#[test]
fn what_was_promised_survives_power_cuts() {
    check(400, histories_with_power_cuts());
}
