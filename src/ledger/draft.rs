//! A claim before it is made.

use std::fmt;
use std::time::Duration;

use crate::outcome::Shortened;
use crate::timestamp::Timestamp;

/// One claim, borrowed.
pub(crate) struct Wish<'a> {
    pub(crate) id: &'a [u8],
    pub(crate) fingerprint: Option<&'a [u8]>,
    pub(crate) order: Option<(&'a [u8], Timestamp)>,
    /// In place of the ledger's.
    pub(crate) window: Option<Duration>,
    pub(crate) response: Option<&'a [u8]>,
}

impl<'a> Wish<'a> {
    pub(crate) fn plain(id: &'a [u8], response: Option<&'a [u8]>) -> Self {
        Self { id, fingerprint: None, order: None, window: None, response }
    }
}

/// What a request has collected.
pub(crate) struct Draft {
    pub(crate) id: Box<[u8]>,
    pub(crate) fingerprint: Option<Box<[u8]>>,
    pub(crate) order: Option<(Box<[u8]>, Timestamp)>,
    pub(crate) window: Option<Duration>,
}

impl Draft {
    pub(crate) fn new(id: &[u8]) -> Self {
        Self { id: id.into(), fingerprint: None, order: None, window: None }
    }

    pub(crate) fn wish<'a>(&'a self, response: Option<&'a [u8]>) -> Wish<'a> {
        Wish {
            id: &self.id,
            fingerprint: self.fingerprint.as_deref(),
            order: self.order.as_ref().map(|(entity, at)| (&**entity, *at)),
            window: self.window,
            response,
        }
    }

    pub(crate) fn show(&self, ledger: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LedgerRequest")
            .field("ledger", &ledger)
            .field("id", &Shortened(&self.id))
            .field("order", &self.order.as_ref().map(|(entity, at)| (Shortened(entity), at)))
            .finish_non_exhaustive()
    }
}

/// The methods by which both doors' requests are built.
macro_rules! request_builders {
    () => {
        /// What tells this event from another one under the same id: a hash of the request, at most
        /// 64 bytes. If both have one and they differ, the verdict is
        /// [`Outcome::Mismatch`](crate::Outcome::Mismatch).
        pub fn fingerprint(mut self, bytes: impl AsRef<[u8]>) -> Self {
            self.draft.fingerprint = Some(bytes.as_ref().into());
            self
        }

        /// What the event is about and when it happened: an event older than the last applied one of
        /// its entity is [`Outcome::Stale`](crate::Outcome::Stale).
        pub fn order(mut self, entity: impl AsRef<[u8]>, at: impl Into<$crate::Timestamp>) -> Self {
            self.draft.order = Some((entity.as_ref().into(), at.into()));
            self
        }

        /// How long the id is kept: 1 second to 100 years. The ledger's window by default.
        pub fn window(mut self, length: std::time::Duration) -> Self {
            self.draft.window = Some(length);
            self
        }
    };
}
pub(crate) use request_builders;
