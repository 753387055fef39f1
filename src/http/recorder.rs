//! A reply that is recorded while it streams.
//!
//! A client takes a reply as final when its last byte is there. So the last frame, or the end of the
//! stream, is held back until the completion is durable: before that the body can still break.
//!
//! A body that ends short of the length that it promised, or goes beyond it, is one that breaks.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, StatusCode};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::attempt::Owner;
use super::headers::{self, Chosen};
use super::reply_body::BodyError;
use super::request_body::to_bytes;
use super::rule::{Finished, Rule};
use super::stored;
use crate::pending::Pending;

const WRONG_LENGTH: &str = "the reply is not as long as its head says";

/// What a recorder knows of a reply from its head.
pub(crate) struct Recording {
    pub(crate) owner: Owner,
    pub(crate) rule: Rule,
    pub(crate) status: StatusCode,
    /// Which headers to store.
    pub(crate) chosen: Arc<Chosen>,
    /// The longest body that is kept, in bytes.
    pub(crate) body_limit: usize,
    /// The longest stored form, in bytes.
    pub(crate) stored_limit: usize,
}

impl Recording {
    /// Completes the claim with the reply; `None` if its trailers say that it is no final one: then the
    /// key is free. The body is `None` if it was too long to keep. `headers` are all that the reply has.
    pub(crate) fn complete(
        self,
        headers: &HeaderMap,
        body: Option<&[u8]>,
        len: u64,
        trailers: Option<&HeaderMap>,
    ) -> Option<Pending<()>> {
        let finished = Finished { status: self.status, headers, trailers };
        if trailers.is_some() && !self.rule.completes(&finished) {
            return None;
        }
        // What a header may not be, a trailer may not be either.
        let trailers = trailers.map(|trailers| headers::stored(trailers, |_| true));
        let kept = body.map(|body| {
            let headers = headers::stored(headers, |name| (self.chosen)(name));
            stored::encode(self.status, &headers, body, trailers.as_deref())
        });
        let stored = kept
            .filter(|kept| kept.len() <= self.stored_limit)
            .unwrap_or_else(|| stored::encode_omitted(self.status, len));
        Some(self.owner.complete(Some(&stored), self.status.is_client_error()))
    }
}

pin_project! {
    pub(crate) struct Recorder<B> {
        #[pin]
        inner: B,
        // The length that the client was promised.
        promised: Option<u64>,
        len: u64,
        // `None` once it is longer than what is kept.
        kept: Option<Vec<u8>>,
        held: Option<Bytes>,
        trailers: Option<Box<HeaderMap>>,
        stage: Stage,
    }
}

enum Stage {
    Streaming(Box<(Recording, HeaderMap)>),
    Completing(Pending<()>),
    /// The completion is durable: what was held back may go.
    Completed,
    Broken,
}

/// The length of a reply as its head says it, else as its body does. A server stops asking for frames
/// once it has sent so many bytes.
pub(crate) fn promised_len(headers: &HeaderMap, body: &impl Body) -> Option<u64> {
    let header = headers.get(CONTENT_LENGTH).and_then(|len| len.to_str().ok()?.parse().ok());
    header.or_else(|| body.size_hint().exact())
}

impl<B: Body> Recorder<B> {
    pub(crate) fn new(inner: B, promised: Option<u64>, recording: Recording, headers: HeaderMap) -> Self {
        Self {
            promised,
            inner,
            len: 0,
            kept: Some(Vec::new()),
            held: None,
            trailers: None,
            stage: Stage::Streaming(Box::new((recording, headers))),
        }
    }
}

impl<B> Body for Recorder<B>
where
    B: Body,
    B::Error: Into<BodyError>,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut this = self.project();
        loop {
            match this.stage {
                Stage::Streaming(streaming) => {
                    let ended = match ready!(this.inner.as_mut().poll_frame(context)) {
                        None => true,
                        Some(Err(error)) => {
                            // The owner goes with the stage: the key is free.
                            *this.stage = Stage::Broken;
                            return Poll::Ready(Some(Err(error.into())));
                        }
                        Some(Ok(frame)) => match frame.into_data() {
                            Ok(data) => {
                                let data = to_bytes(data);
                                *this.len += data.len() as u64;
                                if this.promised.is_some_and(|promised| *this.len > promised) {
                                    *this.stage = Stage::Broken;
                                    *this.held = None;
                                    return Poll::Ready(Some(Err(WRONG_LENGTH.into())));
                                }
                                keep(this.kept, &data, streaming.0.body_limit);
                                let ended = this.inner.is_end_stream();
                                if !ended && *this.promised != Some(*this.len) {
                                    return Poll::Ready(Some(Ok(Frame::data(data))));
                                }
                                // Only empty frames come after one that is held.
                                if !data.is_empty() {
                                    *this.held = Some(data);
                                }
                                ended
                            }
                            Err(frame) => {
                                *this.trailers = frame.into_trailers().ok().map(Box::new);
                                this.trailers.is_some()
                            }
                        },
                    };
                    if ended {
                        let Stage::Streaming(streaming) = std::mem::replace(this.stage, Stage::Broken) else {
                            continue;
                        };
                        let (recording, headers) = *streaming;
                        if this.promised.is_some_and(|promised| *this.len < promised) {
                            return Poll::Ready(Some(Err(WRONG_LENGTH.into())));
                        }
                        let body = this.kept.take();
                        let completion = recording.complete(
                            &headers,
                            body.as_deref(),
                            *this.len,
                            this.trailers.as_deref(),
                        );
                        *this.stage = completion.map_or(Stage::Completed, Stage::Completing);
                    }
                }
                Stage::Completing(pending) => match ready!(Pin::new(pending).poll(context)) {
                    Ok(()) => *this.stage = Stage::Completed,
                    Err(error) => {
                        *this.stage = Stage::Broken;
                        return Poll::Ready(Some(Err(error.into())));
                    }
                },
                Stage::Completed => {
                    let data = this.held.take().map(Frame::data);
                    return Poll::Ready(
                        data.or_else(|| this.trailers.take().map(|trailers| Frame::trailers(*trailers)))
                            .map(Ok),
                    );
                }
                Stage::Broken => return Poll::Ready(None),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self.stage {
            Stage::Streaming(_) | Stage::Completing(_) => false,
            Stage::Completed => self.held.is_none() && self.trailers.is_none(),
            Stage::Broken => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        let held = self.held.as_ref().map_or(0, |held| held.len() as u64);
        match self.stage {
            Stage::Streaming(_) => {
                let inner = self.inner.size_hint();
                let mut hint = SizeHint::new();
                hint.set_lower(inner.lower().saturating_add(held));
                if let Some(upper) = inner.upper() {
                    hint.set_upper(upper.saturating_add(held));
                }
                hint
            }
            _ => SizeHint::with_exact(held),
        }
    }
}

fn keep(kept: &mut Option<Vec<u8>>, data: &[u8], limit: usize) {
    match kept {
        Some(bytes) if data.len() <= limit - bytes.len() => bytes.extend_from_slice(data),
        _ => *kept = None,
    }
}
