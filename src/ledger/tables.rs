//! A ledger's rows in redb: one table, `oncedb_ledger:` and the ledger's name.
//!
//! | key | value |
//! |---|---|
//! | 0 | the head |
//! | 1, id | its record |
//! | 2, entity | its mark |
//! | 3, 8 bytes `expires_at` (the high byte first), 1 or 2, id or entity | empty |

use redb::{
    ReadTransaction, ReadableTable, StorageError, Table, TableDefinition, TableError, TableHandle,
    WriteTransaction,
};

use crate::clock::Time;
use crate::error::{Error, Result};
use crate::key::Kind;
use crate::ledger::rows::{Due, NewRow, Rows, RowsMut};
use crate::ledger::sealed::{HEAD, Seal, expiry_of, kind_byte, kind_of, row_name};

const PREFIX: &str = "oncedb_ledger:";

/// The kind of a row in the order of expiry.
const EXPIRY: u8 = 3;

type Bytes = &'static [u8];

/// An open table of a ledger. It has to be closed by the end of the call: redb opens a table once at
/// a time.
pub(super) struct Tables<'a, T> {
    table: T,
    seal: &'a Seal,
}

fn table_name(seal: &Seal) -> String {
    format!("{PREFIX}{}", seal.ledger())
}

/// Opens a ledger's table, and creates it if it is not there.
pub(super) fn create<'a>(
    tx: &'a WriteTransaction,
    seal: &'a Seal,
) -> Result<Tables<'a, Table<'a, Bytes, Bytes>>> {
    let table = tx.open_table(TableDefinition::new(&table_name(seal))).map_err(failed)?;
    Ok(Tables { table, seal })
}

/// Opens a ledger's table to write to it, if it is there.
pub(super) fn existing<'a>(
    tx: &'a WriteTransaction,
    seal: &'a Seal,
) -> Result<Option<Tables<'a, Table<'a, Bytes, Bytes>>>> {
    let name = table_name(seal);
    let is_there = tx.list_tables().map_err(failed)?.any(|table| table.name() == name);
    is_there.then(|| create(tx, seal)).transpose()
}

/// Opens a ledger's table to read it, if it is there.
pub(super) fn readable<'a>(
    tx: &ReadTransaction,
    seal: &'a Seal,
) -> Result<Option<Tables<'a, impl ReadableTable<Bytes, Bytes> + use<>>>> {
    match tx.open_table(TableDefinition::<Bytes, Bytes>::new(&table_name(seal))) {
        Ok(table) => Ok(Some(Tables { table, seal })),
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(failed(error)),
    }
}

fn failed(error: impl Into<redb::Error>) -> Error {
    Error::Transaction { source: Box::new(error.into()) }
}

fn row_key(kind: Kind, name: &[u8]) -> Vec<u8> {
    [&[kind_byte(kind)], name].concat()
}

/// Where the rows begin that expire at a time.
fn expiry_start(time: Time) -> [u8; 9] {
    let mut start = [EXPIRY; 9];
    #[expect(clippy::big_endian_bytes, reason = "redb compares keys byte by byte")]
    start[1..].copy_from_slice(&time.0.to_be_bytes());
    start
}

fn expiry_key(kind: Kind, name: &[u8], time: Time) -> Vec<u8> {
    [&expiry_start(time)[..], &[kind_byte(kind)], name].concat()
}

/// The parts of a key in the order of expiry.
fn expiry_parts(key: &[u8]) -> Option<(Time, Kind, &[u8])> {
    let (time, row) = key.get(1..)?.split_first_chunk()?;
    let (kind, name) = row.split_first()?;
    #[expect(clippy::big_endian_bytes, reason = "redb compares keys byte by byte")]
    let time = Time(u64::from_be_bytes(*time));
    Some((time, kind_of(*kind)?, name))
}

impl<T: ReadableTable<Bytes, Bytes>> Tables<'_, T> {
    fn value(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.table.get(key).map_err(failed)?.map(|value| value.value().to_vec()))
    }
}

impl<T: ReadableTable<Bytes, Bytes>> Rows for Tables<'_, T> {
    fn head(&self) -> Result<Option<Vec<u8>>> {
        self.value(&[HEAD])
    }

    fn is_empty(&self) -> Result<bool> {
        self.table.is_empty().map_err(failed)
    }

    fn row(&self, kind: Kind, name: &[u8]) -> Result<Option<Vec<u8>>> {
        self.value(&row_key(kind, name))
    }

    fn due(&self, now: Time, at_most: usize) -> Result<Vec<Due>> {
        let (first, end) = (expiry_start(Time(0)), expiry_start(Time(now.0.saturating_add(1))));
        let range = self.table.range::<&[u8]>(&first[..]..&end[..]).map_err(failed)?;
        range
            .take(at_most)
            .map(|entry| {
                let (key, _) = entry.map_err(failed)?;
                let Some((expires_at, kind, name)) = expiry_parts(key.value()) else {
                    return Err(self.seal.damaged(&row_name(EXPIRY, b""), "it names no row"));
                };
                let row = self.table.get(&row_key(kind, name)[..]).map_err(failed)?;
                // Of a row that is gone only this is left to be removed.
                let stored = row.map_or(Some(expires_at), |row| expiry_of(row.value()));
                Ok(Due { kind, name: name.to_vec(), expires_at, stored })
            })
            .collect()
    }
}

impl Tables<'_, Table<'_, Bytes, Bytes>> {
    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<(), StorageError> {
        self.table.insert(key, value).map(drop)
    }

    fn put_one(&mut self, row: &NewRow<'_>) -> Result<(), StorageError> {
        self.insert(&row_key(row.kind, row.name), row.value)?;
        if row.replaced == Some(row.expires_at) {
            return Ok(());
        }
        if let Some(before) = row.replaced {
            self.table.remove(&expiry_key(row.kind, row.name, before)[..])?;
        }
        if row.expires_at < Time::NEVER {
            self.insert(&expiry_key(row.kind, row.name, row.expires_at), b"")?;
        }
        Ok(())
    }
}

/// After a failed read or write redb refuses every commit, so half of what was asked for is never kept.
impl RowsMut for Tables<'_, Table<'_, Bytes, Bytes>> {
    fn set_head(&mut self, value: &[u8]) -> Result<()> {
        self.insert(&[HEAD], value).map_err(failed)
    }

    fn put(&mut self, rows: &[NewRow<'_>]) -> Result<()> {
        rows.iter().try_for_each(|row| self.put_one(row)).map_err(failed)
    }

    fn remove(&mut self, kind: Kind, name: &[u8], expires_at: Time) -> Result<()> {
        self.table.remove(&row_key(kind, name)[..]).map_err(failed)?;
        self.table.remove(&expiry_key(kind, name, expires_at)[..]).map_err(failed)?;
        Ok(())
    }
}
