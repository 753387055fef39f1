//! Answers, what they say of themselves, and the future that brings them.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Response, StatusCode};

use super::reply_body::ReplyBody;
use super::request_body::Buffered;
use crate::error::Error;

/// In the extensions of every response of a layer: what became of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The layer had nothing to do with it.
    Passed,
    /// It was new, and its claim is completed, or will be when the streaming reply ends.
    Done,
    /// It was new, and by the rule its reply is not final: the key is free again.
    Freed,
    /// It was done before.
    Duplicate,
    /// It, or another event of its entity, is running.
    InProgress,
    /// Its key or id is in use for another request.
    Mismatch,
    /// Something newer was applied to its entity.
    Stale,
    /// It could not be taken: no id, a body that is too long, nobody it belongs to.
    Refused,
    /// The store could not answer, or the reply broke: see [`StoreError`].
    Failed,
}

/// In the extensions of a response that an error of the store has caused: a 503, or a 400 for an id that
/// it does not take. Look at [`needs_reopen`](Error::needs_reopen).
#[derive(Clone, Debug)]
pub struct StoreError(pub Arc<Error>);

/// A response of a layer, on its way.
#[must_use = "futures do nothing unless polled"]
pub struct Answering<B, E>(Pin<Box<Answer<B, E>>>);

type Answer<B, E> = dyn Future<Output = Result<Response<ReplyBody<B>>, E>> + Send;

impl<B, E> Answering<B, E> {
    pub(crate) fn new(
        answer: impl Future<Output = Result<Response<ReplyBody<B>>, E>> + Send + 'static,
    ) -> Self {
        Self(Box::pin(answer))
    }
}

impl<B, E> Future for Answering<B, E> {
    type Output = Result<Response<ReplyBody<B>>, E>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(context)
    }
}

impl<B, E> fmt::Debug for Answering<B, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answering").finish_non_exhaustive()
    }
}

/// The service that was ready is the one to call; its clone is to be asked anew.
pub(crate) fn take_ready<S: Clone>(inner: &mut S) -> S {
    let next = inner.clone();
    std::mem::replace(inner, next)
}

/// The inner service's own response.
pub(crate) fn pass<B>(response: Response<B>, verdict: Verdict) -> Response<ReplyBody<B>> {
    marked(response.map(ReplyBody::passed), verdict)
}

/// An answer of the layer.
pub(crate) fn own<B>(response: Response<Bytes>, verdict: Verdict) -> Response<ReplyBody<B>> {
    let whole = response.map(|data| ReplyBody::whole(Buffered { data, trailers: None }));
    marked(whole, verdict)
}

/// A plain text answer of the layer.
pub(crate) fn text<B>(
    status: StatusCode,
    text: impl Into<Bytes>,
    verdict: Verdict,
) -> Response<ReplyBody<B>> {
    let text = text.into();
    let mut response = Response::new(text);
    *response.status_mut() = status;
    if !response.body().is_empty() {
        let plain = http::HeaderValue::from_static("text/plain; charset=utf-8");
        response.headers_mut().insert(http::header::CONTENT_TYPE, plain);
    }
    own(response, verdict)
}

pub(crate) fn marked<B>(mut response: Response<B>, verdict: Verdict) -> Response<B> {
    response.extensions_mut().insert(verdict);
    response
}

/// The response with the store's error in its extensions.
pub(crate) fn failed<B>(mut response: Response<B>, error: Error) -> Response<B> {
    response.extensions_mut().insert(StoreError(Arc::new(error)));
    response
}

/// Whether the request is at fault. An option out of range and a fingerprint that is too long are the
/// program's fault.
pub(crate) fn is_callers_fault(error: &Error) -> bool {
    error.is_invalid_input()
        && !matches!(error, Error::InvalidOption { .. } | Error::FingerprintTooLong { .. })
}
