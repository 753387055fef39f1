//! Ledgers in SQLite, with the feature `sqlite`: ids in the caller's own [`rusqlite`] transaction.

mod tables;

use std::convert::Infallible;
use std::fmt;

pub use rusqlite;

use rusqlite::{Connection, Transaction};

use crate::error::Result;
use crate::ledger::draft::{Draft, Wish, request_builders};
use crate::ledger::terms::{Terms, ledger_builders};
use crate::outcome::{Mark, Outcome, Record};
use tables::Sql;

/// [`oncedb::Ledger`](crate::Ledger) for SQLite: the id and the work are committed together, or
/// neither is.
///
/// Everything said there holds here. A ledger's rows are in a table of the schema `main`,
/// `oncedb_ledger_` and the ledger's name, with an index, `oncedb_expiry_` and that name; both are made
/// by the first claim, in its transaction. Of the name, lower-case letters, digits and `_-.` stand for
/// themselves, every other byte is `~` and two hexadecimal digits. The database's `user_version` and
/// `application_id` are the caller's.
///
/// Begin the transaction as [`Immediate`](rusqlite::TransactionBehavior::Immediate) where several
/// connections write: a deferred one that has read cannot begin to write once another has, and the
/// claim fails with [`Error::Sqlite`](crate::Error::Sqlite) (`SQLITE_BUSY`). After an error of SQLite
/// roll the transaction back. Durability is that of the commit: in WAL mode a power cut can take
/// commits back unless `synchronous` is `FULL`. Keep the tables of the work in `main`, too: a crash in a commit
/// over several attached databases can leave it in one and not in the other, in WAL mode always and in any
/// mode where `main` is in memory.
///
/// Statements are cached by the connection, up to six for a ledger: give it room with
/// [`set_prepared_statement_cache_capacity`](rusqlite::Connection::set_prepared_statement_cache_capacity)
/// if it has many of its own.
///
/// ```
/// use oncedb::Outcome;
/// use oncedb::sqlite::Ledger;
/// use oncedb::sqlite::rusqlite::{Connection, TransactionBehavior};
///
/// let mut db = Connection::open_in_memory()?;
/// db.execute_batch("CREATE TABLE paid (account TEXT PRIMARY KEY, sum INTEGER NOT NULL)")?;
/// let ledger = Ledger::new("stripe");
/// // The same event, delivered twice.
/// for _ in 0..2 {
///     let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
///     match ledger.claim(&tx, "evt_1")? {
///         Outcome::New(_) => {
///             tx.execute("INSERT INTO paid VALUES ('acct_7', 25)", [])?;
///         }
///         Outcome::Duplicate(_) | Outcome::Stale(_) | Outcome::Mismatch(_) => {}
///     }
///     tx.commit()?;
/// }
/// assert!(ledger.contains(&db, "evt_1")?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Ledger {
    terms: Terms,
    sql: Sql,
}

impl Ledger {
    /// A ledger of this name, with a window of 24 hours. The empty name is one, too.
    #[must_use]
    pub fn new(name: impl AsRef<str>) -> Self {
        Self { terms: Terms::new(name.as_ref()), sql: Sql::new(name.as_ref()) }
    }

    ledger_builders!();

    /// Claims an id, as part of the transaction.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyId`](crate::Error::EmptyId), [`Error::KeyTooLong`](crate::Error::KeyTooLong),
    /// [`Error::InvalidOption`](crate::Error::InvalidOption); [`Error::Version`](crate::Error::Version),
    /// [`Error::Damaged`](crate::Error::Damaged), [`Error::Sqlite`](crate::Error::Sqlite), also if
    /// SQLite has ended the transaction already.
    pub fn claim(&self, tx: &Transaction<'_>, id: impl AsRef<[u8]>) -> Result<Outcome<Record, Infallible>> {
        self.claim_as(tx, &Wish::plain(id.as_ref(), None))
    }

    /// Claims an id, with a response for every duplicate.
    ///
    /// # Errors
    ///
    /// As [`claim`](Self::claim).
    pub fn claim_with(
        &self,
        tx: &Transaction<'_>,
        id: impl AsRef<[u8]>,
        response: impl AsRef<[u8]>,
    ) -> Result<Outcome<Record, Infallible>> {
        self.claim_as(tx, &Wish::plain(id.as_ref(), Some(response.as_ref())))
    }

    fn claim_as(&self, tx: &Transaction<'_>, wish: &Wish<'_>) -> Result<Outcome<Record, Infallible>> {
        self.terms.claim(wish, || tables::create(tx, &self.sql, &self.terms.seal))
    }

    /// A claim with options of its own.
    pub fn request(&self, id: impl AsRef<[u8]>) -> LedgerRequest<'_> {
        LedgerRequest { ledger: self, draft: Draft::new(id.as_ref()) }
    }

    /// Whether an id was claimed, and has not expired. Before the first claim it was not. A transaction
    /// serves as the connection.
    ///
    /// # Errors
    ///
    /// As [`claim`](Self::claim).
    pub fn contains(&self, db: &Connection, id: impl AsRef<[u8]>) -> Result<bool> {
        self.get(db, id).map(|record| record.is_some())
    }

    /// What is recorded of an id.
    ///
    /// # Errors
    ///
    /// As [`claim`](Self::claim).
    pub fn get(&self, db: &Connection, id: impl AsRef<[u8]>) -> Result<Option<Record>> {
        self.terms.get(id.as_ref(), || tables::readable(db, &self.sql, &self.terms.seal))
    }

    /// The last applied timestamp of an entity.
    ///
    /// # Errors
    ///
    /// As [`claim`](Self::claim).
    pub fn last_applied(&self, db: &Connection, entity: impl AsRef<[u8]>) -> Result<Option<Mark>> {
        self.terms.last_applied(entity.as_ref(), || tables::readable(db, &self.sql, &self.terms.seal))
    }

    /// Stores the response of an id that is claimed, for a reply that is known only once the work is done:
    /// whether the id is there. Call it in the transaction that claimed; a response that the id has, also from
    /// an earlier transaction, is replaced. Fingerprint, times and marks stay.
    ///
    /// # Errors
    ///
    /// As [`claim`](Self::claim).
    pub fn respond(
        &self,
        tx: &Transaction<'_>,
        id: impl AsRef<[u8]>,
        response: impl AsRef<[u8]>,
    ) -> Result<bool> {
        self.terms
            .respond(id.as_ref(), response.as_ref(), || tables::existing(tx, &self.sql, &self.terms.seal))
    }

    /// Forgets an id, so that its event is processed again: whether there was one. Marks stay; the event
    /// that set one may pass it again.
    ///
    /// # Errors
    ///
    /// As [`claim`](Self::claim).
    pub fn forget(&self, tx: &Transaction<'_>, id: impl AsRef<[u8]>) -> Result<bool> {
        self.terms.forget(id.as_ref(), || tables::existing(tx, &self.sql, &self.terms.seal))
    }

    /// Forgets the mark of an entity, the way out after a wrong date: whether there was one.
    ///
    /// # Errors
    ///
    /// As [`claim`](Self::claim).
    pub fn forget_mark(&self, tx: &Transaction<'_>, entity: impl AsRef<[u8]>) -> Result<bool> {
        self.terms.forget_mark(entity.as_ref(), || tables::existing(tx, &self.sql, &self.terms.seal))
    }

    /// Removes expired ids and marks, at most so many, those first that expired first: how many it
    /// removed. A forgotten id counts until its window is over. Claims do this by themselves; it makes
    /// room sooner.
    ///
    /// # Errors
    ///
    /// As [`claim`](Self::claim).
    pub fn expire(&self, tx: &Transaction<'_>, at_most: usize) -> Result<usize> {
        self.terms.expire(at_most, || tables::existing(tx, &self.sql, &self.terms.seal))
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
/// use oncedb::Timestamp;
/// use oncedb::sqlite::{Ledger, rusqlite::Connection};
///
/// let mut db = Connection::open_in_memory()?;
/// let ledger = Ledger::new("stripe");
/// let tx = db.transaction()?;
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
    pub fn claim(self, tx: &Transaction<'_>) -> Result<Outcome<Record, Infallible>> {
        self.ledger.claim_as(tx, &self.draft.wish(None))
    }

    /// Claims, with a response for every duplicate.
    ///
    /// # Errors
    ///
    /// As [`claim`](Self::claim).
    pub fn claim_with(
        self,
        tx: &Transaction<'_>,
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
