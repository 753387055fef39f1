//! Leases that lapse and are taken over, by a claim of the same id or of the same entity: the old
//! guard is fenced, whatever it tries, before and after the new one has settled.

use super::{Worker, said, say_begun, say_did, trying, unexpected};
use crate::common::PATIENCE;
use crate::facts::{Intent, Line, Word, now};
use crate::words;
use oncedb::{Error, Guard, Outcome, Request, Settled, Timestamp};
use std::time::Duration;

/// A number that no mark may ever show.
const TOO_HIGH: u64 = 1 << 40;

impl Worker {
    pub fn let_a_lease_lapse(&mut self, number: u64) {
        let id = self.id(number);
        if self.dice.below(3) == 0 { self.lose_the_entity(&id) } else { self.lose_the_id(&id) }
    }

    fn begin_leased(&self, id: &str, order: Option<(&str, u64)>) -> Guard {
        let request = || {
            let request = words::request(&self.scope, id).lease(Duration::from_millis(1));
            match order {
                Some((entity, number)) => request.order(entity, Timestamp::sequence(number)),
                None => request,
            }
        };
        let asked = trying(id, Intent::Begin { leased: true });
        say_begun(id, asked, once_lapsed(id, request)).expect("one of two guards of this worker")
    }

    fn lose_the_id(&mut self, id: &str) {
        let old = self.begin_leased(id, None);
        if self.coin() {
            let attempt = old.attempt();
            let asked = trying(id, Intent::Note { number: 0 });
            old.note(words::note(id, attempt, 0)).unwrap();
            say_did(id, asked, attempt);
        }
        if self.dice.below(4) == 0 {
            // It has lapsed, and may settle as long as nobody took over.
            let renewed = self.coin();
            if renewed {
                old.renew().unwrap();
            }
            return self.settle(id, old);
        }
        let new = self.begin_leased(id, None);
        if self.coin() {
            self.be_fenced(id, old);
            self.settle(id, new);
        } else if self.dice.below(4) > 0 {
            self.settle(id, new);
            self.be_fenced(id, old);
        } else {
            self.be_fenced(id, old);
            self.held.push((id.to_owned(), new));
            if self.held.len() > 40 {
                let (id, oldest) = self.held.remove(0);
                self.settle(&id, oldest);
            }
        }
    }

    fn lose_the_entity(&mut self, id: &str) {
        let entity = format!("lapsed-{}", self.dice.below(4));
        let old = self.begin_leased(id, Some((&entity, TOO_HIGH)));
        let mark = self.scope.last_applied(&entity).unwrap();
        let number = mark.and_then(|mark| mark.timestamp().as_sequence()).unwrap_or(10) + 1;
        let next = format!("{id}-next");
        let asked = trying(id, Intent::Overtake);
        let new = self.begin_leased(&next, Some((&entity, number)));
        said(id, asked, Word::Overtaken);
        if self.coin() {
            self.be_fenced(id, old);
            apply(&next, new, &entity, number);
        } else {
            apply(&next, new, &entity, number);
            self.be_fenced(id, old);
        }
        let mark = self.scope.last_applied(&entity).unwrap().expect("it was just applied");
        assert_eq!(mark.timestamp().as_sequence(), Some(number), "the mark of {entity}");
    }

    fn be_fenced(&mut self, id: &str, old: Guard) {
        let attempt = old.attempt();
        assert_fenced(id, &old.renew());
        assert_fenced(id, &old.note("too late"));
        let asked = now();
        match self.dice.below(4) {
            0 => assert_fenced(id, &old.complete_with("too late")),
            1 => assert_fenced(id, &old.refuse("too late")),
            2 => assert_fenced(id, &old.abort()),
            _ => drop(old),
        }
        said(id, asked, Word::Fenced { attempt });
    }
}

fn apply(id: &str, guard: Guard, entity: &str, number: u64) {
    let attempt = guard.attempt();
    Line::Trying { entity: entity.to_owned(), number }.say();
    let asked = trying(id, Intent::Settle { attempt, reply: true, refusal: false });
    guard.complete_with(words::reply(id, attempt)).unwrap();
    say_did(id, asked, attempt);
    Line::Applied { entity: entity.to_owned(), number }.say();
}

fn assert_fenced(id: &str, told: &oncedb::Result<()>) {
    if !matches!(told, Err(Error::Fenced { .. })) {
        unexpected(id, told);
    }
}

/// Waits until the lease of whoever is in the way has lapsed.
fn once_lapsed(id: &str, request: impl Fn() -> Request) -> Outcome<Guard> {
    loop {
        match request().begin().unwrap() {
            Outcome::InProgress(running) => match running.wait(PATIENCE).unwrap() {
                Settled::Released => {}
                other @ (Settled::Completed(_) | Settled::Running) => unexpected(id, &other),
            },
            outcome => return outcome,
        }
    }
}
