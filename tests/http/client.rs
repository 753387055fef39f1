//! A stock client.

use crate::common::PATIENCE;
use std::net::SocketAddr;
use ureq::Agent;
use ureq::http::{HeaderMap, Request, StatusCode};

#[derive(Clone)]
pub struct Client {
    agent: Agent,
    address: SocketAddr,
}

#[derive(Clone, Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: String,
}

impl Client {
    pub fn new(address: SocketAddr) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(PATIENCE))
            .allow_non_standard_methods(true)
            .max_idle_connections(0)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .build();
        Self { agent: config.into(), address }
    }

    /// The reply; `None` if none came, or it broke off.
    pub fn try_send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Option<Reply> {
        let mut request = Request::builder().method(method).uri(format!("http://{}{path}", self.address));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(body.to_owned()).expect("the request is well-formed");
        let mut response = self.agent.run(request).ok()?;
        let body = response.body_mut().read_to_string().ok()?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Some(Reply { status, headers, body })
    }

    #[track_caller]
    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        self.try_send(method, path, headers, body).expect("a reply comes")
    }

    /// `POST /orders` by the account `a`, with a key.
    #[track_caller]
    pub fn post(&self, key: &str, body: &str) -> Reply {
        self.send("POST", "/orders", &[("idempotency-key", key), ("x-account", "a")], body)
    }
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("a header of ASCII"))
    }

    pub fn is_replayed(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    #[track_caller]
    pub fn expect(&self, status: u16, body: &str) {
        assert_eq!((self.status, &self.body[..]), (status, body), "{self:?}");
    }

    /// A field of a JSON body, by a pointer.
    #[track_caller]
    pub fn json(&self, pointer: &str) -> serde_json::Value {
        let json: serde_json::Value = serde_json::from_str(&self.body).expect("a JSON body");
        json.pointer(pointer).unwrap_or_else(|| panic!("no {pointer} in {json}")).clone()
    }
}

/// The statuses of several replies.
pub fn statuses(replies: &[Reply]) -> Vec<u16> {
    replies.iter().map(|reply| StatusCode::from_u16(reply.status).expect("a status").as_u16()).collect()
}
