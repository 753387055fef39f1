//! Rounds of background work, asked for and waited for.

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Condvar, Mutex};

/// How long a thread rests when nobody asks for work.
const IDLE: Duration = Duration::from_secs(1);

/// One background thread's work, in numbered rounds.
#[derive(Debug, Default)]
pub(crate) struct Work {
    rounds: Mutex<Rounds>,
    wanted: Condvar,
    done: Condvar,
    kicked: AtomicBool,
}

#[derive(Debug, Default)]
struct Rounds {
    requested: u64,
    started: u64,
    finished: u64,
    progress: bool,
    stopped: bool,
    wakers: Vec<Waker>,
}

impl Work {
    /// Asks for a round that begins after now; its number.
    pub(crate) fn request(&self) -> u64 {
        let mut rounds = self.rounds.lock();
        let next = rounds.started + 1;
        rounds.requested = rounds.requested.max(next);
        self.wanted.notify_one();
        next
    }

    /// Asks for a round, cheaply if one is asked for already.
    pub(crate) fn kick(&self) {
        if !self.kicked.swap(true, Ordering::Relaxed) {
            self.request();
        }
    }

    /// Blocks until a round is over, or the thread has stopped.
    pub(crate) fn wait(&self, round: u64) {
        let mut rounds = self.rounds.lock();
        while rounds.finished < round && !rounds.stopped {
            self.done.wait(&mut rounds);
        }
    }

    /// The same for a future.
    pub(crate) fn poll(&self, round: u64, context: &Context<'_>) -> Poll<()> {
        let mut rounds = self.rounds.lock();
        if rounds.finished >= round || rounds.stopped {
            return Poll::Ready(());
        }
        rounds.wakers.push(context.waker().clone());
        Poll::Pending
    }

    /// Whether the last round got anything done.
    pub(crate) fn made_progress(&self) -> bool {
        self.rounds.lock().progress
    }

    /// Lets the thread stop, and everyone who waits go on.
    pub(crate) fn stop(&self) {
        let mut rounds = self.rounds.lock();
        rounds.stopped = true;
        let wakers = std::mem::take(&mut rounds.wakers);
        drop(rounds);
        self.wanted.notify_all();
        self.done.notify_all();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Lets everyone who waits look again.
    pub(crate) fn wake_all(&self) {
        let mut rounds = self.rounds.lock();
        rounds.finished = rounds.finished.max(rounds.requested);
        let wakers = std::mem::take(&mut rounds.wakers);
        drop(rounds);
        self.done.notify_all();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// The thread's body: a round when one is asked for, and now and then. `round` says whether it
    /// got anything done.
    pub(crate) fn run(&self, mut round: impl FnMut() -> bool) {
        loop {
            let mut rounds = self.rounds.lock();
            if rounds.requested <= rounds.started && !rounds.stopped {
                self.wanted.wait_for(&mut rounds, IDLE);
            }
            if rounds.stopped {
                return;
            }
            drop(rounds);
            self.run_one(&mut round);
        }
    }

    /// One round, on the calling thread.
    pub(crate) fn run_one(&self, round: impl FnOnce() -> bool) {
        let mut rounds = self.rounds.lock();
        rounds.started += 1;
        let number = rounds.started;
        drop(rounds);
        self.kicked.store(false, Ordering::Relaxed);
        let progress = round();
        let mut rounds = self.rounds.lock();
        rounds.finished = rounds.finished.max(number);
        rounds.progress = progress;
        let wakers = std::mem::take(&mut rounds.wakers);
        drop(rounds);
        self.done.notify_all();
        wakers.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_asked_for_is_run_and_waited_for() {
        let work = Work::default();
        let rounds = std::sync::atomic::AtomicU32::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| work.run(|| rounds.fetch_add(1, Ordering::Relaxed) == 0));
            let first = work.request();
            work.wait(first);
            assert!(rounds.load(Ordering::Relaxed) >= 1);
            work.wait(work.request());
            assert!(rounds.load(Ordering::Relaxed) >= 2);
            work.stop();
            work.wait(u64::MAX);
        });
    }
}
