//! What a transaction does not commit did not happen.

use crate::common::{DAY, HOUR, SECOND};
use crate::door::{Door, World, ask, duplicate, new, stale, through_both_doors};
use crate::sqlite_door::Sqlite;
use oncedb::sqlite::rusqlite::trace::{TraceEvent, TraceEventCodes};
use oncedb::sqlite::rusqlite::{self, Connection, Transaction, TransactionBehavior};
use oncedb::{Error, Ledger, Timestamp, sqlite};

through_both_doors! {
    rolled_back_claim_did_not_happen,
    rolled_back_first_claim_leaves_no_table,
    many_claims_in_one_transaction_see_each_other,
    rolled_back_removal_did_not_happen,
    claims_last_over_reopening,
}

fn rolled_back_claim_did_not_happen<D: Door>() {
    let world = World::<D>::new();
    let ledger = world.ledger();
    new(world.claim(&ledger, &ask("before").window(HOUR)));
    let rows = D::rows(&world.db, "stripe");
    world.clock.advance(2 * HOUR);
    let tx = D::begin(&world.db);
    new(D::claim(&ledger, &tx, &ask("evt_1").order("acct_7", Timestamp::from_secs(30))));
    D::work(&tx, "evt_1");
    assert!(D::forget(&ledger, &tx, b"evt_1").unwrap());
    D::roll_back(tx);
    assert_eq!(D::rows(&world.db, "stripe"), rows, "neither the id, nor the mark, nor the time");
    assert!(D::works(&world.db).is_empty());
    world.clock.step_wall(-2 * 3600);
    assert!(world.contains(&ledger, "before"), "no memory of the later time is left");
    new(world.claim(&ledger, &ask("evt_1").order("acct_7", Timestamp::from_secs(10))));
}

fn rolled_back_first_claim_leaves_no_table<D: Door>() {
    let world = World::<D>::new();
    let ledger = world.ledger();
    let tables = D::tables(&world.db);
    for _ in 0..2 {
        let tx = D::begin(&world.db);
        new(D::claim(&ledger, &tx, &ask("evt_1")));
        duplicate(D::claim(&ledger, &tx, &ask("evt_1")));
        D::roll_back(tx);
        assert_eq!(D::tables(&world.db), tables);
        assert!(!world.contains(&ledger, "evt_1"));
        assert!(!world.forget(&ledger, "evt_1"));
    }
    new(world.claim(&ledger, &ask("evt_1")));
    duplicate(world.claim(&ledger, &ask("evt_1")));
}

fn many_claims_in_one_transaction_see_each_other<D: Door>() {
    let world = World::<D>::new();
    let ledger = world.ledger();
    world.write(|tx| {
        for number in 0..50_i64 {
            let event = ask(format!("evt_{number}")).order("acct_7", Timestamp::from_secs(number));
            new(D::claim(&ledger, tx, &event));
            duplicate(D::claim(&ledger, tx, &event));
            if number > 0 {
                let older = ask(format!("late_{number}")).order("acct_7", Timestamp::from_secs(number - 1));
                stale(D::claim(&ledger, tx, &older));
            }
        }
    });
    assert!((0..50).all(|number| world.contains(&ledger, &format!("evt_{number}"))));
}

fn rolled_back_removal_did_not_happen<D: Door>() {
    let world = World::<D>::new();
    let ledger = world.ledger();
    new(world.claim(&ledger, &ask("evt_1").window(SECOND)));
    new(world.claim(&ledger, &ask("evt_2").order("acct_7", Timestamp::from_secs(30))));
    let rows = D::rows(&world.db, "stripe");
    world.clock.advance(DAY);
    let tx = D::begin(&world.db);
    assert_eq!(D::expire(&ledger, &tx, 10).unwrap(), 2);
    assert!(D::forget_mark(&ledger, &tx, b"acct_7").unwrap());
    D::roll_back(tx);
    assert_eq!(D::rows(&world.db, "stripe"), rows);
    assert_eq!(world.expire(&ledger, 10), 2);
}

fn claims_last_over_reopening<D: Door>() {
    let dir = tempfile::tempdir().unwrap();
    let clock = World::<D>::new();
    let ledger = clock.ledger();
    for round in 0..3 {
        let db = D::open(dir.path());
        assert_eq!(D::contains(&ledger, &db, b"evt_1").unwrap(), round > 0);
        let tx = D::begin(&db);
        assert_eq!(D::claim(&ledger, &tx, &ask("evt_1")).unwrap().is_new(), round == 0);
        D::commit(tx);
    }
}

/// SQLite ends a transaction by itself after some errors. A claim after that would be committed alone,
/// so it is refused.
#[test]
fn a_transaction_that_is_over_takes_no_claim() {
    let world = World::<Sqlite>::new();
    let ledger = world.ledger();
    new(world.claim(&ledger, &ask("before")));
    let tx = Sqlite::begin(&world.db);
    tx.execute_batch("ROLLBACK").unwrap();
    let refusals = [
        ledger.claim(&tx, "evt_1").map(drop),
        ledger.forget(&tx, "before").map(drop),
        ledger.forget_mark(&tx, "acct_7").map(drop),
        ledger.expire(&tx, 1).map(drop),
    ];
    for refused in refusals {
        match refused {
            Err(ref error @ Error::Sqlite { .. }) => {
                assert!(error.to_string().contains("the transaction is over"), "{error}");
                assert!(std::error::Error::source(error).is_some());
            }
            other => panic!("expected an error, got {other:?}"),
        }
    }
    drop(tx);
    assert!(world.contains(&ledger, "before"));
    assert!(!world.contains(&ledger, "evt_1"));
}

/// A statement that cannot be carried out leaves neither an id without its mark nor a mark without its
/// id, even if the caller goes on and commits.
#[test]
fn a_claim_that_fails_half_way_leaves_nothing_to_commit() {
    let world = World::<Sqlite>::new();
    let ledger = world.ledger();
    new(world.claim(&ledger, &ask("before")));
    // The second of the two rows does not get in.
    world
        .db
        .execute_batch(
            "CREATE TRIGGER no_marks BEFORE INSERT ON oncedb_ledger_stripe WHEN new.kind = 2 \
             BEGIN SELECT RAISE(ABORT, 'no marks today'); END",
        )
        .unwrap();
    let ordered = ask("evt_1").order("acct_7", Timestamp::from_secs(30));
    world.write(|tx| {
        let refused = Sqlite::claim(&ledger, tx, &ordered);
        assert!(matches!(refused, Err(Error::Sqlite { .. })), "{refused:?}");
    });
    assert!(!world.contains(&ledger, "evt_1"));
    world.db.execute_batch("DROP TRIGGER no_marks").unwrap();
    new(world.claim(&ledger, &ordered));
}

/// Of two connections that claim one id at once, one is new and the other is told that it is busy.
#[test]
fn two_connections_do_not_both_get_a_new() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (Sqlite::open(dir.path()), Sqlite::open(dir.path()));
    let ledger = World::<Sqlite>::new().ledger();
    let deferred =
        |db| -> Transaction<'_> { Transaction::new_unchecked(db, TransactionBehavior::Deferred).unwrap() };
    two.busy_timeout(std::time::Duration::ZERO).unwrap();
    for id in ["evt_1", "evt_2"] {
        let (first, second) = (deferred(&one), deferred(&two));
        // Both have read that the id is not there.
        assert!(!ledger.contains(&first, id).unwrap() && !ledger.contains(&second, id).unwrap());
        assert!(ledger.claim(&first, id).unwrap().is_new());
        first.commit().unwrap();
        match ledger.claim(&second, id) {
            Err(Error::Sqlite { source, .. }) => {
                assert_eq!(source.sqlite_error_code(), Some(rusqlite::ErrorCode::DatabaseBusy));
            }
            other => panic!("expected an error, got {other:?}"),
        }
        drop(second);
        let again = deferred(&two);
        assert!(ledger.claim(&again, id).unwrap().is_duplicate());
    }
}

/// Another connection makes a ledger's table while one that has no transaction asks about an id: the answer is a
/// yes or a no, not an error.
#[test]
fn a_table_that_is_made_while_it_is_looked_for_is_no_error() {
    let dir = tempfile::tempdir().unwrap();
    let (mut asking, claiming) = (Sqlite::open(dir.path()), Sqlite::open(dir.path()));
    let ledger = World::<Sqlite>::new().ledger();
    let claims = ledger.clone();
    let looks_for_the_table = move |event: TraceEvent<'_>| {
        let TraceEvent::Stmt(_, text) = event else { return };
        if text.contains("sqlite_master") {
            let tx = Sqlite::begin(&claiming);
            assert!(claims.claim(&tx, "evt_1").unwrap().is_new());
            Sqlite::commit(tx);
        }
    };
    asking.trace_v2(TraceEventCodes::SQLITE_TRACE_STMT, Some(looks_for_the_table)).unwrap();
    assert!(ledger.contains(&asking, "evt_1").unwrap());
}

/// The two doors' ledgers can be kept in one program, even under one name.
#[test]
fn both_doors_take_the_same_options() {
    fn portable<T: Clone + Send + Sync + std::fmt::Debug + 'static>(_: &T) {}
    let (one, other) = (Ledger::new("stripe").window(HOUR), sqlite::Ledger::new("stripe").window(HOUR));
    portable(&one);
    portable(&other);
    assert_eq!(format!("{one:?}"), format!("{other:?}"));
    assert_eq!((one.name(), other.name()), ("stripe", "stripe"));
    let mut db = Connection::open_in_memory().unwrap();
    let tx = db.transaction().unwrap();
    assert!(other.claim(&tx, "evt_1").unwrap().is_new());
}
