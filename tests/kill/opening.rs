//! A process killed while it recovers its store, again and again.

use crate::facts::Line;
use crate::history::History;
use crate::rounds::Rounds;
use crate::{LARGE, check_and_use, hear_lines, kill, look_at_all, start};
use std::thread;
use std::time::Duration;

/// However often recovery is cut short, the next one finds the same.
#[test]
fn a_process_killed_while_opening_takes_nothing_back() {
    let mut rounds = Rounds::new("killed while opening", 5);
    let mut history = History::default();
    // How long an open takes, as far as the kills have shown.
    let mut within = Duration::from_millis(50);
    let (mut kills, mut in_time) = (0, 0);
    for round in 0..rounds.count {
        // A new store each time: a close would leave nothing to replay.
        let place = tempfile::tempdir().expect("a temporary directory");
        rounds.add(std::mem::take(&mut history));
        let mut child = start("load", LARGE, round, &mut rounds.dice, place.path(), &mut history);
        hear_lines(&mut child, 10_000 + rounds.dice.below(20_000), false, &mut history);
        kill(&mut child, &mut history);
        for _ in 0..4 + rounds.dice.below(8) {
            let mut child = start("open", LARGE, round, &mut rounds.dice, place.path(), &mut history);
            let said = child.hear().expect("the child says that it opens the store");
            history.hear(&said);
            let delay = rounds.dice.below(u64::try_from(within.as_micros()).expect("a short time").max(1));
            thread::park_timeout(Duration::from_micros(delay));
            child.kill();
            kills += 1;
            match child.hear().map(|said| Line::parse(&said)) {
                None => {
                    in_time += 1;
                    within = within * 3 / 2;
                }
                Some(Line::Open) => within = within * 2 / 3,
                Some(other) => history.wrong(format!("a store killed while opening: {other:?}")),
            }
            child.bury();
        }
        check_and_use(place.path(), LARGE, round, &mut rounds.dice, &mut history);
        look_at_all(place.path(), LARGE, &mut rounds.dice, &mut history);
    }
    eprintln!("{in_time} of {kills} kills were within open; the last were within {within:?}");
    rounds.add(history);
    rounds.end();
}
