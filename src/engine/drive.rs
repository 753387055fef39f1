//! Waiting, for both kinds of callers.
//!
//! An operation is a function that is called again after each wait, until it is done. The same
//! function serves a blocked thread and a future.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::Engine;
use crate::error::Result;
use crate::live::{Standing, Waiter};
use crate::options::Durability;
use crate::sabotage::{self, Break};

/// Where an operation stands.
#[derive(Debug)]
pub(crate) enum Step<T> {
    Done(T),
    Wait(Wait),
}

/// What to wait for before an operation is tried again.
#[derive(Debug)]
pub(crate) enum Wait {
    /// A frame, until it is durable.
    Frame(u64),
    /// A round of background work that was asked for.
    Room(u64),
}

/// What an operation has waited for without success.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    /// Rounds of background work.
    pub(crate) rounds: u32,
}

impl Patience {
    /// For callers who cannot wait at all.
    pub(crate) fn exhausted() -> Self {
        Self { rounds: u32::MAX }
    }
}

impl Engine {
    /// Runs an operation on this thread.
    pub(crate) fn drive<T>(&self, mut operation: impl FnMut(&mut Patience) -> Result<Step<T>>) -> Result<T> {
        let mut patience = Patience::default();
        loop {
            match operation(&mut patience)? {
                Step::Done(value) => return Ok(value),
                Step::Wait(Wait::Frame(seq)) => self.wait_durable(seq)?,
                Step::Wait(Wait::Room(round)) => {
                    self.wait_round(round);
                    patience.rounds += 1;
                }
            }
        }
    }

    /// Runs an operation without blocking the polling thread.
    pub(crate) async fn drive_async<T>(
        &self,
        mut operation: impl FnMut(&mut Patience) -> Result<Step<T>>,
    ) -> Result<T> {
        let mut patience = Patience::default();
        loop {
            match operation(&mut patience)? {
                Step::Done(value) => return Ok(value),
                Step::Wait(Wait::Frame(seq)) => {
                    poll_fn(|context| self.journal.poll(seq, context.waker())).await?;
                }
                Step::Wait(Wait::Room(round)) => {
                    poll_fn(|context| self.work.poll(round, context)).await;
                    patience.rounds += 1;
                }
            }
        }
    }
}

impl Engine {
    /// What a caller of this durability must wait for before it is told of a frame: a crash could
    /// still take that back.
    pub(super) fn undurable(&self, durability: Durability, seq: u64) -> Option<Wait> {
        let waits = durability.is_sync() && !sabotage::is(Break::AnswerBeforeDurable);
        (waits && seq > self.journal.durable()).then_some(Wait::Frame(seq))
    }

    /// Whether a crash could still bring back what this state hides. What replaces it hides the same, and is
    /// waited for like it.
    pub(super) fn still_hides(&self, hides: bool, seq: u64) -> bool {
        hides && seq > self.journal.durable() && !sabotage::is(Break::HideOnce)
    }

    /// Has everything synced though nobody waits.
    pub(crate) fn sync_soon(&self) {
        self.journal.sync_soon();
    }

    /// Waits until a frame is durable.
    pub(crate) fn wait_durable(&self, seq: u64) -> Result<()> {
        Ok(self.journal.wait_by(seq, self.caller_lead())?)
    }

    /// The same for a future.
    pub(crate) async fn wait_durable_async(&self, seq: u64) -> Result<()> {
        Ok(poll_fn(|context| self.journal.poll(seq, context.waker())).await?)
    }

    /// Waits for a frame if the store's durability asks for it.
    pub(crate) fn wait_store_durable(&self, seq: Option<u64>) -> Result<()> {
        match seq {
            Some(seq) if self.options.durability.is_sync() => self.wait_durable(seq),
            _ => Ok(()),
        }
    }

    /// The same for a future.
    pub(crate) async fn wait_store_durable_async(&self, seq: Option<u64>) -> Result<()> {
        match seq {
            Some(seq) if self.options.durability.is_sync() => self.wait_durable_async(seq).await,
            _ => Ok(()),
        }
    }

    /// For a waiter: ready once nobody may go on with the attempt, with its record if it completed and,
    /// where that is asked, no crash can take that back.
    pub(crate) fn poll_attempt(
        &self,
        waiter: &Waiter,
        durable: bool,
        context: &Context<'_>,
    ) -> Poll<Result<Option<Arc<[u8]>>>> {
        let attempt = waiter.attempt();
        let ended = match waiter.look(context.waker(), self.now()) {
            Standing::Completed { seq, record } if durable => {
                self.journal.poll(seq, context.waker()).map(|outcome| Ok(outcome.map(|()| Some(record))?))
            }
            _ if self.is_superseded() => Poll::Ready(Ok(None)),
            Standing::Completed { record, .. } => Poll::Ready(self.check().map(|()| Some(record))),
            Standing::Released | Standing::Lapsed => Poll::Ready(self.check().map(|()| None)),
            Standing::Held => match self.check() {
                Ok(()) => {
                    if attempt.lease.is_some() {
                        self.watch_lease(attempt);
                    }
                    Poll::Pending
                }
                Err(error) => Poll::Ready(Err(error)),
            },
        };
        match ended {
            // A reopened store has new answers: begin again. Its failure is seen after its new phase.
            Poll::Ready(Err(_)) if self.is_superseded() => Poll::Ready(Ok(None)),
            ended => ended,
        }
    }
}
