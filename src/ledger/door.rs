//! Ledgers in redb.

use std::convert::Infallible;
use std::fmt;

use redb::{ReadTransaction, WriteTransaction};

use super::draft::{Draft, Wish, request_builders};
use super::tables;
use super::terms::{Terms, ledger_builders};
use crate::error::Result;
use crate::outcome::{Mark, Outcome, Record};

/// Ids in the caller's own [`redb`] transaction: the id and the work are committed together, or
/// neither is.
///
/// A ledger is a name and options; the ids are in the caller's database, and a claim is part of the
/// caller's transaction. It is never in progress: until the commit nobody else sees it, and redb lets
/// one transaction write at a time. What is not committed did not happen. Durable with the commit.
///
/// The verdicts, windows, marks and ties are those of a [`Scope`](crate::Scope). A ledger's name and
/// an id or entity are at most 1,024 bytes together, and a response longer than 256 KiB is recorded
/// as [`Response::Omitted`](crate::Response::Omitted). Each new claim removes up to four expired ids
/// and marks, so the table stays bounded with nobody sweeping it, and a claim costs the same at any
/// age.
///
/// Its rows are in a table named `oncedb_ledger:` and the ledger's name. It touches no other table,
/// and keeps none open. Ledgers of different names share nothing. Options are not stored: a new deploy
/// may change them, for new claims. Its time is the later of the clock and the latest time in its
/// table: a clock that is set back revives nothing. One that is ahead expires ids early, and a claim by it
/// holds the ledger's time there until the clock comes past it: what is claimed meanwhile stays.
///
/// ```
/// use oncedb::redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
/// use oncedb::{Ledger, Outcome};
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("db.redb");
/// const PAID: TableDefinition<&str, u64> = TableDefinition::new("paid");
///
/// let db = Database::create(path)?;
/// let ledger = Ledger::new("stripe");
/// // The same event, delivered twice.
/// for _ in 0..2 {
///     let tx = db.begin_write()?;
///     match ledger.claim(&tx, "evt_1")? {
///         Outcome::New(_) => {
///             let mut paid = tx.open_table(PAID)?;
///             let sum = paid.get("acct_7")?.map_or(0, |sum| sum.value());
///             paid.insert("acct_7", sum + 25)?;
///         }
///         Outcome::Duplicate(_) | Outcome::Stale(_) | Outcome::Mismatch(_) => {}
///     }
///     tx.commit()?;
/// }
/// let tx = db.begin_read()?;
/// assert_eq!(tx.open_table(PAID)?.get("acct_7")?.map(|sum| sum.value()), Some(25));
/// assert!(ledger.contains(&tx, "evt_1")?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// After [`Error::Transaction`](crate::Error::Transaction) roll the transaction back.
#[derive(Clone)]
pub struct Ledger {
    terms: Terms,
}

impl Ledger {
    /// A ledger of this name, with a window of 24 hours. The empty name is one, too.
    #[must_use]
    pub fn new(name: impl AsRef<str>) -> Self {
        Self { terms: Terms::new(name.as_ref()) }
    }

    ledger_builders!();

    /// Claims an id, as part of the transaction.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyId`](crate::Error::EmptyId), [`Error::KeyTooLong`](crate::Error::KeyTooLong),
    /// [`Error::InvalidOption`](crate::Error::InvalidOption); [`Error::Version`](crate::Error::Version),
    /// [`Error::Damaged`](crate::Error::Damaged), [`Error::Transaction`](crate::Error::Transaction),
    /// also while the ledger's table is open elsewhere in the transaction.
    pub fn claim(&self, tx: &WriteTransaction, id: impl AsRef<[u8]>) -> Result<Outcome<Record, Infallible>> {
        self.claim_as(tx, &Wish::plain(id.as_ref(), None))
    }

    /// Claims an id, with a response for every duplicate.
    ///
    /// # Errors
    ///
    /// As [`claim`](Self::claim).
    pub fn claim_with(
        &self,
        tx: &WriteTransaction,
        id: impl AsRef<[u8]>,
        response: impl AsRef<[u8]>,
    ) -> Result<Outcome<Record, Infallible>> {
        self.claim_as(tx, &Wish::plain(id.as_ref(), Some(response.as_ref())))
    }

    fn claim_as(&self, tx: &WriteTransaction, wish: &Wish<'_>) -> Result<Outcome<Record, Infallible>> {
        self.terms.claim(wish, || tables::create(tx, &self.terms.seal))
    }

    /// A claim with options of its own.
    pub fn request(&self, id: impl AsRef<[u8]>) -> LedgerRequest<'_> {
        LedgerRequest { ledger: self, draft: Draft::new(id.as_ref()) }
    }

    /// Whether an id was claimed, and has not expired, as of this transaction. Before the first claim
    /// it was not.
    ///
    /// # Errors
    ///
    /// As [`claim`](Self::claim).
    pub fn contains(&self, tx: &ReadTransaction, id: impl AsRef<[u8]>) -> Result<bool> {
        self.get(tx, id).map(|record| record.is_some())
    }

    /// What is recorded of an id, as of this transaction.
    ///
    /// # Errors
    ///
    /// As [`claim`](Self::claim).
    pub fn get(&self, tx: &ReadTransaction, id: impl AsRef<[u8]>) -> Result<Option<Record>> {
        self.terms.get(id.as_ref(), || tables::readable(tx, &self.terms.seal))
    }

    /// The last applied timestamp of an entity, as of this transaction.
    ///
    /// # Errors
    ///
    /// As [`claim`](Self::claim).
    pub fn last_applied(&self, tx: &ReadTransaction, entity: impl AsRef<[u8]>) -> Result<Option<Mark>> {
        self.terms.last_applied(entity.as_ref(), || tables::readable(tx, &self.terms.seal))
    }

    /// Stores the response of an id that is claimed, for a reply that is known only once the work is done:
    /// whether the id is there. Call it in the transaction that claimed; a response that the id has, also from
    /// an earlier transaction, is replaced. Fingerprint, times and marks stay.
    ///
    /// ```
    /// # use oncedb::redb::{Database, backends::InMemoryBackend};
    /// use oncedb::Ledger;
    ///
    /// # let db = Database::builder().create_with_backend(InMemoryBackend::new())?;
    /// # let work = || "paid";
    /// let ledger = Ledger::new("stripe");
    /// let tx = db.begin_write()?;
    /// if ledger.claim(&tx, "evt_1")?.is_new() {
    ///     let reply = work();
    ///     assert!(ledger.respond(&tx, "evt_1", reply)?);
    /// }
    /// tx.commit()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`claim`](Self::claim).
    pub fn respond(
        &self,
        tx: &WriteTransaction,
        id: impl AsRef<[u8]>,
        response: impl AsRef<[u8]>,
    ) -> Result<bool> {
        self.terms.respond(id.as_ref(), response.as_ref(), || tables::existing(tx, &self.terms.seal))
    }

    /// Forgets an id, so that its event is processed again: whether there was one. Marks stay; the event
    /// that set one may pass it again.
    ///
    /// # Errors
    ///
    /// As [`claim`](Self::claim).
    pub fn forget(&self, tx: &WriteTransaction, id: impl AsRef<[u8]>) -> Result<bool> {
        self.terms.forget(id.as_ref(), || tables::existing(tx, &self.terms.seal))
    }

    /// Forgets the mark of an entity, the way out after a wrong date: whether there was one.
    ///
    /// # Errors
    ///
    /// As [`claim`](Self::claim).
    pub fn forget_mark(&self, tx: &WriteTransaction, entity: impl AsRef<[u8]>) -> Result<bool> {
        self.terms.forget_mark(entity.as_ref(), || tables::existing(tx, &self.terms.seal))
    }

    /// Removes expired ids and marks, at most so many, those first that expired first: how many it
    /// removed. A forgotten id counts until its window is over. Claims do this by themselves; it makes
    /// room sooner.
    ///
    /// ```
    /// # use oncedb::redb::{Database, backends::InMemoryBackend};
    /// use oncedb::{Ledger, ManualClock};
    /// use std::time::{Duration, SystemTime};
    ///
    /// # let db = Database::builder().create_with_backend(InMemoryBackend::new())?;
    /// let clock = ManualClock::new(SystemTime::now());
    /// let ledger = Ledger::new("stripe").clock(clock.clone());
    /// let tx = db.begin_write()?;
    /// assert!(ledger.claim(&tx, "evt_1")?.is_new());
    /// clock.advance(Duration::from_secs(24 * 3600));
    /// assert_eq!(ledger.expire(&tx, 1_000)?, 1);
    /// tx.commit()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`claim`](Self::claim).
    pub fn expire(&self, tx: &WriteTransaction, at_most: usize) -> Result<usize> {
        self.terms.expire(at_most, || tables::existing(tx, &self.terms.seal))
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.terms.show(f)
    }
}

/// A claim that is about to be made: see [`Ledger::request`].
///
/// ```
/// # use oncedb::redb::{Database, backends::InMemoryBackend};
/// use oncedb::{Ledger, Timestamp};
///
/// # let db = Database::builder().create_with_backend(InMemoryBackend::new())?;
/// let ledger = Ledger::new("stripe");
/// let tx = db.begin_write()?;
/// let newer = ledger.request("evt_2").order("sub_1", Timestamp::from_secs(200)).claim(&tx)?;
/// assert!(newer.is_new());
/// let older = ledger.request("evt_1").order("sub_1", Timestamp::from_secs(100)).claim(&tx)?;
/// assert!(older.is_stale());
/// let other = ledger.request("evt_3").fingerprint("hash of the body").claim_with(&tx, "reply")?;
/// assert!(other.is_new());
/// tx.commit()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a request does nothing until `claim`"]
pub struct LedgerRequest<'a> {
    ledger: &'a Ledger,
    draft: Draft,
}

impl LedgerRequest<'_> {
    request_builders!();

    /// Claims, as part of the transaction.
    ///
    /// # Errors
    ///
    /// As [`Ledger::claim`], and [`Error::FingerprintTooLong`](crate::Error::FingerprintTooLong),
    /// [`Error::TimestampKind`](crate::Error::TimestampKind),
    /// [`Error::TooFarAhead`](crate::Error::TooFarAhead).
    pub fn claim(self, tx: &WriteTransaction) -> Result<Outcome<Record, Infallible>> {
        self.ledger.claim_as(tx, &self.draft.wish(None))
    }

    /// Claims, with a response for every duplicate.
    ///
    /// # Errors
    ///
    /// As [`claim`](Self::claim).
    pub fn claim_with(
        self,
        tx: &WriteTransaction,
        response: impl AsRef<[u8]>,
    ) -> Result<Outcome<Record, Infallible>> {
        self.ledger.claim_as(tx, &self.draft.wish(Some(response.as_ref())))
    }
}

impl fmt::Debug for LedgerRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.draft.show(self.ledger.name(), f)
    }
}
