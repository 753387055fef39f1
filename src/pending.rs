//! Futures for any executor.

use std::fmt;
use std::future::{Future, poll_fn};
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use crate::error::{Error, Result};
use crate::sync::thread::{self, Thread};
use crate::sync::{Instant, Mutex};

/// What every `*_async` method returns: a future for any executor.
///
/// It is lazy: nothing happens before the first poll. It owns copies of its arguments and keeps the
/// store open, so it can be spawned or stored. It never waits for a sync, a flush or another claim
/// on the polling thread.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let store = oncedb::Store::open(dir.path())?;
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let scope = store.scope("stripe")?;
/// let guard = scope.begin_async("evt_1").await?.into_new().expect("new");
/// guard.complete_with_async("reply").await?;
/// assert!(scope.claim_async("evt_1").await?.is_duplicate());
/// # Ok::<(), oncedb::Error>(())
/// # })?;
/// # Ok::<(), oncedb::Error>(())
/// ```
#[must_use = "futures do nothing unless polled"]
pub struct Pending<T> {
    // The lock is never taken: it makes the future `Sync`, and `&mut` goes around it.
    future: Mutex<Pin<Box<dyn Future<Output = Result<T>> + Send>>>,
}

impl<T> Pending<T> {
    pub(crate) fn new(future: impl Future<Output = Result<T>> + Send + 'static) -> Self {
        Self { future: Mutex::new(Box::pin(future)) }
    }
}

impl<T> Future for Pending<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        self.future.get_mut().as_mut().poll(context)
    }
}

impl<T> fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").finish_non_exhaustive()
    }
}

/// Runs `work` on a thread of its own, begun at the first poll.
pub(crate) async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let shared = Arc::new(Mutex::new(Outcome { result: None, waker: None }));
    let done = Arc::clone(&shared);
    let spawned = thread::Builder::new().name("oncedb-lifecycle".into()).spawn(move || {
        let result = work();
        let waker = {
            let mut outcome = done.lock();
            outcome.result = Some(result);
            outcome.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    });
    spawned.map_err(|error| Error::io(Path::new("thread"), error))?;
    poll_fn(|context| {
        let mut outcome = shared.lock();
        if let Some(result) = outcome.result.take() {
            return Poll::Ready(result);
        }
        outcome.waker = Some(context.waker().clone());
        Poll::Pending
    })
    .await
}

struct Outcome<T> {
    result: Option<Result<T>>,
    waker: Option<Waker>,
}

/// Wakes a parked thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread until the deadline; `None` if that came first.
pub(crate) fn block_on_until<F: Future>(future: F, deadline: Option<Instant>) -> Option<F::Output> {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        match deadline {
            None => thread::park(),
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return None;
                }
                thread::park_timeout(left);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};
    use std::time::Duration;

    #[test]
    fn a_deadline_ends_the_wait() {
        assert_eq!(block_on_until(ready(3), None), Some(3));
        assert_eq!(block_on_until(ready(3), Some(Instant::now())), Some(3));
        assert_eq!(block_on_until(pending::<()>(), Some(Instant::now() + Duration::from_millis(1))), None);
    }
}
