//! From a request to an answer: verify, read, ask the store, do the work, settle.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::extract::{FromRequest, Path, Request, State};
use axum::http::{HeaderMap, StatusCode};
use oncedb::{Guard, Outcome, Scope, ScopeOptions, Store};
use standardwebhooks::{HEADER_WEBHOOK_ID, HEADER_WEBHOOK_TIMESTAMP, Webhook, WebhookError};
use tokio::sync::{Mutex, Semaphore};

use crate::answer::Answer;
use crate::effects::Effect;
use crate::event::{self, Change, Source};
use crate::server::say;
use crate::work::{Failure, Work};

/// Events worked on at once. More are told to come back: memory has a bound under any load.
const SLOTS: u32 = 256;

/// How long a sender may take to send its body.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// A date further ahead than this is a broken clock; believed, it would make all that follows stale.
const MAX_AHEAD: Duration = Duration::from_secs(15 * 60);

/// The shortest time between two attempts to open the store again.
const REOPEN_PAUSE: Duration = Duration::from_secs(1);

const HOUR: Duration = Duration::from_secs(3600);

pub struct Receiver {
    store: Store,
    payments: Scope,
    subscriptions: Scope,
    repository: Scope,
    webhook: Webhook,
    work: Work,
    slots: Arc<Semaphore>,
    /// When the store was last opened again after a failed sync.
    reopened: Mutex<Option<Instant>>,
}

impl Receiver {
    pub fn new(store: Store, webhook: Webhook, work: Work) -> oncedb::Result<Self> {
        // Longer than each sender goes on retrying, with room for a copy sent again by hand.
        let scope = |source: Source, window| {
            let options = ScopeOptions::new().window(window).max_ahead(MAX_AHEAD);
            store.scope_with(source.name(), options)
        };
        Ok(Self {
            payments: scope(Source::Payments, 96 * HOUR)?,
            subscriptions: scope(Source::Subscriptions, 48 * HOUR)?,
            repository: scope(Source::Repository, 24 * HOUR)?,
            store,
            webhook,
            work,
            slots: Arc::new(Semaphore::new(SLOTS as usize)),
            reopened: Mutex::new(None),
        })
    }

    fn scope(&self, source: Source) -> &Scope {
        match source {
            Source::Payments => &self.payments,
            Source::Subscriptions => &self.subscriptions,
            Source::Repository => &self.repository,
        }
    }

    /// Resolves when no event is being worked on, and lets none begin from then on.
    pub async fn idle(&self) {
        if let Ok(all) = self.slots.acquire_many(SLOTS).await {
            all.forget();
        }
    }

    async fn decide(&self, event: Event) -> Answer {
        let outcome = self
            .scope(event.source)
            .request(&event.id)
            // A retry repeats the body byte for byte. Leave this out for senders that don't.
            .fingerprint(event.digest)
            .order(&event.change.entity, event.change.at)
            .begin_async()
            .await;
        match outcome {
            Ok(Outcome::New(guard)) => self.handle(guard, event).await,
            Ok(Outcome::Duplicate(record)) => Answer::duplicate(&record),
            Ok(Outcome::InProgress(other)) => Answer::in_progress(&other),
            Ok(Outcome::Mismatch(_)) => Answer::mismatch(),
            Ok(Outcome::Stale(mark)) => Answer::stale(&mark),
            Err(error) => self.unanswered(&error).await,
        }
    }

    async fn handle(&self, guard: Guard, event: Event) -> Answer {
        let body = serde_json::json!({ "handled": event.change.kind, "entity": event.change.entity });
        let effect = Effect {
            source: event.source,
            id: event.id,
            entity: event.change.entity,
            kind: event.change.kind,
        };
        let found = match self.work.run(&guard, effect).await {
            Ok(found) => found,
            // Both ways the guard is dropped here, and the key is free before the sender is told.
            Err(Failure::Work(reason)) => {
                say(&format!("the handler failed: {reason}"));
                return Answer::failed("the handler failed");
            }
            Err(Failure::Store(error)) => return self.unanswered(&error).await,
        };
        let (attempt, previous) = (guard.attempt(), guard.previous().cloned());
        let body = body.to_string().into_bytes();
        match guard.complete_with_async(&body).await {
            Ok(()) => Answer::done(body, attempt, previous.as_ref(), found),
            Err(error) => self.unanswered(&error).await,
        }
    }

    /// An error is never a verdict: what the sender sent is at fault, or it is asked to send again.
    async fn unanswered(&self, error: &oncedb::Error) -> Answer {
        if error.is_invalid_input() {
            return Answer::unreadable(&error.to_string());
        }
        eprintln!("receiver: {error}");
        if error.needs_reopen() {
            self.reopen().await;
        }
        // What went wrong in here is the operator's to know, not the sender's.
        Answer::unavailable("the store can't answer")
    }

    /// Many requests meet a failed sync; one opens the store again, the others get their 503 at once.
    async fn reopen(&self) {
        let Ok(mut reopened) = self.reopened.try_lock() else {
            return;
        };
        // A request that failed before may arrive here late, and a bad disk needs no hurry.
        if reopened.is_some_and(|at| at.elapsed() < REOPEN_PAUSE) {
            return;
        }
        match self.store.reopen_async().await {
            Ok(()) => eprintln!("receiver: the store is open again"),
            Err(error) => eprintln!("receiver: {error}"),
        }
        *reopened = Some(Instant::now());
    }
}

/// A delivery that is signed and can be read.
struct Event {
    source: Source,
    id: String,
    digest: [u8; 32],
    change: Change,
}

/// `POST /webhooks/{source}`.
pub async fn receive(
    State(receiver): State<Arc<Receiver>>,
    Path(name): Path<String>,
    request: Request,
) -> Answer {
    let event = match admit(&receiver.webhook, &name, request).await {
        Ok(event) => event,
        Err(answer) => {
            say(&format!("{name} - - {} {}", answer.verdict(), answer.status()));
            return answer;
        }
    };
    let Ok(slot) = Arc::clone(&receiver.slots).try_acquire_owned() else {
        return Answer::unavailable("busy");
    };
    // A task of its own: a sender that hangs up cancels its connection, not work that has begun.
    let deciding = tokio::spawn(async move {
        let line = format!("{} {} {}", event.source, event.id, event.change.entity);
        let answer = receiver.decide(event).await;
        say(&format!("{line} {} {}", answer.verdict(), answer.status()));
        drop(slot);
        answer
    });
    // A panic in the handler has dropped its guard: the retry is new.
    deciding.await.unwrap_or_else(|_| Answer::failed("the handler panicked"))
}

/// Trusts nothing before the signature has been checked.
async fn admit(webhook: &Webhook, name: &str, request: Request) -> Result<Event, Answer> {
    let Some(source) = Source::named(name) else {
        return Err(Answer::rejected(StatusCode::NOT_FOUND, "no such sender"));
    };
    let headers = request.headers().clone();
    let body = tokio::time::timeout(BODY_TIMEOUT, Bytes::from_request(request, &()))
        .await
        .map_err(|_| Answer::rejected(StatusCode::REQUEST_TIMEOUT, "the body did not arrive"))?
        .map_err(|rejection| Answer::rejected(rejection.status(), &rejection.body_text()))?;
    let id = verify(webhook, &headers, &body)?;
    let change = event::read(source, &body).map_err(|reason| Answer::unreadable(&reason))?;
    Ok(Event { source, id, digest: hmac_sha256::Hash::hash(&body), change })
}

/// The id of a delivery whose signature is good.
fn verify(webhook: &Webhook, headers: &HeaderMap, body: &[u8]) -> Result<String, Answer> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    // The crate takes one time from another unchecked, so a wild one must not reach it.
    let time = text(HEADER_WEBHOOK_TIMESTAMP).and_then(|time| time.parse::<i64>().ok());
    if time.is_some_and(|time| !(0..=1 << 40).contains(&time)) {
        return Err(Answer::unreadable("the webhook-timestamp is no time"));
    }
    webhook.verify(body, headers).map_err(|error| match error {
        WebhookError::InvalidSignature
        | WebhookError::TimestampTooOldError
        | WebhookError::FutureTimestampError => Answer::untrusted(&error.to_string()),
        _ => Answer::unreadable(&error.to_string()),
    })?;
    text(HEADER_WEBHOOK_ID)
        .map(str::to_owned)
        .ok_or_else(|| Answer::unreadable("the webhook-id can't be read"))
}
