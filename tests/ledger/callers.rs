//! What callers do in and around a transaction: savepoints, dropped tables, read-only databases, settings.

use crate::common::HOUR;
use crate::door::{Door, World, ask, duplicate, new, stale};
use crate::redb_door::Redb;
use crate::sqlite_door::Sqlite;
use oncedb::sqlite::rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};
use oncedb::{Error, Retention, Timestamp};

/// A claim in a savepoint that is rolled back did not happen, the first one of a ledger included, and the
/// transaction goes on.
#[test]
fn a_claim_in_a_savepoint_that_is_rolled_back_did_not_happen() {
    let world = World::<Sqlite>::new();
    let ledger = world.ledger();
    let tx = Sqlite::begin(&world.db);
    for _ in 0..2 {
        tx.execute_batch("SAVEPOINT step").unwrap();
        assert!(ledger.claim(&tx, "evt_1").unwrap().is_new());
        Sqlite::work(&tx, "evt_1");
        tx.execute_batch("ROLLBACK TO step; RELEASE step").unwrap();
        assert!(!ledger.contains(&tx, "evt_1").unwrap());
    }
    assert!(ledger.claim(&tx, "evt_2").unwrap().is_new());
    tx.execute_batch("SAVEPOINT step").unwrap();
    assert!(ledger.claim(&tx, "evt_1").unwrap().is_new());
    tx.execute_batch("ROLLBACK TO step").unwrap();
    tx.commit().unwrap();
    assert!(!world.contains(&ledger, "evt_1") && world.contains(&ledger, "evt_2"));
    assert!(Sqlite::works(&world.db).is_empty());
}

/// The same in redb.
#[test]
fn a_claim_before_a_savepoint_that_is_restored_did_not_happen() {
    let world = World::<Redb>::new();
    let ledger = world.ledger();
    let mut tx = Redb::begin(&world.db);
    let before = tx.ephemeral_savepoint().unwrap();
    assert!(ledger.claim(&tx, "evt_1").unwrap().is_new());
    Redb::work(&tx, "evt_1");
    tx.restore_savepoint(&before).unwrap();
    assert!(ledger.claim(&tx, "evt_1").unwrap().is_new());
    tx.restore_savepoint(&before).unwrap();
    tx.commit().unwrap();
    assert!(!world.contains(&ledger, "evt_1"));
    assert!(Redb::works(&world.db).is_empty());
}

/// A table that the caller drops takes the ids with it, in the middle of a transaction too; an index that is gone is
/// an error and no verdict.
#[test]
fn a_ledger_whose_table_is_dropped_begins_anew() {
    let world = World::<Sqlite>::new();
    let ledger = world.ledger();
    new(world.claim(&ledger, &ask("evt_1")));
    world.write(|tx| {
        tx.execute_batch("DROP TABLE oncedb_ledger_stripe").unwrap();
        assert!(!ledger.contains(tx, "evt_1").unwrap());
        assert!(!ledger.forget(tx, "evt_1").unwrap());
        assert!(ledger.claim(tx, "evt_1").unwrap().is_new());
    });
    duplicate(world.claim(&ledger, &ask("evt_1")));
    world.db.execute_batch("DROP INDEX oncedb_expiry_stripe").unwrap();
    assert!(matches!(world.claim(&ledger, &ask("evt_2")), Err(Error::Sqlite { .. })));
    assert!(!world.contains(&ledger, "evt_2"));
}

/// What cannot be written to can be asked, and a claim in it is an error.
#[test]
fn a_database_that_is_read_only_is_asked_and_takes_no_claim() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = World::<Sqlite>::new().ledger();
    let writing = Sqlite::open(dir.path());
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
    let reading = Connection::open_with_flags(dir.path().join("db.sqlite"), flags).unwrap();
    for is_there in [false, true] {
        assert_eq!(ledger.contains(&reading, "evt_1").unwrap(), is_there);
        let tx = Transaction::new_unchecked(&reading, TransactionBehavior::Deferred).unwrap();
        assert!(matches!(ledger.claim(&tx, "evt_2"), Err(Error::Sqlite { .. })));
        drop(tx);
        let tx = Sqlite::begin(&writing);
        assert_eq!(ledger.claim(&tx, "evt_1").unwrap().is_new(), !is_there);
        tx.commit().unwrap();
    }
}

/// What a caller may set on a connection, and statements that it has open, change no verdict.
#[test]
fn settings_and_open_statements_of_the_caller_change_nothing() {
    let world = World::<Sqlite>::new();
    world
        .db
        .execute_batch(
            "PRAGMA recursive_triggers = ON; PRAGMA case_sensitive_like = ON; PRAGMA foreign_keys = ON; \
             PRAGMA reverse_unordered_selects = ON; PRAGMA cell_size_check = ON; PRAGMA secure_delete = ON; \
             PRAGMA temp_store = MEMORY; PRAGMA full_column_names = ON",
        )
        .unwrap();
    let ledger = world.with(|it| it.retention = Retention::For(HOUR));
    world.write(|tx| Sqlite::work(tx, "before"));
    let mut open = world.db.prepare("SELECT work.name FROM work, sqlite_master").unwrap();
    let mut rows = open.query([]).unwrap();
    assert!(rows.next().unwrap().is_some());
    let event = |id: &str, secs| ask(id).order("acct_7", Timestamp::from_secs(secs)).window(HOUR);
    for hour in 1..5 {
        new(world.claim(&ledger, &event(&format!("evt_{hour}"), hour)));
        duplicate(world.claim(&ledger, &event(&format!("evt_{hour}"), hour)));
        stale(world.claim(&ledger, &event("older", 0)));
        world.clock.advance(HOUR);
    }
    assert_eq!(world.expire(&ledger, 10), 2, "the last id and the mark");
    drop(rows);
}
