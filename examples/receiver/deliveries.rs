//! The checked-in file of deliveries: what the senders send, in which order, and what goes wrong.

use serde::Deserialize;
use serde_json::value::RawValue;
use standardwebhooks::Webhook;

use crate::event::{self, Source};
use crate::rehearsal::{Mishap, Rehearsal};
use crate::{DEMO_SECRET, Failed};

const FILE: &str = include_str!("deliveries.jsonl");

/// One line of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delivery {
    /// What the reader should watch for.
    pub about: Option<String>,
    pub source: Source,
    pub id: String,
    /// When it was signed, in seconds, and the signature of id, time and body.
    timestamp: i64,
    signature: String,
    #[serde(default)]
    send: Sending,
    /// Neighbours of one group are sent at the same instant.
    group: Option<u32>,
    /// Not at the same instant, but once the handler of the one before is at work.
    #[serde(default)]
    pub once_started: bool,
    /// How long the sender waits for the answer; after that it is lost.
    pub patience_ms: Option<u64>,
    pub handler: Option<Mishap>,
    /// Older than what the entity has seen: answered, not handled.
    #[serde(default)]
    pub stale: bool,
    /// The status of a delivery that must not be accepted.
    pub refused: Option<u16>,
    payload: Option<Box<RawValue>>,
    /// A body that is not JSON.
    text: Option<String>,
}

/// How the sender treats the delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Sending {
    /// Signed again with the time of the attempt.
    #[default]
    Fresh,
    /// With the signature in the file: somebody replays an old request.
    Recorded,
    /// Signed, then changed on the way.
    Altered,
    WithoutId,
}

/// What one attempt puts on the wire.
pub struct Signed<'a> {
    pub id: Option<&'a str>,
    pub timestamp: i64,
    pub signature: String,
    pub body: String,
}

impl Delivery {
    fn body(&self) -> &str {
        let json = self.payload.as_deref().map(RawValue::get);
        json.or(self.text.as_deref()).unwrap_or_default()
    }

    /// What the payload is about, or a dash where it can't be read.
    pub fn entity(&self) -> String {
        event::read(self.source, self.body().as_bytes())
            .map_or_else(|_| "-".to_owned(), |change| change.entity)
    }

    pub fn is_sent_with(&self, other: &Self) -> bool {
        self.group.is_some() && self.group == other.group
    }

    pub fn sign(&self, webhook: &Webhook, now: i64) -> Result<Signed<'_>, Failed> {
        let timestamp = if self.send == Sending::Recorded { self.timestamp } else { now };
        let signature = webhook.sign(&self.id, timestamp, self.body().as_bytes())?;
        let mut body = self.body().to_owned();
        if self.send == Sending::Altered {
            // Still JSON and still the same event; only the signature can tell.
            body.push(' ');
        }
        let id = (self.send != Sending::WithoutId).then_some(self.id.as_str());
        Ok(Signed { id, timestamp, signature, body })
    }
}

/// Reads the file and checks every signature in it.
pub fn load() -> Result<Vec<Delivery>, Failed> {
    let webhook = Webhook::new(DEMO_SECRET)?;
    let numbered = FILE.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let mut deliveries = Vec::new();
    for (index, line) in numbered {
        let at = format!("deliveries.jsonl, line {}", index + 1);
        let delivery: Delivery = serde_json::from_str(line).map_err(|error| format!("{at}: {error}"))?;
        let body = delivery.body().as_bytes();
        let signature = webhook.sign(&delivery.id, delivery.timestamp, body)?;
        if signature != delivery.signature {
            return Err(format!("{at}: the signature should be {signature}").into());
        }
        deliveries.push(delivery);
    }
    Ok(deliveries)
}

/// The mishaps that the file asks of the receiver's handler.
pub fn rehearsal() -> Result<Rehearsal, Failed> {
    let mishaps = load()?
        .into_iter()
        .filter_map(|delivery| delivery.handler.map(|mishap| (delivery.source, delivery.id, mishap)));
    Ok(Rehearsal::new(mishaps))
}
