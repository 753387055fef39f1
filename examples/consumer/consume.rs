//! The consumer: a batch of events for two syncs of the store, and no event's work twice.

use std::io::{self, Write};

use indicatif::{ProgressBar, ProgressStyle};
use oncedb::{Durability, Outcome, Scope, Store};
use serde::{Deserialize, Serialize};

use crate::Failed;
use crate::args::Consume;
use crate::effects::Effects;
use crate::event::Event;
use crate::partition::{Delivery, Partition};

/// An offset is committed after so many batches, as brokers' clients do now and then: what a
/// restart rewinds.
const BATCHES_A_COMMIT: usize = 4;

/// In bytes; with the name of the scope it is within the store's `max_key_len`.
const LONGEST_ID: usize = 1_000;

/// The start of a line that tells of a commit.
pub const COMMITTED: &str = "committed ";

/// What one process did.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Tally {
    /// Events whose work was done.
    pub done: u64,
    /// Events whose work a process had done that died before it could say so.
    pub found_done: u64,
    /// Copies of events that are done.
    pub duplicates: u64,
    /// Lines that are no events.
    pub unreadable: u64,
}

pub fn run(options: &Consume) -> Result<(), Failed> {
    let store = Store::open(&options.data)?;
    let scope = store.scope("partition 0")?;
    let mut partition = Partition::open(options)?;
    let mut effects = Effects::open(&options.effects)?;
    let bar = progress_bar(&partition)?;
    let mut tally = Tally::default();

    for number in 1.. {
        let batch = partition.batch(options.batch)?;
        let at_end = batch.is_empty();
        let events = readable(batch, &bar, &mut tally);
        if options.claim_first {
            claim_first(&scope, &events, &mut effects, &mut tally)?;
        } else {
            begin_and_complete(&store, &scope, &events, &mut effects, &mut tally)?;
        }
        bar.set_position(partition.offset());
        bar.set_message(format!("{} done, {} copies", tally.done, tally.duplicates));
        if at_end || number % BATCHES_A_COMMIT == 0 {
            partition.commit()?;
            if options.commits {
                writeln!(io::stdout(), "{COMMITTED}{}", partition.offset())?;
            }
        }
        if at_end {
            break;
        }
    }
    bar.finish();
    store.close()?;
    println!("{}", serde_json::to_string(&tally)?);
    Ok(())
}

fn readable(batch: Vec<Delivery>, bar: &ProgressBar, tally: &mut Tally) -> Vec<Event> {
    let mut events = Vec::with_capacity(batch.len());
    for delivery in batch {
        match delivery {
            Ok(event) if event.id.is_empty() => passed_over("an event without an id", bar, tally),
            // The store would refuse it, and so would every later process.
            Ok(event) if event.id.len() > LONGEST_ID => {
                passed_over("an event whose id is too long", bar, tally);
            }
            Ok(event) => events.push(event),
            Err(problem) => passed_over(&problem, bar, tally),
        }
    }
    events
}

fn passed_over(problem: &str, bar: &ProgressBar, tally: &mut Tally) {
    tally.unreadable += 1;
    bar.suspend(|| eprintln!("consumer: passed over: {problem}"));
}

/// For work that must happen: begin, work, complete, each for the whole batch with one sync.
fn begin_and_complete(
    store: &Store,
    scope: &Scope,
    events: &[Event],
    effects: &mut Effects,
    tally: &mut Tally,
) -> Result<(), Failed> {
    // Durable before the work, so that an attempt that died after its work is known to have been.
    let requests = events.iter().map(|event| scope.request(&event.id).durability(Durability::Sync));
    let mut guards = Vec::new();
    let mut work = Vec::new();
    for (event, outcome) in events.iter().zip(store.begin_requests(requests)?) {
        match outcome? {
            Outcome::New(guard) => {
                if guard.previous().is_some() && effects.were_done_before(&event.id)? {
                    tally.found_done += 1;
                } else {
                    work.push(event);
                }
                guards.push(guard);
            }
            // In progress in this very batch: a copy that came right behind the first.
            Outcome::Duplicate(_) | Outcome::InProgress(_) => tally.duplicates += 1,
            Outcome::Mismatch(_) | Outcome::Stale(_) => {
                unreachable!("no fingerprint and no order was asked for")
            }
        }
    }
    tally.done += work.len() as u64;
    effects.apply(work)?;
    for completed in store.complete_all(guards)? {
        completed?;
    }
    Ok(())
}

/// For work that may be lost with the process: claimed first, with one sync.
fn claim_first(
    scope: &Scope,
    events: &[Event],
    effects: &mut Effects,
    tally: &mut Tally,
) -> Result<(), Failed> {
    let outcomes = scope.claim_many(events.iter().map(|event| &event.id))?;
    let with_outcomes = events.iter().zip(outcomes);
    let work: Vec<_> =
        with_outcomes.filter(|(_, outcome)| outcome.is_new()).map(|(event, _)| event).collect();
    tally.done += work.len() as u64;
    tally.duplicates += (events.len() - work.len()) as u64;
    effects.apply(work)?;
    Ok(())
}

fn progress_bar(partition: &Partition) -> Result<ProgressBar, Failed> {
    let (bar, template) = match partition.len() {
        Some(len) => (ProgressBar::new(len), "{bar:32} {bytes}/{total_bytes} {msg}"),
        None => (ProgressBar::new_spinner(), "{spinner} {bytes} {msg}"),
    };
    Ok(bar.with_style(ProgressStyle::with_template(template)?))
}
