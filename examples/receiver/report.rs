//! What is printed, and the check at the end: the effects that were made against those that were due.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use oncedb::{Record, Store};

use crate::Failed;
use crate::client::Reply;
use crate::deliveries::Delivery;
use crate::effects::{self, Effect};
use crate::event::Source;
use crate::rehearsal::Mishap;

/// All deliveries with one id of one sender.
struct Event {
    source: Source,
    id: String,
    entity: String,
    /// Effects that it should have: one, or none if it is stale or was refused.
    due: usize,
    /// How often each verdict was given.
    verdicts: BTreeMap<String, usize>,
    /// The answer of the attempt that did the work, or of the first that repeated it.
    reply: Option<String>,
}

pub struct Report {
    events: Vec<Event>,
    deliveries: usize,
    attempts: usize,
    problems: Vec<String>,
}

impl Report {
    pub fn new(deliveries: &[Delivery]) -> Self {
        let mut events: Vec<Event> = Vec::new();
        for delivery in deliveries {
            let due = usize::from(!delivery.stale && delivery.refused.is_none());
            let known = events.iter_mut().find(|event| event.is_of(delivery.source, &delivery.id));
            if let Some(event) = known {
                event.due = event.due.max(due);
                continue;
            }
            events.push(Event {
                source: delivery.source,
                id: delivery.id.clone(),
                entity: delivery.entity(),
                due,
                verdicts: BTreeMap::new(),
                reply: None,
            });
        }
        Self { events, deliveries: deliveries.len(), attempts: 0, problems: Vec::new() }
    }

    pub fn heading(&self, address: SocketAddr) {
        println!(
            "{} deliveries of {} events to http://{address}, retried until they are answered\n",
            self.deliveries,
            self.events.len()
        );
        println!("{:>3}  {:<13}  {:<18}  {:<26}  {:<11}  status", "", "sender", "id", "entity", "verdict");
    }

    /// One attempt, one line.
    pub fn record(&mut self, delivery: &Delivery, reply: &Reply) {
        self.attempts += 1;
        let status = reply.status.map_or_else(|| "-".to_owned(), |status| status.to_string());
        let line = format!(
            "{:>3}  {:<13}  {:<18}  {:<26}  {:<11}  {:<6}  {}",
            self.attempts,
            delivery.source,
            delivery.id,
            delivery.entity(),
            reply.verdict,
            status,
            reply.remark()
        );
        println!("{}", line.trim_end());
        let event = self.events.iter_mut().find(|event| event.is_of(delivery.source, &delivery.id));
        let Some(event) = event else { return };
        *event.verdicts.entry(reply.verdict.clone()).or_default() += 1;
        if matches!(reply.verdict.as_str(), "new" | "duplicate")
            && *event.reply.get_or_insert_with(|| reply.body.clone()) != reply.body
        {
            let problem = format!("{} {}: two answers that differ", event.source, event.id);
            self.problems.push(problem);
        }
    }

    /// Compares the answer that ended a delivery with what it should have been.
    pub fn check(&mut self, delivery: &Delivery, last: &Reply) {
        let verdict = last.verdict.as_str();
        let as_expected = match (delivery.refused, delivery.stale) {
            (Some(status), _) => last.status == Some(status),
            (None, true) => last.status == Some(200) && verdict == "stale",
            (None, false) => last.status == Some(200) && matches!(verdict, "new" | "duplicate"),
        };
        let previous = last.previous.as_deref();
        let recovered = match delivery.handler {
            Some(Mishap::Fails) => previous == Some("aborted") && !last.found,
            Some(Mishap::HangsBeforeEffect) => previous == Some("orphaned") && !last.found,
            Some(Mishap::HangsAfterEffect) => previous == Some("orphaned") && last.found,
            Some(Mishap::TakesMs(_)) | None => true,
        };
        if !as_expected || !recovered {
            let status = last.status.map_or_else(|| "no answer".to_owned(), |s| s.to_string());
            self.problems.push(format!(
                "{} {}: the last answer was {status}, {verdict} {}",
                delivery.source,
                delivery.id,
                last.remark()
            ));
        }
    }

    /// Prints the table and the result; `false` if an event was not handled exactly once.
    pub fn finish(mut self, data: &Path, effects: &Path) -> Result<bool, Failed> {
        let effects = effects::read(effects)?;
        // The receiver has closed the store, so it can be asked what it kept.
        let store = Store::open(data)?;
        println!("\n{:<13}  {:<18}  {:<26}  due  made  kept       answers", "sender", "id", "entity");
        for event in &self.events {
            let made = effects.iter().filter(|effect| event.is_of(effect.source, &effect.id)).count();
            let kept = store.scope(event.source.name())?.get(&event.id)?;
            event.print(made, kept.as_ref());
            if made != event.due {
                self.problems
                    .push(format!("{} {}: {made} effects made, {} due", event.source, event.id, event.due));
            }
            if kept.is_some() != (event.due == 1) {
                let what = if kept.is_some() { "kept" } else { "not kept" };
                let problem = format!("{} {}: {what} in the store", event.source, event.id);
                self.problems.push(problem);
            }
        }
        store.close()?;

        let strays = |effect: &&Effect| !self.events.iter().any(|e| e.is_of(effect.source, &effect.id));
        for stray in effects.iter().filter(strays) {
            self.problems.push(format!("{} {}: an effect of no event", stray.source, stray.id));
        }
        let due: usize = self.events.iter().map(|event| event.due).sum();
        println!(
            "\n{} attempts to deliver {} events; {due} effects due, {} made",
            self.attempts,
            self.events.len(),
            effects.len()
        );
        for problem in &self.problems {
            println!("{problem}");
        }
        let good = self.problems.is_empty();
        println!("handled exactly once: {}", if good { "yes" } else { "no" });
        Ok(good)
    }
}

impl Event {
    fn is_of(&self, source: Source, id: &str) -> bool {
        self.source == source && self.id == id
    }

    fn print(&self, made: usize, kept: Option<&Record>) {
        let kept = kept.map_or_else(|| "-".to_owned(), |record| format!("attempt {}", record.attempt()));
        let verdicts: Vec<_> =
            self.verdicts.iter().map(|(verdict, times)| format!("{times} {verdict}")).collect();
        println!(
            "{:<13}  {:<18}  {:<26}  {:>3}  {made:>4}  {kept:<9}  {}",
            self.source,
            self.id,
            self.entity,
            self.due,
            verdicts.join(", ")
        );
    }
}
