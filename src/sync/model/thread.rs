//! Threads. Parking is modelled here, and not by shuttle's own `park`: that one may return without
//! reason at any time, which would hide a wake-up that never comes.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use shuttle::future::batch_semaphore::{BatchSemaphore, Fairness};
pub(crate) use shuttle::thread::ThreadId;

use super::time::{Alarm, Instant};

shuttle::thread_local! {
    static PARKER: Arc<Parker> = Arc::new(Parker {
        token: AtomicBool::new(false),
        gate: Arc::new(BatchSemaphore::new(0, Fairness::Unfair)),
    });
}

struct Parker {
    token: AtomicBool,
    gate: Arc<BatchSemaphore>,
}

/// The thread that asks, for others to wake.
pub(crate) struct Thread {
    parker: Arc<Parker>,
    id: ThreadId,
}

pub(crate) fn current() -> Thread {
    Thread { parker: PARKER.with(Arc::clone), id: shuttle::thread::current().id() }
}

pub(crate) fn park() {
    let parker = PARKER.with(Arc::clone);
    let _ = parker.gate.acquire_blocking(1);
    parker.token.store(false, Ordering::SeqCst);
}

/// May also return, as the real one may, for a time that ran out just after it had been woken.
pub(crate) fn park_timeout(within: Duration) {
    let parker = PARKER.with(Arc::clone);
    let alarm = Alarm::set(Instant::now() + within, Arc::clone(&parker.gate));
    let _ = parker.gate.acquire_blocking(1);
    drop(alarm);
    parker.token.store(false, Ordering::SeqCst);
}

impl Thread {
    pub(crate) fn id(&self) -> ThreadId {
        self.id
    }

    pub(crate) fn unpark(&self) {
        shuttle::thread::yield_now();
        if !self.parker.token.swap(true, Ordering::SeqCst) {
            self.parker.gate.release_no_scheduling_point(1);
        }
    }
}

/// Permission to wait for a thread's end.
#[derive(Debug)]
pub(crate) struct JoinHandle<T>(shuttle::thread::JoinHandle<T>);

impl<T> JoinHandle<T> {
    pub(crate) fn join(self) -> std::thread::Result<T> {
        self.0.join()
    }

    pub(crate) fn thread(&self) -> &shuttle::thread::Thread {
        self.0.thread()
    }
}

/// Makes a thread with a name.
#[derive(Debug)]
pub(crate) struct Builder(shuttle::thread::Builder);

impl Builder {
    pub(crate) fn new() -> Self {
        Self(shuttle::thread::Builder::new())
    }

    pub(crate) fn name(self, name: String) -> Self {
        Self(self.0.name(name))
    }

    pub(crate) fn spawn<T: Send + 'static>(
        self,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        self.0.spawn(body).map(JoinHandle)
    }
}
