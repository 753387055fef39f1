//! What the callers of one sync wait on.

use std::io;
use std::sync::Arc;
use std::task::Waker;

use crate::error::Error;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, OnceLock};

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

/// The frames that one sync is to make durable, as their callers see them. Ended once; the journal
/// then knows what became of each frame.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    // One futex for all: everybody is woken by one call.
    ended: OnceLock<()>,
    led: AtomicBool,
    wakers: Mutex<Vec<Waker>>,
}

impl Batch {
    /// Whether the caller is the first to ask, and so must see to the commit.
    pub(crate) fn lead(&self) -> bool {
        !self.led.swap(true, Ordering::AcqRel)
    }

    /// Blocks until ended.
    pub(crate) fn wait(&self) {
        self.ended.wait();
    }

    /// Has `waker` woken at the end; whether that has been.
    pub(crate) fn register(&self, waker: &Waker) -> bool {
        let mut wakers = self.wakers.lock();
        if self.ended.get().is_some() {
            return true;
        }
        if !wakers.last().is_some_and(|last| last.will_wake(waker)) {
            wakers.push(waker.clone());
        }
        false
    }

    /// Answers everybody. Call it with no lock held: wakers run foreign code.
    pub(crate) fn end(&self) {
        if self.ended.set(()).is_ok() {
            let wakers = std::mem::take(&mut *self.wakers.lock());
            wakers.into_iter().for_each(Waker::wake);
        }
    }
}
