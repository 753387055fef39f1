//! Verdicts, and what they show.

use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use crate::clock::WallMapping;
use crate::engine::claim::{Shown, retry_after};
use crate::engine::{Engine, Life};
use crate::error::{Error, Result};
use crate::key::name_of;
use crate::live::{Attempt, Waiter};
use crate::pending::{Pending, block_on_until};
use crate::record::{self, Begin, Body, Done, Reply, StoredRecord};
use crate::sync::Instant;
use crate::timestamp::Timestamp;

/// The verdict on a claim.
///
/// All but [`New`](Self::New) record nothing. The enum is exhaustive on purpose: match every arm, so
/// that no verdict is swallowed.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let store = oncedb::Store::open(dir.path())?;
/// use oncedb::Outcome;
///
/// let status = match store.scope("stripe")?.claim("evt_1")? {
///     Outcome::New(_) => "do the work",
///     Outcome::Duplicate(_) | Outcome::Stale(_) => "nothing to do",
///     Outcome::InProgress(_) => "come again",
///     Outcome::Mismatch(_) => "another event under the same id",
/// };
/// assert_eq!(status, "do the work");
/// # Ok::<(), oncedb::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "only `New` means: do the work"]
pub enum Outcome<N, P = InProgress> {
    /// Yours: do the work.
    New(N),
    /// Done before, within the window.
    Duplicate(Record),
    /// Another attempt at this event, or another event of the same entity, is running.
    InProgress(P),
    /// The same id with another fingerprint, running or done.
    Mismatch(Record),
    /// Older than what was last applied to this entity.
    Stale(Mark),
}

/// Not on `Outcome<Guard>`: `if scope.begin(id)?.is_new() { work() }` would free the key before the
/// work.
impl<P> Outcome<Record, P> {
    /// Whether the work is yours.
    #[must_use]
    pub fn is_new(&self) -> bool {
        matches!(self, Self::New(_))
    }
}

impl<N, P> Outcome<N, P> {
    /// Whether the event was done before.
    #[must_use]
    pub fn is_duplicate(&self) -> bool {
        matches!(self, Self::Duplicate(_))
    }

    /// Whether it, or another event of its entity, is running.
    #[must_use]
    pub fn is_in_progress(&self) -> bool {
        matches!(self, Self::InProgress(_))
    }

    /// Whether the id is in use with another fingerprint.
    #[must_use]
    pub fn is_mismatch(&self) -> bool {
        matches!(self, Self::Mismatch(_))
    }

    /// Whether a newer event of its entity was applied.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        matches!(self, Self::Stale(_))
    }

    /// What a new claim gives, or the verdict that it is not.
    pub(crate) fn new_or_other<M>(self) -> Result<N, Outcome<M, P>> {
        Err(match self {
            Self::New(new) => return Ok(new),
            Self::Duplicate(record) => Outcome::Duplicate(record),
            Self::InProgress(running) => Outcome::InProgress(running),
            Self::Mismatch(record) => Outcome::Mismatch(record),
            Self::Stale(mark) => Outcome::Stale(mark),
        })
    }

    /// What a new claim gives; `None` for every other verdict.
    #[must_use]
    pub fn into_new(self) -> Option<N> {
        match self {
            Self::New(new) => Some(new),
            Self::Duplicate(_) | Self::InProgress(_) | Self::Mismatch(_) | Self::Stale(_) => None,
        }
    }
}

/// What is recorded of a claim. Cheap to clone; it does not keep the store open.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let store = oncedb::Store::open(dir.path())?;
/// let scope = store.scope("stripe")?;
/// let _ = scope.request("evt_1").fingerprint("f").claim_with("reply")?;
/// let record = scope.get("evt_1")?.expect("it is completed");
/// assert_eq!(record.id(), b"evt_1");
/// assert_eq!(record.attempt(), 1);
/// assert_eq!(record.fingerprint(), Some(&b"f"[..]));
/// assert_eq!(record.stored_response().as_deref(), Some(&b"reply"[..]));
/// assert!(record.expires_at() > record.completed_at());
/// assert!(!record.is_refusal());
/// # Ok::<(), oncedb::Error>(())
/// ```
#[derive(Clone)]
pub struct Record {
    shown: Shown,
    mapping: WallMapping,
}

impl Record {
    pub(crate) fn new(shown: Shown, mapping: WallMapping) -> Self {
        Self { shown, mapping }
    }

    /// Of a record that has its response within it.
    pub(crate) fn whole(record: Arc<[u8]>, mapping: WallMapping) -> Self {
        Self { shown: Shown { record, response: None }, mapping }
    }

    fn stored(&self) -> Option<StoredRecord<'_>> {
        StoredRecord::decode(&self.shown.record)
    }

    fn done(&self) -> Option<Done<'_>> {
        match self.stored()?.body {
            Body::Done(done) => Some(done),
            _ => None,
        }
    }

    fn begin(&self) -> Option<Begin<'_>> {
        match self.stored()?.body {
            Body::Begin(begin) => Some(begin),
            _ => None,
        }
    }

    /// The id, without its scope.
    #[must_use]
    pub fn id(&self) -> &[u8] {
        name_of(record::key_of(&self.shown.record))
    }

    /// When the attempt that this records began, by the wall clock as it was set at the call that
    /// gave the record.
    #[must_use]
    pub fn claimed_at(&self) -> SystemTime {
        let at = self.done().map(|done| done.claimed_at).or(self.begin().map(|begin| begin.claimed_at));
        at.map_or(self.mapping.wall, |at| self.mapping.wall_of(at))
    }

    /// When it was completed; `None` while it runs.
    #[must_use]
    pub fn completed_at(&self) -> Option<SystemTime> {
        self.done().map(|done| self.mapping.wall_of(done.completed_at))
    }

    /// When it expires: from that moment on the id is new. `None` while it runs.
    #[must_use]
    pub fn expires_at(&self) -> Option<SystemTime> {
        self.done().map(|done| self.mapping.wall_of(done.expires_at))
    }

    /// The number of the attempt, 1 for the first.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.done().map(|done| done.attempt).or(self.begin().map(|begin| begin.attempt)).unwrap_or(1)
    }

    /// The fingerprint it was claimed with.
    #[must_use]
    pub fn fingerprint(&self) -> Option<&[u8]> {
        match self.stored()?.body {
            Body::Done(done) => done.fingerprint,
            Body::Begin(begin) => begin.fingerprint,
            _ => None,
        }
    }

    /// The response it was completed with.
    #[must_use]
    pub fn response(&self) -> Response<'_> {
        if let Some(bytes) = &self.shown.response {
            return Response::Stored(bytes);
        }
        match self.done().map(|done| done.reply) {
            Some(Reply::Inline(bytes)) => Response::Stored(bytes),
            Some(Reply::Omitted { len }) => Response::Omitted { len },
            Some(Reply::Far(far)) => Response::Omitted { len: far.len },
            Some(Reply::None) | None => Response::None,
        }
    }

    /// The response as bytes of their own, if it was stored.
    #[must_use]
    pub fn stored_response(&self) -> Option<Arc<[u8]>> {
        match (&self.shown.response, self.response()) {
            (Some(bytes), _) => Some(Arc::clone(bytes)),
            (None, Response::Stored(bytes)) => Some(bytes.into()),
            (None, Response::None | Response::Omitted { .. }) => None,
        }
    }

    /// Whether it was completed by [`refuse`](crate::Guard::refuse).
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        self.done().is_some_and(|done| done.refusal)
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("id", &Shortened(self.id()))
            .field("attempt", &self.attempt())
            .field("claimed_at", &self.claimed_at())
            .field("completed_at", &self.completed_at())
            .field("expires_at", &self.expires_at())
            .field("response", &self.response())
            .field("is_refusal", &self.is_refusal())
            .finish_non_exhaustive()
    }
}

/// The response that a completion keeps.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// use oncedb::{Response, Store};
///
/// let store = Store::options().max_response_len(4).open(dir.path())?;
/// let scope = store.scope("s")?;
/// let kept = scope.request("a").claim_with("ok")?.into_new().expect("new");
/// assert_eq!(kept.response(), Response::Stored(b"ok"));
/// let long = scope.request("b").claim_with("a long one")?.into_new().expect("new");
/// assert_eq!(long.response(), Response::Omitted { len: 10 });
/// # Ok::<(), oncedb::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Response<'a> {
    /// It was completed without one.
    None,
    /// Byte for byte.
    Stored(&'a [u8]),
    /// It was too long to keep, or there was no room for it.
    Omitted {
        /// Its length, in bytes.
        len: u64,
    },
}

impl fmt::Debug for Response<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Stored(bytes) => f.debug_tuple("Stored").field(&Shortened(bytes)).finish(),
            Self::Omitted { len } => f.debug_struct("Omitted").field("len", len).finish(),
        }
    }
}

/// The first bytes of an id or response, for `Debug`.
pub(crate) struct Shortened<'a>(pub(crate) &'a [u8]);

impl fmt::Debug for Shortened<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 48;
        match self.0.get(..SHOWN) {
            Some(start) if self.0.len() > SHOWN => {
                write!(f, "b\"{}…\" ({} bytes)", start.escape_ascii(), self.0.len())
            }
            _ => write!(f, "b\"{}\"", self.0.escape_ascii()),
        }
    }
}

/// Why something is in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Busy {
    /// Another attempt at this event.
    Id,
    /// Another event of the same entity.
    Entity,
}

/// A claim in progress, held by somebody else. It does not keep the store open.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let store = oncedb::Store::open(dir.path())?;
/// use oncedb::{Busy, Outcome, Settled};
/// use std::time::Duration;
///
/// let scope = store.scope("stripe")?;
/// let guard = scope.begin("evt_1")?.into_new().expect("new");
/// let Outcome::InProgress(running) = scope.begin("evt_1")? else { unreachable!() };
/// assert_eq!(running.busy(), Busy::Id);
/// assert_eq!(running.token(), guard.token());
/// assert_eq!(running.retry_after(), Duration::from_secs(1));
/// assert!(matches!(running.wait(Duration::ZERO)?, Settled::Running));
/// guard.complete_with("reply")?;
/// assert!(matches!(running.wait(Duration::from_secs(60))?, Settled::Completed(_)));
/// # Ok::<(), oncedb::Error>(())
/// ```
#[derive(Clone)]
pub struct InProgress {
    engine: Weak<Engine>,
    life: Life,
    attempt: Arc<Attempt>,
    busy: Busy,
    /// Whether the completion is to be told only once it is durable.
    durable: bool,
    mapping: WallMapping,
}

impl InProgress {
    pub(crate) fn new(engine: &Arc<Engine>, attempt: Arc<Attempt>, busy: Busy, durable: bool) -> Self {
        Self {
            engine: Arc::downgrade(engine),
            life: engine.life(),
            attempt,
            busy,
            durable,
            mapping: engine.mapping(),
        }
    }

    /// When the running attempt began.
    #[must_use]
    pub fn since(&self) -> SystemTime {
        self.mapping.wall_of(self.attempt.claimed_at)
    }

    /// The number of the running attempt, 1 for the first.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt.number
    }

    /// When asking again makes sense, in whole seconds from 1 to 60: what was left of the lease at
    /// the verdict, or 1 without a lease.
    #[must_use]
    pub fn retry_after(&self) -> Duration {
        retry_after(&self.attempt, self.mapping.now)
    }

    /// Whether this event, or another one of the same entity, is running.
    #[must_use]
    pub fn busy(&self) -> Busy {
        self.busy
    }

    /// The running guard's [`token`](crate::Guard::token). Never wait for one that you hold.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.attempt.token
    }

    /// Blocks until this one attempt has ended, at most for `timeout` of real time whatever the
    /// store's clock.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`], and [`Error::Poisoned`] or [`Error::OutcomeUnknown`] if the store failed
    /// meanwhile.
    pub fn wait(&self, timeout: Duration) -> Result<Settled> {
        let deadline = Instant::now().checked_add(timeout);
        let waiter = self.attempt.waiter();
        let ended = poll_fn(|context| self.poll_end(&waiter, context));
        block_on_until(ended, deadline).unwrap_or(Ok(Settled::Running))
    }

    /// The same for a future. Bound it with your runtime's timeout.
    pub fn wait_async(&self) -> Pending<Settled> {
        let this = self.clone();
        Pending::new(async move {
            let waiter = this.attempt.waiter();
            poll_fn(|context| this.poll_end(&waiter, context)).await
        })
    }

    fn poll_end(&self, waiter: &Waiter, context: &Context<'_>) -> Poll<Result<Settled>> {
        let Some(engine) = self.engine.upgrade() else {
            // A reopened store has new answers: begin again.
            let reopened = self.life.is_superseded();
            return Poll::Ready(if reopened { Ok(Settled::Released) } else { Err(Error::Closed) });
        };
        match engine.poll_attempt(waiter, self.durable, context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(Some(record))) if self.busy == Busy::Id => {
                let shown = Shown { record, response: None };
                Poll::Ready(Ok(Settled::Completed(Record::new(shown, engine.mapping()))))
            }
            Poll::Ready(ended) => Poll::Ready(ended.map(|_| Settled::Released)),
        }
    }
}

impl fmt::Debug for InProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InProgress")
            .field("busy", &self.busy)
            .field("attempt", &self.attempt())
            .field("since", &self.since())
            .field("token", &self.token())
            .finish_non_exhaustive()
    }
}

/// How a wait for an attempt ended.
#[derive(Clone, Debug)]
#[must_use]
pub enum Settled {
    /// It completed this id.
    Completed(Record),
    /// It gave up, its lease lapsed, or it was another event of the entity: begin again.
    Released,
    /// The time is up and it is still running.
    Running,
}

/// The last applied timestamp of an entity.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let store = oncedb::Store::open(dir.path())?;
/// use oncedb::Timestamp;
///
/// let scope = store.scope("stripe")?;
/// let _ = scope.request("evt_1").order("sub_1", Timestamp::from_secs(9)).claim()?;
/// let mark = scope.last_applied("sub_1")?.expect("something was applied");
/// assert_eq!((mark.entity(), mark.timestamp()), (&b"sub_1"[..], Timestamp::from_secs(9)));
/// assert!(scope.forget_mark("sub_1")?);
/// # Ok::<(), oncedb::Error>(())
/// ```
#[derive(Clone)]
pub struct Mark {
    record: Arc<[u8]>,
    mapping: WallMapping,
}

impl Mark {
    pub(crate) fn new(record: Arc<[u8]>, mapping: WallMapping) -> Self {
        Self { record, mapping }
    }

    /// The sender's timestamp.
    #[must_use]
    pub fn timestamp(&self) -> Timestamp {
        self.stored().map_or(Timestamp::from_micros(0), |mark| mark.timestamp)
    }

    /// When it was applied.
    #[must_use]
    pub fn applied_at(&self) -> SystemTime {
        self.stored().map_or(self.mapping.wall, |mark| self.mapping.wall_of(mark.applied_at))
    }

    fn stored(&self) -> Option<record::Mark<'_>> {
        match StoredRecord::decode(&self.record)?.body {
            Body::Mark(mark) => Some(mark),
            _ => None,
        }
    }

    /// The entity, without its scope.
    #[must_use]
    pub fn entity(&self) -> &[u8] {
        name_of(record::key_of(&self.record))
    }
}

impl fmt::Debug for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mark")
            .field("entity", &Shortened(self.entity()))
            .field("timestamp", &self.timestamp())
            .field("applied_at", &self.applied_at())
            .finish()
    }
}

/// The answer of [`Scope::advance`](crate::Scope::advance). Exhaustive on purpose.
#[derive(Debug)]
#[must_use]
pub enum Advance {
    /// The mark has moved: do the work.
    Applied,
    /// Something newer was applied.
    Stale(Mark),
    /// An event of the entity is running.
    InProgress(InProgress),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shortens_long_bytes() {
        assert_eq!(format!("{:?}", Shortened(b"evt\n")), r#"b"evt\n""#);
        let long = format!("{:?}", Shortened(&[b'a'; 1000]));
        assert!(long.len() < 80 && long.ends_with("(1000 bytes)"), "{long}");
    }
}
