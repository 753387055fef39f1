//! One history, done to a store and to the model side by side.

use crate::common::{noon, poll_once};
use crate::model::Model;
use crate::names::{Key, LONGEST_RESPONSE, Rules, SECOND, response_bytes, rules};
use crate::ops::{History, Op, Pass};
use crate::seen::{Bytes, Reply, Tokens};
use oncedb::simulation::MemoryDisk;
use oncedb::{Guard, InProgress, ManualClock, Pending, Scope, Store};
use std::task::Poll;
use std::time::Duration;

/// Whether the store did what some world does; if not, why.
pub type Checked = Result<(), String>;

/// The handles of an open store.
pub struct Live {
    pub store: Store,
    pub scopes: Vec<Scope>,
}

/// A guard, by the number that the model knows it by.
pub struct Held {
    pub guard: Guard,
    pub number: usize,
    /// Whether its completion is durable on return.
    pub synced: bool,
}

/// Something in progress that can be waited for.
pub struct Waiting {
    pub running: InProgress,
    pub number: usize,
    /// Whether a crash must not take back what the wait is told.
    pub synced: bool,
    /// Whether the store was recovered since.
    pub old: bool,
}

pub struct Run {
    pub synced: bool,
    pub pauses: Option<i64>,
    pub disk: MemoryDisk,
    pub clock: ManualClock,
    pub live: Option<Live>,
    pub deploy: u8,
    pub model: Model,
    pub guards: Vec<Held>,
    pub waits: Vec<Waiting>,
    pub tokens: Tokens,
    pub next_guard: usize,
    pub fillers: u16,
}

impl Run {
    /// Does all of a history.
    pub fn all(history: &History) -> Checked {
        let mut run = Self {
            synced: history.synced,
            pauses: history.pauses.map(|secs| i64::from(secs) * SECOND),
            disk: MemoryDisk::new(history.disk),
            clock: ManualClock::new(noon()),
            live: None,
            deploy: 0,
            model: Model::new(),
            guards: Vec::new(),
            waits: Vec::new(),
            tokens: Tokens::new(),
            next_guard: 0,
            fillers: 0,
        };
        run.first_open();
        for (step, op) in history.ops.iter().enumerate() {
            run.step(op).map_err(|why| format!("step {step}, {op:?}\n{why}"))?;
        }
        run.survey().map_err(|why| format!("at the end\n{why}"))
    }

    fn step(&mut self, op: &Op) -> Checked {
        match op {
            Op::Claim(door, ask) => self.claim(*door, ask),
            Op::Begin(door, ask) => self.begin(*door, ask),
            Op::ClaimMany(door, scope, ids) => {
                let keys: Vec<Key> = ids.iter().map(|&id| (*scope, id.into())).collect();
                self.claim_many(*door, *scope, &keys)
            }
            Op::ClaimRequests(door, asks) => self.claim_requests(*door, asks),
            Op::BeginRequests(door, asks) => self.begin_requests(*door, asks),
            Op::Settle(door, guard, ending) => self.settle(*door, *guard, ending),
            Op::SettleAll(door, guards, response) => self.settle_all(*door, guards, *response),
            Op::Renew(guard) => self.renew(*guard),
            Op::Note(door, guard, note) => self.note(*door, *guard, *note),
            Op::LongNote(guard) => self.long_note(*guard),
            Op::Get(door, scope, id) => self.get(*door, (*scope, u16::from(*id))),
            Op::Contains(scope, id) => self.contains((*scope, u16::from(*id))),
            Op::Forget(door, scope, id) => self.forget(*door, (*scope, u16::from(*id))),
            Op::Advance(door, scope, id, when) => self.advance(*door, (*scope, u16::from(*id)), *when),
            Op::LastApplied(scope, id) => self.last_applied((*scope, u16::from(*id))),
            Op::ForgetMark(scope, id) => self.forget_mark((*scope, u16::from(*id))),
            Op::Wait(door, wait) => self.wait(*door, *wait),
            Op::Fill(count) => self.fill(*count),
            Op::Elapse(pass) => {
                self.elapse(*pass);
                Ok(())
            }
            Op::StepWall(secs) => {
                self.clock.step_wall((*secs).into());
                self.model.step_wall(i64::from(*secs) * SECOND);
                Ok(())
            }
            Op::Maintain => self.maintain(),
            Op::Sync(door) => self.sync(*door),
            Op::Reopen(door) => self.reopen(*door),
            Op::Restart { shut, away, step, deploy } => self.restart(*shut, *away, *step, *deploy),
            Op::Invalid(wrong, scope) => self.invalid(*wrong, *scope),
        }
    }

    fn elapse(&mut self, pass: Pass) {
        let by = match pass {
            Pass::Millis(millis) => i64::from(millis) * (SECOND / 1000),
            Pass::Exactly(pick, nudge) => match self.model.turning_point(pick.into()) {
                Some(point) => (point - self.model.at.now + i64::from(nudge)).max(0),
                None => 0,
            },
        };
        self.clock.advance(Duration::from_nanos(by.unsigned_abs()));
        self.model.elapse(by);
    }

    pub fn live(&self) -> &Live {
        self.live.as_ref().expect("the store is open")
    }

    pub fn store(&self) -> &Store {
        &self.live().store
    }

    pub fn scope(&self, scope: u8) -> &Scope {
        &self.live().scopes[usize::from(scope)]
    }

    pub fn rules(&self, scope: u8) -> Rules {
        rules(self.deploy, scope)
    }

    /// Whether a call is durable on return that asks for `sync`.
    pub fn is_synced(&self, sync: Option<bool>) -> bool {
        sync.unwrap_or(self.synced)
    }
}

/// One poll: the answer, unless the future was not ready and is dropped.
pub fn polled_once<T>(future: Pending<T>) -> Option<oncedb::Result<T>> {
    match poll_once(Box::pin(future).as_mut()) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}

/// A response of this length as duplicates are to get it.
pub fn reply(len: Option<u16>) -> Reply {
    match len.map(usize::from) {
        None => Reply::None,
        Some(len) if len > LONGEST_RESPONSE => Reply::Omitted(len as u64),
        Some(len) => Reply::Stored(Bytes(response_bytes(len))),
    }
}
