//! Work and its claim in one call.

use std::sync::Arc;

use crate::error::Error;
use crate::guard::Guard;
use crate::outcome::Outcome;
use crate::request::Request;
use crate::scope::Scope;

/// How finished work settles its claim: what [`Scope::run`] takes from its closure.
///
/// | value | the claim is |
/// |---|---|
/// | `()`, `None` | completed without a response |
/// | bytes and strings, `Some` of them | completed with this response |
/// | `Ok(value)` | settled as `value` says |
/// | `Err(value)` | refused with the response of `value`: a final "no", stored and replayed |
///
/// ```
/// use oncedb::Settle;
///
/// assert_eq!(().response(), None);
/// assert_eq!("done".response(), Some(&b"done"[..]));
/// let taken: Result<String, &str> = Err("the slot is taken");
/// assert!(taken.is_refusal());
/// assert_eq!(taken.response(), Some(&b"the slot is taken"[..]));
/// ```
pub trait Settle {
    /// The response that every duplicate is to get, if there is one.
    fn response(&self) -> Option<&[u8]>;

    /// Whether it is a final "no".
    fn is_refusal(&self) -> bool {
        false
    }
}

impl Settle for () {
    fn response(&self) -> Option<&[u8]> {
        None
    }
}

macro_rules! settle_with_bytes {
    ($([$($of:tt)*] $type:ty),*) => {$(
        impl $($of)* Settle for $type {
            fn response(&self) -> Option<&[u8]> {
                Some(self.as_ref())
            }
        }
    )*};
}
settle_with_bytes!([] [u8], [<const N: usize>] [u8; N], [] Vec<u8>, [] str, [] String);

macro_rules! settle_as_pointee {
    ($($type:ty),*) => {$(
        impl<T: Settle + ?Sized> Settle for $type {
            fn response(&self) -> Option<&[u8]> {
                (**self).response()
            }

            fn is_refusal(&self) -> bool {
                (**self).is_refusal()
            }
        }
    )*};
}
settle_as_pointee!(&T, Box<T>, Arc<T>);

impl<T: Settle> Settle for Option<T> {
    fn response(&self) -> Option<&[u8]> {
        self.as_ref()?.response()
    }

    fn is_refusal(&self) -> bool {
        self.as_ref().is_some_and(Settle::is_refusal)
    }
}

impl<T: Settle, R: Settle> Settle for Result<T, R> {
    fn response(&self) -> Option<&[u8]> {
        match self {
            Ok(done) => done.response(),
            Err(refused) => refused.response(),
        }
    }

    fn is_refusal(&self) -> bool {
        self.as_ref().map_or(true, Settle::is_refusal)
    }
}

impl Scope {
    /// Does an event's work once: begins the id, runs `work`, and completes with what it returns.
    /// Durable on return. `work` runs for [`Outcome::New`] only, which then holds its value; a
    /// duplicate holds the stored response.
    ///
    /// An error or a panic of `work` frees the key, and so the retry is new. What `work` returns
    /// says how the claim is settled: see [`Settle`]. The guard that it gets tells of the attempt
    /// before, keeps notes and renews a lease.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = oncedb::Store::open(dir.path())?;
    /// use oncedb::{Error, Outcome};
    ///
    /// let stripe = store.scope("stripe")?;
    /// let deliver = || stripe.run("evt_1", |guard| {
    ///     assert_eq!(guard.attempt(), 1);
    ///     Ok::<_, Error>("paid") // your own error, if it is `From<oncedb::Error>`
    /// });
    /// assert!(matches!(deliver()?, Outcome::New("paid")));
    /// match deliver()? {
    ///     Outcome::Duplicate(record) => assert_eq!(record.stored_response().as_deref(), Some(&b"paid"[..])),
    ///     _ => unreachable!("it is done"),
    /// }
    /// # Ok::<(), oncedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// What `work` returns; as [`begin`](Self::begin), before `work`; as
    /// [`Guard::complete_with`], after it: then the work is done, and the key is not free.
    ///
    /// # Panics
    ///
    /// Where `work` does. The key is free then.
    pub fn run<T, E>(
        &self,
        id: impl AsRef<[u8]>,
        work: impl FnOnce(&Guard) -> Result<T, E>,
    ) -> Result<Outcome<T>, E>
    where
        T: Settle,
        E: From<Error>,
    {
        self.request(id).run(work)
    }

    /// [`run`](Self::run) for any executor. Dropped while `work` runs, the future gives the key back;
    /// once `work` has returned, the completion is carried out in any case.
    ///
    /// The future is `Send` if `work` and its own future are, and it borrows what `id` borrows: to
    /// spawn it, pass an owned id.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = oncedb::Store::open(dir.path())?;
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// use oncedb::Error;
    ///
    /// let stripe = store.scope("stripe")?;
    /// let outcome = stripe.run_async("evt_1", async |_| Ok::<_, Error>("paid")).await?;
    /// assert_eq!(outcome.into_new(), Some("paid"));
    /// # Ok::<(), oncedb::Error>(())
    /// # })?;
    /// # Ok::<(), oncedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub fn run_async<I, T, E, F>(
        &self,
        id: I,
        work: F,
    ) -> impl Future<Output = Result<Outcome<T>, E>> + use<I, T, E, F>
    where
        I: AsRef<[u8]>,
        T: Settle,
        E: From<Error>,
        F: AsyncFnOnce(&Guard) -> Result<T, E>,
    {
        self.request(id).run_async(work)
    }
}

impl Request {
    /// Begins, runs `work` if the claim is new, and completes with what it returns: see
    /// [`Scope::run`].
    ///
    /// # Errors
    ///
    /// As [`Scope::run`].
    ///
    /// # Panics
    ///
    /// As [`Scope::run`].
    pub fn run<T, E>(self, work: impl FnOnce(&Guard) -> Result<T, E>) -> Result<Outcome<T>, E>
    where
        T: Settle,
        E: From<Error>,
    {
        let guard = match self.begin()?.new_or_other() {
            Ok(guard) => guard,
            Err(other) => return Ok(other),
        };
        let done = work(&guard)?;
        guard.settle(done.is_refusal(), done.response().map(<[u8]>::to_vec))?;
        Ok(Outcome::New(done))
    }

    /// [`run`](Self::run) for any executor, dropped like [`Scope::run_async`].
    ///
    /// # Errors
    ///
    /// As [`Scope::run`].
    pub async fn run_async<T, E, F>(self, work: F) -> Result<Outcome<T>, E>
    where
        T: Settle,
        E: From<Error>,
        F: AsyncFnOnce(&Guard) -> Result<T, E>,
    {
        let guard = match self.begin_async().await?.new_or_other() {
            Ok(guard) => guard,
            Err(other) => return Ok(other),
        };
        let done = work(&guard).await?;
        guard.settle_async(done.is_refusal(), done.response().map(<[u8]>::to_vec)).await?;
        Ok(Outcome::New(done))
    }
}
