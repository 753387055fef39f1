//! A process killed at any moment under load takes nothing back that it said, and nothing comes
//! back that it did not do.
//!
//! `ONCEDB_KILL_ROUNDS` asks for more rounds than five, `ONCEDB_SEED` for the same ones again.

#[path = "../common/mod.rs"]
mod common;

mod history;
mod load;

use common::child::{Child, role};
use common::{Dice, duplicate, new};
use history::History;
use oncedb::{Scope, Store};
use std::env;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

const SCOPE: &str = "load";

/// One in so many of the keys of earlier rounds is looked at again after each.
const SAMPLE: u64 = 8;

fn open(path: &Path) -> (Store, Scope) {
    let store =
        Store::options().memory_limit(1 << 20).max_response_len(4 << 10).open(path).expect("the store opens");
    let scope = store.scope(SCOPE).expect("its scope opens");
    (store, scope)
}

/// The one reply that the key `id` is ever completed or refused with.
fn reply(id: &str) -> Vec<u8> {
    let mut dice = Dice::new(id.bytes().fold(7, |sum, byte| sum * 31 % 1_000_003 + u64::from(byte)));
    let len = 1 + dice.below(3000);
    dice.bytes(usize::try_from(len).expect("a few bytes"))
}

fn number_from(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is to be a number, not {text}")))
}

#[test]
fn a_killed_process_takes_nothing_back() {
    let seed = number_from("ONCEDB_SEED").unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970");
        u64::from(now.subsec_nanos()) ^ now.as_secs()
    });
    let rounds = number_from("ONCEDB_KILL_ROUNDS").unwrap_or(5);
    eprintln!("ONCEDB_SEED={seed} ONCEDB_KILL_ROUNDS={rounds}");

    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut dice = Dice::new(seed);
    let mut history = History::default();
    for round in 0..rounds {
        let lines = if dice.below(4) == 0 { dice.below(20) } else { dice.below(6000) };
        run_and_kill(dir.path(), round, dice.roll(), lines, &mut history);
        for _ in 0..2 {
            let (store, scope) = open(dir.path());
            history.check(&scope, SAMPLE, &mut dice);
            store.close().expect("a recovered store closes");
        }
        use_it(dir.path(), round, &mut history);
    }
    let (_store, scope) = open(dir.path());
    history.check(&scope, 1, &mut dice);
    eprintln!("{history}");
}

/// Runs the load in a child until it has said `lines` lines, kills it, and hears it out.
fn run_and_kill(dir: &Path, round: u64, seed: u64, lines: u64, history: &mut History) {
    let mut child = Child::start("the_process_that_is_killed", &format!("{round}/{seed}"), dir);
    for _ in 0..lines {
        let said = child.hear().expect("the load goes on until it is killed");
        history.hear(&said);
    }
    child.kill();
    while let Some(said) = child.hear() {
        history.hear(&said);
    }
    child.bury();
}

fn use_it(dir: &Path, round: u64, history: &mut History) {
    let (store, scope) = open(dir);
    for number in 0..20 {
        let id = format!("after-{round}-{number}");
        let guard = new(scope.begin(&id));
        assert_eq!(guard.attempt(), 1, "nobody ever tried {id}");
        history.hear(&format!("begun {id} {}", guard.token()));
        guard.complete_with(reply(&id)).expect("a recovered store goes on");
        history.hear(&format!("done {id}"));
        duplicate(scope.claim(&id));
    }
    store.close().expect("a store that was used closes");
}

/// Not a promise of its own: without a role in the environment there is nothing to do.
#[test]
fn the_process_that_is_killed() {
    let Some((role, dir)) = role() else { return };
    let (round, seed) = role.split_once('/').expect("a round and a seed");
    let (store, scope) = open(&dir);
    load::run(&store, &scope, round, seed.parse().expect("a seed"));
}
