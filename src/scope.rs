//! A name space of ids.

use std::fmt;
use std::sync::Arc;

use crate::engine::batch::Batch;
use crate::engine::claim::Purpose;
use crate::engine::marks::Advanced;
use crate::engine::view::Lookup;
use crate::engine::{Ask, Engine};
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::key::{Key, Kind};
use crate::options::{Durability, ScopeOptions};
use crate::outcome::{Advance, Busy, InProgress, Mark, Outcome, Record};
use crate::pending::Pending;
use crate::request::{Request, claimed, order};
use crate::store::Inner;
use crate::timestamp::Timestamp;

/// A source, a tenant or a consumer: the same id in two scopes is two keys. Cheap to clone; keeps
/// the store open. See [`Store::scope`](crate::Store::scope).
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let store = oncedb::Store::open(dir.path())?;
/// let (first, second) = (store.scope("tenant_1")?, store.scope("tenant_2")?);
/// assert!(first.claim("evt_1")?.is_new());
/// assert!(second.claim("evt_1")?.is_new());
/// assert!(first.contains("evt_1")?);
/// assert!(first.forget("evt_1")?);
/// assert!(!first.contains("evt_1")?);
/// # Ok::<(), oncedb::Error>(())
/// ```
#[derive(Clone)]
pub struct Scope {
    core: Arc<ScopeCore>,
}

/// What the clones of a scope share.
pub(crate) struct ScopeCore {
    pub(crate) inner: Arc<Inner>,
    pub(crate) name: Box<str>,
    pub(crate) number: u32,
    pub(crate) options: ScopeOptions,
}

impl Scope {
    pub(crate) fn new(core: Arc<ScopeCore>) -> Self {
        Self { core }
    }

    pub(crate) fn options(&self) -> &ScopeOptions {
        &self.core.options
    }

    pub(crate) fn is_of(&self, inner: &Arc<Inner>) -> bool {
        Arc::ptr_eq(&self.core.inner, inner)
    }

    /// The store, and its engine as it is now.
    pub(crate) fn open(&self) -> Result<(Arc<Inner>, Arc<Engine>)> {
        Ok((Arc::clone(&self.core.inner), self.core.inner.engine()?))
    }

    /// Checks an id or entity and makes a key of it.
    pub(crate) fn key(&self, engine: &Engine, kind: Kind, name: &[u8]) -> Result<Key> {
        if name.is_empty() {
            return Err(Error::EmptyId);
        }
        let (len, limit) = (self.core.name.len() + name.len(), engine.options().max_key_len);
        if len > limit {
            return Err(Error::KeyTooLong { len, limit });
        }
        Ok(engine.key(kind, self.core.number, name))
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.core.name
    }

    /// Claims an id and completes it in one step. Durable on return.
    ///
    /// This is claim-before-work: the id stays claimed even if you crash before the work. For work
    /// that must happen use [`begin`](Self::begin).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = oncedb::Store::open(dir.path())?;
    /// let scope = store.scope("newsletter")?;
    /// if scope.claim("evt_1")?.is_new() {
    ///     // send it
    /// }
    /// assert!(scope.claim("evt_1")?.is_duplicate());
    /// # Ok::<(), oncedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::EmptyId`], [`Error::KeyTooLong`], [`Error::Full`], [`Error::Closed`],
    /// [`Error::Poisoned`], [`Error::Corrupt`], [`Error::Io`]; [`Error::OutcomeUnknown`]: after
    /// reopening, the retry may be a duplicate.
    pub fn claim(&self, id: impl AsRef<[u8]>) -> Result<Outcome<Record>> {
        let (_, engine) = self.open()?;
        let verdict = engine.ask(&self.plain_ask(&engine, id.as_ref(), false)?)?;
        Ok(claimed(&engine, engine.mapping(), verdict))
    }

    /// [`claim`](Self::claim) for any executor. Dropped before it is ready, the claim is taken back; a
    /// copy that arrived in between may have been told `Duplicate`, as for a crash before the work.
    /// For work that must happen use [`begin_async`](Self::begin_async).
    pub fn claim_async(&self, id: impl AsRef<[u8]>) -> Pending<Outcome<Record>> {
        self.request(id).claim_async()
    }

    /// Claims an id; in progress until the guard is settled. Does not wait for the disk: after a
    /// crash the key is new or an orphan, and both are right.
    ///
    /// # Errors
    ///
    /// As [`claim`](Self::claim), without [`Error::OutcomeUnknown`].
    pub fn begin(&self, id: impl AsRef<[u8]>) -> Result<Outcome<Guard>> {
        self.request(id).begin()
    }

    /// [`begin`](Self::begin) for any executor. Dropped, it gives the key back.
    pub fn begin_async(&self, id: impl AsRef<[u8]>) -> Pending<Outcome<Guard>> {
        self.request(id).begin_async()
    }

    /// A claim with options of its own.
    pub fn request(&self, id: impl AsRef<[u8]>) -> Request {
        Request::new(self.clone(), id.as_ref())
    }

    /// Claims many ids with one sync, answered in the order of the input; an id that comes twice is
    /// new, then a duplicate. Every id is checked before any is claimed. Durable on return; a crash
    /// before that may keep some.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = oncedb::Store::open(dir.path())?;
    /// let outcomes = store.scope("orders")?.claim_many(["a", "b", "a"])?;
    /// assert!(outcomes[0].is_new() && outcomes[1].is_new() && outcomes[2].is_duplicate());
    /// # Ok::<(), oncedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`claim`](Self::claim). On any but [`Error::OutcomeUnknown`] and [`Error::Poisoned`]
    /// nothing stays claimed.
    pub fn claim_many<I>(&self, ids: I) -> Result<Vec<Outcome<Record>>>
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        let (_, engine) = self.open()?;
        all_claimed(&engine, self.batch_of(&engine, ids)?.run()?)
    }

    /// [`claim_many`](Self::claim_many) for any executor. Dropped before it is ready, its claims are
    /// taken back.
    pub fn claim_many_async<I>(&self, ids: I) -> Pending<Vec<Outcome<Record>>>
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        let ids: Vec<Box<[u8]>> = ids.into_iter().map(|id| id.as_ref().into()).collect();
        let scope = self.clone();
        Pending::new(async move {
            let (_, engine) = scope.open()?;
            all_claimed(&engine, scope.batch_of(&engine, ids)?.run_async().await?)
        })
    }

    fn batch_of<I>(&self, engine: &Arc<Engine>, ids: I) -> Result<Batch>
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        // Not by `collect`: a `Result` hides how many there will be.
        let ids = ids.into_iter();
        let mut asks = Vec::with_capacity(ids.size_hint().0);
        for id in ids {
            asks.push(Ok(self.plain_ask(engine, id.as_ref(), true)?));
        }
        Ok(Batch::new(Arc::clone(engine), asks).all_or_none())
    }

    /// A claim in one step with nothing of its own.
    fn plain_ask(&self, engine: &Engine, id: &[u8], deferred: bool) -> Result<Ask> {
        let options = self.options();
        Ok(Ask {
            key: self.key(engine, Kind::Id, id)?,
            order: None,
            fingerprint: None,
            window: options.window.unwrap_or(engine.options().window),
            lease: options.lease,
            durability: None,
            batch: 0,
            purpose: Purpose::Claim { response: None, deferred },
        })
    }

    pub(crate) fn claim_blocking(
        &self,
        request: &Request,
        response: Option<&[u8]>,
    ) -> Result<Outcome<Record>> {
        let (_, engine) = self.open()?;
        let purpose = Purpose::Claim { response: response.map(Into::into), deferred: false };
        let verdict = engine.ask(&request.ask(&engine, purpose)?)?;
        Ok(claimed(&engine, engine.mapping(), verdict))
    }

    pub(crate) async fn claim_pending(
        &self,
        request: &Request,
        response: Option<&[u8]>,
    ) -> Result<Outcome<Record>> {
        let (_, engine) = self.open()?;
        let purpose = Purpose::Claim { response: response.map(Into::into), deferred: true };
        let ask = request.ask(&engine, purpose)?;
        let batch = Batch::new(Arc::clone(&engine), vec![Ok(ask)]).run_async().await?;
        let verdict = batch.deliver().pop().unwrap_or(Err(Error::Closed))?;
        Ok(claimed(&engine, engine.mapping(), verdict))
    }

    /// Whether an id is completed and has not expired.
    ///
    /// # Errors
    ///
    /// As [`claim`](Self::claim), without [`Error::Full`].
    pub fn contains(&self, id: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get(id)?.is_some())
    }

    /// What is recorded of an id that is completed and has not expired.
    ///
    /// # Errors
    ///
    /// As [`contains`](Self::contains).
    pub fn get(&self, id: impl AsRef<[u8]>) -> Result<Option<Record>> {
        let (_, engine) = self.open()?;
        let key = self.key(&engine, Kind::Id, id.as_ref())?;
        let mut lookup = Lookup::default();
        let found = engine.drive(|_| engine.get(&key, &mut lookup))?;
        Ok(found.map(|shown| Record::new(shown, engine.mapping())))
    }

    /// [`get`](Self::get) for any executor.
    pub fn get_async(&self, id: impl AsRef<[u8]>) -> Pending<Option<Record>> {
        let (scope, id) = (self.clone(), id.as_ref().to_vec());
        Pending::new(async move {
            let (_, engine) = scope.open()?;
            let key = scope.key(&engine, Kind::Id, &id)?;
            let mut lookup = Lookup::default();
            let found = engine.drive_async(|_| engine.get(&key, &mut lookup)).await?;
            Ok(found.map(|shown| Record::new(shown, engine.mapping())))
        })
    }

    /// Forgets an id, so that the event can be processed again: attempts start at 1. Marks stay.
    /// Whether there was a completed key; one that was given up is forgotten too, but reads as
    /// absent. Durable on return.
    ///
    /// # Errors
    ///
    /// [`Error::InProgress`] while a live guard holds it, and as [`claim`](Self::claim).
    pub fn forget(&self, id: impl AsRef<[u8]>) -> Result<bool> {
        let (_, engine) = self.open()?;
        let key = self.key(&engine, Kind::Id, id.as_ref())?;
        let mut lookup = Lookup::default();
        let (seq, forgotten) = engine.drive(|patience| engine.forget(&key, &mut lookup, patience))?;
        engine.wait_store_durable(seq)?;
        Ok(forgotten)
    }

    /// [`forget`](Self::forget) for any executor.
    pub fn forget_async(&self, id: impl AsRef<[u8]>) -> Pending<bool> {
        let (scope, id) = (self.clone(), id.as_ref().to_vec());
        Pending::new(async move {
            let (_, engine) = scope.open()?;
            let key = scope.key(&engine, Kind::Id, &id)?;
            let mut lookup = Lookup::default();
            let (seq, forgotten) =
                engine.drive_async(|patience| engine.forget(&key, &mut lookup, patience)).await?;
            engine.wait_store_durable_async(seq).await?;
            Ok(forgotten)
        })
    }

    /// Forgets an entity's mark: the way out after a wrong date. Whether there was one. Durable on
    /// return.
    ///
    /// # Errors
    ///
    /// As [`claim`](Self::claim); [`Error::InProgress`] for the moment in which a claim that set the
    /// mark has not been answered yet.
    pub fn forget_mark(&self, entity: impl AsRef<[u8]>) -> Result<bool> {
        let (_, engine) = self.open()?;
        let entity = self.key(&engine, Kind::Mark, entity.as_ref())?;
        let mut lookup = Lookup::default();
        let (seq, forgotten) = engine.drive(|patience| engine.forget_mark(&entity, &mut lookup, patience))?;
        engine.wait_store_durable(seq)?;
        Ok(forgotten)
    }

    /// The mark of an entity: the timestamp of the last event applied to it.
    ///
    /// # Errors
    ///
    /// As [`contains`](Self::contains).
    pub fn last_applied(&self, entity: impl AsRef<[u8]>) -> Result<Option<Mark>> {
        let (_, engine) = self.open()?;
        let entity = self.key(&engine, Kind::Mark, entity.as_ref())?;
        let mut lookup = Lookup::default();
        let record = engine.drive(|_| engine.last_applied(&entity, &mut lookup))?;
        Ok(record.map(|record| Mark::new(record, engine.mapping())))
    }

    /// Moves an entity's mark, if the event is not older: the order guard without an id. The mark
    /// moves before your work. Durable on return.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = oncedb::Store::open(dir.path())?;
    /// use oncedb::{Advance, Timestamp};
    ///
    /// let scope = store.scope("stripe")?;
    /// assert!(matches!(scope.advance("sub_1", Timestamp::from_secs(200))?, Advance::Applied));
    /// assert!(matches!(scope.advance("sub_1", Timestamp::from_secs(100))?, Advance::Stale(_)));
    /// # Ok::<(), oncedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`claim`](Self::claim), and [`Error::TimestampKind`], [`Error::TooFarAhead`].
    pub fn advance(&self, entity: impl AsRef<[u8]>, at: impl Into<Timestamp>) -> Result<Advance> {
        let (_, engine) = self.open()?;
        let order = order(&engine, self, self.options(), entity.as_ref(), at.into())?;
        let mut lookup = Lookup::default();
        let advanced = engine.drive(|patience| engine.advance(&order, &mut lookup, patience))?;
        if let Advanced::Applied(seq) = advanced {
            engine.wait_store_durable(Some(seq))?;
        }
        Ok(advance_of(&engine, advanced))
    }

    /// [`advance`](Self::advance) for any executor. Once polled it is carried out, even if it is
    /// dropped.
    pub fn advance_async(&self, entity: impl AsRef<[u8]>, at: impl Into<Timestamp>) -> Pending<Advance> {
        let (scope, entity, at) = (self.clone(), entity.as_ref().to_vec(), at.into());
        Pending::new(async move {
            let (_, engine) = scope.open()?;
            let order = order(&engine, &scope, scope.options(), &entity, at)?;
            let mut lookup = Lookup::default();
            let advanced =
                engine.drive_async(|patience| engine.advance(&order, &mut lookup, patience)).await?;
            if let Advanced::Applied(seq) = advanced {
                engine.wait_store_durable_async(Some(seq)).await?;
            }
            Ok(advance_of(&engine, advanced))
        })
    }
}

/// The outcomes of a batch whose every claim was decided.
fn all_claimed(engine: &Arc<Engine>, batch: Batch) -> Result<Vec<Outcome<Record>>> {
    let mapping = engine.mapping();
    let answers = batch.deliver();
    let mut outcomes = Vec::with_capacity(answers.len());
    for answer in answers {
        outcomes.push(claimed(engine, mapping, answer?));
    }
    Ok(outcomes)
}

fn advance_of(engine: &Arc<Engine>, advanced: Advanced) -> Advance {
    match advanced {
        Advanced::Applied(_) => Advance::Applied,
        Advanced::Stale(record) => Advance::Stale(Mark::new(record, engine.mapping())),
        Advanced::Busy(attempt) => {
            let durable = engine.options().durability == Durability::Sync;
            Advance::InProgress(InProgress::new(engine, attempt, Busy::Entity, durable))
        }
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope")
            .field("name", &self.name())
            .field("options", self.options())
            .finish_non_exhaustive()
    }
}
