//! What the receiver answers: a status for the sender's machinery, a verdict for people.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use oncedb::{Busy, Cause, InProgress, Mark, Previous, Record};

pub const VERDICT: &str = "x-verdict";
pub const ATTEMPT: &str = "x-attempt";
pub const PREVIOUS: &str = "x-previous";
pub const EFFECT: &str = "x-effect";

#[derive(Debug)]
pub struct Answer {
    status: StatusCode,
    verdict: &'static str,
    body: Vec<u8>,
    retry_after: Option<Duration>,
    details: Vec<(&'static str, HeaderValue)>,
}

impl Answer {
    fn new(status: StatusCode, verdict: &'static str, body: Vec<u8>) -> Self {
        Self { status, verdict, body, retry_after: None, details: Vec::new() }
    }

    fn with_reason(status: StatusCode, verdict: &'static str, reason: &str) -> Self {
        let body = serde_json::json!({ "verdict": verdict, "reason": reason });
        Self::new(status, verdict, body.to_string().into_bytes())
    }

    /// Done by this very request.
    pub fn done(body: Vec<u8>, attempt: u32, previous: Option<&Previous>, found: bool) -> Self {
        let mut answer = Self::new(StatusCode::OK, "new", body);
        answer.details.push((ATTEMPT, HeaderValue::from(attempt)));
        if let Some(previous) = previous {
            let cause = match previous.cause {
                Cause::Orphaned => "orphaned",
                Cause::Aborted => "aborted",
                Cause::LeaseExpired => "lease expired",
                _ => "released",
            };
            answer.details.push((PREVIOUS, HeaderValue::from_static(cause)));
        }
        let effect = if found { "found" } else { "made" };
        answer.details.push((EFFECT, HeaderValue::from_static(effect)));
        answer
    }

    /// Done before: the same answer again.
    pub fn duplicate(record: &Record) -> Self {
        let stored = record.stored_response();
        let body = stored.map_or_else(|| b"{}".to_vec(), |bytes| bytes.to_vec());
        Self::new(StatusCode::OK, "duplicate", body)
    }

    /// Older than what was applied to its entity. Sending it again would change nothing: a 2xx.
    pub fn stale(mark: &Mark) -> Self {
        let newer = mark.timestamp().as_micros().map_or(0, |micros| micros.div_euclid(1_000));
        let body = serde_json::json!({ "verdict": "stale", "last_applied_ms": newer });
        Self::new(StatusCode::OK, "stale", body.to_string().into_bytes())
    }

    /// Another attempt of this event, or another event of this entity, is running: come back.
    pub fn in_progress(other: &InProgress) -> Self {
        let reason = match other.busy() {
            Busy::Id => "this event is being worked on",
            Busy::Entity => "another event of this entity is being worked on",
        };
        let mut answer = Self::with_reason(StatusCode::CONFLICT, "in progress", reason);
        answer.retry_after = Some(other.retry_after());
        answer
    }

    pub fn mismatch() -> Self {
        let reason = "this id came before with another payload";
        Self::with_reason(StatusCode::UNPROCESSABLE_ENTITY, "mismatch", reason)
    }

    pub fn unreadable(reason: &str) -> Self {
        Self::rejected(StatusCode::BAD_REQUEST, reason)
    }

    pub fn untrusted(reason: &str) -> Self {
        Self::with_reason(StatusCode::UNAUTHORIZED, "untrusted", reason)
    }

    pub fn rejected(status: StatusCode, reason: &str) -> Self {
        Self::with_reason(status, "rejected", reason)
    }

    /// The handler did not do it. The key is free: the retry is new.
    pub fn failed(reason: &str) -> Self {
        Self::with_reason(StatusCode::INTERNAL_SERVER_ERROR, "failed", reason)
    }

    /// No verdict: the store or this process can't say. Never a 2xx.
    pub fn unavailable(reason: &str) -> Self {
        let mut answer = Self::with_reason(StatusCode::SERVICE_UNAVAILABLE, "unavailable", reason);
        answer.retry_after = Some(Duration::from_secs(1));
        answer
    }

    pub fn verdict(&self) -> &'static str {
        self.verdict
    }

    pub fn status(&self) -> u16 {
        self.status.as_u16()
    }
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(VERDICT, HeaderValue::from_static(self.verdict));
        if let Some(wait) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(wait.as_secs()));
        }
        for (name, value) in self.details {
            headers.insert(name, value);
        }
        response
    }
}
