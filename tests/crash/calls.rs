//! The calls of a workload: each is predicted, made, compared, and told to the oracle.

use crate::common::{Dice, poll_once};
use crate::oracle::Step;
use crate::states::{At, Done, Entity, Key, Mark, NEVER, Released, Reply, Running, SECOND, State};
use crate::world::{ENTITIES, Got, IDS, MAX_RESPONSE, SCOPES, WINDOWS, World, entity_name, id_name};
use oncedb::{Advance, Busy, Cause, Durability, Error, Guard, Outcome, Request, Timestamp};
use std::fmt::Debug;
use std::pin::Pin;
use std::time::Duration;

/// What a claim must be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    New,
    Duplicate,
    Mismatch,
    Busy(Busy),
    Stale,
}

/// One claim's input.
struct Ask {
    key: Key,
    print: Option<Vec<u8>>,
    order: Option<(Entity, u64)>,
    window: At,
    lease: At,
    durable: bool,
}

/// Whether a guard is the one that begins from this state.
pub fn follows(state: &State, guard: &Guard, now: At) -> bool {
    let previous = guard.previous();
    let first = guard.attempt() == 1 && previous.is_none();
    let after = |attempt: u32, cause: Cause, note: &Option<Vec<u8>>| {
        guard.attempt() == attempt + 1
            && previous.is_some_and(|previous| {
                previous.attempt == attempt && previous.cause == cause && previous.note == *note
            })
    };
    match state {
        State::Absent => first,
        State::Released(released) => {
            after(released.attempt, released.cause, &released.note) || (released.sure <= now && first)
        }
        State::Running(running) => {
            running.lease_until <= now && after(running.attempt, Cause::LeaseExpired, &running.note)
        }
        State::Done(_) => false,
    }
}

impl World {
    /// One call, chosen by the dice.
    pub fn call(&mut self) {
        match self.dice.below(100) {
            0..20 => self.claim(),
            20..26 => self.claim_many(),
            26..42 => self.begin(),
            42..60 => self.settle(),
            60..64 => self.abort(),
            64..68 => self.note(),
            68..70 => self.renew(),
            70..73 => self.use_fenced(),
            73..77 => self.forget(),
            77..81 => self.get(),
            81..84 => self.advance_mark(),
            84..86 => self.last_applied(),
            86..87 => self.forget_mark(),
            87..90 => self.sync(),
            90..93 => self.maintain(),
            93..95 => self.store().tick(),
            95 => drop(self.store().stats()),
            _ => {
                // Among them what ends a window to the nanosecond.
                let by = [1, SECOND, 10 * SECOND, 30 * SECOND, 70 * SECOND, 100 * SECOND];
                let by = by[self.pick(by.len())];
                self.advance_clock(by);
            }
        }
    }

    fn pick(&mut self, limit: usize) -> usize {
        usize::try_from(self.dice.below(limit as u64)).expect("a small number")
    }

    fn any_key(&mut self) -> Key {
        let held = self.held_keys();
        if !held.is_empty() && self.pick(4) == 0 {
            return held[self.pick(held.len())];
        }
        loop {
            let key = (self.pick(SCOPES), self.pick(IDS));
            if !self.oracle.hazy.contains(&key) {
                return key;
            }
        }
    }

    fn any_ask(&mut self) -> Ask {
        let key = self.any_key();
        let print = (self.pick(4) == 0).then(|| vec![b'p'; 1 + self.pick(2)]);
        let order = (self.pick(3) == 0).then(|| {
            let entity = (key.0, self.pick(ENTITIES));
            // Not the mark's own: which event of two with one number passes is the model's to tell.
            let late = (self.pick(3) == 0).then(|| self.dice.below(100));
            let late = late.filter(|late| self.mark(entity).is_none_or(|mark| mark.number != *late));
            (entity, late.unwrap_or_else(|| self.fresh_number()))
        });
        let window = if self.pick(5) == 0 { 30 * SECOND } else { WINDOWS[key.0] };
        let lease = if order.is_none() && self.pick(5) == 0 { 10 * SECOND } else { NEVER };
        let durable = self.is_durable() || self.pick(4) == 0;
        Ask { key, print, order, window, lease, durable }
    }

    fn request(&self, ask: &Ask) -> Request {
        let mut request = self.scope(ask.key.0).request(id_name(ask.key.1));
        request = request.window(Duration::from_nanos(ask.window));
        if let Some(print) = &ask.print {
            request = request.fingerprint(print);
        }
        if let Some((entity, number)) = ask.order {
            request = request.order(entity_name(entity.1), Timestamp::sequence(number));
        }
        if ask.lease != NEVER {
            request = request.lease(Duration::from_nanos(ask.lease));
        }
        if ask.durable && !self.is_durable() {
            request = request.durability(Durability::Sync);
        }
        if !ask.durable && self.is_durable() {
            request = request.durability(Durability::Interval(Duration::from_secs(3600)));
        }
        request
    }

    fn predict(&self, ask: &Ask) -> Verdict {
        let differs = |other: &Option<Vec<u8>>| matches!((&ask.print, other), (Some(mine), Some(theirs)) if mine != theirs);
        match self.state(ask.key) {
            State::Done(done) if differs(&done.print) => return Verdict::Mismatch,
            State::Done(_) => return Verdict::Duplicate,
            State::Running(running) if self.now < running.lease_until => {
                let mismatch = differs(&running.print);
                return if mismatch { Verdict::Mismatch } else { Verdict::Busy(Busy::Id) };
            }
            _ => {}
        }
        if let Some((entity, number)) = ask.order {
            if self.mark(entity).is_some_and(|mark| number < mark.number) {
                return Verdict::Stale;
            }
            if self.is_busy(entity) {
                return Verdict::Busy(Busy::Entity);
            }
        }
        Verdict::New
    }

    fn is_busy(&self, entity: Entity) -> bool {
        crate::world::keys().any(|key| match self.state(key) {
            State::Running(running) => running.order.is_some_and(|(other, _)| other == entity),
            _ => false,
        })
    }

    /// The answer is the one predicted; what it was based on is there for good.
    fn compare<N: Debug>(&mut self, ask: &Ask, predicted: Verdict, outcome: &Outcome<N>) {
        let key = ask.key;
        let told = match outcome {
            Outcome::New(_) => Verdict::New,
            Outcome::Duplicate(_) => Verdict::Duplicate,
            Outcome::Mismatch(_) => Verdict::Mismatch,
            Outcome::InProgress(running) => Verdict::Busy(running.busy()),
            Outcome::Stale(_) => Verdict::Stale,
        };
        let state = self.state(key);
        assert_eq!(told, predicted, "the verdict for {key:?}, which is {state:?} at {}", self.now);
        match outcome {
            Outcome::Duplicate(record) | Outcome::Mismatch(record) => {
                if let Some(done) = state.done() {
                    assert_eq!(self.done_seen(record), *done, "what is shown of {key:?}");
                    if ask.durable {
                        self.oracle.promise_key(key);
                    }
                }
            }
            Outcome::Stale(mark) => {
                let (entity, _) = ask.order.expect("only events in order are stale");
                let seen = self.mark_seen(mark);
                assert_eq!(Some(seen), self.shown_mark(entity), "the mark that makes it stale");
                if ask.durable {
                    self.oracle.promise_mark(entity);
                }
            }
            Outcome::New(_) if ask.durable => self.oracle.promise_new(key, ask.order, self.now),
            Outcome::New(_) | Outcome::InProgress(_) => {}
        }
    }

    fn mark_step(&self, order: Option<(Entity, u64)>) -> Option<(Entity, Option<Mark>)> {
        order.map(|(entity, number)| {
            let expires = self.now.saturating_add(self.retentions[entity.0]);
            (entity, Some(Mark { number, applied: self.now, expires }))
        })
    }

    /// Which attempt a claim of this key is, where the store is free to have forgotten.
    fn next_attempt(&self, key: Key) -> u32 {
        match self.state(key) {
            State::Released(released) => released.attempt + 1,
            State::Running(running) => running.attempt + 1,
            State::Absent | State::Done(_) => 1,
        }
    }

    fn claimed(&mut self, ask: &Ask, attempt: u32, reply: Reply) -> Done {
        self.fence_guard(ask.key);
        let done = Done {
            attempt,
            print: ask.print.clone(),
            reply,
            refusal: false,
            claimed: self.now,
            completed: self.now,
            expires: self.now + ask.window,
        };
        let mark = self.mark_step(ask.order);
        self.oracle.step(Step { key: Some((ask.key, State::Done(done.clone()))), mark });
        done
    }

    /// Whether the store may have forgotten the attempts before.
    fn may_be_first(&self, key: Key) -> bool {
        matches!(self.state(key), State::Released(released) if released.sure <= self.now)
    }

    fn claim(&mut self) {
        let ask = self.any_ask();
        let predicted = self.predict(&ask);
        let (response, reply) = self.any_reply();
        let request = self.request(&ask);
        let result = match &response {
            Some(bytes) => request.claim_with(bytes),
            None => request.claim(),
        };
        match self.got(result) {
            Got::Done(outcome) => {
                self.compare(&ask, predicted, &outcome);
                if let Outcome::New(record) = outcome {
                    let seen = self.done_seen(&record);
                    let first = self.may_be_first(ask.key) && seen.attempt == 1;
                    let attempt = if first { 1 } else { self.next_attempt(ask.key) };
                    let done = self.claimed(&ask, attempt, reply);
                    assert_eq!(seen, done, "a new claim shows itself");
                    if ask.durable {
                        self.oracle.promise_all();
                    }
                }
            }
            Got::Unknown if predicted == Verdict::New => {
                let attempt = self.next_attempt(ask.key);
                if self.may_be_first(ask.key) {
                    self.oracle.hazy.insert(ask.key);
                }
                self.claimed(&ask, attempt, reply);
            }
            Got::Refused | Got::Unknown => {}
        }
    }

    /// One caller forgets a key and does not wait to be told; what a second one is told of that key must
    /// hold all the same. `false` if there was nothing to forget.
    pub fn forget_and_go(&mut self) -> bool {
        let Some(key) = self.any_key_that(|state| state.done().is_some()) else { return false };
        let mut forgetting = self.scope(key.0).forget_async(id_name(key.1));
        if poll_once(Pin::new(&mut forgetting)).is_pending() {
            self.step(key, State::Absent);
        }
        drop(forgetting);
        self.ask_again(key, None);
        true
    }

    /// The same for a claim in one step whose caller goes away: it is taken back.
    pub fn claim_and_go(&mut self) -> bool {
        let Some(key) = self.any_key_that(|state| *state == State::Absent) else { return false };
        let entity = (key.0, self.pick(ENTITIES));
        let order = (self.pick(2) == 0 && !self.is_busy(entity)).then(|| (entity, self.fresh_number()));
        let ask = Ask { key, print: None, order, window: WINDOWS[key.0], lease: NEVER, durable: true };
        let before = self.mark(entity);
        let mut claiming = self.request(&ask).claim_async();
        let is_pending = poll_once(Pin::new(&mut claiming)).is_pending();
        drop(claiming);
        if !self.has_power() {
            return true;
        }
        assert!(is_pending, "a claim waits for its sync");
        let done = self.claimed(&ask, 1, Reply::None);
        let released = Released {
            attempt: 1,
            cause: Cause::Aborted,
            note: None,
            window: ask.window,
            sure: done.expires,
            perhaps: done.expires,
        };
        let mark = order.map(|(entity, _)| (entity, before));
        self.oracle.step(Step { key: Some((key, State::Released(released))), mark });
        self.ask_again(key, order.map(|(entity, number)| (entity, number - 1)));
        true
    }

    /// Somebody else asks, perhaps after a third one who waited for nothing and gave the key up.
    fn ask_again(&mut self, key: Key, order: Option<(Entity, u64)>) {
        let ask = Ask { key, print: None, order, window: WINDOWS[key.0], lease: NEVER, durable: true };
        if self.has_power() && self.pick(2) == 0 {
            self.begin_as(Ask { durable: false, print: None, ..ask });
            if let State::Running(running) = self.state(key) {
                self.give_up(key, running);
            }
        }
        if self.has_power() {
            self.begin_as(ask);
        }
    }

    fn any_key_that(&mut self, is: impl Fn(&State) -> bool) -> Option<Key> {
        let keys: Vec<_> = crate::world::keys()
            .filter(|key| !self.oracle.hazy.contains(key) && is(&self.state(*key)))
            .collect();
        (!keys.is_empty()).then(|| keys[self.pick(keys.len())])
    }

    fn claim_many(&mut self) {
        let scope = self.pick(SCOPES);
        let ids: Vec<usize> = (0..=self.pick(6)).map(|_| self.pick(IDS)).collect();
        self.claim_these(scope, &ids);
    }

    /// Claims ids of one scope with one sync.
    pub fn claim_these(&mut self, scope: usize, ids: &[usize]) {
        if ids.iter().any(|id| self.oracle.hazy.contains(&(scope, *id)) || self.may_be_first((scope, *id))) {
            return;
        }
        let result = self.scope(scope).claim_many(ids.iter().map(|id| id_name(*id)));
        let got = self.got(result);
        let outcomes = match got {
            Got::Done(outcomes) => outcomes.into_iter().map(Some).collect(),
            Got::Unknown => ids.iter().map(|_| None).collect(),
            Got::Refused => {
                // Some may have been granted and taken back again.
                self.oracle.hazy.extend(ids.iter().map(|id| (scope, *id)));
                return;
            }
        };
        let answered: Vec<Option<Outcome<_>>> = outcomes;
        let done = answered.iter().all(Option::is_some);
        assert_eq!(answered.len(), ids.len());
        let mut granted = false;
        for (&id, outcome) in ids.iter().zip(answered) {
            let key = (scope, id);
            // One sync for all, promised at the end.
            let ask =
                Ask { key, print: None, order: None, window: WINDOWS[scope], lease: NEVER, durable: false };
            let predicted = self.predict(&ask);
            if let Some(outcome) = &outcome {
                self.compare(&ask, predicted, outcome);
            }
            if predicted == Verdict::New {
                granted = true;
                let attempt = self.next_attempt(key);
                let done = self.claimed(&ask, attempt, Reply::None);
                if let Some(Outcome::New(record)) = outcome {
                    assert_eq!(self.done_seen(&record), done, "a new claim shows itself");
                }
            }
        }
        if done && granted && self.is_durable() {
            self.oracle.promise_all();
        }
    }

    /// The step of a begin.
    pub fn begun(
        &mut self,
        key: Key,
        guard: &Guard,
        print: Option<Vec<u8>>,
        window: At,
        lease: At,
        order: Option<(Entity, u64)>,
    ) {
        self.see_token(guard.token());
        let note = guard.previous().and_then(|previous| previous.note.clone());
        let running = Running {
            attempt: guard.attempt(),
            note,
            print,
            claimed: self.now,
            window,
            lease_until: self.now.saturating_add(lease),
            order,
        };
        self.step(key, State::Running(running));
    }

    fn begin(&mut self) {
        let ask = self.any_ask();
        self.begin_as(ask);
    }

    /// Begins an event that is newer than all others of its entity.
    pub fn begin_in_order(&mut self, key: Key) {
        let order = Some(((key.0, 0), self.fresh_number()));
        let durable = self.is_durable();
        let ask = Ask { key, print: None, order, window: WINDOWS[key.0], lease: NEVER, durable };
        self.begin_as(ask);
    }

    fn begin_as(&mut self, ask: Ask) {
        let predicted = self.predict(&ask);
        let result = self.request(&ask).begin();
        match self.got(result) {
            Got::Done(outcome) => {
                self.compare(&ask, predicted, &outcome);
                if let Outcome::New(guard) = outcome {
                    let before = self.state(ask.key);
                    assert!(follows(&before, &guard, self.now), "{guard:?} begins from {before:?}");
                    self.begun(ask.key, &guard, ask.print, ask.window, ask.lease, ask.order);
                    self.keep(ask.key, guard);
                }
            }
            Got::Refused => {}
            Got::Unknown => {
                // Begun, and given up again with the guard that nobody got.
                if predicted == Verdict::New {
                    self.fence_guard(ask.key);
                    self.oracle.hazy.insert(ask.key);
                }
            }
        }
    }

    fn any_held(&mut self) -> Option<(Key, Running)> {
        let held = self.held_keys();
        if held.is_empty() {
            return None;
        }
        let key = held[self.pick(held.len())];
        match self.state(key) {
            State::Running(running) => Some((key, running)),
            // A call that failed left the guard behind; the next recovery tells.
            _ => None,
        }
    }

    fn any_reply(&mut self) -> (Option<Vec<u8>>, Reply) {
        let len = match self.pick(8) {
            0..3 => return (None, Reply::None),
            3 => 0,
            4 => 20,
            5 => 1024 + self.pick(3),
            6 => MAX_RESPONSE,
            _ => MAX_RESPONSE + 1,
        };
        let bytes = self.dice.bytes(len);
        let reply =
            if len > MAX_RESPONSE { Reply::Omitted(len as u64) } else { Reply::Stored(bytes.clone()) };
        (Some(bytes), reply)
    }

    /// Completes or refuses a claim in progress.
    pub fn settle(&mut self) {
        let Some((key, running)) = self.any_held() else { return };
        let Some(guard) = self.take_guard(key) else { return };
        let (response, mut reply) = self.any_reply();
        let refusal = response.is_some() && self.pick(5) == 0;
        let result = match &response {
            Some(bytes) if refusal => guard.refuse(bytes),
            Some(bytes) => guard.complete_with(bytes),
            None => guard.complete(),
        };
        let got = self.got_settled(result);
        if let (Got::Done(()), Some(bytes), true) = (&got, &response, self.lenient) {
            // Where there is no room the response is given up, not the completion.
            let shown = self.scope(key.0).get(id_name(key.1));
            match shown.map(|shown| shown.map(|record| self.done_seen(&record))) {
                Ok(Some(done)) if done.reply == Reply::Omitted(bytes.len() as u64) => reply = done.reply,
                _ => {}
            }
        }
        let done = Done {
            attempt: running.attempt,
            print: running.print,
            reply,
            refusal,
            claimed: running.claimed,
            completed: self.now,
            expires: self.now + running.window,
        };
        let step = Step { key: Some((key, State::Done(done))), mark: self.mark_step(running.order) };
        match got {
            Got::Done(()) => {
                self.oracle.step(step);
                if self.is_durable() {
                    self.oracle.promise_all();
                }
            }
            Got::Unknown => self.oracle.step(step),
            Got::Refused => {}
        }
    }

    fn abort(&mut self) {
        if let Some((key, running)) = self.any_held() {
            self.give_up(key, running);
        }
    }

    fn give_up(&mut self, key: Key, running: Running) {
        let Some(guard) = self.take_guard(key) else { return };
        let released = Released {
            attempt: running.attempt,
            cause: Cause::Aborted,
            note: running.note,
            window: running.window,
            sure: self.now + running.window,
            perhaps: self.now + running.window,
        };
        let dropped = self.pick(2) == 0;
        let result = if dropped {
            drop(guard);
            Ok(())
        } else {
            guard.abort()
        };
        match self.got_settled(result) {
            Got::Done(()) if dropped && self.poisoned => {}
            Got::Done(()) | Got::Unknown => self.step(key, State::Released(released)),
            Got::Refused => {}
        }
    }

    fn note(&mut self) {
        let Some((key, mut running)) = self.any_held() else { return };
        let len = self.pick(65);
        let note = self.dice.bytes(len);
        let Some(guard) = self.guard(key) else { return };
        let result = guard.note(&note);
        running.note = Some(note);
        match self.got(result) {
            Got::Done(()) => {
                self.step(key, State::Running(running));
                self.oracle.promise_all();
            }
            Got::Unknown => self.step(key, State::Running(running)),
            Got::Refused => {}
        }
    }

    fn renew(&mut self) {
        let Some((key, mut running)) = self.any_held() else { return };
        let Some(guard) = self.guard(key) else { return };
        let result = guard.renew();
        if let Got::Done(()) = self.got(result)
            && running.lease_until != NEVER
        {
            running.lease_until = self.now + 10 * SECOND;
            self.oracle.renew(key, State::Running(running));
        }
    }

    /// An owner that was overtaken can do nothing.
    fn use_fenced(&mut self) {
        let Some(guard) = self.take_fenced() else { return };
        let result = match self.pick(4) {
            0 => guard.complete(),
            1 => guard.complete_with("late"),
            2 => guard.note("late"),
            _ => guard.abort(),
        };
        if self.has_power() && !self.poisoned {
            match result {
                Err(Error::Fenced { .. }) => {}
                Err(Error::Poisoned { .. }) if self.lenient => self.poisoned = true,
                other => panic!("an overtaken owner is told {other:?}"),
            }
        }
    }

    fn forget(&mut self) {
        let key = self.any_key();
        if self.may_be_first(key) {
            return;
        }
        let state = self.state(key);
        let result = self.scope(key.0).forget(id_name(key.1));
        let held = matches!(&state, State::Running(running) if self.now < running.lease_until);
        if held {
            match result {
                Err(Error::InProgress { .. }) => {}
                other => drop(self.got(other)),
            }
            return;
        }
        match self.got(result) {
            Got::Done(forgotten) => {
                assert_eq!(forgotten, state.done().is_some(), "whether {state:?} is forgotten");
                if state == State::Absent {
                    return;
                }
                self.fence_guard(key);
                self.step(key, State::Absent);
                if self.is_durable() {
                    self.oracle.promise_all();
                }
            }
            Got::Unknown => {
                self.fence_guard(key);
                self.step(key, State::Absent);
            }
            Got::Refused => {}
        }
    }

    fn get(&mut self) {
        let key = self.any_key();
        let result = self.scope(key.0).get(id_name(key.1));
        if let Got::Done(record) = self.got(result) {
            let seen = record.map(|record| self.done_seen(&record));
            assert_eq!(seen.as_ref(), self.state(key).done(), "what get shows of {key:?}");
            if seen.is_some() && self.is_durable() {
                self.oracle.promise_key(key);
            }
        }
    }

    fn any_entity(&mut self) -> Entity {
        (self.pick(SCOPES), self.pick(ENTITIES))
    }

    fn advance_mark(&mut self) {
        let entity = self.any_entity();
        let number = if self.pick(3) == 0 { self.dice.below(100) } else { self.fresh_number() };
        let stale = self.mark(entity).is_some_and(|mark| number < mark.number);
        let busy = !stale && self.is_busy(entity);
        let result = self.scope(entity.0).advance(entity_name(entity.1), Timestamp::sequence(number));
        let step = Step { key: None, mark: self.mark_step(Some((entity, number))) };
        match self.got(result) {
            Got::Done(Advance::Applied) => {
                assert!(!stale && !busy, "{number} moves the mark of {entity:?}");
                self.oracle.step(step);
                if self.is_durable() {
                    self.oracle.promise_all();
                }
            }
            Got::Done(Advance::Stale(mark)) => {
                assert!(stale, "{number} is stale for {entity:?}");
                assert_eq!(Some(self.mark_seen(&mark)), self.shown_mark(entity));
                if self.is_durable() {
                    self.oracle.promise_mark(entity);
                }
            }
            Got::Done(Advance::InProgress(_)) => assert!(busy, "{entity:?} is busy"),
            Got::Unknown if !stale && !busy => self.oracle.step(step),
            Got::Unknown | Got::Refused => {}
        }
    }

    fn last_applied(&mut self) {
        let entity = self.any_entity();
        let result = self.scope(entity.0).last_applied(entity_name(entity.1));
        if let Got::Done(mark) = self.got(result) {
            let seen = mark.map(|mark| self.mark_seen(&mark));
            assert_eq!(seen, self.shown_mark(entity), "the mark of {entity:?}");
            if seen.is_some() && self.is_durable() {
                self.oracle.promise_mark(entity);
            }
        }
    }

    fn forget_mark(&mut self) {
        let entity = self.any_entity();
        let known = self.mark(entity).is_some();
        let result = self.scope(entity.0).forget_mark(entity_name(entity.1));
        let step = Step { key: None, mark: Some((entity, None)) };
        match self.got(result) {
            Got::Done(forgotten) => {
                assert_eq!(forgotten, known, "whether there was a mark of {entity:?}");
                if !known {
                    return;
                }
                self.oracle.step(step);
                if self.is_durable() {
                    self.oracle.promise_all();
                }
            }
            Got::Unknown if known => self.oracle.step(step),
            Got::Unknown | Got::Refused => {}
        }
    }

    pub fn sync(&mut self) {
        let result = self.store().sync();
        if let Got::Done(()) = self.got(result) {
            self.oracle.promise_all();
        }
    }

    fn maintain(&mut self) {
        let result = self.store().maintain();
        if let Got::Done(_) = self.got(result) {
            self.oracle.promise_all();
        }
    }
}

/// A choice of one in `count`.
pub fn one_in(dice: &mut Dice, count: u64) -> bool {
    dice.below(count) == 0
}
