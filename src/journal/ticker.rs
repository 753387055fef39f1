//! When the sync thread has something to do.

use crate::sync::{Condvar, Instant, Mutex};

/// Deadlines for the sync thread, set by anyone.
#[derive(Debug, Default)]
pub(crate) struct Ticker {
    due: Mutex<Due>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Due {
    now: bool,
    write: Option<Instant>,
    sync: Option<Instant>,
    stop: bool,
}

impl Ticker {
    /// Wants a sync at once.
    pub(crate) fn sync_now(&self) {
        self.due.lock().now = true;
        self.changed.notify_one();
    }

    /// Wants a write by then, or a sync.
    pub(crate) fn write_at(&self, at: Instant) {
        let mut due = self.due.lock();
        due.write = Some(due.write.map_or(at, |known| known.min(at)));
        self.changed.notify_one();
    }

    /// Wants a sync by then.
    pub(crate) fn sync_at(&self, at: Instant) {
        let mut due = self.due.lock();
        due.sync = Some(due.sync.map_or(at, |known| known.min(at)));
        self.changed.notify_one();
    }

    /// What is due now or later, at once.
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) fn take(&self) -> Option<bool> {
        let mut due = self.due.lock();
        let sync = due.now || due.sync.is_some();
        let any = sync || due.write.is_some();
        *due = Due { stop: due.stop, ..Due::default() };
        any.then_some(sync)
    }

    /// Ends [`next`](Self::next).
    pub(crate) fn stop(&self) {
        self.due.lock().stop = true;
        self.changed.notify_one();
    }

    /// Blocks until something is due: `true` for a sync, `false` for a write, `None` at the end.
    pub(crate) fn next(&self) -> Option<bool> {
        let mut due = self.due.lock();
        loop {
            if due.stop {
                return None;
            }
            let now = Instant::now();
            if due.now || due.sync.is_some_and(|at| at <= now) {
                due.now = false;
                due.sync = None;
                due.write = None;
                return Some(true);
            }
            if due.write.is_some_and(|at| at <= now) {
                due.write = None;
                return Some(false);
            }
            match [due.write, due.sync].into_iter().flatten().min() {
                Some(at) => {
                    self.changed.wait_until(&mut due, at);
                }
                None => self.changed.wait(&mut due),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_stands_for_the_write_too() {
        let ticker = Ticker::default();
        ticker.write_at(Instant::now());
        ticker.sync_now();
        assert_eq!(ticker.next(), Some(true));
        ticker.write_at(Instant::now());
        assert_eq!(ticker.next(), Some(false));
        ticker.stop();
        assert_eq!(ticker.next(), None);
    }
}
