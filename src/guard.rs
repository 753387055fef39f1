//! The owner of a claim in progress.

use std::fmt;
use std::sync::Arc;

use crate::engine::drive::{Patience, Step};
use crate::engine::{Engine, Settlement};
use crate::error::{Error, Result};
use crate::live::Attempt;
use crate::outcome::Shortened;
use crate::pending::Pending;
use crate::store::Inner;

/// A claim in progress, yours until you settle it.
///
/// Dropping it (an early return, a panic, a cancelled future) gives the key back without blocking:
/// the next attempt is new. A live guard is never taken over, unless a lease was asked for and has
/// lapsed; from then on every call here is [`Error::Fenced`] and changes nothing.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let store = oncedb::Store::open(dir.path())?;
/// let scope = store.scope("stripe")?;
/// let guard = scope.begin("evt_1")?.into_new().expect("the first delivery");
/// drop(guard); // the work failed
/// let guard = scope.begin("evt_1")?.into_new().expect("the retry");
/// assert_eq!(guard.attempt(), 2);
/// guard.complete()?;
/// assert!(scope.begin("evt_1")?.is_duplicate());
/// # Ok::<(), oncedb::Error>(())
/// ```
#[must_use = "dropping a guard frees the key"]
pub struct Guard {
    held: Held,
}

/// What a guard holds. It ends with an abort wherever it was not settled.
struct Held {
    /// Keeps the store open.
    inner: Arc<Inner>,
    engine: Arc<Engine>,
    attempt: Arc<Attempt>,
    settled: bool,
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.settled {
            // Fenced, closed or poisoned: then there is nothing to give back.
            let _ = self.engine.abort(&self.attempt);
        }
    }
}

impl Held {
    fn check(&self) -> Result<()> {
        self.inner.check_open()?;
        if self.engine.is_superseded() { Err(Error::Fenced) } else { Ok(()) }
    }
}

/// A settlement on its way. Dropped before it is done, it is handed to the background, so that what
/// was polled once is carried out.
struct Settling {
    held: Held,
    refusal: bool,
    response: Option<Vec<u8>>,
    handed_over: bool,
}

impl Settling {
    fn new(held: Held, refusal: bool, response: Option<Vec<u8>>) -> Self {
        Self { held, refusal, response, handed_over: false }
    }

    fn step(&mut self, patience: &mut Patience) -> Result<Step<u64>> {
        let settlement = Settlement { refusal: self.refusal, response: self.response.as_deref() };
        let step = self.held.engine.settle(&self.held.attempt, settlement, patience);
        self.held.settled = !matches!(step, Ok(Step::Wait(_)));
        step
    }

    /// The frame to wait for once the settlement is appended.
    fn awaited(&self, seq: u64) -> Option<u64> {
        self.held.engine.settles_durably(&self.held.attempt).then_some(seq)
    }
}

impl Drop for Settling {
    fn drop(&mut self) {
        if self.held.settled {
            return;
        }
        if self.handed_over {
            // Nobody is left to wait: the response is left out where there is no room for it.
            let _ = self.step(&mut Patience::exhausted());
            self.held.settled = true;
            self.held.engine.sync_soon();
        } else if let Ok(Step::Wait(_)) = self.step(&mut Patience::default()) {
            let held = Held {
                inner: Arc::clone(&self.held.inner),
                engine: Arc::clone(&self.held.engine),
                attempt: Arc::clone(&self.held.attempt),
                settled: false,
            };
            self.held.settled = true;
            let response = self.response.take();
            let mut rest = Self { held, refusal: self.refusal, response, handed_over: true };
            self.held.engine.hand_over(move |patience| {
                let waits = matches!(rest.step(patience), Ok(Step::Wait(_)));
                if !waits {
                    rest.held.engine.sync_soon();
                }
                waits
            });
        } else {
            self.held.engine.sync_soon();
        }
    }
}

impl Guard {
    pub(crate) fn new(inner: Arc<Inner>, engine: Arc<Engine>, attempt: Arc<Attempt>) -> Self {
        Self { held: Held { inner, engine, attempt, settled: false } }
    }

    /// Completes the claim: every later delivery is a duplicate until a window from now. Durable on
    /// return.
    ///
    /// # Errors
    ///
    /// [`Error::Fenced`], [`Error::Closed`], [`Error::OutcomeUnknown`], [`Error::Poisoned`]. None is
    /// cured by trying again, and none frees the key; a fenced guard had lost it before.
    pub fn complete(self) -> Result<()> {
        self.settle(false, None)
    }

    /// [`complete`](Self::complete) for any executor. Dropped before its first poll it aborts; after
    /// that it is carried out in any case.
    pub fn complete_async(self) -> Pending<()> {
        self.settle_async(false, None)
    }

    /// Completes the claim with a response, which every duplicate gets byte for byte. One longer
    /// than `max_response_len`, or one for which there is no room, is recorded as
    /// [`Omitted`](crate::Response::Omitted). Durable on return.
    ///
    /// # Errors
    ///
    /// As [`complete`](Self::complete).
    pub fn complete_with(self, response: impl AsRef<[u8]>) -> Result<()> {
        self.settle(false, Some(response.as_ref().to_vec()))
    }

    /// [`complete_with`](Self::complete_with) for any executor, dropped like
    /// [`complete_async`](Self::complete_async).
    pub fn complete_with_async(self, response: impl AsRef<[u8]>) -> Pending<()> {
        self.settle_async(false, Some(response.as_ref().to_vec()))
    }

    /// Completes the claim with a final "no": stored and answered to every duplicate, and told apart
    /// by [`Record::is_refusal`](crate::Record::is_refusal). For a passing error drop the guard.
    /// Durable on return.
    ///
    /// # Errors
    ///
    /// As [`complete`](Self::complete).
    pub fn refuse(self, response: impl AsRef<[u8]>) -> Result<()> {
        self.settle(true, Some(response.as_ref().to_vec()))
    }

    /// [`refuse`](Self::refuse) for any executor, dropped like
    /// [`complete_async`](Self::complete_async).
    pub fn refuse_async(self, response: impl AsRef<[u8]>) -> Pending<()> {
        self.settle_async(true, Some(response.as_ref().to_vec()))
    }

    /// Gives the key back: the next attempt is new, and finds this one in
    /// [`previous`](Self::previous). Waits for nothing; a power cut may make the cause
    /// [`Cause::Orphaned`] instead.
    ///
    /// # Errors
    ///
    /// [`Error::Fenced`], [`Error::Closed`], [`Error::Poisoned`].
    pub fn abort(mut self) -> Result<()> {
        self.held.settled = true;
        self.held.check()?;
        self.held.engine.abort(&self.held.attempt)
    }

    /// [`abort`](Self::abort) for any executor.
    pub fn abort_async(self) -> Pending<()> {
        Pending::new(async move { self.abort() })
    }

    /// Starts the lease anew, from now. Without a lease it only checks that the claim is still held.
    ///
    /// # Errors
    ///
    /// [`Error::Fenced`], [`Error::Closed`], [`Error::Poisoned`].
    pub fn renew(&self) -> Result<()> {
        self.held.check()?;
        self.held.engine.renew(&self.held.attempt)
    }

    /// Keeps a note with the claim, in place of the last one, for the next attempt to find should
    /// this one die: what it was about to do outside, say. Durable on return, and so is the claim.
    ///
    /// # Errors
    ///
    /// [`Error::NoteTooLong`], [`Error::Full`] (the note before it is kept), [`Error::Fenced`],
    /// [`Error::Closed`], [`Error::OutcomeUnknown`], [`Error::Poisoned`].
    pub fn note(&self, bytes: impl AsRef<[u8]>) -> Result<()> {
        let (engine, attempt) = (&self.held.engine, &self.held.attempt);
        let note = bytes.as_ref();
        self.held.check()?;
        check_note(engine, note)?;
        let seq = engine.drive(|patience| engine.note(attempt, note, patience))?;
        engine.wait_durable(seq)
    }

    /// [`note`](Self::note) for any executor.
    pub fn note_async(&self, bytes: impl AsRef<[u8]>) -> Pending<()> {
        let inner = Arc::clone(&self.held.inner);
        let (engine, attempt) = (Arc::clone(&self.held.engine), Arc::clone(&self.held.attempt));
        let note = bytes.as_ref().to_vec();
        Pending::new(async move {
            inner.check_open()?;
            check_note(&engine, &note)?;
            let seq = engine.drive_async(|patience| engine.note(&attempt, &note, patience)).await?;
            engine.wait_durable_async(seq).await
        })
    }

    /// The number of this attempt, 1 for the first.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.held.attempt.number
    }

    /// What became of the attempt before this one, if it did not complete.
    #[must_use]
    pub fn previous(&self) -> Option<&Previous> {
        self.held.attempt.previous.as_ref()
    }

    /// The id, without its scope.
    #[must_use]
    pub fn id(&self) -> &[u8] {
        self.held.attempt.key.name()
    }

    /// A fencing token: it grows with every claim of the store, over reopening too.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.held.attempt.token
    }

    pub(crate) fn settle(self, refusal: bool, response: Option<Vec<u8>>) -> Result<()> {
        match self.settle_unsynced(refusal, response)? {
            (_, None) => Ok(()),
            (engine, Some(seq)) => engine.wait_durable(seq),
        }
    }

    /// Settles without waiting for the disk; the frame to wait for, if the claim's durability asks.
    pub(crate) fn settle_unsynced(
        self,
        refusal: bool,
        response: Option<Vec<u8>>,
    ) -> Result<(Arc<Engine>, Option<u64>)> {
        self.held.check()?;
        let mut settling = Settling::new(self.held, refusal, response);
        let engine = Arc::clone(&settling.held.engine);
        let seq = engine.drive(|patience| settling.step(patience))?;
        Ok((engine, settling.awaited(seq)))
    }

    /// [`settle_unsynced`](Self::settle_unsynced) for any executor.
    pub(crate) async fn settle_unsynced_async(
        self,
        refusal: bool,
        response: Option<Vec<u8>>,
    ) -> Result<(Arc<Engine>, Option<u64>)> {
        self.held.check()?;
        let mut settling = Settling::new(self.held, refusal, response);
        let engine = Arc::clone(&settling.held.engine);
        let seq = engine.drive_async(|patience| settling.step(patience)).await?;
        Ok((engine, settling.awaited(seq)))
    }

    /// Completes without waiting for anything.
    pub(crate) fn settle_now(self, response: Option<Vec<u8>>) {
        drop(Settling::new(self.held, false, response));
    }

    pub(crate) fn settle_async(self, refusal: bool, response: Option<Vec<u8>>) -> Pending<()> {
        Pending::new(async move {
            match self.settle_unsynced_async(refusal, response).await? {
                (_, None) => Ok(()),
                (engine, Some(seq)) => engine.wait_durable_async(seq).await,
            }
        })
    }
}

fn check_note(engine: &Engine, note: &[u8]) -> Result<()> {
    let limit = engine.options().max_note_len;
    if note.len() > limit { Err(Error::NoteTooLong { len: note.len(), limit }) } else { Ok(()) }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("id", &Shortened(self.id()))
            .field("attempt", &self.attempt())
            .field("token", &self.token())
            .finish_non_exhaustive()
    }
}

/// An attempt that ended without completing.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let store = oncedb::Store::open(dir.path())?;
/// use oncedb::Cause;
///
/// let scope = store.scope("s")?;
/// let first = scope.begin("evt_1")?.into_new().expect("new");
/// first.note("about to charge")?;
/// first.abort()?;
/// let second = scope.begin("evt_1")?.into_new().expect("free again");
/// let previous = second.previous().expect("there was an attempt before");
/// assert_eq!((previous.cause, previous.attempt), (Cause::Aborted, 1));
/// assert_eq!(previous.note.as_deref(), Some(&b"about to charge"[..]));
/// # Ok::<(), oncedb::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Previous {
    /// Why it ended.
    pub cause: Cause,
    /// Its number, 1 for the first.
    pub attempt: u32,
    /// The last note that was kept with the key.
    pub note: Option<Vec<u8>>,
}

/// Why an attempt ended without completing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// Its process died, or the store was closed or reopened: it may have got anywhere.
    Orphaned,
    /// Its guard was dropped or aborted.
    Aborted,
    /// Its lease lapsed and the key was taken over.
    LeaseExpired,
}
