//! A ledger keeps to its own tables: other ledgers and the caller's are never touched.

use crate::common::{DAY, HOUR};
use crate::door::{Door, World, ask, duplicate, new, through_both_doors};
use crate::redb_door::Redb;
use crate::sqlite_door::Sqlite;
use oncedb::redb::{Database, TableDefinition, backends::InMemoryBackend};
use oncedb::{Error, Timestamp};

through_both_doors! {
    two_ledgers_in_one_database_do_not_interfere,
    names_that_look_alike_are_different_ledgers,
    the_callers_own_tables_are_never_touched,
    two_handles_of_one_name_are_one_ledger,
}

fn two_ledgers_in_one_database_do_not_interfere<D: Door>() {
    let world = World::<D>::new();
    let one = world.with(|it| it.name = "one".into());
    let two = world.with(|it| it.name = "two".into());
    let event = ask("evt_1").order("acct_7", Timestamp::from_secs(30)).window(HOUR);
    new(world.claim(&one, &event));
    assert!(!world.contains(&two, "evt_1"));
    assert!(D::last_applied(&two, &world.db, b"acct_7").unwrap().is_none());
    world.clock.advance(HOUR);
    new(world.claim(&two, &ask("evt_1").order("acct_7", Timestamp::from_secs(20))));
    assert_eq!(D::rows(&world.db, "one").len(), 3, "a claim in one removes nothing of the other");
    // The time of one is not the time of the other.
    world.clock.step_wall(-3600);
    assert!(world.contains(&one, "evt_1"));
    assert!(world.forget(&one, "evt_1"));
    assert!(world.forget_mark(&one, "acct_7"));
    duplicate(world.claim(&two, &ask("evt_1")));
    assert!(D::last_applied(&two, &world.db, b"acct_7").unwrap().is_some());
    world.clock.advance(2 * DAY);
    assert_eq!(world.expire(&one, 10), 1);
    assert_eq!(D::rows(&world.db, "two").len(), 3);
}

fn names_that_look_alike_are_different_ledgers<D: Door>() {
    let world = World::<D>::new();
    let names = [
        "",
        "a",
        "A",
        "a ",
        " a",
        "a\0",
        "a\0b",
        "\0",
        "\"",
        "\"\"",
        "'",
        "a_expiry",
        "~41",
        "~",
        "é",
        "É",
        "e\u{301}",
        "oncedb_ledger_a",
        "a:b",
        "a;DROP TABLE work",
        "%",
        "a\n",
        "sqlite_master",
    ];
    let ledgers: Vec<_> = names.iter().map(|name| world.with(|it| it.name = (*name).into())).collect();
    for (ledger, name) in ledgers.iter().zip(names) {
        assert!(world.claim(ledger, &ask("evt_1")).unwrap().is_new(), "{name:?}");
    }
    for (ledger, name) in ledgers.iter().zip(names) {
        assert!(world.claim(ledger, &ask("evt_1")).unwrap().is_duplicate(), "{name:?}");
    }
    assert_eq!(D::tables(&world.db).iter().filter(|name| name.starts_with("oncedb_")).count(), names.len());
}

fn the_callers_own_tables_are_never_touched<D: Door>() {
    let world = World::<D>::new();
    world.write(|tx| D::work(tx, "before"));
    let tables = D::tables(&world.db);
    let ledger = world.ledger();
    world.write(|tx| {
        new(D::claim(&ledger, tx, &ask("evt_1").order("acct_7", Timestamp::from_secs(30))));
        D::work(tx, "evt_1");
        new(D::claim(&ledger, tx, &ask("evt_2")));
        assert!(D::forget(&ledger, tx, b"evt_2").unwrap());
        assert!(D::forget_mark(&ledger, tx, b"acct_7").unwrap());
    });
    world.clock.advance(DAY);
    assert_eq!(world.expire(&ledger, 10), 2);
    assert_eq!(D::works(&world.db), ["before", "evt_1"]);
    let theirs = D::tables(&world.db).into_iter().filter(|name| !name.starts_with("oncedb_"));
    assert_eq!(theirs.collect::<Vec<_>>(), tables);
}

fn two_handles_of_one_name_are_one_ledger<D: Door>() {
    let world = World::<D>::new();
    new(world.claim(&world.ledger(), &ask("evt_1")));
    let other = world.with(|it| it.window = HOUR);
    duplicate(world.claim(&other, &ask("evt_1")));
    duplicate(world.claim(&other.clone(), &ask("evt_1")));
}

/// A ledger's table that the caller has open, and one of that name that is not a ledger's, are errors.
#[test]
fn a_table_that_is_open_or_not_a_ledgers_is_an_error_in_redb() {
    let world = World::<Redb>::new();
    let ledger = world.ledger();
    let theirs = TableDefinition::<&[u8], &[u8]>::new("oncedb_ledger:stripe");
    let tx = world.db.begin_write().unwrap();
    {
        let _open = tx.open_table(theirs).unwrap();
        let refused = ledger.claim(&tx, "evt_1");
        assert!(matches!(refused, Err(Error::Transaction { .. })), "{refused:?}");
    }
    // It is closed again after every call, and the caller may open it.
    assert!(ledger.claim(&tx, "evt_1").unwrap().is_new());
    drop(tx.open_table(theirs).unwrap());
    assert!(ledger.claim(&tx, "evt_1").unwrap().is_duplicate());
    tx.commit().unwrap();

    let db = Database::builder().create_with_backend(InMemoryBackend::new()).unwrap();
    let tx = db.begin_write().unwrap();
    drop(tx.open_table(TableDefinition::<u64, u64>::new("oncedb_ledger:stripe")).unwrap());
    let refused = ledger.claim(&tx, "evt_1");
    assert!(matches!(refused, Err(Error::Transaction { .. })), "{refused:?}");
}

/// A table of that name in another schema does not stand in for a ledger's own, and what SQLite keeps
/// for its callers stays theirs.
#[test]
fn temporary_and_attached_tables_do_not_stand_in_for_a_ledgers_own() {
    let world = World::<Sqlite>::new();
    let db = &world.db;
    db.execute_batch(
        "ATTACH ':memory:' AS other; PRAGMA user_version = 7; PRAGMA application_id = 9; \
         CREATE TABLE other.oncedb_ledger_stripe (x); CREATE TEMP TABLE oncedb_ledger_stripe (x)",
    )
    .unwrap();
    let ledger = world.ledger();
    assert!(!world.contains(&ledger, "evt_1"));
    new(world.claim(&ledger, &ask("evt_1")));
    duplicate(world.claim(&ledger, &ask("evt_1")));
    for table in ["other.oncedb_ledger_stripe", "temp.oncedb_ledger_stripe"] {
        let count: u32 =
            db.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap();
        assert_eq!(count, 0);
    }
    for (pragma, value) in [("user_version", 7), ("application_id", 9)] {
        assert_eq!(db.pragma_query_value(None, pragma, |row| row.get::<_, u32>(0)).unwrap(), value);
    }
}
