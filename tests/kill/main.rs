//! A process killed at any moment under load takes nothing back that it said, and nothing comes
//! back that it did not do.
//!
//! SIGKILL leaves the kernel's page cache alone. So these tests see what the process itself had not
//! handed over, and every way in which recovery can go wrong; they cannot see an acknowledgement
//! that came before its sync, which is what the tests on the simulated disk are for.
//!
//! `ONCEDB_KILL_ROUNDS` asks for another number of rounds, `ONCEDB_SEED` for the same choices again.
//! For hours of it: `ONCEDB_KILL_ROUNDS=10000 cargo test --release --test kill -- --nocapture`.

#[path = "../common/mod.rs"]
mod common;

mod check;
mod closing;
mod facts;
mod history;
mod load;
mod marks;
mod opening;
mod race;
mod rounds;
mod shared;
mod solo;
mod state;
mod words;

use common::child::{Child, role, wait_for_the_kill};
use common::{Dice, duplicate, new};
use facts::{Grant, Intent, Line, Micros, Span, Word, now};
use history::History;
use oncedb::{Scope, Store};
use rounds::Rounds;
use std::path::Path;
use std::thread;
use std::time::Duration;

const SCOPE: &str = "load";

/// One in so many of the keys of earlier rounds is looked at again after each.
const SAMPLE: u64 = 8;

/// So many rounds happen to one store: its history is held in memory.
const LIFE: u64 = 30;

/// Flushes, merges and recycled segments come often.
const SMALL: usize = 1 << 20;

/// Much is left to replay.
const LARGE: usize = 64 << 20;

fn open(path: &Path, memory: usize) -> oncedb::Result<(Store, Scope)> {
    let store = Store::options().memory_limit(memory).max_response_len(words::MAX_RESPONSE).open(path)?;
    let scope = store.scope(SCOPE)?;
    Ok((store, scope))
}

#[test]
fn a_killed_process_takes_nothing_back() {
    let mut rounds = Rounds::new("kill", 1);
    let mut place = tempfile::tempdir().expect("a temporary directory");
    let mut history = History::default();
    for round in 0..rounds.count {
        if round % LIFE == LIFE - 1 {
            place = tempfile::tempdir().expect("a temporary directory");
            rounds.add(std::mem::take(&mut history));
        }
        let lines = match rounds.dice.below(8) {
            0 | 1 => rounds.dice.below(40),
            _ => rounds.dice.below(10_000),
        };
        let is_slow = rounds.dice.below(3) == 0;
        let mut child = start("load", SMALL, round, &mut rounds.dice, place.path(), &mut history);
        hear_lines(&mut child, lines, is_slow, &mut history);
        kill(&mut child, &mut history);
        check_and_use(place.path(), SMALL, round, &mut rounds.dice, &mut history);
    }
    look_at_all(place.path(), SMALL, &mut rounds.dice, &mut history);
    eprintln!("the last store: {history}");
    rounds.add(history);
    rounds.end();
}

fn start(role: &str, memory: usize, round: u64, dice: &mut Dice, dir: &Path, history: &mut History) -> Child {
    history.next_process();
    let role = format!("{role}/{memory}/{round}/{}", dice.roll());
    Child::start("the_process_that_is_killed", &role, dir)
}

/// Hears so many lines. Slowly, so that a window ends while the child waits to be heard.
fn hear_lines(child: &mut Child, lines: u64, slowly: bool, history: &mut History) {
    for number in 0..lines {
        let Some(said) = child.hear() else {
            return history.wrong("the load came to an end".to_owned());
        };
        history.hear(&said);
        if slowly && number % 20 == 0 {
            thread::park_timeout(Duration::from_millis(10));
        }
    }
}

/// Kills the child and hears it out.
fn kill(child: &mut Child, history: &mut History) {
    child.kill();
    while let Some(said) = child.hear() {
        history.hear(&said);
    }
    child.bury();
    history.bury();
}

/// Recovers the store twice, which must tell the same, and uses it.
fn check_and_use(dir: &Path, memory: usize, round: u64, dice: &mut Dice, history: &mut History) {
    for _ in 0..2 {
        let (store, scope) = open(dir, memory).expect("a store whose process was killed opens");
        history.check(&scope, SAMPLE, dice);
        store.close().expect("a recovered store closes");
    }
    let (store, scope) = open(dir, memory).expect("a recovered store opens");
    history.next_process();
    for number in 0..20 {
        use_it(&scope, &format!("after-{round}-{number}"), history);
    }
    store.close().expect("a store that was used closes");
    history.bury();
}

fn look_at_all(dir: &Path, memory: usize, dice: &mut Dice, history: &mut History) {
    let (_store, scope) = open(dir, memory).expect("the store opens for the last time");
    history.check(&scope, 1, dice);
}

/// Begins, completes and asks again, told to the history as a child would.
fn use_it(scope: &Scope, id: &str, history: &mut History) {
    let mut tell = |asked: Micros, word| {
        let line = Line::Key { id: id.to_owned(), span: Span::since(asked), word };
        history.hear(&serde_json::to_string(&line).expect("a line is plain data"));
    };
    let asked = now();
    tell(asked, Word::Try(Intent::Begin { leased: false }));
    let guard = new(words::request(scope, id).begin());
    let attempt = guard.attempt();
    tell(asked, Word::Granted(Grant::of(id, &guard).expect("a guard of its own")));
    let asked = now();
    tell(asked, Word::Try(Intent::Settle { attempt, reply: true, refusal: false }));
    guard.complete_with(words::reply(id, attempt)).expect("a recovered store goes on");
    tell(asked, Word::Did { attempt });
    duplicate(words::request(scope, id).claim());
}

/// Not a promise of its own: without a role in the environment there is nothing to do.
#[test]
fn the_process_that_is_killed() {
    let Some((role, dir)) = role() else { return };
    let mut parts = role.split('/');
    let role = parts.next().expect("a role");
    if role == "race" {
        return race::take_turns(&dir, parts.next().expect("a number"));
    }
    let mut number = || parts.next().and_then(|part| part.parse().ok()).expect("a number");
    let (memory, round, seed) = (number(), number(), number());
    Line::Opening.say();
    let (store, scope) = match open(&dir, usize::try_from(memory).expect("a size")) {
        Ok(opened) => opened,
        Err(error) => return Line::Failed(format!("the store does not open: {error}")).say(),
    };
    Line::Open.say();
    if role != "open" {
        load::run(&store, &scope, round, seed);
    }
    if role == "close" {
        closing::close_when_told(&store);
    }
    wait_for_the_kill();
}
