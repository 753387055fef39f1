//! The body of a request, as the inner service gets it.

use std::fmt;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

pin_project! {
    /// The body that the inner service reads: the client's own, or the bytes of it if the layer had to
    /// look into it.
    pub struct RequestBody<B> {
        #[pin]
        kind: Kind<B>,
    }
}

pin_project! {
    #[project = KindProjection]
    enum Kind<B> {
        Original { #[pin] body: B },
        Buffered { whole: Buffered },
    }
}

impl<B> RequestBody<B> {
    pub(crate) fn original(body: B) -> Self {
        Self { kind: Kind::Original { body } }
    }

    pub(crate) fn buffered(whole: Buffered) -> Self {
        Self { kind: Kind::Buffered { whole } }
    }
}

impl<B: Body> Body for RequestBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().kind.project() {
            KindProjection::Original { body } => {
                let frame = ready!(body.poll_frame(context));
                Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(to_bytes))))
            }
            KindProjection::Buffered { whole } => Poll::Ready(whole.next_frame().map(Ok)),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Original { body } => body.is_end_stream(),
            Kind::Buffered { whole } => whole.is_over(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Original { body } => body.size_hint(),
            Kind::Buffered { whole } => SizeHint::with_exact(whole.data.len() as u64),
        }
    }
}

impl<B> fmt::Debug for RequestBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let buffered = match &self.kind {
            Kind::Original { .. } => None,
            Kind::Buffered { whole } => Some(whole.data.len()),
        };
        f.debug_struct("RequestBody").field("buffered", &buffered).finish_non_exhaustive()
    }
}

/// A whole body.
#[derive(Debug, Default)]
pub(crate) struct Buffered {
    pub(crate) data: Bytes,
    /// Boxed: most bodies have none.
    pub(crate) trailers: Option<Box<HeaderMap>>,
}

impl Buffered {
    /// What is left of it, piece by piece.
    pub(crate) fn next_frame(&mut self) -> Option<Frame<Bytes>> {
        if self.data.is_empty() {
            return self.trailers.take().map(|trailers| Frame::trailers(*trailers));
        }
        Some(Frame::data(std::mem::take(&mut self.data)))
    }

    pub(crate) fn is_over(&self) -> bool {
        self.data.is_empty() && self.trailers.is_none()
    }
}

/// Why a body could not be read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotBuffered {
    TooLarge,
    Broken,
}

/// Reads a body to its end; no more of it than `limit` bytes.
pub(crate) async fn buffer<B: Body>(body: B, limit: usize) -> Result<Buffered, NotBuffered> {
    // What says at once that it is too large is not read at all.
    if body.size_hint().lower() > limit as u64 {
        return Err(NotBuffered::TooLarge);
    }
    let mut body = pin!(body);
    let mut whole = Buffered::default();
    // The one frame that most bodies have is not copied.
    let mut joined: Option<Vec<u8>> = None;
    while let Some(frame) = std::future::poll_fn(|context| body.as_mut().poll_frame(context)).await {
        match frame.map_err(|_| NotBuffered::Broken)?.into_data() {
            Ok(data) => {
                let len = joined.as_ref().map_or(whole.data.len(), Vec::len);
                if data.remaining() > limit - len {
                    return Err(NotBuffered::TooLarge);
                }
                let data = to_bytes(data);
                if let Some(joined) = &mut joined {
                    joined.extend_from_slice(&data);
                } else if whole.data.is_empty() {
                    whole.data = data;
                } else {
                    joined = Some([&whole.data[..], &data].concat());
                }
            }
            Err(frame) => whole.trailers = frame.into_trailers().ok().map(Box::new),
        }
    }
    if let Some(joined) = joined {
        whole.data = joined.into();
    }
    Ok(whole)
}

pub(crate) fn to_bytes(mut data: impl Buf) -> Bytes {
    data.copy_to_bytes(data.remaining())
}
