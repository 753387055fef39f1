//! Processes killed between any two statements of a transaction, and at any moment: id and work agree.

use crate::common::child::{Child, role, say};
use crate::common::{Dice, announce, fresh_seed, noon, number_from};
use crate::door::{Door, World};
use crate::payments::{assert_agree, pay, pay_in_steps};
use crate::redb_door::Redb;
use crate::sqlite_door::Sqlite;
use oncedb::ManualClock;
use oncedb::sqlite::rusqlite::trace::{TraceEvent, TraceEventCodes};
use std::path::Path;
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What lies between two payments: longer than the short window that one of its ids has.
const PAUSE: Duration = Duration::from_secs(10);

/// The ledger in its directory. Its clock goes on with each payment, whoever makes it.
fn world<D: Door>(dir: &Path) -> World<D> {
    let world = World { db: D::open(dir), clock: ManualClock::new(noon()) };
    let made = u32::try_from(D::works(&world.db).len()).unwrap();
    world.clock.advance(PAUSE * made);
    world
}

/// What a killed process does: payments, from the first one that is not there yet.
fn payments<D: Door>(world: &World<D>) -> ! {
    let ledger = world.ledger();
    let first = i64::try_from(D::works(&world.db).len()).unwrap();
    say("ready");
    for number in first.. {
        pay::<D>(&ledger, &world.db, number);
        say(&number.to_string());
        world.clock.advance(PAUSE);
    }
    unreachable!("there is always another payment")
}

/// One payment, with the end of the process before the `last`th step.
fn steps_in_redb(dir: &Path, last: u64) {
    let world = world::<Redb>(dir);
    let (ledger, steps) = (world.ledger(), AtomicU64::new(0));
    let step = || {
        if steps.fetch_add(1, Ordering::Relaxed) == last {
            process::abort();
        }
    };
    let number = i64::try_from(Redb::works(&world.db).len()).unwrap();
    pay_in_steps::<Redb>(&ledger, &world.db, number, &step);
    say(&number.to_string());
    step();
    say("over");
}

/// The same in SQLite, which says itself when a statement begins: the ledger's own among them.
fn steps_in_sqlite(dir: &Path, last: u64) {
    let mut world = world::<Sqlite>(dir);
    let number = i64::try_from(Sqlite::works(&world.db).len()).unwrap();
    let mut steps = 0;
    let abort = move |event: TraceEvent<'_>| {
        if let TraceEvent::Stmt(..) = event {
            if steps == last {
                process::abort();
            }
            steps += 1;
        }
    };
    world.db.trace_v2(TraceEventCodes::SQLITE_TRACE_STMT, Some(abort)).unwrap();
    pay::<Sqlite>(&world.ledger(), &world.db, number);
    say(&number.to_string());
    world.db.execute_batch("SELECT 1").unwrap();
    say("over");
}

#[test]
fn child() {
    let Some((role, dir)) = role() else { return };
    match role.split_once(' ') {
        None if role == "redb" => payments(&world::<Redb>(&dir)),
        None => payments(&world::<Sqlite>(&dir)),
        Some(("redb", last)) => steps_in_redb(&dir, last.parse().unwrap()),
        Some((_, last)) => steps_in_sqlite(&dir, last.parse().unwrap()),
    }
}

fn heard(child: &mut Child, acknowledged: &mut Vec<i64>) -> bool {
    let mut over = false;
    while let Some(line) = child.hear() {
        match line.parse() {
            Ok(number) => acknowledged.push(number),
            Err(_) => over |= line == "over",
        }
    }
    child.bury();
    over
}

/// Ends a process before each of its statements, one process a statement, until one comes to its end.
fn between_any_two_statements<D: Door>(door: &str, at_least: u64) {
    let dir = tempfile::tempdir().unwrap();
    // With a payment before it, each has something that expired to remove.
    let first = world::<D>(dir.path());
    pay::<D>(&first.ledger(), &first.db, 0);
    drop(first);
    let mut acknowledged = vec![0];
    let mut last = 0;
    loop {
        let mut child = Child::start("kills::child", &format!("{door} {last}"), dir.path());
        let over = heard(&mut child, &mut acknowledged);
        let world = world::<D>(dir.path());
        let count =
            assert_agree(&world, &world.ledger(), &acknowledged, &format!("{door}, statement {last}"));
        // What was committed and not said is known now.
        acknowledged = (0..count).collect();
        if over {
            break;
        }
        last += 1;
        assert!(last < 100, "a payment has an end");
    }
    assert!(last >= at_least, "{last} statements");
    assert!(acknowledged.len() >= 3, "the last statements come after a commit");
}

fn at_any_moment<D: Door>(door: &str) {
    let seed = fresh_seed();
    let rounds = number_from("ONCEDB_LEDGER_KILLS").unwrap_or(8);
    announce(&format!("kills of a ledger in {door}: ONCEDB_SEED={seed}"));
    let mut dice = Dice::new(seed);
    let dir = tempfile::tempdir().unwrap();
    let mut acknowledged = Vec::new();
    for round in 0..rounds {
        let mut child = Child::start("kills::child", door, dir.path());
        child.expect("ready");
        for _ in 0..dice.below(30) {
            let line = child.hear().expect("the child goes on");
            acknowledged.push(line.parse().expect("a number"));
        }
        // Somewhere in the next payments.
        for _ in 0..dice.below(2000) {
            std::hint::spin_loop();
        }
        child.kill();
        heard(&mut child, &mut acknowledged);
        let world = world::<D>(dir.path());
        let at = format!("{door}, kill {round}, ONCEDB_SEED={seed}");
        let count = assert_agree(&world, &world.ledger(), &acknowledged, &at);
        acknowledged = (0..count).collect();
    }
}

#[test]
fn id_and_work_agree_after_a_kill_between_any_two_steps_in_redb() {
    between_any_two_statements::<Redb>("redb", 8);
}

#[test]
fn id_and_work_agree_after_a_kill_between_any_two_statements_in_sqlite() {
    between_any_two_statements::<Sqlite>("sqlite", 17);
}

#[test]
fn id_and_work_agree_after_kills_at_any_moment_in_redb() {
    at_any_moment::<Redb>("redb");
}

#[test]
fn id_and_work_agree_after_kills_at_any_moment_in_sqlite() {
    at_any_moment::<Sqlite>("sqlite");
}
