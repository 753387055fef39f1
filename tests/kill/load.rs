//! The load: every kind of claim from many threads at once. Whatever the store has acknowledged is
//! said afterwards; whatever it is about to be asked that cannot be undone is said before.

use crate::common::child::{say, watch_over_silence};
use crate::common::{Dice, PATIENCE, block_on, new, poll_once};
use crate::reply;
use oncedb::{Advance, Guard, Outcome, Record, Request, Response, Result, Scope, Settled, Store, Timestamp};
use std::fmt::Debug;
use std::panic;
use std::thread;

/// More than any round hears.
const TURNS: u64 = 100_000;
const HELD: usize = 100;

type Turn = fn(&mut Worker, &str);

/// What runs side by side: a name for the ids, which two workers share where they are to compete.
const WORK: [(&str, Turn); 11] = [
    ("claim", Worker::claim),
    ("batch", Worker::claim_a_batch),
    ("begin", Worker::begin_and_settle),
    ("many", Worker::begin_and_settle_many),
    ("dropped", Worker::drop_futures),
    ("contested", Worker::contest_a_claim),
    ("contested", Worker::contest_a_claim),
    ("awaited", Worker::contest_a_begin),
    ("awaited", Worker::contest_a_begin),
    ("ordered", Worker::order),
    ("ordered_too", Worker::order),
];

struct Worker {
    store: Store,
    scope: Scope,
    dice: Dice,
    held: Vec<Guard>,
}

pub fn run(store: &Store, scope: &Scope, round: &str, seed: u64) {
    panic::set_hook(Box::new(|what| {
        say(&format!("failed {}", what.to_string().replace('\n', " ")));
    }));
    watch_over_silence();
    thread::scope(|threads| {
        for (number, (name, turn)) in (0..).zip(WORK) {
            let mut worker = Worker {
                store: store.clone(),
                scope: scope.clone(),
                dice: Dice::new(seed ^ (number << 32)),
                held: Vec::new(),
            };
            threads.spawn(move || {
                for number in 0..TURNS {
                    turn(&mut worker, &format!("{name}-{round}-{number}"));
                }
            });
        }
    });
}

fn say_claimed(id: &str, outcome: &Outcome<Record>) {
    assert!(outcome.is_new(), "an id that nobody else has is {outcome:?}");
    say(&format!("claimed {id}"));
}

fn say_known(id: &str, record: &Record) {
    match record.response() {
        Response::None => say(&format!("known {id}")),
        Response::Stored(_) | Response::Omitted { .. } => say(&format!("done {id}")),
    }
}

fn unexpected(id: &str, told: &dyn Debug) -> ! {
    panic!("{id} is told {told:?}")
}

impl Worker {
    fn coin(&mut self) -> bool {
        self.dice.below(2) == 0
    }

    fn claim(&mut self, id: &str) {
        let outcome = if self.coin() {
            self.scope.claim(id).unwrap()
        } else {
            block_on(self.scope.claim_async(id)).unwrap()
        };
        say_claimed(id, &outcome);
    }

    fn claim_a_batch(&mut self, id: &str) {
        let ids: Vec<_> = (0..=self.dice.below(40)).map(|part| format!("{id}-{part}")).collect();
        let outcomes = match self.dice.below(3) {
            0 => self.scope.claim_many(&ids).unwrap(),
            1 => block_on(self.scope.claim_many_async(&ids)).unwrap(),
            _ => {
                let requests: Vec<_> = ids.iter().map(|id| self.scope.request(id)).collect();
                let answers = self.store.claim_requests(requests).unwrap();
                answers.into_iter().map(Result::unwrap).collect()
            }
        };
        for (id, outcome) in ids.iter().zip(&outcomes) {
            say_claimed(id, outcome);
        }
    }

    fn begin(&mut self, id: &str) -> Guard {
        let outcome = if self.coin() {
            self.scope.begin(id).unwrap()
        } else {
            block_on(self.scope.begin_async(id)).unwrap()
        };
        let guard = new(Ok(outcome));
        say(&format!("begun {id} {}", guard.token()));
        guard
    }

    fn begin_and_settle(&mut self, id: &str) {
        let guard = self.begin(id);
        if self.dice.below(4) == 0 {
            guard.note(format!("note of {id}")).unwrap();
            say(&format!("noted {id}"));
        }
        match self.dice.below(8) {
            0 => drop(guard),
            1 => guard.abort().unwrap(),
            2 => self.hold(guard),
            3 => {
                say(&format!("settling {id}"));
                guard.refuse(reply(id)).unwrap();
                say(&format!("refused {id}"));
            }
            way => {
                say(&format!("settling {id}"));
                if way < 6 {
                    guard.complete_with(reply(id)).unwrap();
                } else {
                    block_on(guard.complete_with_async(reply(id))).unwrap();
                }
                say(&format!("done {id}"));
            }
        }
    }

    fn hold(&mut self, guard: Guard) {
        if self.held.len() == HELD {
            let oldest = self.held.swap_remove(0);
            block_on(oldest.abort_async()).unwrap();
        }
        self.held.push(guard);
    }

    fn begin_and_settle_many(&mut self, id: &str) {
        let ids: Vec<_> = (0..=self.dice.below(20)).map(|part| format!("{id}-{part}")).collect();
        let requests: Vec<Request> = ids.iter().map(|id| self.scope.request(id)).collect();
        let answers = if self.coin() {
            self.store.begin_requests(requests).unwrap()
        } else {
            block_on(self.store.begin_requests_async(requests)).unwrap()
        };
        let mut settling = Vec::new();
        for (id, answer) in ids.into_iter().zip(answers) {
            let guard = new(answer);
            say(&format!("begun {id} {}", guard.token()));
            if self.dice.below(8) > 0 {
                say(&format!("settling {id}"));
                settling.push((guard, id));
            }
        }
        let ids: Vec<_> = settling.iter().map(|(_, id)| id.clone()).collect();
        let guards = settling.into_iter().map(|(guard, id)| (guard, reply(&id)));
        let settled = if self.coin() {
            self.store.complete_all_with(guards).unwrap()
        } else {
            block_on(self.store.complete_all_with_async(guards)).unwrap()
        };
        for (id, answer) in ids.iter().zip(settled) {
            answer.unwrap();
            say(&format!("done {id}"));
        }
    }

    fn drop_futures(&mut self, id: &str) {
        let claim = poll_once(Box::pin(self.scope.claim_async(format!("{id}-claim"))).as_mut());
        drop(claim);
        let guard = self.begin(id);
        if self.coin() {
            drop(guard.complete_with_async("never polled"));
        } else {
            say(&format!("settling {id}"));
            drop(poll_once(Box::pin(guard.complete_with_async(reply(id))).as_mut()));
        }
    }

    fn contest_a_claim(&mut self, id: &str) {
        match self.scope.claim(id).unwrap() {
            Outcome::New(_) => say(&format!("won {id}")),
            Outcome::Duplicate(record) => say_known(id, &record),
            other @ (Outcome::InProgress(_) | Outcome::Mismatch(_) | Outcome::Stale(_)) => {
                unexpected(id, &other);
            }
        }
    }

    fn contest_a_begin(&mut self, id: &str) {
        match self.scope.begin(id).unwrap() {
            Outcome::New(guard) => complete(guard, id),
            Outcome::Duplicate(record) => say_known(id, &record),
            Outcome::InProgress(running) => match running.wait(PATIENCE).unwrap() {
                Settled::Completed(record) => say_known(id, &record),
                other @ (Settled::Released | Settled::Running) => unexpected(id, &other),
            },
            other @ (Outcome::Mismatch(_) | Outcome::Stale(_)) => unexpected(id, &other),
        }
    }

    /// Few entities and times that grow over all the rounds, but not one by one.
    fn order(&mut self, id: &str) {
        let entity = format!("entity-{}", self.dice.below(8));
        let last = self.scope.last_applied(&entity).unwrap();
        let last = last.and_then(|mark| mark.timestamp().as_sequence()).unwrap_or(10);
        let number = last + self.dice.below(10) - 3;
        let at = Timestamp::sequence(number);
        let applied = |number| say(&format!("applied {entity} {number}"));
        say(&format!("trying {entity} {number}"));
        let request = self.scope.request(id).order(&entity, at);
        let told = match self.dice.below(3) {
            0 => told(request.claim_with(reply(id)).unwrap(), |_| {
                say(&format!("done {id}"));
            }),
            1 => told(request.begin().unwrap(), |guard| complete(guard, id)),
            _ => match self.scope.advance(&entity, at).unwrap() {
                Advance::Applied => Told::Applied,
                Advance::Stale(mark) => Told::Stale(mark.timestamp()),
                Advance::InProgress(_) => Told::Busy,
            },
        };
        match told {
            Told::Applied => applied(number),
            Told::Stale(at) => applied(at.as_sequence().expect("a sequence number")),
            Told::Busy => {}
        }
    }
}

fn complete(guard: Guard, id: &str) {
    say(&format!("begun {id} {}", guard.token()));
    say(&format!("settling {id}"));
    guard.complete_with(reply(id)).unwrap();
    say(&format!("done {id}"));
}

enum Told {
    Applied,
    Stale(Timestamp),
    Busy,
}

fn told<N: Debug>(outcome: Outcome<N>, take: impl FnOnce(N)) -> Told {
    match outcome {
        Outcome::New(new) => {
            take(new);
            Told::Applied
        }
        Outcome::Stale(mark) => Told::Stale(mark.timestamp()),
        Outcome::InProgress(_) => Told::Busy,
        other @ (Outcome::Duplicate(_) | Outcome::Mismatch(_)) => {
            panic!("an id that nobody else has is {other:?}")
        }
    }
}
