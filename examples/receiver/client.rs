//! One attempt of a sender: a signed POST over HTTP, and the answer or its absence.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Deserialize;
use standardwebhooks::{HEADER_WEBHOOK_ID, HEADER_WEBHOOK_SIGNATURE, HEADER_WEBHOOK_TIMESTAMP, Webhook};
use ureq::Agent;
use ureq::http::HeaderMap;

use crate::answer::{ATTEMPT, EFFECT, PREVIOUS, VERDICT};
use crate::deliveries::Delivery;
use crate::{DEMO_SECRET, Failed};

/// How long a sender waits for an answer if the file does not say otherwise.
const PATIENCE: Duration = Duration::from_secs(8);

/// The longest answer that is read.
const BODY_LIMIT: u64 = 1 << 16;

pub struct Client {
    agent: Agent,
    webhook: Webhook,
}

#[derive(Clone, Debug)]
pub struct Reply {
    /// `None`: no answer came, and the sender can't know what was done.
    pub status: Option<u16>,
    pub verdict: String,
    pub attempt: Option<u32>,
    pub previous: Option<String>,
    pub found: bool,
    pub retry_after: Option<Duration>,
    pub body: String,
}

impl Client {
    pub fn new() -> Result<Self, Failed> {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            // A connection of its own for every attempt: the receiver may have died since the last.
            .max_idle_connections(0)
            .build();
        Ok(Self { agent: config.into(), webhook: Webhook::new(DEMO_SECRET)? })
    }

    pub fn deliver(&self, to: SocketAddr, delivery: &Delivery) -> Result<Reply, Failed> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        let signed = delivery.sign(&self.webhook, i64::try_from(now)?)?;
        let patience = delivery.patience_ms.map_or(PATIENCE, Duration::from_millis);

        let mut request = self
            .agent
            .post(format!("http://{to}/webhooks/{}", delivery.source))
            .config()
            .timeout_global(Some(patience))
            .build()
            .header("content-type", "application/json")
            .header(HEADER_WEBHOOK_TIMESTAMP, signed.timestamp.to_string())
            .header(HEADER_WEBHOOK_SIGNATURE, signed.signature);
        if let Some(id) = signed.id {
            request = request.header(HEADER_WEBHOOK_ID, id);
        }
        match request.send(signed.body) {
            Ok(mut response) => {
                // An answer that breaks off on the way is no answer.
                let body = response.body_mut().with_config().limit(BODY_LIMIT).read_to_string();
                let (status, headers) = (response.status().as_u16(), response.headers());
                Ok(body.map_or_else(|_| Reply::lost(), |body| Reply::new(status, headers, body)))
            }
            Err(ureq::Error::Http(error)) => Err(error.into()),
            Err(_) => Ok(Reply::lost()),
        }
    }
}

/// The body of an answer that is not a 200.
#[derive(Deserialize)]
struct Explained {
    reason: String,
}

impl Reply {
    fn new(status: u16, headers: &HeaderMap, body: String) -> Self {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        Self {
            status: Some(status),
            verdict: text(VERDICT).unwrap_or("-").to_owned(),
            attempt: text(ATTEMPT).and_then(|number| number.parse().ok()),
            previous: text(PREVIOUS).map(str::to_owned),
            found: text(EFFECT) == Some("found"),
            retry_after: text("retry-after")
                .and_then(|seconds| seconds.parse().ok())
                .map(Duration::from_secs),
            body,
        }
    }

    fn lost() -> Self {
        Self {
            status: None,
            verdict: "no answer".to_owned(),
            attempt: None,
            previous: None,
            found: false,
            retry_after: None,
            body: String::new(),
        }
    }

    /// What this attempt has to say beyond its verdict.
    pub fn remark(&self) -> String {
        let mut parts = Vec::new();
        if let Ok(Explained { reason }) = serde_json::from_str(&self.body) {
            parts.push(reason);
        }
        if let (Some(attempt), Some(previous)) = (self.attempt, &self.previous) {
            parts.push(format!("attempt {attempt}, the one before was {previous}"));
        }
        if self.found {
            parts.push("its effect was found, not made again".to_owned());
        }
        if let Some(wait) = self.retry_after {
            parts.push(format!("retry after {} s", wait.as_secs()));
        }
        parts.join("; ")
    }
}
