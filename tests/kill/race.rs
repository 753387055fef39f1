//! Processes that race to open one directory.
//!
//! All of them write into one file, each line with one call at its end. So it shows in which order
//! things happened, and a kill takes nothing out of it.

use crate::common::child::{Child, say, watch_over_silence};
use crate::common::{Dice, PATIENCE};
use crate::history::History;
use crate::rounds::Rounds;
use crate::{SMALL, open, words};
use oncedb::Error;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

const MINUTES: &str = "minutes";

/// One process at a time has a store, a dead one has none, and what any of them was told is there.
#[test]
fn of_processes_that_race_to_open_a_store_one_at_a_time_has_it() {
    let mut rounds = Rounds::new("race to open", 3);
    let mut history = History::default();
    let mut place = tempfile::tempdir().expect("a temporary directory");
    for round in 0..rounds.count {
        if round % 2 == 0 {
            place = tempfile::tempdir().expect("a temporary directory");
        }
        let dir = place.path();
        let minutes = Minutes::open(dir);
        let mut racers: Vec<_> = (0..2).map(|number| Racer::start(dir, round, number)).collect();
        for number in 2..4 + rounds.dice.below(4) {
            pause(&mut rounds.dice);
            // Whoever has it, or the one who is about to have it.
            let holder = held_by(dir).and_then(|name| racers.iter().position(|racer| racer.name == name));
            let killed = holder.unwrap_or(0);
            let racer = &mut racers[killed];
            minutes.note(&format!("kill {}", racer.name));
            racer.child.kill();
            racer.child.bury();
            let other = &racers[1 - killed].name;
            if let Err(what) = wait_for_another_turn(dir, other) {
                history.wrong(format!("round {round}: {what}"));
            }
            racers[killed] = Racer::start(dir, round, number);
        }
        for racer in &mut racers {
            minutes.note(&format!("kill {}", racer.name));
            racer.child.kill();
            racer.child.bury();
        }
        check(dir, &mut history);
    }
    rounds.add(history);
    rounds.end();
}

struct Racer {
    name: String,
    child: Child,
}

impl Racer {
    fn start(dir: &Path, round: u64, number: u64) -> Self {
        let name = format!("{round}.{number}");
        let child = Child::start("the_process_that_is_killed", &format!("race/{name}"), dir);
        Self { name, child }
    }
}

fn pause(dice: &mut Dice) {
    thread::park_timeout(Duration::from_micros(dice.below(60_000)));
}

struct Minutes(File);

impl Minutes {
    fn open(dir: &Path) -> Self {
        let file = OpenOptions::new().append(true).create(true).open(dir.join(MINUTES));
        Self(file.expect("the minutes can be written"))
    }

    fn note(&self, line: &str) {
        (&self.0).write_all(format!("{line}\n").as_bytes()).expect("the minutes can be written");
    }
}

fn read(dir: &Path) -> Vec<(String, String)> {
    let minutes = fs::read_to_string(dir.join(MINUTES)).expect("the minutes can be read");
    let words = |line: &str| line.split_once(' ').map(|(what, name)| (what.to_owned(), name.to_owned()));
    minutes.lines().map(|line| words(line).expect("a word and what it is about")).collect()
}

fn held_by(dir: &Path) -> Option<String> {
    let (what, name) = read(dir).into_iter().rfind(|(what, _)| what == "has" || what == "leaves")?;
    (what == "has").then_some(name)
}

/// The other one opens the store after the last kill.
fn wait_for_another_turn(dir: &Path, name: &str) -> Result<(), String> {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        let minutes = read(dir);
        let kill = minutes.iter().rposition(|(what, _)| what == "kill").unwrap_or(0);
        if minutes[kill..].iter().any(|(what, who)| what == "has" && who == name) {
            return Ok(());
        }
        thread::park_timeout(Duration::from_millis(1));
    }
    Err(format!("{name} could not open the store that a killed process had"))
}

fn check(dir: &Path, history: &mut History) {
    let mut holder: Option<String> = None;
    let mut condemned = BTreeSet::new();
    let mut claims = BTreeSet::new();
    let mut tried = Vec::new();
    for (what, name) in read(dir) {
        match what.as_str() {
            "has" => {
                let before = holder.replace(name.clone());
                // One about to be killed may still have had its turn.
                if let Some(other) = before.filter(|other| !condemned.contains(other)) {
                    history.wrong(format!("{name} has opened the store that {other} has"));
                }
            }
            "leaves" => {
                if holder.take_if(|holder| *holder == name).is_none() {
                    history.wrong(format!("{name} leaves a store that {holder:?} has"));
                }
            }
            "kill" => {
                condemned.insert(name);
            }
            "tries" => tried.push(name),
            "claimed" => {
                history.answers += 1;
                if !claims.insert(name.clone()) {
                    history.wrong(format!("{name} was new twice"));
                }
            }
            _ => history.wrong(format!("{what} {name}")),
        }
    }
    let (store, scope) = open(dir, SMALL).expect("nobody has the store any more");
    for id in tried {
        let found = scope.get(&id).expect("the store answers");
        let right = match &found {
            Some(record) => record.stored_response().is_some_and(|reply| *reply == words::reply(&id, 0)[..]),
            None => !claims.contains(&id),
        };
        if !right {
            history
                .wrong(format!("{id} was tried, acknowledged: {}, found: {found:?}", claims.contains(&id)));
        }
    }
    store.close().expect("the store closes");
}

/// The child's part: opens the store, uses it for a while, and leaves it to others.
pub fn take_turns(dir: &Path, name: &str) {
    watch_over_silence();
    let minutes = Minutes::open(dir);
    let mut dice = Dice::new(name.bytes().map(u64::from).sum());
    for turn in 0_u64.. {
        let (store, scope) = match open(dir, SMALL) {
            Ok(opened) => opened,
            Err(Error::Locked { .. }) => {
                thread::yield_now();
                continue;
            }
            Err(other) => return minutes.note(&format!("failed {name}: {other}")),
        };
        minutes.note(&format!("has {name}"));
        for number in 0..dice.below(200) {
            // The longest replies are not kept.
            let id = format!("{name}.{turn}.{number}");
            if words::reply(&id, 0).len() > words::MAX_RESPONSE {
                continue;
            }
            minutes.note(&format!("tries {id}"));
            match words::request(&scope, &id).claim_with(words::reply(&id, 0)) {
                Ok(outcome) if outcome.is_new() => minutes.note(&format!("claimed {id}")),
                other => minutes.note(&format!("failed {id} is told {other:?}")),
            }
        }
        minutes.note(&format!("leaves {name}"));
        if let Err(error) = store.close() {
            minutes.note(&format!("failed {name} cannot close: {error}"));
        }
        say("a turn is over");
    }
}
