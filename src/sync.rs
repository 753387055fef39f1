//! Locks, condition variables, atomics, threads and monotonic time, as everything above uses them.
//!
//! A normal build has `parking_lot`'s and the standard library's here, under other names and at no cost.
//! Under `--cfg shuttle` they are modelled, so that the tests of races choose who runs at every step.

#[cfg(shuttle)]
mod model;

#[cfg(shuttle)]
pub(crate) use model::{Condvar, Instant, Mutex, MutexGuard, OnceLock, RwLock, atomic, thread};

#[cfg(not(shuttle))]
pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
#[cfg(not(shuttle))]
pub(crate) use std::sync::{OnceLock, atomic};
#[cfg(not(shuttle))]
pub(crate) use std::thread;
#[cfg(not(shuttle))]
pub(crate) use std::time::Instant;
