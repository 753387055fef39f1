//! What the callers of one sync wait on.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Waker;

use parking_lot::Mutex;

use crate::error::Error;

/// Why something did not become durable.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// Its own write or sync failed.
    Unknown(Arc<io::Error>),
    /// An earlier one failed; this was never written.
    Poisoned(Arc<io::Error>),
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Unknown(source) => Self::OutcomeUnknown { source },
            Fault::Poisoned(source) => Self::Poisoned { source },
        }
    }
}

/// The frames that one sync makes durable, as their callers see them. Resolved once.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    // One futex for all: everybody is woken by one call.
    result: OnceLock<Result<(), Fault>>,
    led: AtomicBool,
    wakers: Mutex<Vec<Waker>>,
}

impl Batch {
    /// Whether the caller is the first to ask, and so must see to the commit.
    pub(crate) fn lead(&self) -> bool {
        !self.led.swap(true, Ordering::AcqRel)
    }

    /// Blocks until resolved.
    pub(crate) fn wait(&self) -> Result<(), Fault> {
        self.result.wait().clone()
    }

    /// Has `waker` woken at the end; the result, if that is now.
    pub(crate) fn register(&self, waker: &Waker) -> Option<Result<(), Fault>> {
        let mut wakers = self.wakers.lock();
        if let Some(result) = self.result.get() {
            return Some(result.clone());
        }
        if !wakers.last().is_some_and(|last| last.will_wake(waker)) {
            wakers.push(waker.clone());
        }
        None
    }

    /// Answers everybody. Call it with no lock held: wakers run foreign code.
    pub(crate) fn resolve(&self, result: Result<(), Fault>) {
        if self.result.set(result).is_ok() {
            let wakers = std::mem::take(&mut *self.wakers.lock());
            wakers.into_iter().for_each(Waker::wake);
        }
    }
}
