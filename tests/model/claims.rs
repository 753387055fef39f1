//! Claims, through every door there is to them.

use crate::common::block_on;
use crate::names::{FIRST_FILLER, Key, SECOND, entity_text, id_text, print_bytes, response_bytes};
use crate::ops::{Ask, Door};
use crate::run::{Checked, Held, Run, Waiting, polled_once, reply};
use crate::seen::{Reply, Seen, Shown, begun, outcome};
use crate::verdict::{End, Want};
use crate::world::{Moment, World};
use oncedb::{Durability, Guard, InProgress, Outcome, Record, Request};
use std::time::Duration;

/// Ends after every history.
const INTERVAL: Durability = Durability::Interval(Duration::from_secs(3600));

impl Run {
    fn request(&self, ask: &Ask) -> Request {
        let mut request = self.scope(ask.scope).request(id_text(ask.id.into()));
        if let Some(print) = ask.print {
            request = request.fingerprint(print_bytes(print).0);
        }
        if let Some((entity, when)) = ask.order {
            request = request.order(entity_text(entity.into()), when.timestamp());
        }
        if let Some(window) = ask.window {
            request = request.window(Duration::from_secs(window.into()));
        }
        if let Some(lease) = ask.lease {
            request = request.lease(lease.map(|millis| Duration::from_millis(millis.into())));
        }
        match ask.sync {
            Some(true) => request.durability(Durability::Sync),
            Some(false) => request.durability(INTERVAL),
            None => request,
        }
    }

    fn want(&self, ask: &Ask, begin: bool) -> Want {
        let rules = self.rules(ask.scope);
        let millis = |millis: u16| i64::from(millis) * (SECOND / 1000);
        Want {
            key: (ask.scope, ask.id.into()),
            print: ask.print,
            order: ask.order.map(|(entity, when)| ((ask.scope, u16::from(entity)), when)),
            window: ask.window.map_or(rules.window, |secs| i64::from(secs) * SECOND),
            lease: ask.lease.map_or(rules.lease, |lease| lease.map(millis)),
            sync: ask.sync,
            begin,
            reply: if begin { Reply::None } else { reply(ask.response) },
            rules,
        }
    }

    pub fn claim(&mut self, door: Door, ask: &Ask) -> Checked {
        let want = self.want(ask, false);
        let plain = self.is_plain(ask);
        let (scope, id) = (self.scope(ask.scope), id_text(ask.id.into()));
        let response = ask.response.map(|len| response_bytes(len.into()));
        let request = self.request(ask);
        let answer = match (door, response) {
            (Door::Blocking, None) if plain => Some(scope.claim(id)),
            (Door::Blocking, None) => Some(request.claim()),
            (Door::Blocking, Some(response)) => Some(request.claim_with(response)),
            (door, response) => {
                let future = match response {
                    None if plain => scope.claim_async(id),
                    None => request.claim_async(),
                    Some(response) => request.claim_with_async(response),
                };
                match door {
                    Door::Blocking | Door::Async => Some(block_on(future)),
                    Door::PolledOnce => polled_once(future),
                    Door::NeverPolled => return Ok(()),
                }
            }
        };
        match answer {
            Some(answer) => self.check_claims(&[want], vec![answer]),
            None => self.check_taken_back(&[want]),
        }
    }

    fn is_plain(&self, ask: &Ask) -> bool {
        let Ask { print, order, window, lease, sync, .. } = ask;
        print.is_none() && order.is_none() && window.is_none() && lease.is_none() && sync.is_none()
    }

    pub fn begin(&mut self, door: Door, ask: &Ask) -> Checked {
        let want = self.want(ask, true);
        let plain = self.is_plain(ask);
        let (scope, id) = (self.scope(ask.scope), id_text(ask.id.into()));
        let request = self.request(ask);
        let future = || if plain { scope.begin_async(id.clone()) } else { self.request(ask).begin_async() };
        let answer = match door {
            Door::Blocking if plain => Some(scope.begin(id)),
            Door::Blocking => Some(request.begin()),
            Door::Async => Some(block_on(future())),
            Door::PolledOnce => polled_once(future()),
            Door::NeverPolled => {
                drop(future());
                return Ok(());
            }
        };
        match answer {
            Some(answer) => self.check_begins(&[want], vec![answer]),
            None => self.check_taken_back(&[want]),
        }
    }

    pub fn fill(&mut self, count: u8) -> Checked {
        // Some of them again.
        let first = FIRST_FILLER + self.fillers.saturating_sub(3);
        self.fillers += u16::from(count);
        let keys: Vec<Key> = (first..FIRST_FILLER + self.fillers).map(|number| (0, number)).collect();
        self.claim_many(Door::Blocking, 0, &keys)
    }

    pub fn claim_many(&mut self, door: Door, scope: u8, keys: &[Key]) -> Checked {
        let rules = self.rules(scope);
        let want = |&key: &Key| Want {
            key,
            print: None,
            order: None,
            window: rules.window,
            lease: rules.lease,
            sync: None,
            begin: false,
            reply: Reply::None,
            rules,
        };
        let wants: Vec<Want> = keys.iter().map(want).collect();
        let ids: Vec<String> = keys.iter().map(|key| id_text(key.1)).collect();
        let scope = self.scope(scope);
        let answers = match door {
            Door::Blocking => Some(scope.claim_many(&ids)),
            Door::Async => Some(block_on(scope.claim_many_async(&ids))),
            Door::PolledOnce => polled_once(scope.claim_many_async(&ids)),
            Door::NeverPolled => {
                drop(scope.claim_many_async(&ids));
                return Ok(());
            }
        };
        match answers {
            Some(Ok(answers)) => self.check_claims(&wants, answers.into_iter().map(Ok).collect()),
            Some(Err(error)) => Err(format!("claim_many: {error:?}")),
            None => self.check_taken_back(&wants),
        }
    }

    pub fn claim_requests(&mut self, door: Door, asks: &[Ask]) -> Checked {
        let wants: Vec<Want> =
            asks.iter().map(|ask| Want { reply: Reply::None, ..self.want(ask, false) }).collect();
        let requests: Vec<Request> = asks.iter().map(|ask| self.request(ask)).collect();
        let store = self.store();
        let answers = match door {
            Door::Blocking => Some(store.claim_requests(requests)),
            Door::Async => Some(block_on(store.claim_requests_async(requests))),
            Door::PolledOnce => polled_once(store.claim_requests_async(requests)),
            Door::NeverPolled => {
                drop(store.claim_requests_async(requests));
                return Ok(());
            }
        };
        match answers {
            Some(Ok(answers)) => self.check_claims(&wants, answers),
            Some(Err(error)) => Err(format!("claim_requests: {error:?}")),
            None => self.check_taken_back(&wants),
        }
    }

    pub fn begin_requests(&mut self, door: Door, asks: &[Ask]) -> Checked {
        let wants: Vec<Want> = asks.iter().map(|ask| self.want(ask, true)).collect();
        let requests: Vec<Request> = asks.iter().map(|ask| self.request(ask)).collect();
        let store = self.store();
        let answers = match door {
            Door::Blocking => Some(store.begin_requests(requests)),
            Door::Async => Some(block_on(store.begin_requests_async(requests))),
            Door::PolledOnce => polled_once(store.begin_requests_async(requests)),
            Door::NeverPolled => {
                drop(store.begin_requests_async(requests));
                return Ok(());
            }
        };
        match answers {
            Some(Ok(answers)) => self.check_begins(&wants, answers),
            Some(Err(error)) => Err(format!("begin_requests: {error:?}")),
            None => self.check_taken_back(&wants),
        }
    }

    fn check_claims(&mut self, wants: &[Want], answers: Vec<oncedb::Result<Outcome<Record>>>) -> Checked {
        let seen = answers
            .into_iter()
            .map(|answer| outcome(answer, &self.tokens, |record| Seen::Claimed(Shown::of(&record))))
            .collect();
        self.check(wants, seen)
    }

    fn check_begins(&mut self, wants: &[Want], answers: Vec<oncedb::Result<Outcome<Guard>>>) -> Checked {
        for (number, answer) in (self.next_guard..).zip(&answers) {
            let Ok(Outcome::New(guard)) = answer else { continue };
            if self.tokens.last_key_value().is_some_and(|(&last, _)| last >= guard.token()) {
                return Err(format!("the token {} is not later than {:?}", guard.token(), self.tokens));
            }
            self.tokens.insert(guard.token(), number);
        }
        let mut seen = Vec::new();
        for ((number, want), answer) in (self.next_guard..).zip(wants).zip(answers) {
            let mut granted = None;
            seen.push(outcome(answer, &self.tokens, |guard| {
                let seen = begun(&guard);
                granted = Some(guard);
                seen
            }));
            if let Some(guard) = granted {
                if guard.id() != id_text(want.key.1).as_bytes() {
                    return Err(format!("a guard of another id: {guard:?}"));
                }
                let synced = self.is_synced(want.sync);
                self.guards.push(Held { guard, number, synced });
            }
        }
        self.check(wants, seen)
    }

    /// Claims are answered as if they were made one after the other.
    fn check(&mut self, wants: &[Want], seen: Vec<(Seen, Option<InProgress>)>) -> Checked {
        if seen.len() != wants.len() {
            return Err(format!("{} answers to {} claims", seen.len(), wants.len()));
        }
        let first = self.next_guard;
        self.next_guard += wants.len();
        for (index, (want, (seen, running))) in wants.iter().zip(seen).enumerate() {
            let answers = |world: &mut World, at: Moment| vec![world.ask(at, want, first + index).0];
            self.model.expect(&[want.key], &seen, answers).map_err(|why| format!("claim {index}\n{why}"))?;
            self.follow(want, &seen);
            if let (Some(running), Seen::Busy(shown)) = (running, &seen) {
                let synced = self.is_synced(want.sync);
                self.waits.push(Waiting { running, number: shown.guard, synced, old: false });
            }
        }
        Ok(())
    }

    /// What an answer promises for after a crash.
    fn follow(&mut self, want: &Want, seen: &Seen) {
        let synced = self.is_synced(want.sync);
        match seen {
            Seen::Claimed(_) if synced => self.model.durable(),
            Seen::Begun { .. } if want.sync == Some(true) => self.model.durable(),
            Seen::Begun { .. } if synced => {
                // Its key is new or an orphan, and may be begun again.
                self.model.pin(&[want.key], |mut world, at| {
                    world.orphan_all(at.now, true);
                    matches!(world.ask(at, want, usize::MAX).0, Seen::Begun { .. })
                });
            }
            Seen::Duplicate(record) | Seen::Mismatch(record) if synced && record.completed_at.is_some() => {
                let found = Seen::Found(Some(record.clone()));
                self.model.pin(&[want.key], |world, at| world.get(at, want.key) == found);
            }
            Seen::Stale(mark) if synced => {
                let Some((entity, _)) = want.order else { return };
                let applied = Seen::LastApplied(Some(mark.clone()));
                self.model.pin(&[want.key], |world, at| world.last_applied(at, entity) == applied);
            }
            _ => {}
        }
    }

    /// The futures of these claims were dropped after a first poll.
    fn check_taken_back(&mut self, wants: &[Want]) -> Checked {
        let first = self.next_guard;
        self.next_guard += wants.len();
        let ids: Vec<Key> = wants.iter().map(|want| want.key).collect();
        // A begin on its own may wait before it is granted anything.
        let waits = wants.iter().any(|want| want.begin) && !self.model.is_durable();
        let unchanged = waits.then(|| self.model.worlds.clone());
        self.model.change_stepwise(&ids, |mut world, at| {
            let mut steps = vec![world.clone()];
            let mut undo = Vec::new();
            for (index, want) in wants.iter().enumerate() {
                let (_, claimed) = world.ask(at, want, first + index);
                undo.push((first + index, claimed));
                steps.push(world.clone());
            }
            for (guard, claimed) in undo.into_iter().rev() {
                match claimed {
                    Some(undo) => world.take_back(at.now, &undo),
                    None => drop(world.settle(at, guard, &End::Abort)),
                }
                steps.push(world.clone());
            }
            steps
        });
        self.model.perhaps(unchanged.unwrap_or_default());
        Ok(())
    }
}
