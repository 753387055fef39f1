//! A condition variable whose timed waits may end at any point the scheduler likes.

use std::sync::Arc;

use shuttle::future::batch_semaphore::{BatchSemaphore, Fairness};
use shuttle::rand::{Rng, thread_rng};

use super::lock::MutexGuard;
use super::time::{Alarm, Instant};

#[derive(Default)]
pub(crate) struct Condvar {
    /// Makes a notification a place where another thread may go on.
    seen: shuttle::sync::atomic::AtomicBool,
    // Never held where another thread may go on.
    waiting: parking_lot::Mutex<Vec<Arc<BatchSemaphore>>>,
}

impl Condvar {
    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        self.wait_with(guard, None);
    }

    /// Whether the time ran out first is not told: everyone looks again in any case.
    pub(crate) fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, at: Instant) {
        self.wait_with(guard, Some(at));
    }

    pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, within: std::time::Duration) {
        self.wait_with(guard, Some(Instant::now() + within));
    }

    fn wait_with<T>(&self, guard: &mut MutexGuard<'_, T>, until: Option<Instant>) {
        guard.unlocked(|| {
            let gate = Arc::new(BatchSemaphore::new(0, Fairness::Unfair));
            self.waiting.lock().push(Arc::clone(&gate));
            let alarm = until.map(|at| Alarm::set(at, Arc::clone(&gate)));
            let _ = gate.acquire_blocking(1);
            drop(alarm);
            // Still there if the time ran out; a notification that comes now may yet be its own.
            self.waiting.lock().retain(|other| !Arc::ptr_eq(other, &gate));
        });
    }

    pub(crate) fn notify_one(&self) {
        self.seen.load(std::sync::atomic::Ordering::SeqCst);
        let mut waiting = self.waiting.lock();
        if !waiting.is_empty() {
            let chosen = thread_rng().gen_range(0..waiting.len());
            waiting.swap_remove(chosen).release_no_scheduling_point(1);
        }
    }

    pub(crate) fn notify_all(&self) {
        self.seen.load(std::sync::atomic::Ordering::SeqCst);
        for gate in self.waiting.lock().drain(..) {
            gate.release_no_scheduling_point(1);
        }
    }
}

impl std::fmt::Debug for Condvar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Condvar").finish_non_exhaustive()
    }
}
