//! A bounded wait for a claim in progress, by the caller's own timer.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::error::Result;
use crate::outcome::{InProgress, Settled};

type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// How long to wait for a claim in progress.
#[derive(Clone)]
pub(crate) struct Patience {
    bound: Duration,
    sleep: Arc<dyn Fn(Duration) -> Sleep + Send + Sync>,
}

impl Patience {
    pub(crate) fn new<F>(bound: Duration, sleep: impl Fn(Duration) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self { bound, sleep: Arc::new(move |length| Box::pin(sleep(length))) }
    }

    pub(crate) fn begin(&self) -> Waiting {
        Waiting((self.sleep)(self.bound))
    }
}

impl fmt::Debug for Patience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Patience").field("bound", &self.bound).finish_non_exhaustive()
    }
}

/// One wait, over however many attempts.
pub(crate) struct Waiting(Sleep);

impl Waiting {
    /// Waits until the attempt has ended; [`Settled::Running`] when the time is up.
    pub(crate) async fn for_end_of(&mut self, running: &InProgress) -> Result<Settled> {
        let mut ended = running.wait_async();
        poll_fn(|context| {
            if let Poll::Ready(settled) = Pin::new(&mut ended).poll(context) {
                return Poll::Ready(settled);
            }
            self.0.as_mut().poll(context).map(|()| Ok(Settled::Running))
        })
        .await
    }
}
