//! What the suite needs of a door, and a world to use it in.

use crate::common::{DAY, noon};
use oncedb::{ManualClock, Mark, Outcome, Record, Retention, Ties, Timestamp};
use std::convert::Infallible;
use std::fmt::Debug;
use std::path::Path;
use std::time::Duration;

pub type Answer = oncedb::Result<Outcome<Record, Infallible>>;

/// One database that ledgers can be kept in.
pub trait Door: 'static {
    type Db;
    type Tx<'db>;
    type Ledger: Clone + Debug;

    /// A database in memory.
    fn memory() -> Self::Db;
    /// A durable one in a directory.
    fn open(dir: &Path) -> Self::Db;
    fn begin(db: &Self::Db) -> Self::Tx<'_>;
    fn commit(tx: Self::Tx<'_>);
    fn roll_back(tx: Self::Tx<'_>);

    fn ledger(settings: &Settings) -> Self::Ledger;
    fn claim(ledger: &Self::Ledger, tx: &Self::Tx<'_>, ask: &Ask) -> Answer;
    fn respond(ledger: &Self::Ledger, tx: &Self::Tx<'_>, id: &[u8], response: &[u8]) -> oncedb::Result<bool>;
    fn forget(ledger: &Self::Ledger, tx: &Self::Tx<'_>, id: &[u8]) -> oncedb::Result<bool>;
    fn forget_mark(ledger: &Self::Ledger, tx: &Self::Tx<'_>, entity: &[u8]) -> oncedb::Result<bool>;
    fn expire(ledger: &Self::Ledger, tx: &Self::Tx<'_>, at_most: usize) -> oncedb::Result<usize>;
    fn contains(ledger: &Self::Ledger, db: &Self::Db, id: &[u8]) -> oncedb::Result<bool>;
    fn get(ledger: &Self::Ledger, db: &Self::Db, id: &[u8]) -> oncedb::Result<Option<Record>>;
    fn last_applied(ledger: &Self::Ledger, db: &Self::Db, entity: &[u8]) -> oncedb::Result<Option<Mark>>;
    fn shown(ledger: &Self::Ledger, id: &[u8]) -> (String, String);

    /// The caller's own work: a row in a table of the caller's.
    fn work(tx: &Self::Tx<'_>, name: &str);
    fn works(db: &Self::Db) -> Vec<String>;

    /// Every table of the database.
    fn tables(db: &Self::Db) -> Vec<String>;
    /// The rows of a ledger as they are stored, without the order of expiry: kind, name, value.
    fn rows(db: &Self::Db, ledger: &str) -> Vec<(u8, Vec<u8>, Vec<u8>)>;
    /// Exchanges the value of one row, or removes it.
    fn set_value(db: &Self::Db, ledger: &str, row: (u8, &[u8]), value: Option<&[u8]>);
    /// Makes the order of expiry name a row at another time.
    fn set_expiry(db: &Self::Db, ledger: &str, row: (u8, &[u8]), nanos: u64);
    /// How many rows the order of expiry has.
    fn expiring(db: &Self::Db, ledger: &str) -> usize;
}

pub const HEAD: u8 = 0;
pub const ID: u8 = 1;
pub const MARK: u8 = 2;

/// The options of a ledger.
#[derive(Clone)]
pub struct Settings {
    pub name: String,
    pub window: Duration,
    pub ties: Ties,
    pub retention: Retention,
    pub max_ahead: Option<Duration>,
    pub clock: ManualClock,
}

macro_rules! ledger_of {
    ($kind:ty, $settings:expr) => {{
        let it = $settings;
        let ledger = <$kind>::new(&it.name).window(it.window).ties(it.ties).mark_retention(it.retention);
        ledger.max_ahead(it.max_ahead).clock(it.clock.clone())
    }};
}
pub(crate) use ledger_of;

/// One claim.
#[derive(Clone, Debug, Default)]
pub struct Ask {
    pub id: Vec<u8>,
    pub fingerprint: Option<Vec<u8>>,
    pub order: Option<(Vec<u8>, Timestamp)>,
    pub window: Option<Duration>,
    pub response: Option<Vec<u8>>,
}

pub fn ask(id: impl AsRef<[u8]>) -> Ask {
    Ask { id: id.as_ref().into(), ..Ask::default() }
}

impl Ask {
    pub fn fingerprint(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.fingerprint = Some(bytes.as_ref().into());
        self
    }

    pub fn order(mut self, entity: impl AsRef<[u8]>, at: impl Into<Timestamp>) -> Self {
        self.order = Some((entity.as_ref().into(), at.into()));
        self
    }

    pub fn window(mut self, length: Duration) -> Self {
        self.window = Some(length);
        self
    }

    pub fn response(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.response = Some(bytes.as_ref().into());
        self
    }

    /// Whether it needs no request.
    pub fn is_plain(&self) -> bool {
        self.fingerprint.is_none() && self.order.is_none() && self.window.is_none()
    }
}

/// A claim by the shortest call that can make it.
macro_rules! claim_by {
    ($ledger:expr, $tx:expr, $ask:expr) => {{
        let (ledger, tx, ask) = ($ledger, $tx, $ask);
        match (ask.is_plain(), &ask.response) {
            (true, None) => ledger.claim(tx, &ask.id),
            (true, Some(response)) => ledger.claim_with(tx, &ask.id, response),
            (false, response) => {
                let mut request = ledger.request(&ask.id);
                if let Some(fingerprint) = &ask.fingerprint {
                    request = request.fingerprint(fingerprint);
                }
                if let Some((entity, at)) = &ask.order {
                    request = request.order(entity, *at);
                }
                if let Some(window) = ask.window {
                    request = request.window(window);
                }
                match response {
                    None => request.claim(tx),
                    Some(response) => request.claim_with(tx, response),
                }
            }
        }
    }};
}
pub(crate) use claim_by;

/// A database in memory, a clock, and calls that commit at once.
pub struct World<D: Door> {
    pub db: D::Db,
    pub clock: ManualClock,
}

impl<D: Door> World<D> {
    pub fn new() -> Self {
        Self { db: D::memory(), clock: ManualClock::new(noon()) }
    }

    pub fn settings(&self) -> Settings {
        Settings {
            name: "stripe".into(),
            window: DAY,
            ties: Ties::Accept,
            retention: Retention::For(30 * DAY),
            max_ahead: None,
            clock: self.clock.clone(),
        }
    }

    pub fn ledger(&self) -> D::Ledger {
        D::ledger(&self.settings())
    }

    pub fn with(&self, change: impl FnOnce(&mut Settings)) -> D::Ledger {
        let mut settings = self.settings();
        change(&mut settings);
        D::ledger(&settings)
    }

    /// Runs `work` in a transaction and commits it.
    pub fn write<T>(&self, work: impl FnOnce(&D::Tx<'_>) -> T) -> T {
        let tx = D::begin(&self.db);
        let done = work(&tx);
        D::commit(tx);
        done
    }

    pub fn claim(&self, ledger: &D::Ledger, ask: &Ask) -> Answer {
        self.write(|tx| D::claim(ledger, tx, ask))
    }

    pub fn forget(&self, ledger: &D::Ledger, id: &str) -> bool {
        self.write(|tx| D::forget(ledger, tx, id.as_bytes()).unwrap())
    }

    pub fn forget_mark(&self, ledger: &D::Ledger, entity: &str) -> bool {
        self.write(|tx| D::forget_mark(ledger, tx, entity.as_bytes()).unwrap())
    }

    pub fn expire(&self, ledger: &D::Ledger, at_most: usize) -> usize {
        self.write(|tx| D::expire(ledger, tx, at_most).unwrap())
    }

    pub fn contains(&self, ledger: &D::Ledger, id: &str) -> bool {
        D::contains(ledger, &self.db, id.as_bytes()).unwrap()
    }

    /// The rows of ids and marks of the ledger of this world.
    pub fn rows(&self) -> usize {
        D::rows(&self.db, "stripe").iter().filter(|(kind, ..)| *kind != HEAD).count()
    }
}

#[track_caller]
pub fn new(answer: Answer) -> Record {
    match answer {
        Ok(Outcome::New(record)) => record,
        other => panic!("expected New, got {other:?}"),
    }
}

#[track_caller]
pub fn duplicate(answer: Answer) -> Record {
    match answer {
        Ok(Outcome::Duplicate(record)) => record,
        other => panic!("expected Duplicate, got {other:?}"),
    }
}

#[track_caller]
pub fn mismatch(answer: Answer) -> Record {
    match answer {
        Ok(Outcome::Mismatch(record)) => record,
        other => panic!("expected Mismatch, got {other:?}"),
    }
}

#[track_caller]
pub fn stale(answer: Answer) -> Mark {
    match answer {
        Ok(Outcome::Stale(mark)) => mark,
        other => panic!("expected Stale, got {other:?}"),
    }
}

/// Makes of each function two tests, one a door.
macro_rules! through_both_doors {
    ($($test:ident),+ $(,)?) => {
        mod in_redb {
            $(#[test] fn $test() { super::$test::<$crate::redb_door::Redb>(); })+
        }
        mod in_sqlite {
            $(#[test] fn $test() { super::$test::<$crate::sqlite_door::Sqlite>(); })+
        }
    };
}
pub(crate) use through_both_doors;
