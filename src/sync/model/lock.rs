//! `parking_lot`'s locks: no poisoning, and a writer that waits keeps new readers out.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;

use shuttle::future::batch_semaphore::{BatchSemaphore, Fairness};

#[derive(Default)]
pub(crate) struct Mutex<T> {
    inner: shuttle::sync::Mutex<T>,
}

pub(crate) struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
    /// `None` only while a condition variable waits with it.
    held: Option<shuttle::sync::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { inner: shuttle::sync::Mutex::new(value) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { mutex: self, held: Some(self.inner.lock().unwrap_or_else(PoisonError::into_inner)) }
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> MutexGuard<'_, T> {
    /// Runs `wait` unlocked. Nobody else runs between the unlocking and the beginning of `wait`.
    pub(super) fn unlocked(&mut self, wait: impl FnOnce()) {
        self.held = None;
        wait();
        self.held = Some(self.mutex.inner.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.held.as_ref().expect("held unless it waits")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.held.as_mut().expect("held unless it waits")
    }
}

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex").finish_non_exhaustive()
    }
}

/// What a writer takes; a reader takes one.
const ALL: usize = 1 << 20;

pub(crate) struct RwLock<T> {
    permits: BatchSemaphore,
    inner: std::sync::RwLock<T>,
}

impl<T> RwLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { permits: BatchSemaphore::new(ALL, Fairness::Unfair), inner: std::sync::RwLock::new(value) }
    }

    pub(crate) fn read(&self) -> Reading<'_, T> {
        // Fails only when the execution is over.
        let _ = self.permits.acquire_blocking(1);
        self.reading()
    }

    pub(crate) fn try_read(&self) -> Option<Reading<'_, T>> {
        self.permits.try_acquire(1).ok().map(|()| self.reading())
    }

    fn reading(&self) -> Reading<'_, T> {
        let held = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        Reading { held: Some(held), permits: &self.permits }
    }

    pub(crate) fn write(&self) -> Writing<'_, T> {
        // The place is taken as soon as no other writer has it: from then on readers stay out.
        let _ = shuttle::future::block_on(self.permits.acquire_reserving(1, ALL));
        let held = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        Writing { held: Some(held), permits: &self.permits }
    }
}

impl<T> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RwLock").finish_non_exhaustive()
    }
}

pub(crate) struct Reading<'a, T> {
    held: Option<std::sync::RwLockReadGuard<'a, T>>,
    permits: &'a BatchSemaphore,
}

impl<T> Deref for Reading<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.held.as_ref().expect("held until it is dropped")
    }
}

impl<T> Drop for Reading<'_, T> {
    fn drop(&mut self) {
        self.held = None;
        self.permits.release(1);
    }
}

pub(crate) struct Writing<'a, T> {
    held: Option<std::sync::RwLockWriteGuard<'a, T>>,
    permits: &'a BatchSemaphore,
}

impl<T> Deref for Writing<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.held.as_ref().expect("held until it is dropped")
    }
}

impl<T> DerefMut for Writing<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.held.as_mut().expect("held until it is dropped")
    }
}

impl<T> Drop for Writing<'_, T> {
    fn drop(&mut self) {
        self.held = None;
        self.permits.release(ALL);
    }
}
