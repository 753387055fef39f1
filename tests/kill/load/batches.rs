//! Many claims with one sync.

use super::{Worker, said, say_begun, say_claimed, say_dropped, trying};
use crate::common::block_on;
use crate::facts::{Intent, Word};
use crate::words;
use oncedb::Request;

impl Worker {
    fn ids(&mut self, number: u64, most: u64) -> Vec<String> {
        (0..=self.dice.below(most)).map(|part| format!("{}-{part}", self.id(number))).collect()
    }

    fn requests(&self, ids: &[String]) -> Vec<Request> {
        ids.iter().map(|id| words::request(&self.scope, id)).collect()
    }

    /// One of the ids comes twice: new, then a duplicate.
    pub fn claim_a_batch(&mut self, number: u64) {
        let mut ids = self.ids(number, 40);
        let requests = self.requests(&ids);
        let asked: Vec<_> = ids.iter().map(|id| trying(id, Intent::Claim { reply: false })).collect();
        let twice = words::request(&self.scope, &ids[0]);
        let requests = requests.into_iter().chain([twice]);
        let answers = if self.coin() {
            self.store.claim_requests(requests).unwrap()
        } else {
            block_on(self.store.claim_requests_async(requests)).unwrap()
        };
        ids.push(ids[0].clone());
        let asked = asked.iter().chain([&asked[0]]);
        for ((id, asked), answer) in ids.iter().zip(asked).zip(answers) {
            say_claimed(id, *asked, true, answer.unwrap());
        }
    }

    pub fn begin_and_settle_many(&mut self, number: u64) {
        let ids = self.ids(number, 20);
        let requests = self.requests(&ids);
        let asked: Vec<_> = ids.iter().map(|id| trying(id, Intent::Begin { leased: false })).collect();
        let answers = if self.coin() {
            self.store.begin_requests(requests).unwrap()
        } else {
            block_on(self.store.begin_requests_async(requests)).unwrap()
        };
        let mut guards = Vec::new();
        for ((id, asked), answer) in ids.into_iter().zip(asked).zip(answers) {
            let guard = say_begun(&id, asked, answer.unwrap()).expect("an id that nobody else has");
            guards.push((id, guard));
        }
        let mut settling = Vec::new();
        let mut given = Vec::new();
        for (id, guard) in guards {
            let attempt = guard.attempt();
            if self.dice.below(8) == 0 {
                let asked = trying(&id, Intent::Abort);
                drop(guard);
                say_dropped(&id, asked, attempt);
                continue;
            }
            let asked = trying(&id, Intent::Settle { attempt, reply: true, refusal: false });
            given.push((guard, words::reply(&id, attempt)));
            settling.push((id, asked, attempt));
        }
        let settled = if self.coin() {
            self.store.complete_all_with(given).unwrap()
        } else {
            block_on(self.store.complete_all_with_async(given)).unwrap()
        };
        for ((id, asked, attempt), answer) in settling.into_iter().zip(settled) {
            answer.unwrap();
            said(&id, asked, Word::Did { attempt });
        }
    }
}
