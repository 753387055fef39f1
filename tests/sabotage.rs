//! Every deliberate break of the store is seen by the crash campaigns: an oracle that cannot fail
//! proves nothing.
//!
//! One process, one break at a time. The seeds are the same at every run unless `ONCEDB_SEED` asks for
//! others; `ONCEDB_BREAK` asks for one break alone.

#[path = "common/mod.rs"]
mod common;

#[path = "crash/calls.rs"]
mod calls;
#[path = "crash/campaign.rs"]
#[expect(dead_code, reason = "breaks are looked for one history after the other")]
mod campaign;
#[path = "crash/damage.rs"]
mod damage;
#[path = "crash/faults.rs"]
#[expect(dead_code, reason = "not every kind of history is needed to see the breaks")]
mod faults;
#[path = "crash/history.rs"]
#[expect(dead_code, reason = "not every kind of history is needed to see the breaks")]
mod history;
#[path = "crash/oracle.rs"]
mod oracle;
#[path = "crash/room.rs"]
mod room;
#[path = "crash/states.rs"]
mod states;
#[path = "crash/world.rs"]
mod world;

use campaign::{judge, seed_of};
use common::number_from;
use history::Tally;
use oncedb::sabotage::{Break, set};
use oncedb::simulation::FaultKind;

/// Histories before a break counts as not seen.
const MOST: u64 = 4000;

/// The kinds of history that take turns.
fn history(kind: u64, seed: u64) -> Tally {
    match kind {
        0 | 1 => history::random(seed, false),
        2 => history::torn_tail(seed),
        3 => faults::fault_at(seed, FaultKind::Io, seed.is_multiple_of(2), 20 + seed / 2 % 400)
            .unwrap_or_default(),
        4 => damage::damaged(seed),
        5 => history::two_callers(seed),
        6 => faults::sync_fails(seed, seed / 2 % 60).unwrap_or_default(),
        _ => room::promised_room(seed),
    }
}

const NAMES: [&str; 8] = [
    "power cuts",
    "power cuts",
    "a torn tail",
    "a failing call",
    "a changed byte",
    "two callers",
    "a failing sync",
    "a full journal",
];

#[test]
fn every_break_is_seen() {
    let campaign = number_from("ONCEDB_SEED").unwrap_or(1);
    let only = std::env::var("ONCEDB_BREAK").ok();
    std::panic::set_hook(Box::new(|_| {}));
    let mut unseen = Vec::new();
    println!("| break | seen by | histories | seed | what was seen |");
    println!("|---|---|---|---|---|");
    for which in
        Break::ALL.into_iter().filter(|which| only.as_ref().is_none_or(|only| *only == format!("{which:?}")))
    {
        set(Some(which));
        let caught = (0..MOST).find_map(|number| {
            let (kind, seed) = (number % NAMES.len() as u64, seed_of(campaign, number));
            let violation = judge(|| history(kind, seed)).err()?;
            Some((NAMES[usize::try_from(kind).unwrap_or(0)], number + 1, seed, violation))
        });
        set(None);
        match caught {
            Some((name, histories, seed, violation)) => {
                let line: String = violation.lines().next().unwrap_or_default().chars().take(90).collect();
                println!("| {which:?} | {name} | {histories} | {seed} | {line} |");
            }
            None => unseen.push(which),
        }
    }
    drop(std::panic::take_hook());
    assert!(unseen.is_empty(), "nothing sees {unseen:?}");
}
