//! The body of a reply, as the client gets it.

use std::error::Error as StdError;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::recorder::Recorder;
use super::request_body::{Buffered, to_bytes};

/// What a body of a reply fails with: the inner service's own error, or the store's where the end of a
/// streaming reply could not be made durable.
pub type BodyError = Box<dyn StdError + Send + Sync>;

pin_project! {
    /// The body of a reply: the inner service's own, one that is recorded as it streams, one from the store,
    /// or an answer of the layer.
    pub struct ReplyBody<B> {
        #[pin]
        kind: Kind<B>,
    }
}

pin_project! {
    #[project = KindProjection]
    enum Kind<B> {
        Passed { #[pin] body: B },
        Recorded { #[pin] recorder: Recorder<B> },
        Whole { whole: Buffered },
    }
}

impl<B> ReplyBody<B> {
    pub(crate) fn passed(body: B) -> Self {
        Self { kind: Kind::Passed { body } }
    }

    pub(crate) fn recorded(recorder: Recorder<B>) -> Self {
        Self { kind: Kind::Recorded { recorder } }
    }

    pub(crate) fn whole(whole: Buffered) -> Self {
        Self { kind: Kind::Whole { whole } }
    }
}

impl<B> Body for ReplyBody<B>
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
        match self.project().kind.project() {
            KindProjection::Passed { body } => {
                let frame = ready!(body.poll_frame(context));
                Poll::Ready(
                    frame.map(|frame| frame.map(|frame| frame.map_data(to_bytes)).map_err(Into::into)),
                )
            }
            KindProjection::Recorded { recorder } => recorder.poll_frame(context),
            KindProjection::Whole { whole } => Poll::Ready(whole.next_frame().map(Ok)),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Passed { body } => body.is_end_stream(),
            Kind::Recorded { recorder } => recorder.is_end_stream(),
            Kind::Whole { whole } => whole.is_over(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Passed { body } => body.size_hint(),
            Kind::Recorded { recorder } => recorder.size_hint(),
            // HTTP/1.1 sends trailers only after a body whose length it was not told.
            Kind::Whole { whole } if whole.trailers.is_some() => SizeHint::default(),
            Kind::Whole { whole } => SizeHint::with_exact(whole.data.len() as u64),
        }
    }
}

impl<B> fmt::Debug for ReplyBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.kind {
            Kind::Passed { .. } => "passed",
            Kind::Recorded { .. } => "recorded",
            Kind::Whole { .. } => "whole",
        };
        f.debug_struct("ReplyBody").field("kind", &kind).finish_non_exhaustive()
    }
}
