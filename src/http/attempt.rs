//! The attempt that a handler is, how it is asked for, and the layer that owns it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::guard::{Guard, Previous};
use crate::outcome::Shortened;
use crate::pending::Pending;
use crate::request::Request;
use crate::scope::Scope;
use crate::sync::Mutex;

/// In the extensions of every request that a layer lets through as new: what attempt this is, and
/// what became of the one before.
///
/// ```
/// use oncedb::Cause;
/// use oncedb::http::Attempt;
///
/// # async fn charge() {}
/// # async fn was_charged() -> bool { false }
/// async fn handler(attempt: Attempt) -> oncedb::Result<()> {
///     let died = attempt.previous().is_some_and(|previous| previous.cause == Cause::Orphaned);
///     if !(died && was_charged().await) {
///         attempt.note("about to charge").await?;
///         charge().await;
///     }
///     Ok(())
/// }
/// # let _ = handler;
/// ```
#[derive(Clone)]
pub struct Attempt(Arc<Shared>);

struct Shared {
    id: Box<[u8]>,
    number: u32,
    token: u64,
    previous: Option<Previous>,
    /// Gone once the layer has settled the claim.
    guard: Mutex<Option<Guard>>,
}

impl Attempt {
    /// The id that was claimed. In [`IdempotencyLayer`](super::IdempotencyLayer) that is the principal and
    /// the key in one.
    #[must_use]
    pub fn id(&self) -> &[u8] {
        &self.0.id
    }

    /// The number of this attempt, 1 for the first.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.0.number
    }

    /// What became of the attempt before this one, if it did not complete.
    #[must_use]
    pub fn previous(&self) -> Option<&Previous> {
        self.0.previous.as_ref()
    }

    /// The fencing token of this attempt.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.0.token
    }

    /// Keeps a note for the next attempt, should this one die; see [`Guard::note`]. Durable when the
    /// future is ready.
    ///
    /// # Errors
    ///
    /// As [`Guard::note`]; [`Error::Fenced`] once the layer has settled the claim.
    pub fn note(&self, bytes: impl AsRef<[u8]>) -> Pending<()> {
        match &*self.0.guard.lock() {
            Some(guard) => guard.note_async(bytes),
            None => Pending::new(async { Err(Error::Fenced) }),
        }
    }

    /// Starts the lease anew; see [`Guard::renew`].
    ///
    /// # Errors
    ///
    /// As [`Guard::renew`]; [`Error::Fenced`] once the layer has settled the claim.
    pub fn renew(&self) -> Result<()> {
        self.0.guard.lock().as_ref().ok_or(Error::Fenced)?.renew()
    }
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt")
            .field("id", &Shortened(self.id()))
            .field("number", &self.number())
            .field("previous", &self.previous())
            .finish_non_exhaustive()
    }
}

/// What both layers ask for with each claim.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Terms {
    pub(crate) window: Option<Duration>,
    pub(crate) lease: Option<Duration>,
}

impl Terms {
    pub(crate) fn request(&self, scope: &Scope, id: &[u8], fingerprint: Option<&[u8]>) -> Request {
        let mut request = scope.request(id);
        if let Some(fingerprint) = fingerprint {
            request = request.fingerprint(fingerprint);
        }
        if let Some(window) = self.window {
            request = request.window(window);
        }
        if let Some(lease) = self.lease {
            request = request.lease(lease);
        }
        request
    }
}

/// The owner of an attempt. Dropped (a panic, a disconnect, a body that broke), it frees the key,
/// whoever else still has the [`Attempt`].
pub(crate) struct Owner(Arc<Shared>);

impl Owner {
    pub(crate) fn new(guard: Guard) -> (Self, Attempt) {
        let shared = Arc::new(Shared {
            id: guard.id().into(),
            number: guard.attempt(),
            token: guard.token(),
            previous: guard.previous().cloned(),
            guard: Mutex::new(Some(guard)),
        });
        (Self(Arc::clone(&shared)), Attempt(shared))
    }

    /// Completes the claim, with a reply or as a refusal with one. Durable when the future is ready.
    pub(crate) fn complete(self, reply: Option<&[u8]>, refusal: bool) -> Pending<()> {
        let guard = self.0.guard.lock().take();
        match (guard, reply) {
            (Some(guard), None) => guard.complete_async(),
            (Some(guard), Some(reply)) if refusal => guard.refuse_async(reply),
            (Some(guard), Some(reply)) => guard.complete_with_async(reply),
            (None, _) => Pending::new(async { Err(Error::Fenced) }),
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // Dropped with no lock held: giving a key back wakes those who wait for it.
        let guard = self.0.guard.lock().take();
        drop(guard);
    }
}
