//! Runs a test under many schedules: which thread goes on at each lock, wake-up and atomic is chosen at
//! random, half of the time nearly always (`random`), half of the time only at a few points (`pct`).
//!
//! `ONCEDB_SEED` chooses other schedules, `ONCEDB_RACES` multiplies their number, and `ONCEDB_SCHEDULE`,
//! the string that a failure prints, repeats that one alone.

use shuttle::scheduler::{PctScheduler, RandomScheduler, ReplayScheduler, Scheduler};
use shuttle::{Config, Runner};
use std::fmt::Debug;
use std::str::FromStr;
use std::sync::Arc;

/// Places at which `pct` takes the turn from a thread that could go on.
const DEPTH: usize = 4;

/// Runs `body` so many times, each under a schedule of its own.
pub(crate) fn check(schedules: usize, body: impl Fn() + Send + Sync + 'static) {
    let body = Arc::new(body);
    if let Ok(schedule) = std::env::var("ONCEDB_SCHEDULE") {
        let mut replay = ReplayScheduler::new_from_encoded(&schedule);
        replay.set_allow_incomplete();
        return run(replay, &body);
    }
    let seed: u64 = from_env("ONCEDB_SEED").unwrap_or(1);
    let times: f64 = from_env("ONCEDB_RACES").unwrap_or(1.0);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "few"
    )]
    let each = ((schedules as f64 * times / 2.0).ceil() as usize).max(1);
    eprintln!("ONCEDB_SEED={seed} ONCEDB_RACES={times}: {each} random schedules, {each} by pct");
    run(RandomScheduler::new_from_seed(seed, each), &body);
    run(PctScheduler::new_from_seed(seed, DEPTH, each), &body);
}

fn from_env<T: FromStr<Err: Debug>>(name: &str) -> Option<T> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|error| panic!("{name}={value} is no number: {error:?}")))
}

fn run(scheduler: impl Scheduler + 'static, body: &Arc<impl Fn() + Send + Sync + 'static>) {
    let mut config = Config::new();
    // The database of the catalog goes deep.
    config.stack_size = 1 << 18;
    config.silence_warnings = true;
    // What is left of a failed execution must not hide why it failed.
    config.ungraceful_shutdown_config.immediately_return_on_panic = true;
    let body = Arc::clone(body);
    Runner::new(scheduler, config).run(move || body());
}
