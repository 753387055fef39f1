//! Claims, through every door there is to them.

use crate::common::block_on;
use crate::names::{FIRST_FILLER, Key, SECOND, entity_text, id_text, print_bytes, response_bytes};
use crate::ops::{Ask, Door};
use crate::run::{Checked, Run, polled_once, reply};
use crate::seen::Reply;
use crate::verdict::Want;
use oncedb::{Durability, Request};
use std::time::Duration;

/// Ends after every history.
pub const INTERVAL: Durability = Durability::Interval(Duration::from_secs(3600));

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
        let plain = ask.is_plain();
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

    pub fn begin(&mut self, door: Door, ask: &Ask) -> Checked {
        let want = self.want(ask, true);
        let plain = ask.is_plain();
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
}
