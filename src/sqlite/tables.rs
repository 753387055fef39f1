//! A ledger's rows in SQLite: one table and one index, named after the ledger.
//!
//! | column | what |
//! |---|---|
//! | `kind` | 0 the head, 1 an id, 2 a mark |
//! | `name` | the id or entity; empty for the head |
//! | `expires_at` | nanoseconds since 1970; null for the head, "never", and after the year 2262 |
//! | `value` | as in redb |

use std::fmt::Write;
use std::sync::Arc;

use rusqlite::types::ValueRef;
use rusqlite::{CachedStatement, Connection, OptionalExtension, Row, Transaction, ffi, params};

use crate::clock::Time;
use crate::error::{Error, Result};
use crate::key::Kind;
use crate::ledger::rows::{Due, NewRow, Rows, RowsMut};
use crate::ledger::sealed::{HEAD, Seal, expiry_of, kind_byte, kind_of, row_name};

/// The statements of one ledger; its names are part of their text. Always in `main`, where no temporary
/// or attached table stands in for its own.
#[derive(Clone)]
pub(super) struct Sql {
    text: Arc<Text>,
}

struct Text {
    table: String,
    create: String,
    row: String,
    any: String,
    due: String,
    put_one: String,
    put_two: String,
    remove: String,
}

/// A ledger's name as part of a table's: SQLite takes names that differ only in the case of letters
/// for the same one, and ends a statement at a zero byte.
fn encoded(ledger: &str) -> String {
    let mut name = String::new();
    for byte in ledger.bytes() {
        if matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.') {
            name.push(byte.into());
        } else {
            // Writing to a string does not fail.
            let _ = write!(name, "~{byte:02x}");
        }
    }
    name
}

impl Sql {
    pub(super) fn new(ledger: &str) -> Self {
        let encoded = encoded(ledger);
        let table = format!("oncedb_ledger_{encoded}");
        let index = format!("oncedb_expiry_{encoded}");
        let from = format!("main.\"{table}\"");
        let text = Text {
            create: format!(
                "CREATE TABLE {from} (kind INTEGER NOT NULL, name BLOB NOT NULL, expires_at INTEGER, \
                 value BLOB NOT NULL, PRIMARY KEY (kind, name)) WITHOUT ROWID; \
                 CREATE INDEX main.\"{index}\" ON \"{table}\" (expires_at) WHERE expires_at IS NOT NULL;"
            ),
            row: format!("SELECT value FROM {from} WHERE kind = ?1 AND name = ?2"),
            any: format!("SELECT 1 FROM {from} LIMIT 1"),
            // The plus signs keep SQLite from choosing a plan by these values, for which it would compile the
            // statement anew each time they change.
            due: format!(
                "SELECT kind, name, expires_at, value FROM {from} INDEXED BY \"{index}\" \
                 WHERE expires_at <= +?1 ORDER BY expires_at LIMIT +?2"
            ),
            put_one: format!("REPLACE INTO {from} (kind, name, expires_at, value) VALUES (?1, ?2, ?3, ?4)"),
            put_two: format!(
                "REPLACE INTO {from} (kind, name, expires_at, value) \
                 VALUES (?1, ?2, ?3, ?4), (?5, ?6, ?7, ?8)"
            ),
            remove: format!("DELETE FROM {from} WHERE kind = ?1 AND name = ?2"),
            table,
        };
        Self { text: Arc::new(text) }
    }
}

/// The table of a ledger, which is there.
pub(super) struct Tables<'a> {
    connection: &'a Connection,
    sql: &'a Text,
    seal: &'a Seal,
    head: Option<Vec<u8>>,
}

/// Opens a ledger's table, and creates it if it is not there.
pub(super) fn create<'a>(tx: &'a Transaction<'_>, sql: &'a Sql, seal: &'a Seal) -> Result<Tables<'a>> {
    if let Some(tables) = existing(tx, sql, seal)? {
        return Ok(tables);
    }
    tx.execute_batch(&sql.text.create).map_err(failed)?;
    Ok(Tables { connection: tx, sql: &sql.text, seal, head: None })
}

/// Opens a ledger's table to write to it, if it is there.
pub(super) fn existing<'a>(
    tx: &'a Transaction<'_>,
    sql: &'a Sql,
    seal: &'a Seal,
) -> Result<Option<Tables<'a>>> {
    // SQLite ends a transaction by itself after some errors; then every statement would be one.
    if tx.is_autocommit() {
        let over = ffi::Error::new(ffi::SQLITE_MISUSE);
        let text = "the transaction is over: it was ended, or an error rolled it back".to_owned();
        return Err(failed(rusqlite::Error::SqliteFailure(over, Some(text))));
    }
    readable(tx, sql, seal)
}

/// Opens a ledger's table to read it, if it is there.
pub(super) fn readable<'a>(
    connection: &'a Connection,
    sql: &'a Sql,
    seal: &'a Seal,
) -> Result<Option<Tables<'a>>> {
    let mut tables = Tables { connection, sql: &sql.text, seal, head: None };
    match tables.value(HEAD, b"") {
        Ok(head) => {
            tables.head = head;
            Ok(Some(tables))
        }
        // A missing table has no code of its own.
        Err(Error::Sqlite { .. }) => {
            if !tables.is_there()? {
                return Ok(None);
            }
            // Outside of a transaction it may have been made in between.
            tables.head = tables.value(HEAD, b"")?;
            Ok(Some(tables))
        }
        Err(error) => Err(error),
    }
}

fn failed(error: rusqlite::Error) -> Error {
    Error::Sqlite { source: Box::new(error) }
}

/// Integers in SQLite are signed. What has no place here has none in the order of expiry.
fn column(time: Time) -> Option<i64> {
    i64::try_from(time.0).ok()
}

impl Tables<'_> {
    fn prepared(&self, text: &str) -> Result<CachedStatement<'_>> {
        self.connection.prepare_cached(text).map_err(failed)
    }

    fn is_there(&self) -> Result<bool> {
        let text = "SELECT 1 FROM main.sqlite_master WHERE type = 'table' AND name = ?1";
        let found = self.connection.query_row(text, [&self.sql.table], |_| Ok(())).optional();
        found.map(|found| found.is_some()).map_err(failed)
    }

    fn value(&self, kind: u8, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut statement = self.prepared(&self.sql.row)?;
        let mut rows = statement.query(params![kind, name]).map_err(failed)?;
        let Some(row) = rows.next().map_err(failed)? else { return Ok(None) };
        match row.get_ref(0).map_err(failed)? {
            ValueRef::Blob(value) => Ok(Some(value.to_vec())),
            _ => Err(self.seal.damaged(&row_name(kind, name), "its value is no blob")),
        }
    }

    fn due_row(&self, row: &Row<'_>) -> Result<Due> {
        let columns = (
            row.get_ref(0).map_err(failed)?,
            row.get_ref(1).map_err(failed)?,
            row.get_ref(2).map_err(failed)?,
            row.get_ref(3).map_err(failed)?,
        );
        let due = match columns {
            (
                ValueRef::Integer(kind),
                ValueRef::Blob(name),
                ValueRef::Integer(expires_at),
                ValueRef::Blob(value),
            ) => u8::try_from(kind).ok().and_then(kind_of).zip(u64::try_from(expires_at).ok()).map(
                |(kind, expires_at)| Due {
                    kind,
                    name: name.to_vec(),
                    expires_at: Time(expires_at),
                    stored: expiry_of(value),
                },
            ),
            _ => None,
        };
        due.ok_or_else(|| self.seal.damaged("a row with a time of expiry", "its columns are not a ledger's"))
    }
}

impl Rows for Tables<'_> {
    fn head(&self) -> Result<Option<Vec<u8>>> {
        Ok(self.head.clone())
    }

    fn is_empty(&self) -> Result<bool> {
        let mut statement = self.prepared(&self.sql.any)?;
        statement.exists([]).map(|exists| !exists).map_err(failed)
    }

    fn row(&self, kind: Kind, name: &[u8]) -> Result<Option<Vec<u8>>> {
        self.value(kind_byte(kind), name)
    }

    fn due(&self, now: Time, at_most: usize) -> Result<Vec<Due>> {
        let (now, at_most) = (column(now).unwrap_or(i64::MAX), i64::try_from(at_most).unwrap_or(i64::MAX));
        let mut statement = self.prepared(&self.sql.due)?;
        let mut rows = statement.query(params![now, at_most]).map_err(failed)?;
        let mut due = Vec::new();
        while let Some(row) = rows.next().map_err(failed)? {
            due.push(self.due_row(row)?);
        }
        Ok(due)
    }
}

/// Each change is one statement, and a statement that fails has done nothing.
impl RowsMut for Tables<'_> {
    fn set_head(&mut self, value: &[u8]) -> Result<()> {
        let mut statement = self.prepared(&self.sql.put_one)?;
        statement.execute(params![HEAD, &[0_u8; 0][..], None::<i64>, value]).map(drop).map_err(failed)
    }

    fn put(&mut self, rows: &[NewRow<'_>]) -> Result<()> {
        let done = match rows {
            [row] => self.prepared(&self.sql.put_one)?.execute(params![
                kind_byte(row.kind),
                row.name,
                column(row.expires_at),
                row.value
            ]),
            [one, two] => self.prepared(&self.sql.put_two)?.execute(params![
                kind_byte(one.kind),
                one.name,
                column(one.expires_at),
                one.value,
                kind_byte(two.kind),
                two.name,
                column(two.expires_at),
                two.value
            ]),
            _ => unreachable!("a claim writes an id, and a mark at most"),
        };
        done.map(drop).map_err(failed)
    }

    fn remove(&mut self, kind: Kind, name: &[u8], _: Time) -> Result<()> {
        let mut statement = self.prepared(&self.sql.remove)?;
        statement.execute(params![kind_byte(kind), name]).map(drop).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock, ManualClock};
    use crate::timestamp::Timestamp;
    use proptest::prelude::*;
    use rusqlite::StatementStatus;
    use std::time::{Duration, SystemTime};

    proptest! {
        #[test]
        fn ledgers_of_different_names_have_different_tables(one in ".{0,4}", other in ".{0,4}") {
            prop_assume!(one != other);
            prop_assert_ne!(encoded(&one).to_lowercase(), encoded(&other).to_lowercase());
        }
    }

    #[test]
    fn no_statement_is_compiled_anew() {
        let db = Connection::open_in_memory().unwrap();
        let clock = ManualClock::new(SystemTime::UNIX_EPOCH);
        let ledger = crate::sqlite::Ledger::new("stripe").clock(clock.clone());
        let sql = Sql::new("stripe");
        let claims = |count: u32| {
            for _ in 0..count {
                // Its time moves on, so that each claim is bound to other values and removes an older id.
                clock.advance(Duration::from_secs(2));
                let tx = db.unchecked_transaction().unwrap();
                let seconds = clock.wall().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
                let request = ledger.request(format!("evt_{seconds}")).window(Duration::from_secs(1));
                let order = request.order("acct_7", Timestamp::from_secs(seconds.try_into().unwrap()));
                assert!(order.claim(&tx).unwrap().is_new());
                tx.commit().unwrap();
            }
        };
        let assert_compiled_once = |when: &str| {
            let Text { row, any, due, put_one, put_two, remove, .. } = &*sql.text;
            for text in [row, any, due, put_one, put_two, remove] {
                let statement = db.prepare_cached(text).unwrap();
                assert_eq!(statement.reset_status(StatementStatus::RePrepare), 0, "{when}: {text}");
            }
        };
        claims(20);
        assert_compiled_once("with no statistics");
        // With statistics SQLite has more to choose by; the new schema costs each statement one more.
        db.execute_batch("ANALYZE").unwrap();
        claims(2);
        db.flush_prepared_statement_cache();
        claims(20);
        assert_compiled_once("with statistics");
    }

    #[test]
    fn a_name_is_encoded_as_it_is_documented() {
        assert_eq!(encoded("stripe_eu-2.x"), "stripe_eu-2.x");
        assert_eq!(encoded("Stripe~ \0é"), "~53tripe~7e~20~00~c3~a9");
        assert_eq!(encoded("\"'"), "~22~27");
    }
}
