//! The suite's door to redb.

use crate::door::{Answer, Ask, Door, Settings, claim_by, ledger_of};
use oncedb::redb::backends::InMemoryBackend;
use oncedb::redb::{
    Database, ReadableDatabase, ReadableTable, TableDefinition, TableError, TableHandle, WriteTransaction,
};
use oncedb::{Ledger, Mark, Record};
use std::path::Path;

pub struct Redb;

pub const WORK: TableDefinition<&str, u64> = TableDefinition::new("work");
const EXPIRY: u8 = 3;

fn table(name: &str) -> TableDefinition<'_, &'static [u8], &'static [u8]> {
    TableDefinition::new(name)
}

fn named(ledger: &str) -> String {
    format!("oncedb_ledger:{ledger}")
}

/// The keys of the order of expiry with the row that each names.
fn expiry_keys(db: &Database, ledger: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    let tx = db.begin_read().unwrap();
    let table = tx.open_table(table(&named(ledger))).unwrap();
    let keys = table.iter().unwrap().map(|entry| entry.unwrap().0.value().to_vec());
    keys.filter(|key| key[0] == EXPIRY).map(|key| (key.clone(), key[9..].to_vec())).collect()
}

fn key_of((kind, name): (u8, &[u8])) -> Vec<u8> {
    [&[kind], name].concat()
}

impl Door for Redb {
    type Db = Database;
    type Tx<'db> = WriteTransaction;
    type Ledger = Ledger;

    fn memory() -> Database {
        Database::builder().create_with_backend(InMemoryBackend::new()).unwrap()
    }

    fn open(dir: &Path) -> Database {
        Database::create(dir.join("db.redb")).unwrap()
    }

    fn begin(db: &Database) -> WriteTransaction {
        db.begin_write().unwrap()
    }

    fn commit(tx: WriteTransaction) {
        tx.commit().unwrap();
    }

    fn roll_back(tx: WriteTransaction) {
        tx.abort().unwrap();
    }

    fn ledger(settings: &Settings) -> Ledger {
        ledger_of!(Ledger, settings)
    }

    fn claim(ledger: &Ledger, tx: &WriteTransaction, ask: &Ask) -> Answer {
        claim_by!(ledger, tx, ask)
    }

    fn respond(ledger: &Ledger, tx: &WriteTransaction, id: &[u8], response: &[u8]) -> oncedb::Result<bool> {
        ledger.respond(tx, id, response)
    }

    fn forget(ledger: &Ledger, tx: &WriteTransaction, id: &[u8]) -> oncedb::Result<bool> {
        ledger.forget(tx, id)
    }

    fn forget_mark(ledger: &Ledger, tx: &WriteTransaction, entity: &[u8]) -> oncedb::Result<bool> {
        ledger.forget_mark(tx, entity)
    }

    fn expire(ledger: &Ledger, tx: &WriteTransaction, at_most: usize) -> oncedb::Result<usize> {
        ledger.expire(tx, at_most)
    }

    fn contains(ledger: &Ledger, db: &Database, id: &[u8]) -> oncedb::Result<bool> {
        ledger.contains(&db.begin_read().unwrap(), id)
    }

    fn get(ledger: &Ledger, db: &Database, id: &[u8]) -> oncedb::Result<Option<Record>> {
        ledger.get(&db.begin_read().unwrap(), id)
    }

    fn last_applied(ledger: &Ledger, db: &Database, entity: &[u8]) -> oncedb::Result<Option<Mark>> {
        ledger.last_applied(&db.begin_read().unwrap(), entity)
    }

    fn shown(ledger: &Ledger, id: &[u8]) -> (String, String) {
        (format!("{ledger:?}"), format!("{:?}", ledger.request(id).order(id, std::time::SystemTime::now())))
    }

    fn work(tx: &WriteTransaction, name: &str) {
        tx.open_table(WORK).unwrap().insert(name, 1).unwrap();
    }

    fn works(db: &Database) -> Vec<String> {
        match db.begin_read().unwrap().open_table(WORK) {
            Ok(table) => table.iter().unwrap().map(|entry| entry.unwrap().0.value().to_owned()).collect(),
            Err(TableError::TableDoesNotExist(_)) => Vec::new(),
            Err(error) => panic!("{error}"),
        }
    }

    fn tables(db: &Database) -> Vec<String> {
        let tx = db.begin_read().unwrap();
        let mut names: Vec<_> = tx.list_tables().unwrap().map(|table| table.name().to_owned()).collect();
        names.sort();
        names
    }

    fn rows(db: &Database, ledger: &str) -> Vec<(u8, Vec<u8>, Vec<u8>)> {
        let tx = db.begin_read().unwrap();
        let table = tx.open_table(table(&named(ledger))).unwrap();
        let entries = table.iter().unwrap().map(|entry| {
            let (key, value) = entry.unwrap();
            (key.value()[0], key.value()[1..].to_vec(), value.value().to_vec())
        });
        entries.filter(|(kind, ..)| *kind != EXPIRY).collect()
    }

    fn set_value(db: &Database, ledger: &str, row: (u8, &[u8]), value: Option<&[u8]>) {
        let tx = db.begin_write().unwrap();
        {
            let mut table = tx.open_table(table(&named(ledger))).unwrap();
            let key = key_of(row);
            match value {
                Some(value) => drop(table.insert(&key[..], value).unwrap()),
                None => drop(table.remove(&key[..]).unwrap()),
            }
        }
        tx.commit().unwrap();
    }

    fn set_expiry(db: &Database, ledger: &str, row: (u8, &[u8]), nanos: u64) {
        let named_row = key_of(row);
        let keys = expiry_keys(db, ledger);
        let (old, _) = keys.iter().find(|(_, row)| *row == named_row).expect("the row has a time");
        let tx = db.begin_write().unwrap();
        {
            let mut table = tx.open_table(table(&named(ledger))).unwrap();
            table.remove(&old[..]).unwrap();
            let key = [&[EXPIRY][..], &nanos.to_be_bytes(), &named_row].concat();
            table.insert(&key[..], &b""[..]).unwrap();
        }
        tx.commit().unwrap();
    }

    fn expiring(db: &Database, ledger: &str) -> usize {
        expiry_keys(db, ledger).len()
    }
}
