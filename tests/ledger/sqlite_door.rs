//! The suite's door to SQLite.

use crate::door::{Answer, Ask, Door, Settings, claim_by, ledger_of};
use oncedb::sqlite::Ledger;
use oncedb::sqlite::rusqlite::{Connection, Error, Transaction, TransactionBehavior, params};
use oncedb::{Mark, Record};
use std::path::Path;

pub struct Sqlite;

/// The name of a ledger's table; none of the suite's ledgers has a byte that is encoded but capitals.
fn named(ledger: &str) -> String {
    let encode = |c: char| if c.is_ascii_uppercase() { format!("~{:02x}", u32::from(c)) } else { c.into() };
    format!("oncedb_ledger_{}", ledger.chars().map(encode).collect::<String>())
}

/// The caller's tables, made as a caller makes them.
fn with_work(db: Connection) -> Connection {
    db.execute_batch("CREATE TABLE IF NOT EXISTS work (name TEXT PRIMARY KEY, done INTEGER)").unwrap();
    db
}

impl Door for Sqlite {
    type Db = Connection;
    type Tx<'db> = Transaction<'db>;
    type Ledger = Ledger;

    fn memory() -> Connection {
        with_work(Connection::open_in_memory().unwrap())
    }

    fn open(dir: &Path) -> Connection {
        let db = Connection::open(dir.join("db.sqlite")).unwrap();
        db.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL").unwrap();
        with_work(db)
    }

    fn begin(db: &Connection) -> Transaction<'_> {
        Transaction::new_unchecked(db, TransactionBehavior::Immediate).unwrap()
    }

    fn commit(tx: Transaction<'_>) {
        tx.commit().unwrap();
    }

    fn roll_back(tx: Transaction<'_>) {
        tx.rollback().unwrap();
    }

    fn ledger(settings: &Settings) -> Ledger {
        ledger_of!(Ledger, settings)
    }

    fn claim(ledger: &Ledger, tx: &Transaction<'_>, ask: &Ask) -> Answer {
        claim_by!(ledger, tx, ask)
    }

    fn respond(ledger: &Ledger, tx: &Transaction<'_>, id: &[u8], response: &[u8]) -> oncedb::Result<bool> {
        ledger.respond(tx, id, response)
    }

    fn forget(ledger: &Ledger, tx: &Transaction<'_>, id: &[u8]) -> oncedb::Result<bool> {
        ledger.forget(tx, id)
    }

    fn forget_mark(ledger: &Ledger, tx: &Transaction<'_>, entity: &[u8]) -> oncedb::Result<bool> {
        ledger.forget_mark(tx, entity)
    }

    fn expire(ledger: &Ledger, tx: &Transaction<'_>, at_most: usize) -> oncedb::Result<usize> {
        ledger.expire(tx, at_most)
    }

    fn contains(ledger: &Ledger, db: &Connection, id: &[u8]) -> oncedb::Result<bool> {
        ledger.contains(db, id)
    }

    fn get(ledger: &Ledger, db: &Connection, id: &[u8]) -> oncedb::Result<Option<Record>> {
        ledger.get(db, id)
    }

    fn last_applied(ledger: &Ledger, db: &Connection, entity: &[u8]) -> oncedb::Result<Option<Mark>> {
        ledger.last_applied(db, entity)
    }

    fn shown(ledger: &Ledger, id: &[u8]) -> (String, String) {
        (format!("{ledger:?}"), format!("{:?}", ledger.request(id).order(id, std::time::SystemTime::now())))
    }

    fn work(tx: &Transaction<'_>, name: &str) {
        tx.execute("INSERT INTO work VALUES (?1, 1)", [name]).unwrap();
    }

    fn works(db: &Connection) -> Vec<String> {
        let mut statement = db.prepare("SELECT name FROM work ORDER BY name").unwrap();
        let names = statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, Error>>();
        names.unwrap()
    }

    fn tables(db: &Connection) -> Vec<String> {
        let text = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name";
        let mut statement = db.prepare(text).unwrap();
        let names = statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, Error>>();
        names.unwrap()
    }

    fn rows(db: &Connection, ledger: &str) -> Vec<(u8, Vec<u8>, Vec<u8>)> {
        let text = format!("SELECT kind, name, value FROM \"{}\" ORDER BY kind, name", named(ledger));
        let mut statement = db.prepare(&text).unwrap();
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
        rows.collect::<Result<_, Error>>().unwrap()
    }

    fn set_value(db: &Connection, ledger: &str, (kind, name): (u8, &[u8]), value: Option<&[u8]>) {
        let table = named(ledger);
        let changed = match value {
            Some(value) => db.execute(
                &format!("UPDATE \"{table}\" SET value = ?3 WHERE kind = ?1 AND name = ?2"),
                params![kind, name, value],
            ),
            None => db.execute(
                &format!("DELETE FROM \"{table}\" WHERE kind = ?1 AND name = ?2"),
                params![kind, name],
            ),
        };
        assert_eq!(changed.unwrap(), 1);
    }

    fn set_expiry(db: &Connection, ledger: &str, (kind, name): (u8, &[u8]), nanos: u64) {
        let text = format!("UPDATE \"{}\" SET expires_at = ?3 WHERE kind = ?1 AND name = ?2", named(ledger));
        let changed = db.execute(&text, params![kind, name, i64::try_from(nanos).unwrap()]);
        assert_eq!(changed.unwrap(), 1);
    }

    fn expiring(db: &Connection, ledger: &str) -> usize {
        let text = format!("SELECT count(*) FROM \"{}\" WHERE expires_at IS NOT NULL", named(ledger));
        db.query_row(&text, [], |row| row.get::<_, u32>(0)).unwrap() as usize
    }
}
