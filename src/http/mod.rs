//! Layers for HTTP servers: webhooks, and the `Idempotency-Key` header.
//!
//! They are `tower` layers over the types of `http` and `http-body`, so they serve axum, hyper and tonic alike,
//! and run on any executor. The feature `tower` builds them.
//!
//! - [`WebhookLayer`]: the receiver of a webhook sees each event once. The conventions of common senders are
//!   data: [`STANDARD_WEBHOOKS`], [`STRIPE`], [`GITHUB`], [`SHOPIFY`], [`SLACK`].
//! - [`IdempotencyLayer`]: a request of an API that is sent again gets the first one's reply.
//!
//! Both let a request through only with a claim in progress, whose [`Attempt`] is in the extensions of the
//! request. Both free the key when the inner service fails, panics, times out, or is dropped because the client
//! hung up; a process that dies leaves an orphan, which is new at once. Neither tells the client that something was
//! done before that is durable (under [`Durability::Interval`](crate::Durability::Interval): before it will be
//! within the interval), and neither makes a verdict of a store's error: that is a 503 with a [`StoreError`] in the
//! extensions of the response.
//!
//! A handler whose client hangs up is cancelled, wherever it is. Work that must not be cut in two belongs in a task
//! of its own, or leaves a [note](Attempt::note).
//!
//! A time-out belongs *inside* of the layers, a handler of panics, compression and authentication *outside*. A
//! panic goes through a layer to whatever catches it.
//!
//! # The stored form of a reply
//!
//! What [`IdempotencyLayer`] stores is a response of the store with these bytes. Integers are
//! little-endian; *v* is a variable-length integer (LEB128, as in the store's own records); *v, bytes* is a length
//! and that many bytes. Nothing follows the last field.
//!
//! | Bytes | Field |
//! |---|---|
//! | 1 | version, 1 |
//! | 1 | kind: 1 a reply, 2 one whose body was too long to keep |
//! | 2 | status |
//!
//! | Kind 1, reply | | Kind 2, omitted | |
//! |---|---|---|---|
//! | headers | see below | v | length of the body |
//! | v, bytes | body | | |
//! | 1 | 1 if trailers follow, else 0 | | |
//! | headers | the trailers | | |
//!
//! Headers are their number (v), and for each its name in lower case (v, bytes) and its value (v, bytes);
//! repeated ones one after the other. A reply that does not decode, because another version wrote it, is answered
//! like one that was not kept.
//!
//! The id of a key is the principal (v, bytes) and the bytes of the key.

mod answer;
mod attempt;
mod convention;
mod dialect;
mod fingerprint;
mod headers;
mod idempotency;
mod key;
mod moment;
mod patience;
mod recorder;
mod reply_body;
mod request_body;
mod rule;
mod source;
pub(crate) mod stored;
mod webhook;

pub use answer::{Answering, StoreError, Verdict};
pub use attempt::Attempt;
pub use convention::{CONVENTIONS, Convention, GITHUB, SHOPIFY, SLACK, STANDARD_WEBHOOKS, STRIPE};
pub use dialect::{Dialect, Refusal};
pub use fingerprint::Fingerprint;
pub use idempotency::{Idempotency, IdempotencyLayer};
pub use reply_body::{BodyError, ReplyBody};
pub use request_body::RequestBody;
pub use rule::{Finished, Rule};
pub use source::{Changed, Format, Place, Source, Time};
pub use webhook::{Webhook, WebhookLayer};
