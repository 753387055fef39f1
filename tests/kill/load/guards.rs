//! Claims in progress: noted, completed, refused, given up, or held until the kill.

use super::{Worker, say_begun, say_did, say_dropped, trying};
use crate::common::{Bell, block_on, poll_once};
use crate::facts::Intent;
use crate::words;
use oncedb::{Durability, Guard, Pending};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;

/// So many guards are held at most, so that they do not fill the memory limit.
const HELD: usize = 60;

impl Worker {
    pub fn begin_and_settle(&mut self, number: u64) {
        let id = self.id(number);
        let guard = self.begin_id(&id).expect("an id that nobody else has");
        self.go_on(id, guard);
    }

    pub fn begin_id(&mut self, id: &str) -> Option<Guard> {
        let request = words::request(&self.scope, id);
        let asked = trying(id, Intent::Begin { leased: false });
        let outcome = match self.dice.below(8) {
            0 => request.durability(Durability::Sync).begin(),
            1..=3 => block_on(request.begin_async()),
            _ => request.begin(),
        };
        say_begun(id, asked, outcome.unwrap())
    }

    pub fn go_on(&mut self, id: String, guard: Guard) {
        if self.coin() && words::fingerprint(&id).is_some() {
            let other = self.scope.request(&id).fingerprint("another").begin().unwrap();
            assert!(other.is_mismatch(), "{id} is held, and another event of its id is {other:?}");
        }
        for number in 0..self.dice.below(4).saturating_sub(1) {
            let (attempt, number) = (guard.attempt(), u32::try_from(number).expect("a few"));
            let asked = trying(&id, Intent::Note { number });
            guard.note(words::note(&id, attempt, number)).unwrap();
            say_did(&id, asked, attempt);
        }
        if self.dice.below(5) > 0 {
            return self.settle(&id, guard);
        }
        self.held.push((id, guard));
        if self.held.len() > HELD {
            let (id, oldest) = self.held.remove(0);
            self.settle(&id, oldest);
        }
    }

    pub fn settle(&mut self, id: &str, guard: Guard) {
        let attempt = guard.attempt();
        let way = self.dice.below(8);
        let intent = match way {
            0 | 1 => Intent::Abort,
            way => Intent::Settle { attempt, reply: way > 3, refusal: way == 7 },
        };
        let reply = words::reply(id, attempt);
        let asked = trying(id, intent);
        let done = match way {
            0 => {
                drop(guard);
                return say_dropped(id, asked, attempt);
            }
            1 => guard.abort(),
            2 => guard.complete(),
            3 => block_on(guard.complete_async()),
            4 | 5 => guard.complete_with(reply),
            6 => block_on(guard.complete_with_async(reply)),
            _ => guard.refuse(reply),
        };
        done.unwrap();
        say_did(id, asked, attempt);
    }

    /// Many futures of one thread at once: they wait for the same syncs.
    pub fn run_futures(&mut self, number: u64) {
        let ids: Vec<_> = (0..16).map(|part| format!("{}-{part}", self.id(number))).collect();
        let begin = |id: &String| {
            let asked = trying(id, Intent::Begin { leased: false });
            (asked, words::request(&self.scope, id).begin_async())
        };
        let (asked, begins): (Vec<_>, Vec<_>) = ids.iter().map(begin).unzip();
        let mut settling = Vec::new();
        for ((id, asked), outcome) in ids.iter().zip(asked).zip(run_all(begins)) {
            let guard = say_begun(id, asked, outcome.unwrap()).expect("an id that nobody else has");
            let attempt = guard.attempt();
            let asked = trying(id, Intent::Settle { attempt, reply: true, refusal: false });
            settling.push(((id, asked, attempt), guard.complete_with_async(words::reply(id, attempt))));
        }
        let (said, settling): (Vec<_>, Vec<_>) = settling.into_iter().unzip();
        for ((id, asked, attempt), settled) in said.into_iter().zip(run_all(settling)) {
            settled.unwrap();
            say_did(id, asked, attempt);
        }
    }

    /// What becomes of a dropped claim is not said; a dropped completion is carried out.
    pub fn drop_futures(&mut self, number: u64) {
        let id = format!("{}-claim", self.id(number));
        trying(&id, Intent::Drop);
        drop(poll_once(Box::pin(words::request(&self.scope, &id).claim_async()).as_mut()));

        let id = self.id(number);
        let guard = self.begin_id(&id).expect("an id that nobody else has");
        let attempt = guard.attempt();
        if self.coin() {
            let asked = trying(&id, Intent::Abort);
            drop(guard.complete_with_async("never polled"));
            say_dropped(&id, asked, attempt);
        } else {
            trying(&id, Intent::Settle { attempt, reply: true, refusal: false });
            drop(poll_once(Box::pin(guard.complete_with_async(words::reply(&id, attempt))).as_mut()));
        }
        // Any durable answer after it shows that none of these holds up the log.
        self.claim_id(&format!("{id}-next"));
    }
}

/// A small executor: polls all that are pending when any has woken it.
fn run_all<T>(futures: Vec<Pending<T>>) -> Vec<oncedb::Result<T>> {
    let bell = Bell::new();
    let waker = Waker::from(Arc::clone(&bell));
    let mut context = Context::from_waker(&waker);
    let mut pending: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    while pending.iter().any(|(_, output)| output.is_none()) {
        while !bell.has_rung() {
            thread::park();
        }
        for (future, output) in pending.iter_mut().filter(|(_, output)| output.is_none()) {
            if let Poll::Ready(ready) = Future::poll(Pin::as_mut(future), &mut context) {
                *output = Some(ready);
            }
        }
    }
    pending.into_iter().filter_map(|(_, output)| output).collect()
}
