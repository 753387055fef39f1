//! A claim with options of its own.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::WallMapping;
use crate::engine::claim::{AskOrder, Grant, Purpose};
use crate::engine::{Ask, Engine, Verdict};
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::key::Kind;
use crate::options::{
    Durability, MAX_FINGERPRINT, ScopeOptions, check_durability, check_lease, check_window,
};
use crate::outcome::{InProgress, Mark, Outcome, Record, Shortened};
use crate::pending::Pending;
use crate::scope::Scope;
use crate::store::Inner;
use crate::timestamp::Timestamp;

/// A claim that is about to be made: see [`Scope::request`].
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let store = oncedb::Store::open(dir.path())?;
/// use oncedb::Timestamp;
/// use std::time::Duration;
///
/// let scope = store.scope("stripe")?;
/// let newer = scope.request("evt_2").order("sub_1", Timestamp::from_secs(200)).claim()?;
/// assert!(newer.is_new());
/// let older = scope
///     .request("evt_1")
///     .order("sub_1", Timestamp::from_secs(100))
///     .fingerprint("hash of the body")
///     .window(Duration::from_secs(3600))
///     .claim()?;
/// assert!(older.is_stale());
/// # Ok::<(), oncedb::Error>(())
/// ```
#[must_use = "a request does nothing until `claim` or `begin`"]
pub struct Request {
    scope: Scope,
    id: Box<[u8]>,
    fingerprint: Option<Arc<[u8]>>,
    order: Option<(Box<[u8]>, Timestamp)>,
    window: Option<Duration>,
    lease: LeaseChoice,
    durability: Option<Durability>,
}

/// Whose lease a request has.
#[derive(Clone, Copy)]
enum LeaseChoice {
    Scope,
    Own(Option<Duration>),
}

impl Request {
    pub(crate) fn new(scope: Scope, id: &[u8]) -> Self {
        Self {
            scope,
            id: id.into(),
            fingerprint: None,
            order: None,
            window: None,
            lease: LeaseChoice::Scope,
            durability: None,
        }
    }

    /// What tells this event from another one under the same id: a hash of the request, at most 64
    /// bytes. If both have one and they differ, the verdict is [`Outcome::Mismatch`].
    pub fn fingerprint(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.fingerprint = Some(bytes.as_ref().into());
        self
    }

    /// What the event is about and when it happened: an event older than the last applied one of its
    /// entity is [`Outcome::Stale`], and only one event of an entity is in progress at a time.
    pub fn order(mut self, entity: impl AsRef<[u8]>, at: impl Into<Timestamp>) -> Self {
        self.order = Some((entity.as_ref().into(), at.into()));
        self
    }

    /// How long the completed key is kept, counted from its completion: 1 second to 100 years. The
    /// scope's window by default.
    pub fn window(mut self, length: Duration) -> Self {
        self.window = Some(length);
        self
    }

    /// After how long without [`renew`](Guard::renew) another attempt may take over; `None` for
    /// never. The scope's lease by default.
    pub fn lease(mut self, length: impl Into<Option<Duration>>) -> Self {
        self.lease = LeaseChoice::Own(length.into());
        self
    }

    /// When this claim, and its completion, return: the store's durability by default.
    /// [`begin`](Self::begin) waits for the disk only with [`Durability::Sync`] asked for here.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }

    /// Claims and completes in one step. Durable on return.
    ///
    /// # Errors
    ///
    /// As [`Scope::claim`], and [`Error::FingerprintTooLong`], [`Error::InvalidOption`],
    /// [`Error::TimestampKind`], [`Error::TooFarAhead`].
    pub fn claim(self) -> Result<Outcome<Record>> {
        self.scope.clone().claim_blocking(&self, None)
    }

    /// [`claim`](Self::claim) for any executor. Dropped before it is ready, the claim is taken back.
    pub fn claim_async(self) -> Pending<Outcome<Record>> {
        Pending::new(async move { self.scope.clone().claim_pending(&self, None).await })
    }

    /// Claims and completes in one step, with a response for every duplicate. Durable on return.
    ///
    /// # Errors
    ///
    /// As [`claim`](Self::claim).
    pub fn claim_with(self, response: impl AsRef<[u8]>) -> Result<Outcome<Record>> {
        self.scope.clone().claim_blocking(&self, Some(response.as_ref()))
    }

    /// [`claim_with`](Self::claim_with) for any executor. Dropped before it is ready, the claim is
    /// taken back.
    pub fn claim_with_async(self, response: impl AsRef<[u8]>) -> Pending<Outcome<Record>> {
        let response = response.as_ref().to_vec();
        Pending::new(async move { self.scope.clone().claim_pending(&self, Some(&response)).await })
    }

    /// Claims; in progress until the guard is settled.
    ///
    /// # Errors
    ///
    /// As [`claim`](Self::claim).
    pub fn begin(self) -> Result<Outcome<Guard>> {
        let (inner, engine) = self.scope.open()?;
        let ask = self.ask(&engine, Purpose::Begin)?;
        let verdict = engine.ask(&ask)?;
        Ok(begun(&inner, &engine, verdict))
    }

    /// [`begin`](Self::begin) for any executor. Dropped, it gives the key back.
    pub fn begin_async(self) -> Pending<Outcome<Guard>> {
        Pending::new(async move {
            let (inner, engine) = self.scope.open()?;
            let ask = self.ask(&engine, Purpose::Begin)?;
            let mut lookups = crate::engine::claim::Lookups::default();
            let verdict = engine.drive_async(|patience| engine.decide(&ask, &mut lookups, patience)).await?;
            let awaited = engine.awaited(&ask, &verdict);
            let outcome = begun(&inner, &engine, verdict);
            if let Some(seq) = awaited {
                engine.wait_durable_async(seq).await?;
            }
            Ok(outcome)
        })
    }

    pub(crate) fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Checks the input and makes it ready for the engine.
    pub(crate) fn ask(&self, engine: &Engine, purpose: Purpose) -> Result<Ask> {
        let options = self.scope.options();
        let key = self.scope.key(engine, Kind::Id, &self.id)?;
        if let Some(fingerprint) = &self.fingerprint
            && fingerprint.len() > MAX_FINGERPRINT
        {
            return Err(Error::FingerprintTooLong { len: fingerprint.len(), limit: MAX_FINGERPRINT });
        }
        if let Some(window) = self.window {
            check_window("window", window)?;
        }
        let lease = match self.lease {
            LeaseChoice::Scope => options.lease,
            LeaseChoice::Own(lease) => lease,
        };
        check_lease(lease)?;
        if let Some(durability) = self.durability {
            check_durability(durability)?;
        }
        let order = match &self.order {
            Some((entity, timestamp)) => Some(order(engine, &self.scope, options, entity, *timestamp)?),
            None => None,
        };
        Ok(Ask {
            key,
            order,
            fingerprint: self.fingerprint.clone(),
            window: self.window.or(options.window).unwrap_or(engine.options().window),
            lease,
            durability: self.durability,
            batch: 0,
            purpose,
        })
    }
}

/// Checks an entity and a timestamp.
pub(crate) fn order(
    engine: &Engine,
    scope: &Scope,
    options: &ScopeOptions,
    entity: &[u8],
    timestamp: Timestamp,
) -> Result<AskOrder> {
    Ok(AskOrder {
        entity: scope.key(engine, Kind::Mark, entity)?,
        timestamp,
        ties: options.ties,
        retention: options.mark_retention,
        max_ahead: options.max_ahead,
    })
}

/// The outcome of a claim in progress.
pub(crate) fn begun(inner: &Arc<Inner>, engine: &Arc<Engine>, verdict: Verdict) -> Outcome<Guard> {
    outcome(
        engine,
        || engine.mapping(),
        verdict,
        |grant| match grant {
            Grant::Running(attempt) => Some(Guard::new(Arc::clone(inner), Arc::clone(engine), attempt)),
            Grant::Completed { .. } => None,
        },
    )
}

/// The outcome of a claim in one step.
pub(crate) fn claimed(engine: &Arc<Engine>, mapping: WallMapping, verdict: Verdict) -> Outcome<Record> {
    outcome(
        engine,
        || mapping,
        verdict,
        |grant| match grant {
            Grant::Completed { record, .. } => {
                let shown = crate::engine::claim::Shown { record, response: None };
                Some(Record::new(shown, mapping))
            }
            Grant::Running(_) => None,
        },
    )
}

fn outcome<N>(
    engine: &Arc<Engine>,
    mapping: impl FnOnce() -> WallMapping,
    verdict: Verdict,
    new: impl FnOnce(Grant) -> Option<N>,
) -> Outcome<N> {
    match verdict {
        Verdict::New(granted) => {
            Outcome::New(new(granted.grant).expect("a claim is granted for the purpose it was made for"))
        }
        Verdict::Duplicate(shown) => Outcome::Duplicate(Record::new(shown, mapping())),
        Verdict::InProgress(attempt, busy, durable) => {
            Outcome::InProgress(InProgress::new(engine, attempt, busy, durable))
        }
        Verdict::Mismatch(shown) => Outcome::Mismatch(Record::new(shown, mapping())),
        Verdict::Stale(record) => Outcome::Stale(Mark::new(record, mapping())),
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("scope", &self.scope.name())
            .field("id", &Shortened(&self.id))
            .field("order", &self.order.as_ref().map(|(entity, at)| (Shortened(entity), at)))
            .finish_non_exhaustive()
    }
}
