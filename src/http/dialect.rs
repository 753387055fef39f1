//! How an API says that it did not run a request.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, LINK, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};

/// Why [`IdempotencyLayer`](super::IdempotencyLayer) answers for the inner service.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The route needs a key and the request has none.
    KeyMissing,
    /// The key cannot be used.
    KeyInvalid {
        /// Why.
        reason: &'static str,
    },
    /// Nobody knows whose key it is.
    NoPrincipal,
    /// The body of the request is longer than what the layer takes.
    BodyTooLarge {
        /// The limit, in bytes.
        limit: usize,
    },
    /// The body of the request ended before its time. Nothing was begun.
    BodyBroken,
    /// The first request with this key is running.
    InProgress {
        /// When asking again makes sense, in whole seconds.
        retry_after: Duration,
    },
    /// The key was used for another request.
    Mismatch,
    /// The request was carried out, but its reply was not kept.
    ReplyNotKept {
        /// What it was answered with, where that is known.
        status: Option<StatusCode>,
        /// The length of its body, in bytes, where that is known.
        len: Option<u64>,
    },
    /// The reply of the inner service ended before its time, or was not as long as its head said. The key
    /// is free.
    ReplyBroken,
    /// The store could not answer, so nothing is known: the same request may be sent again. The
    /// [`StoreError`](super::StoreError) is in the extensions of the response.
    Unavailable,
}

impl Refusal {
    /// A sentence for the person who reads the answer.
    #[must_use]
    pub fn detail(&self) -> String {
        match self {
            Self::KeyMissing => {
                "This operation needs an Idempotency-Key header, so that sending it again is safe.".into()
            }
            Self::KeyInvalid { reason } => format!("The Idempotency-Key header cannot be used: {reason}."),
            Self::NoPrincipal => {
                "Idempotency keys belong to a caller, and this request does not say who is calling.".into()
            }
            Self::BodyTooLarge { limit } => {
                format!("The request body is longer than {limit} bytes, the most that is taken with a key.")
            }
            Self::BodyBroken => "The request body ended before its time; nothing was begun.".into(),
            Self::InProgress { retry_after } => format!(
                "The first request with this key is still running; send it again in {} s.",
                retry_after.as_secs()
            ),
            Self::Mismatch => {
                "This key was used for another request; use a new key for a new request.".into()
            }
            Self::ReplyNotKept { status, len } => {
                let status = status
                    .map_or(String::new(), |status| format!(" It was answered with {}.", status.as_u16()));
                let len = len.map_or(String::new(), |len| format!(" The reply was {len} bytes long."));
                format!("The request with this key was carried out, but its reply was not kept.{status}{len}")
            }
            Self::ReplyBroken => {
                "The reply is not whole; the request may be sent again with the same key.".into()
            }
            Self::Unavailable => {
                "It is not known whether this request was carried out; send it again with the same key."
                    .into()
            }
        }
    }

    /// The status by the draft.
    fn status(&self) -> StatusCode {
        match self {
            Self::KeyMissing | Self::KeyInvalid { .. } | Self::BodyBroken => StatusCode::BAD_REQUEST,
            Self::NoPrincipal => StatusCode::UNAUTHORIZED,
            Self::BodyTooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::InProgress { .. } => StatusCode::CONFLICT,
            Self::Mismatch => StatusCode::UNPROCESSABLE_ENTITY,
            Self::ReplyNotKept { .. } => StatusCode::GONE,
            Self::ReplyBroken => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    fn title(&self) -> &'static str {
        match self {
            Self::KeyMissing => "Idempotency-Key is missing",
            Self::KeyInvalid { .. } => "Idempotency-Key is invalid",
            Self::NoPrincipal => "The caller is not known",
            Self::BodyTooLarge { .. } => "The request is too large",
            Self::BodyBroken => "The request is incomplete",
            Self::InProgress { .. } => "A request is outstanding for this Idempotency-Key",
            Self::Mismatch => "Idempotency-Key is already used",
            Self::ReplyNotKept { .. } => "The reply was not kept",
            Self::ReplyBroken => "The reply is incomplete",
            Self::Unavailable => "The request could not be recorded",
        }
    }

    /// The names by which the two JSON dialects call it.
    fn names(&self) -> (&'static str, &'static str) {
        match self {
            Self::KeyMissing => ("idempotency_key_missing", "IDEMPOTENCY_KEY_MISSING"),
            Self::KeyInvalid { .. } => ("idempotency_key_invalid", "IDEMPOTENCY_KEY_INVALID"),
            Self::NoPrincipal => ("caller_unknown", "CALLER_UNKNOWN"),
            Self::BodyTooLarge { .. } => ("request_too_large", "REQUEST_TOO_LARGE"),
            Self::BodyBroken => ("request_incomplete", "REQUEST_INCOMPLETE"),
            Self::InProgress { .. } => ("request_in_progress", "REQUEST_IN_PROGRESS"),
            Self::Mismatch => ("idempotency_conflict", "IDEMPOTENCY_MISMATCH"),
            Self::ReplyNotKept { .. } => ("reply_not_kept", "REPLY_NOT_KEPT"),
            Self::ReplyBroken => ("reply_incomplete", "REPLY_INCOMPLETE"),
            Self::Unavailable => ("unavailable", "UNAVAILABLE"),
        }
    }
}

type Function = dyn Fn(&Refusal) -> Response<Bytes> + Send + Sync;

/// How [`IdempotencyLayer`](super::IdempotencyLayer) words the answers of its own.
///
/// | what | [`draft`](Self::draft) | [`typed`](Self::typed) | [`coded`](Self::coded) |
/// |---|---|---|---|
/// | the key is missing or invalid | 400 | 400 `idempotency_key_missing`, `idempotency_key_invalid` | 400 `IDEMPOTENCY_KEY_MISSING`, `IDEMPOTENCY_KEY_INVALID` |
/// | the first request is running | 409 | 409 `request_in_progress` | 409 `REQUEST_IN_PROGRESS` |
/// | another request, same key | 422 | 409 `idempotency_conflict` | 422 `IDEMPOTENCY_MISMATCH` |
/// | the caller is not known | 401 | 401 `caller_unknown` | 401 `CALLER_UNKNOWN` |
/// | the request body is too long, broken | 413, 400 | 413 `request_too_large`, 400 `request_incomplete` | the same in capitals |
/// | done, but the reply was not kept | 410 | 410 `reply_not_kept` | 410 `REPLY_NOT_KEPT` |
/// | the reply broke | 500 | 500 `reply_incomplete` | 500 `REPLY_INCOMPLETE` |
/// | the store cannot answer | 503 | 503 `unavailable` | 503 `UNAVAILABLE` |
///
/// A running request is answered with `Retry-After`. For gRPC, [`new`](Self::new) can answer with a
/// status of its own.
#[derive(Clone)]
pub struct Dialect(Kind);

#[derive(Clone)]
enum Kind {
    Draft { documentation: Option<Arc<str>> },
    Typed,
    Coded,
    Function(Arc<Function>),
}

impl Dialect {
    /// What the IETF draft says, with `application/problem+json` bodies. The default.
    #[must_use]
    pub fn draft() -> Self {
        Self(Kind::Draft { documentation: None })
    }

    /// The same with a link to your documentation, which the draft asks for: the problem's `type` and
    /// a `Link` header. A URL that cannot be a header is left out of the header.
    #[must_use]
    pub fn draft_documented_at(url: &str) -> Self {
        Self(Kind::Draft { documentation: Some(url.into()) })
    }

    /// Errors as `{"error": {"type": "idempotency_conflict", "message": ".."}}`; both conflicts are 409.
    #[must_use]
    pub fn typed() -> Self {
        Self(Kind::Typed)
    }

    /// Errors as `{"error": {"code": "IDEMPOTENCY_MISMATCH", "message": ".."}}`; a mismatch is 422.
    #[must_use]
    pub fn coded() -> Self {
        Self(Kind::Coded)
    }

    /// A dialect of your own.
    pub fn new(answer: impl Fn(&Refusal) -> Response<Bytes> + Send + Sync + 'static) -> Self {
        Self(Kind::Function(Arc::new(answer)))
    }

    pub(crate) fn answer(&self, refusal: &Refusal) -> Response<Bytes> {
        let mut status = refusal.status();
        let (body, content_type) = match &self.0 {
            Kind::Function(function) => return function(refusal),
            Kind::Draft { documentation } => {
                let body = serde_json::json!({
                    "type": documentation.as_deref().unwrap_or("about:blank"),
                    "title": refusal.title(),
                    "status": status.as_u16(),
                    "detail": refusal.detail(),
                });
                (body, "application/problem+json")
            }
            Kind::Typed => {
                if *refusal == Refusal::Mismatch {
                    status = StatusCode::CONFLICT;
                }
                let error = serde_json::json!({ "type": refusal.names().0, "message": refusal.detail() });
                (serde_json::json!({ "error": error }), "application/json")
            }
            Kind::Coded => {
                let error = serde_json::json!({ "code": refusal.names().1, "message": refusal.detail() });
                (serde_json::json!({ "error": error }), "application/json")
            }
        };
        let mut response = Response::new(Bytes::from(body.to_string()));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        if let Refusal::InProgress { retry_after } = refusal {
            response.headers_mut().insert(RETRY_AFTER, retry_after.as_secs().into());
        }
        if let Kind::Draft { documentation: Some(url) } = &self.0
            && let Ok(link) = HeaderValue::from_str(&format!("<{url}>; rel=\"describedby\""))
        {
            response.headers_mut().insert(LINK, link);
        }
        response
    }
}

impl Default for Dialect {
    fn default() -> Self {
        Self::draft()
    }
}

impl fmt::Debug for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Kind::Draft { .. } => "Dialect(draft)",
            Kind::Typed => "Dialect(typed)",
            Kind::Coded => "Dialect(coded)",
            Kind::Function(_) => "Dialect(function)",
        })
    }
}
