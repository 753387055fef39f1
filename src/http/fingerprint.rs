//! A hash that tells one request from another under the same key.

use std::fmt;
use std::sync::Arc;

use http::Uri;
use http::request::Parts;
use sha2::{Digest, Sha256};

type Function = dyn Fn(&Parts, &[u8]) -> Option<Vec<u8>> + Send + Sync;

/// What tells one request from another under the same key or id: at most 64 bytes.
///
/// A collision would answer one request with the reply to another, so use a cryptographic hash.
#[derive(Clone)]
pub struct Fingerprint {
    function: Arc<Function>,
    needs_body: bool,
}

impl Fingerprint {
    /// SHA-256 over the method, the path, the query and the body.
    ///
    /// The path is that of the request's URI. A router that takes off a prefix for the services nested in it,
    /// as axum's `nest` does, leaves `/a/orders` and `/b/orders` one path for a layer *inside* of the nest: put
    /// the layer around the outer router, or use [`of_request_to`](Self::of_request_to).
    #[must_use]
    pub fn of_request() -> Self {
        Self::of_request_to(|_| None)
    }

    /// The same with the URI that the client asked for, where the router has kept it; `None` for the
    /// request's own.
    ///
    /// ```
    /// use axum::extract::OriginalUri;
    /// use oncedb::http::Fingerprint;
    ///
    /// let fingerprint =
    ///     Fingerprint::of_request_to(|parts| parts.extensions.get::<OriginalUri>().map(|uri| &uri.0));
    /// # let _ = fingerprint;
    /// ```
    pub fn of_request_to(target: impl Fn(&Parts) -> Option<&Uri> + Send + Sync + 'static) -> Self {
        Self::new(move |parts, body| Some(of_request(parts, target(parts).unwrap_or(&parts.uri), body)))
    }

    /// SHA-256 over the body.
    #[must_use]
    pub fn of_body() -> Self {
        Self::new(|_, body| Some(Sha256::digest(body).to_vec()))
    }

    /// A function of the head and the body; `None` for a request that has no fingerprint.
    pub fn new(function: impl Fn(&Parts, &[u8]) -> Option<Vec<u8>> + Send + Sync + 'static) -> Self {
        Self { function: Arc::new(function), needs_body: true }
    }

    /// A function of the head alone, for which the body is not buffered.
    pub fn of_head(function: impl Fn(&Parts) -> Option<Vec<u8>> + Send + Sync + 'static) -> Self {
        Self { function: Arc::new(move |parts, _| function(parts)), needs_body: false }
    }

    pub(crate) fn needs_body(&self) -> bool {
        self.needs_body
    }

    pub(crate) fn of(&self, parts: &Parts, body: &[u8]) -> Option<Vec<u8>> {
        (self.function)(parts, body)
    }
}

/// Every part with its length, so that no two requests hash the same bytes.
fn of_request(parts: &Parts, target: &Uri, body: &[u8]) -> Vec<u8> {
    let mut hash = Sha256::new();
    let mut part = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    part(parts.method.as_str().as_bytes());
    part(target.path().as_bytes());
    // An empty query and none are two requests.
    part(&[u8::from(target.query().is_some())]);
    part(target.query().unwrap_or_default().as_bytes());
    part(body);
    hash.finalize().to_vec()
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fingerprint").field("needs_body", &self.needs_body).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_a_request_counts() {
        let of = |method: &str, uri: &str, body: &[u8]| {
            let (parts, ()) = http::Request::builder().method(method).uri(uri).body(()).unwrap().into_parts();
            Fingerprint::of_request().of(&parts, body).unwrap()
        };
        let first = of("POST", "http://h/orders?a=1", b"body");
        assert_eq!(first.len(), 32);
        assert_eq!(first, of("POST", "/orders?a=1", b"body"), "the host is not part of it");
        for other in [
            of("PATCH", "/orders?a=1", b"body"),
            of("POST", "/orders/?a=1", b"body"),
            of("POST", "/orders?a=2", b"body"),
            of("POST", "/orders", b"body"),
            of("POST", "/orders?a=1", b"bod"),
            of("POST", "/orders?a=1b", b"ody"),
        ] {
            assert_ne!(first, other);
        }
        assert_ne!(of("POST", "/orders", b""), of("POST", "/orders?", b""));
    }
}
