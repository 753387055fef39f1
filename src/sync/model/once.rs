//! A cell that is set once and can be waited for.

use std::sync::atomic::Ordering;

use shuttle::future::batch_semaphore::{BatchSemaphore, Fairness};
use shuttle::sync::atomic::AtomicBool;

pub(crate) struct OnceLock<T> {
    value: std::sync::OnceLock<T>,
    /// Makes every look at the value a place where another thread may go on.
    seen: AtomicBool,
    /// Has no permits; closed once the value is set.
    gate: BatchSemaphore,
}

impl<T> OnceLock<T> {
    pub(crate) fn new() -> Self {
        Self {
            value: std::sync::OnceLock::new(),
            seen: AtomicBool::new(false),
            gate: BatchSemaphore::new(0, Fairness::Unfair),
        }
    }

    pub(crate) fn get(&self) -> Option<&T> {
        let _ = self.seen.load(Ordering::SeqCst);
        self.value.get()
    }

    pub(crate) fn set(&self, value: T) -> Result<(), T> {
        self.seen.store(true, Ordering::SeqCst);
        self.value.set(value)?;
        // Those who wait need not be woken in the same step.
        self.gate.close();
        Ok(())
    }

    pub(crate) fn wait(&self) -> &T {
        loop {
            if let Some(value) = self.get() {
                return value;
            }
            let _ = self.gate.acquire_blocking(1);
        }
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for OnceLock<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.value.fmt(f)
    }
}
