//! The load: every kind of claim from many threads at once, while segments rotate, flushes and
//! merges run, and windows end.

mod again;
mod batches;
mod claims;
mod contests;
mod guards;
mod leases;
mod ordered;
mod short;

use crate::common::Dice;
use crate::common::child::watch_over_silence;
use crate::facts::{Found, Grant, Intent, Line, Micros, Span, Word, micros, now};
use oncedb::{Guard, Outcome, Record, Scope, Store};
use std::fmt::Debug;
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

type Turn = fn(&mut Worker, u64);

/// What runs side by side: a name for the ids, which two workers share where they are to compete.
const WORK: [(&str, Turn); 18] = [
    ("claim", Worker::claim),
    ("batch", Worker::claim_a_batch),
    ("guard", Worker::begin_and_settle),
    ("many", Worker::begin_and_settle_many),
    ("future", Worker::run_futures),
    ("dropped", Worker::drop_futures),
    ("again", Worker::look_again),
    ("short", Worker::turn_a_short_one),
    ("shorter", Worker::turn_a_short_one),
    ("shortest", Worker::turn_a_short_one),
    ("lapsed", Worker::let_a_lease_lapse),
    ("contested", Worker::contest_a_claim),
    ("contested", Worker::contest_a_claim),
    ("awaited", Worker::contest_a_begin),
    ("awaited", Worker::contest_a_begin),
    ("leased", Worker::contest_a_lease),
    ("leased", Worker::contest_a_lease),
    ("ordered", Worker::order),
];

/// Set when the store is about to be closed: from then on calls may fail, and no guard is dropped.
static CLOSING: AtomicBool = AtomicBool::new(false);

pub struct Worker {
    store: Store,
    scope: Scope,
    dice: Dice,
    name: &'static str,
    round: u64,
    held: Vec<(String, Guard)>,
}

/// Goes on until the process is killed.
pub fn run(store: &Store, scope: &Scope, round: u64, seed: u64) {
    panic::set_hook(Box::new(|what| {
        stand_still_if_closing();
        Line::Failed(what.to_string().replace('\n', " ")).say();
    }));
    watch_over_silence();
    for (number, (name, turn)) in (0..).zip(WORK) {
        let mut worker = Worker {
            store: store.clone(),
            scope: scope.clone(),
            dice: Dice::new(seed ^ (number << 32)),
            name,
            round,
            held: Vec::new(),
        };
        thread::spawn(move || {
            for number in 0.. {
                turn(&mut worker, number);
            }
        });
    }
}

/// Ends the store under the load, which stands still from then on.
pub fn close(store: &Store) {
    CLOSING.store(true, Ordering::SeqCst);
    Line::Closing.say();
    match store.close() {
        Ok(()) => Line::Closed.say(),
        Err(error) => Line::Failed(format!("the store does not close: {error}")).say(),
    }
}

fn said(id: &str, asked: Micros, word: Word) {
    Line::Key { id: id.to_owned(), span: Span::since(asked), word }.say();
}

/// Says what is about to be asked for, and when that was.
fn trying(id: &str, intent: Intent) -> Micros {
    let asked = now();
    said(id, asked, Word::Try(intent));
    asked
}

fn say_did(id: &str, asked: Micros, attempt: u32) {
    said(id, asked, Word::Did { attempt });
}

/// A dropped guard does not tell whether the store was still open.
fn say_dropped(id: &str, asked: Micros, attempt: u32) {
    stand_still_if_closing();
    say_did(id, asked, attempt);
}

fn stand_still_if_closing() {
    while CLOSING.load(Ordering::SeqCst) {
        thread::park();
    }
}

fn say_claimed(id: &str, asked: Micros, durable: bool, outcome: Outcome<Record>) {
    match outcome {
        Outcome::New(record) => {
            let (Some(completed), Some(expires)) = (record.completed_at(), record.expires_at()) else {
                unexpected(id, &record)
            };
            let (completed, expires) = (micros(completed), micros(expires));
            said(id, asked, Word::Claimed { attempt: record.attempt(), completed, expires, durable });
        }
        Outcome::Duplicate(record) => say_found(id, asked, &record),
        Outcome::InProgress(_) => said(id, asked, Word::Busy),
        other @ (Outcome::Mismatch(_) | Outcome::Stale(_)) => unexpected(id, &other),
    }
}

fn say_found(id: &str, asked: Micros, record: &Record) {
    said(id, asked, Word::Found(Found::of(id, record).unwrap()));
}

/// The guard, if it was granted.
fn say_begun(id: &str, asked: Micros, outcome: Outcome<Guard>) -> Option<Guard> {
    match outcome {
        Outcome::New(guard) => {
            said(id, asked, Word::Granted(Grant::of(id, &guard).unwrap()));
            return Some(guard);
        }
        Outcome::Duplicate(record) => say_found(id, asked, &record),
        Outcome::InProgress(_) => said(id, asked, Word::Busy),
        other @ (Outcome::Mismatch(_) | Outcome::Stale(_)) => unexpected(id, &other),
    }
    None
}

fn unexpected(id: &str, told: &dyn Debug) -> ! {
    panic!("{id} is told {told:?}")
}

impl Worker {
    fn coin(&mut self) -> bool {
        self.dice.below(2) == 0
    }

    fn id(&self, number: u64) -> String {
        format!("{}-{}-{number}", self.name, self.round)
    }
}
