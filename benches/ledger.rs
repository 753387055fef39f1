//! What a claim adds to the caller's own transaction, beside one that keeps the id by a plain insert.

mod common;

use std::time::{Duration, Instant};

use common::{Ids, directory, scaled};
use oncedb::redb::{Database, TableDefinition, WriteTransaction};
use oncedb::sqlite::rusqlite::{Connection, Transaction, TransactionBehavior};
use oncedb::{Ledger, sqlite};

const WORK: TableDefinition<&[u8], u64> = TableDefinition::new("work");
const SEEN: TableDefinition<&[u8], u64> = TableDefinition::new("seen");

/// How an id is kept.
#[derive(Clone, Copy)]
enum Keep {
    Plain,
    Claim,
}

/// Runs transactions of so many events and gives the time of each.
trait Door {
    fn run(&mut self, keep: Keep, events: usize) -> Duration;
}

struct Redb {
    db: Database,
    ledger: Ledger,
    ids: Ids,
}

impl Redb {
    fn event(&mut self, tx: &WriteTransaction, keep: Keep) {
        let id = self.ids.fresh();
        match keep {
            Keep::Plain => {
                let mut seen = tx.open_table(SEEN).expect("the table opens");
                seen.insert(&id[..], 1).expect("the id is kept");
            }
            Keep::Claim => assert!(self.ledger.claim(tx, id).expect("a verdict").is_new()),
        }
        let mut work = tx.open_table(WORK).expect("the table opens");
        work.insert(&id[..], 1).expect("the work is done");
    }
}

impl Door for Redb {
    fn run(&mut self, keep: Keep, events: usize) -> Duration {
        let started = Instant::now();
        let tx = self.db.begin_write().expect("a transaction");
        for _ in 0..events {
            self.event(&tx, keep);
        }
        tx.commit().expect("the transaction is durable");
        started.elapsed()
    }
}

struct Sqlite {
    db: Connection,
    ledger: sqlite::Ledger,
    ids: Ids,
}

impl Door for Sqlite {
    fn run(&mut self, keep: Keep, events: usize) -> Duration {
        let started = Instant::now();
        let tx = Transaction::new_unchecked(&self.db, TransactionBehavior::Immediate).expect("a transaction");
        for _ in 0..events {
            let id = self.ids.fresh();
            match keep {
                Keep::Plain => insert(&tx, "INSERT INTO seen VALUES (?1, 1)", &id),
                Keep::Claim => assert!(self.ledger.claim(&tx, id).expect("a verdict").is_new()),
            }
            insert(&tx, "INSERT INTO work VALUES (?1, 1)", &id);
        }
        tx.commit().expect("the transaction is durable");
        started.elapsed()
    }
}

fn insert(tx: &Transaction<'_>, text: &str, id: &[u8]) {
    tx.prepare_cached(text).expect("a statement").execute([id]).expect("the row is inserted");
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Both ways in turns, so that both meet the disk in the same moods.
fn compare(name: &str, door: &mut impl Door, events: usize, rounds: usize) {
    let (mut plain, mut claims) = (Vec::new(), Vec::new());
    for _ in 0..scaled(rounds) {
        plain.push(door.run(Keep::Plain, events));
        claims.push(door.run(Keep::Claim, events));
    }
    let (plain, claim) = (median(plain), median(claims));
    let ratio = claim.as_secs_f64() / plain.as_secs_f64();
    let each = claim.saturating_sub(plain) / u32::try_from(events).expect("a small number");
    let name = format!("{name}, {events} events");
    println!("{name:<36} {plain:>10.1?} {claim:>10.1?} {ratio:>6.2} x {each:>10.1?}");
}

fn main() {
    let dir = directory();
    println!(
        "{:<36} {:>10} {:>10} {:>8} {:>10}",
        "one durable transaction", "insert", "claim", "ratio", "more each"
    );
    let db = Database::create(dir.path().join("db.redb")).expect("a database");
    let mut redb = Redb { db, ledger: Ledger::new("stripe"), ids: Ids::new() };
    let db = Connection::open(dir.path().join("db.sqlite")).expect("a database");
    db.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; \
         CREATE TABLE seen (id BLOB PRIMARY KEY, done INTEGER) WITHOUT ROWID; \
         CREATE TABLE work (id BLOB PRIMARY KEY, done INTEGER) WITHOUT ROWID;",
    )
    .expect("the tables are made");
    let mut sqlite = Sqlite { db, ledger: sqlite::Ledger::new("stripe"), ids: Ids::new() };
    for (events, rounds) in [(1, 1_000), (100, 200)] {
        compare("redb", &mut redb, events, rounds);
        compare("SQLite", &mut sqlite, events, rounds);
    }
}
