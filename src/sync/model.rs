//! The same names on shuttle's primitives: every lock, wake-up and atomic is a place where another
//! thread may go on, and the scheduler of the test decides which.
//!
//! All threads of one execution share one thread of the operating system. So what is not modelled (the
//! simulated disk, redb) takes no time and is never interrupted, and must not wait for another thread.

mod condvar;
mod lock;
mod once;
pub(crate) mod thread;
mod time;

pub(crate) use condvar::Condvar;
pub(crate) use lock::{Mutex, MutexGuard, RwLock};
pub(crate) use once::OnceLock;
pub(crate) use shuttle::sync::atomic;
pub(crate) use time::Instant;
