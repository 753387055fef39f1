//! Many histories, on every core, each with a seed of its own.

use crate::common::{Dice, announce, fresh_seed, number_from};
use crate::history::Tally;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The seed of a campaign; printed.
pub fn seed() -> u64 {
    let seed = fresh_seed();
    announce(&format!("crash: ONCEDB_SEED={seed}"));
    seed
}

/// How long random campaigns run together: `ONCEDB_CRASH_SECONDS`, else as long as CI has for them.
pub fn seconds() -> u64 {
    number_from("ONCEDB_CRASH_SECONDS").unwrap_or(if cfg!(debug_assertions) { 20 } else { 100 })
}

/// The violation of one history, or what it went through.
pub fn judge(history: impl FnOnce() -> Tally) -> Result<Tally, String> {
    catch_unwind(AssertUnwindSafe(history)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default()
    })
}

/// Runs `history` with one number after another, on every core, until `more` says that it is enough;
/// fails if one violates a promise.
pub fn run(name: &str, more: impl Fn(u64) -> bool + Sync, history: impl Fn(u64) -> Tally + Sync) -> Tally {
    let only = number_from("ONCEDB_CRASH_HISTORY");
    let next = AtomicU64::new(only.unwrap_or(0));
    let more = |number| only.map_or_else(|| more(number), |only| number == only);
    let total = Mutex::new((Tally::default(), Vec::new()));
    let cores = thread::available_parallelism().map_or(2, usize::from);
    thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if !more(number) {
                        return;
                    }
                    let judged = judge(|| history(number));
                    let mut total = total.lock().expect("nobody panics here");
                    match judged {
                        Ok(tally) => total.0.add(tally),
                        Err(violation) => {
                            total.0.violations += 1;
                            total.1.push(format!("{name} {number}: {violation}"));
                        }
                    }
                    if total.1.len() >= 5 {
                        return;
                    }
                }
            });
        }
    });
    let (tally, violations) = total.into_inner().expect("nobody panics here");
    say(name, tally);
    assert!(violations.is_empty(), "{}", violations.join("\n"));
    tally
}

/// What all campaigns of this process went through.
static ALL: Mutex<Tally> = Mutex::new(Tally::NONE);

/// Prints a tally and the sum of all so far.
fn say(name: &str, tally: Tally) {
    let mut all = ALL.lock().expect("nobody panics here");
    all.add(tally);
    announce(&format!("crash: {name}: {tally}"));
    announce(&format!("crash: in all: {all}"));
}

/// For so many seconds.
pub fn for_seconds(seconds: u64) -> impl Fn(u64) -> bool + Sync {
    let end = Instant::now() + Duration::from_secs(seconds);
    move |_| Instant::now() < end
}

/// The seed of one history of a campaign.
pub fn seed_of(campaign: u64, number: u64) -> u64 {
    Dice::new(campaign.wrapping_add(number.wrapping_mul(0x9e37_79b9))).roll()
}
