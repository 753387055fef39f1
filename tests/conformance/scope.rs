//! A store in this process, on a simulated disk, through its blocking calls or its futures.

use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use oncedb::conformance::{Ability, Answer, Attempt, Done, End, Event, Setup, Subject};
use oncedb::simulation::MemoryDisk;
use oncedb::{Guard, ManualClock, Outcome, Record, Request, Result, Store};

use crate::common::block_on;
use crate::life::{Life, break_disk, fill_disk};

/// The calls that have two forms.
pub trait Form: Send + Sync {
    /// Whether the store has threads of its own. Futures need them; without, its size is exact.
    const THREADS: bool;
    fn begin(request: Request) -> Result<Outcome<Guard>>;
    fn claim(request: Request, response: Option<&[u8]>) -> Result<Outcome<Record>>;
    fn complete(guard: Guard, response: Option<Vec<u8>>) -> Result<()>;
    fn refuse(guard: Guard, response: Vec<u8>) -> Result<()>;
    fn abort(guard: Guard) -> Result<()>;
    fn note(guard: &Guard, note: &[u8]) -> Result<()>;
    fn forget(scope: &oncedb::Scope, id: &[u8]) -> Result<bool>;
    fn claim_all(store: &Store, requests: Vec<Request>) -> Result<Vec<Result<Outcome<Record>>>>;
}

pub struct Blocking;

impl Form for Blocking {
    const THREADS: bool = false;

    fn begin(request: Request) -> Result<Outcome<Guard>> {
        request.begin()
    }
    fn claim(request: Request, response: Option<&[u8]>) -> Result<Outcome<Record>> {
        match response {
            Some(response) => request.claim_with(response),
            None => request.claim(),
        }
    }
    fn complete(guard: Guard, response: Option<Vec<u8>>) -> Result<()> {
        match response {
            Some(response) => guard.complete_with(response),
            None => guard.complete(),
        }
    }
    fn refuse(guard: Guard, response: Vec<u8>) -> Result<()> {
        guard.refuse(response)
    }
    fn abort(guard: Guard) -> Result<()> {
        guard.abort()
    }
    fn note(guard: &Guard, note: &[u8]) -> Result<()> {
        guard.note(note)
    }
    fn forget(scope: &oncedb::Scope, id: &[u8]) -> Result<bool> {
        scope.forget(id)
    }
    fn claim_all(store: &Store, requests: Vec<Request>) -> Result<Vec<Result<Outcome<Record>>>> {
        store.claim_requests(requests)
    }
}

pub struct Futures;

impl Form for Futures {
    const THREADS: bool = true;

    fn begin(request: Request) -> Result<Outcome<Guard>> {
        block_on(request.begin_async())
    }
    fn claim(request: Request, response: Option<&[u8]>) -> Result<Outcome<Record>> {
        match response {
            Some(response) => block_on(request.claim_with_async(response)),
            None => block_on(request.claim_async()),
        }
    }
    fn complete(guard: Guard, response: Option<Vec<u8>>) -> Result<()> {
        match response {
            Some(response) => block_on(guard.complete_with_async(response)),
            None => block_on(guard.complete_async()),
        }
    }
    fn refuse(guard: Guard, response: Vec<u8>) -> Result<()> {
        block_on(guard.refuse_async(response))
    }
    fn abort(guard: Guard) -> Result<()> {
        block_on(guard.abort_async())
    }
    fn note(guard: &Guard, note: &[u8]) -> Result<()> {
        block_on(guard.note_async(note))
    }
    fn forget(scope: &oncedb::Scope, id: &[u8]) -> Result<bool> {
        block_on(scope.forget_async(id))
    }
    fn claim_all(store: &Store, requests: Vec<Request>) -> Result<Vec<Result<Outcome<Record>>>> {
        block_on(store.claim_requests_async(requests))
    }
}

pub struct Scoped<F> {
    setup: Setup,
    disk: MemoryDisk,
    clock: ManualClock,
    /// `None` only between two lives.
    life: Option<Life>,
    form: PhantomData<F>,
}

impl<F: Form> Scoped<F> {
    fn open_life(&self) -> Result<Life> {
        Life::open(&self.setup, &self.disk, &self.clock, F::THREADS)
    }

    fn life(&self) -> &Life {
        self.life.as_ref().expect("the store is open")
    }

    fn begin_life(&mut self) {
        self.life = Some(self.open_life().expect("the store opens"));
    }

    fn request(&self, event: &Event) -> Result<Request> {
        let mut request = self.life().scope(&event.source)?.request(&event.id);
        if let Some(fingerprint) = &event.fingerprint {
            request = request.fingerprint(fingerprint);
        }
        if let Some((entity, at)) = &event.order {
            request = request.order(entity, *at);
        }
        if let Some(window) = event.window {
            request = request.window(window);
        }
        if let Some(lease) = event.lease {
            request = request.lease(lease);
        }
        Ok(request)
    }
}

/// A verdict as the suite knows it.
pub fn answer<N, P>(outcome: Outcome<N, P>) -> Answer<N> {
    match outcome {
        Outcome::New(new) => Answer::New(new),
        Outcome::Duplicate(record) => {
            Answer::Duplicate(Done { response: record.response().into(), refusal: record.is_refusal() })
        }
        Outcome::InProgress(_) => Answer::InProgress,
        Outcome::Mismatch(_) => Answer::Mismatch,
        Outcome::Stale(_) => Answer::Stale,
    }
}

fn done(outcome: Result<Outcome<Record>>) -> Answer<()> {
    match outcome {
        Ok(outcome) => answer(outcome).and_then(|_| Answer::New(())),
        Err(error) => Answer::Error(error.to_string()),
    }
}

impl<F: Form> Subject for Scoped<F> {
    type Running = Guard;

    fn open(setup: &Setup) -> Self {
        let mut subject = Self {
            setup: setup.clone(),
            disk: MemoryDisk::new(1),
            clock: ManualClock::new(setup.now),
            life: None,
            form: PhantomData,
        };
        subject.begin_life();
        subject
    }

    fn can(ability: Ability) -> bool {
        ability != Ability::Size || !F::THREADS
    }

    fn begin(&self, event: &Event) -> Answer<Guard> {
        match self.request(event).and_then(F::begin) {
            Ok(outcome) => answer(outcome),
            Err(error) => Answer::Error(error.to_string()),
        }
    }

    fn end(&self, guard: Guard, end: End) -> std::result::Result<(), String> {
        let ended = match end {
            End::Complete(response) => F::complete(guard, response),
            End::Refuse(response) => F::refuse(guard, response),
            End::Abort => F::abort(guard),
            End::Drop => {
                drop(guard);
                Ok(())
            }
            End::Panic => {
                let handler = AssertUnwindSafe(|| {
                    let _guard = guard;
                    resume_unwind(Box::new("the handler fails"));
                });
                catch_unwind(handler).expect_err("it panics");
                Ok(())
            }
        };
        ended.map_err(|error| error.to_string())
    }

    fn claim(&self, event: &Event, response: Option<&[u8]>) -> Answer<()> {
        done(self.request(event).and_then(|request| F::claim(request, response)))
    }

    fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    fn crash(&mut self, running: Vec<Guard>) {
        self.disk.crash();
        drop(running);
        self.life = None;
        self.begin_life();
    }

    fn restart(&mut self, down: Duration) {
        self.life().store.close().expect("it closes");
        self.life = None;
        self.clock.advance(down);
        self.begin_life();
    }

    fn collect(&self) {
        self.life().store.maintain().expect("there is room, and the disk works");
    }

    fn attempt(&self, guard: &Guard) -> Attempt {
        let previous = guard.previous();
        Attempt {
            number: guard.attempt(),
            previous: previous.map(|previous| previous.cause),
            note: previous.and_then(|previous| previous.note.clone()),
        }
    }

    fn note(&self, guard: &Guard, note: &[u8]) -> std::result::Result<(), String> {
        F::note(guard, note).map_err(|error| error.to_string())
    }

    fn renew(&self, guard: &Guard) -> std::result::Result<(), String> {
        guard.renew().map_err(|error| error.to_string())
    }

    fn claim_all(&self, events: &[Event]) -> Vec<Answer<()>> {
        let requests: Result<Vec<_>> = events.iter().map(|event| self.request(event)).collect();
        let outcomes = requests.and_then(|requests| F::claim_all(&self.life().store, requests));
        outcomes.expect("the batch is taken").into_iter().map(done).collect()
    }

    fn contains(&self, source: &str, id: &[u8]) -> bool {
        self.life().scope(source).and_then(|scope| scope.contains(id)).expect("the store answers")
    }

    fn forget(&self, source: &str, id: &[u8]) -> bool {
        self.life().scope(source).and_then(|scope| F::forget(&scope, id)).expect("it is free to go")
    }

    fn step_wall(&self, seconds: i64) {
        self.clock.step_wall(seconds);
    }

    fn size(&self) -> u64 {
        self.disk.files().iter().map(|(_, len)| len).sum()
    }

    fn refuses_a_second_owner(&self) -> bool {
        matches!(self.open_life(), Err(oncedb::Error::Locked { .. }))
    }

    fn break_disk(&self, broken: bool) {
        break_disk(&self.disk, broken);
    }

    fn fill_disk(&self, full: bool) {
        fill_disk(&self.disk, full);
    }
}
