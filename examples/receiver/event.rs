//! What a payload says: which thing changed, and when.
//!
//! Three senders, three shapes. What they share is all that the receiver needs to keep events in
//! order: an entity and the time of its change.

use std::fmt;

use oncedb::Timestamp;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Who sends. Each is a scope of its own in the store: ids of two senders never meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    Payments,
    Subscriptions,
    Repository,
}

impl Source {
    pub const ALL: [Self; 3] = [Self::Payments, Self::Subscriptions, Self::Repository];

    pub fn name(self) -> &'static str {
        match self {
            Self::Payments => "payments",
            Self::Subscriptions => "subscriptions",
            Self::Repository => "repository",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|source| source.name() == name)
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One change of one entity.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    pub kind: String,
    pub entity: String,
    pub at: Timestamp,
}

/// Reads the payload of a sender. The error is a sentence for the sender's operator.
pub fn read(source: Source, body: &[u8]) -> Result<Change, String> {
    match source {
        Source::Payments => payment(&json(body)?),
        Source::Subscriptions => subscription(&json(body)?),
        Source::Repository => repository(&json(body)?),
    }
}

fn json<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|error| format!("the payload can't be read: {error}"))
}

/// `created` is in milliseconds.
#[derive(Deserialize)]
struct Payment {
    r#type: String,
    created: i64,
    data: PaymentData,
}

#[derive(Deserialize)]
struct PaymentData {
    payment: Id,
}

#[derive(Deserialize)]
struct Id {
    id: String,
}

fn payment(event: &Payment) -> Result<Change, String> {
    let at = Timestamp::from_millis(event.created);
    change(&event.r#type, &event.data.payment.id, at)
}

/// The shape that Standard Webhooks recommends, with an ISO 8601 time.
#[derive(Deserialize)]
struct Subscription {
    r#type: String,
    timestamp: String,
    data: Id,
}

fn subscription(event: &Subscription) -> Result<Change, String> {
    change(&event.r#type, &event.data.id, iso_8601(&event.timestamp)?)
}

/// One endpoint, two kinds of event, told apart by what they hold.
#[derive(Deserialize)]
#[serde(untagged)]
enum Repository {
    Issue { action: String, issue: Issue, repository: Repo },
    Push { r#ref: String, repository: PushedRepo },
}

#[derive(Deserialize)]
struct Issue {
    number: u64,
    updated_at: String,
}

#[derive(Deserialize)]
struct Repo {
    full_name: String,
}

/// `pushed_at` is in seconds.
#[derive(Deserialize)]
struct PushedRepo {
    full_name: String,
    pushed_at: i64,
}

fn repository(event: &Repository) -> Result<Change, String> {
    match event {
        Repository::Issue { action, issue, repository } => {
            let entity = format!("{}#{}", repository.full_name, issue.number);
            change(&format!("issue.{action}"), &entity, iso_8601(&issue.updated_at)?)
        }
        Repository::Push { r#ref, repository } => {
            // Each branch is an entity: a push to one says nothing about another.
            let branch = r#ref.strip_prefix("refs/heads/").unwrap_or(r#ref);
            let entity = format!("{}@{branch}", repository.full_name);
            change("push", &entity, Timestamp::from_secs(repository.pushed_at))
        }
    }
}

fn change(kind: &str, entity: &str, at: Timestamp) -> Result<Change, String> {
    if entity.is_empty() {
        return Err("the payload names no entity".to_owned());
    }
    Ok(Change { kind: kind.to_owned(), entity: entity.to_owned(), at })
}

fn iso_8601(text: &str) -> Result<Timestamp, String> {
    let time = OffsetDateTime::parse(text, &Rfc3339)
        .map_err(|error| format!("the payload's time {text:?} can't be read: {error}"))?;
    let micros = i64::try_from(time.unix_timestamp_nanos() / 1_000)
        .map_err(|_| format!("the payload's time {text:?} is out of range"))?;
    Ok(Timestamp::from_micros(micros))
}
