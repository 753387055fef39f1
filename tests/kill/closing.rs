//! A process killed while it closes its store.

use crate::facts::Line;
use crate::history::History;
use crate::rounds::Rounds;
use crate::{SMALL, check_and_use, hear_lines, kill, load, look_at_all, start};
use oncedb::Store;
use std::io::{self, Read};
use std::thread;
use std::time::Duration;

/// A kill at any moment of a close, under load, leaves what was acknowledged before and during it.
#[test]
fn a_process_killed_while_closing_takes_nothing_back() {
    let mut rounds = Rounds::new("killed while closing", 3);
    let place = tempfile::tempdir().expect("a temporary directory");
    let mut history = History::default();
    // How long a close takes, as far as the kills have shown.
    let mut within = Duration::from_millis(10);
    let mut in_time = 0;
    for round in 0..rounds.count {
        let mut child = start("close", SMALL, round, &mut rounds.dice, place.path(), &mut history);
        hear_lines(&mut child, 20 + rounds.dice.below(3000), false, &mut history);
        child.tell();
        let mut hear = || {
            let said = child.hear()?;
            history.hear(&said);
            Some(Line::parse(&said))
        };
        while !matches!(hear(), None | Some(Line::Closing)) {}
        let delay = rounds.dice.below(u64::try_from(within.as_micros()).expect("a short time").max(1));
        thread::park_timeout(Duration::from_micros(delay));
        kill(&mut child, &mut history);
        if history.was_closed() {
            within = within * 4 / 5;
        } else {
            in_time += 1;
            within = within * 5 / 4;
        }
        check_and_use(place.path(), SMALL, round, &mut rounds.dice, &mut history);
    }
    look_at_all(place.path(), SMALL, &mut rounds.dice, &mut history);
    eprintln!("{in_time} of {} were killed within close", rounds.count);
    rounds.add(history);
    rounds.end();
}

/// The child's part: it goes on until a byte comes in.
pub fn close_when_told(store: &Store) {
    if io::stdin().lock().read_exact(&mut [0]).is_ok() {
        load::close(store);
    }
}
