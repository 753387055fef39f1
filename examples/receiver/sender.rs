//! The demo: delivers the file as senders do, at least once, and lets things go wrong.

use std::thread;
use std::time::{Duration, Instant};

use crate::Failed;
use crate::client::{Client, Reply};
use crate::deliveries::{self, Delivery};
use crate::process::Process;
use crate::rehearsal::Mishap;
use crate::report::Report;

/// A sender gives up at some point, and so does the demo.
const ATTEMPTS: u32 = 6;

/// The wait before a retry if the receiver does not name one; real senders wait longer each time.
const PAUSE: Duration = Duration::from_millis(300);

/// The longest wait that the sender lets the receiver ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Between starting the threads of a step and sending.
const HEAD_START: Duration = Duration::from_millis(20);

/// Runs the demo; `false` if an event was not handled exactly once.
pub fn run() -> Result<bool, Failed> {
    let deliveries = deliveries::load()?;
    let home = tempfile::tempdir()?;
    let (data, effects) = (home.path().join("dedupe"), home.path().join("effects.jsonl"));
    let start = || Process::start(&data, &effects);

    let mut report = Report::new(&deliveries);
    let client = Client::new()?;
    let mut receiver = start()?;
    report.heading(receiver.address);
    for step in deliveries.chunk_by(Delivery::is_sent_with) {
        if let Some(about) = step.first().and_then(|delivery| delivery.about.as_ref()) {
            println!("-- {about}");
        }
        let replies = send_together(&client, &mut receiver, step)?;
        let mut firsts: Vec<_> = step.iter().zip(replies).collect();
        // Copies sent at the same instant are alike; the one that won is named first.
        firsts.sort_by_key(|(_, reply)| reply.verdict != "new");
        for (delivery, reply) in &firsts {
            report.record(delivery, reply);
        }
        if step.iter().any(hangs) {
            receiver = start()?;
            println!("-- the receiver was killed (SIGKILL) in the middle, and started again");
        }
        for (delivery, reply) in firsts {
            let last = retry(&client, &receiver, delivery, reply, &mut report)?;
            report.check(delivery, &last);
        }
    }
    receiver.stop()?;
    report.finish(&data, &effects)
}

fn hangs(delivery: &Delivery) -> bool {
    delivery.handler.is_some_and(Mishap::hangs)
}

/// The first attempt of every delivery of a step, each on a connection and a thread of its own.
fn send_together(client: &Client, receiver: &mut Process, step: &[Delivery]) -> Result<Vec<Reply>, Failed> {
    let address = receiver.address;
    // Time for every thread to be up, so that none starts before the others.
    let start = Instant::now() + HEAD_START;
    thread::scope(|scope| {
        let mut attempts = Vec::new();
        let mut before: Option<&Delivery> = None;
        for delivery in step {
            if let (true, Some(before)) = (delivery.once_started, before) {
                receiver.wait_until_at_work(before.source, &before.id)?;
            }
            attempts.push(scope.spawn(move || {
                thread::sleep(start.saturating_duration_since(Instant::now()));
                client.deliver(address, delivery)
            }));
            before = Some(delivery);
        }
        for delivery in step.iter().filter(|delivery| hangs(delivery)) {
            receiver.wait_until_at_work(delivery.source, &delivery.id)?;
        }
        if step.iter().any(hangs) {
            receiver.kill()?;
        }
        let joined = attempts
            .into_iter()
            .map(|attempt| attempt.join().map_err(|_| Failed::from("a sending thread panicked"))?);
        joined.collect()
    })
}

/// Sends it again until there is an answer that ends it; returns that answer.
fn retry(
    client: &Client,
    receiver: &Process,
    delivery: &Delivery,
    first: Reply,
    report: &mut Report,
) -> Result<Reply, Failed> {
    let mut reply = first;
    for _ in 1..ATTEMPTS {
        // What a receiver calls unreadable or untrusted stays so; all else is worth another attempt.
        let again = reply.status.is_none_or(|status| status == 409 || status >= 500);
        if !again {
            break;
        }
        thread::sleep(reply.retry_after.unwrap_or(PAUSE).min(LONGEST_PAUSE));
        reply = client.deliver(receiver.address, delivery)?;
        report.record(delivery, &reply);
    }
    Ok(reply)
}
