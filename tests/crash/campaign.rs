//! Many histories, on every core, each with a seed of its own.

use crate::common::Dice;
use crate::history::Tally;
use std::env;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The seed that the environment asks for, else a fresh one; printed.
pub fn seed() -> u64 {
    let seed = number_from("ONCEDB_SEED").unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970");
        u64::from(now.subsec_nanos()) ^ now.as_secs()
    });
    eprintln!("ONCEDB_SEED={seed}");
    seed
}

/// How long random campaigns run together: `ONCEDB_CRASH_SECONDS`, else as long as CI has for them.
pub fn seconds() -> u64 {
    number_from("ONCEDB_CRASH_SECONDS").unwrap_or(if cfg!(debug_assertions) { 20 } else { 100 })
}

pub fn number_from(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is to be a number, not {text}")))
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

/// Prints a tally and the sum of all so far, also where the harness keeps a test's output to itself.
fn say(name: &str, tally: Tally) {
    let mut all = ALL.lock().expect("nobody panics here");
    all.add(tally);
    let text = format!("crash: {name}: {tally}\ncrash: in all: {all}\n");
    // There is nobody to tell that nobody listens.
    let _ = io::stderr().lock().write_all(text.as_bytes());
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
