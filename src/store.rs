//! The store as users hold it: one directory, opened once.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use crate::disk::Lock;
use crate::engine::batch::Batch;
use crate::engine::claim::Purpose;
use crate::engine::salvage::salvage;
use crate::engine::{Ask, Engine};
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::options::{Options, ScopeOptions};
use crate::outcome::{Outcome, Record};
use crate::pending::{Pending, on_thread};
use crate::request::{Request, begun, claimed};
use crate::salvage::{Missing, Salvaged};
use crate::scope::{Scope, ScopeCore};
use crate::stats::{Maintenance, Stats};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::thread::{self, ThreadId};
use crate::sync::{Condvar, Mutex, RwLock};
use crate::verification::{Verification, VerifyProgress};

const LOCK_FILE: &str = "lock";

/// An open store. Cheap to clone; one process opens a directory at a time.
///
/// `Store`, [`Scope`], [`Guard`] and [`Pending`] keep it open. Dropping the last of them blocks as
/// [`close`](Self::close) does.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// use oncedb::{Error, Store};
///
/// let store = Store::open(dir.path())?;
/// let scope = store.scope("orders")?;
/// let guards = ["a", "b"].map(|id| scope.begin(id).map(|outcome| outcome.into_new().expect("new")));
/// let guards = guards.into_iter().collect::<Result<Vec<_>, Error>>()?;
/// assert!(store.complete_all(guards)?.iter().all(Result::is_ok));
/// assert!(matches!(Store::open(dir.path()), Err(Error::Locked { .. })));
/// store.close()?;
/// assert!(matches!(scope.claim("c"), Err(Error::Closed { .. })));
/// # Ok::<(), oncedb::Error>(())
/// ```
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

/// What all handles share. It outlives its engine: `reopen` puts in another one.
pub(crate) struct Inner {
    dir: PathBuf,
    options: Options,
    engine: RwLock<Arc<Engine>>,
    closed: AtomicBool,
    lifecycle: Mutex<Lifecycle>,
    /// Somebody has closed or reopened.
    turn_over: Condvar,
    scopes: Mutex<HashMap<Box<str>, ScopeSlot>>,
}

struct Lifecycle {
    /// Who closes or reopens, one at a time.
    turn: Option<ThreadId>,
    /// The lock on the directory while the store is open.
    lock: Option<Box<dyn Lock>>,
}

/// The right to close or reopen.
struct Turn<'a>(&'a Inner);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.lifecycle.lock().turn = None;
        self.0.turn_over.notify_all();
    }
}

/// What is known of a scope by its name.
#[derive(Default)]
struct ScopeSlot {
    /// Set by `scope_with`, until the store closes.
    set: Option<ScopeOptions>,
    /// A handle without options of its own.
    plain: Weak<ScopeCore>,
    number: Option<u32>,
}

impl Inner {
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(()) }
    }

    /// The engine that answers now.
    pub(crate) fn engine(&self) -> Result<Arc<Engine>> {
        self.check_open()?;
        Ok(Arc::clone(&self.engine.read()))
    }

    /// Waits for the turn to close or reopen. `None` for a waker that whoever has it runs on this thread
    /// or on one of the engine's, which it waits for: `leaving` is what such a caller leaves behind.
    fn turn(&self, leaving: impl FnOnce()) -> Option<Turn<'_>> {
        let this = thread::current().id();
        let own = self.engine.read().is_own_thread(this);
        let mut lifecycle = self.lifecycle.lock();
        while let Some(other) = lifecycle.turn {
            if own || other == this {
                leaving();
                return None;
            }
            self.turn_over.wait(&mut lifecycle);
        }
        lifecycle.turn = Some(this);
        drop(lifecycle);
        Some(Turn(self))
    }

    fn close(&self) -> Result<()> {
        let Some(_turn) = self.turn(|| self.closed.store(true, Ordering::Release)) else { return Ok(()) };
        self.closed.store(true, Ordering::Release);
        let Some(lock) = self.lifecycle.lock().lock.take() else { return Ok(()) };
        let engine = Arc::clone(&self.engine.read());
        let result = if engine.is_superseded() { Ok(()) } else { engine.close() };
        drop(lock);
        result
    }

    fn reopen(&self) -> Result<()> {
        let Some(turn) = self.turn(|| ()) else { return self.check_open() };
        let result = self.replace_engine();
        drop(turn);
        // Closed meanwhile by a waker that could not wait for its turn: it left that to this one.
        if let Err(closed) = self.check_open() {
            let _ = self.close();
            return Err(closed);
        }
        result
    }

    fn replace_engine(&self) -> Result<()> {
        let old = self.engine()?;
        // Nothing of the old engine may touch a file once the new one reads them.
        if !old.is_superseded() {
            old.abandon();
        }
        self.check_open()?;
        *self.engine.write() = Engine::open(&self.dir, self.options.clone(), Some(&old))?;
        Ok(())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // There is nobody to tell; `close` tells.
        let _ = self.close();
    }
}

impl Store {
    /// Opens the store in a directory with all defaults, creating it if it is not there.
    ///
    /// # Errors
    ///
    /// As [`Options::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Options::default().open(path)
    }

    /// Options to open a store with.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// use oncedb::{Durability, Store};
    /// use std::time::Duration;
    ///
    /// let store = Store::options()
    ///     .window(Duration::from_secs(72 * 3600))
    ///     .durability(Durability::Interval(Duration::from_millis(50)))
    ///     .memory_limit(16 << 20)
    ///     .open(dir.path())?;
    /// # Ok::<(), oncedb::Error>(())
    /// ```
    #[must_use]
    pub fn options() -> Options {
        Options::default()
    }

    /// Opens a damaged store with all defaults: keeps what is sound, and says what is missing. Damaged
    /// files are copied to the directory `damaged` inside of the store first. Never called by anything
    /// else: whether a store may lose something is for you to say, best after a copy of the whole
    /// directory was made. A store that is sound is opened as by [`open`](Self::open).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # oncedb::Store::open(dir.path())?.close()?;
    /// use oncedb::{Error, Store};
    ///
    /// let store = match Store::open(dir.path()) {
    ///     Err(Error::Corrupt { .. }) => {
    ///         let salvaged = Store::salvage(dir.path())?;
    ///         for missing in &salvaged.missing {
    ///             eprintln!("{missing}"); // events of this time may be processed again
    ///         }
    ///         salvaged.store
    ///     }
    ///     opened => opened?,
    /// };
    /// # Ok::<(), oncedb::Error>(())
    /// ```
    ///
    /// It reads all files, and takes as long. What it tells is also left in a file `damaged/report.1` (or
    /// the next number), durably and before the store is changed. If it is interrupted, or fails, do it
    /// again; but a store that it had finished with is sound by then, and nothing is missing any more. So
    /// after an interruption read the reports too: they name all that any try has found.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open). [`Error::Corrupt`] only where the catalog is damaged, and so are both
    /// copies of what it could be made from.
    pub fn salvage(path: impl AsRef<Path>) -> Result<Salvaged> {
        Options::default().salvage(path)
    }

    pub(crate) fn open_with(options: Options, dir: &Path) -> Result<Self> {
        let lock = lock(&options, dir)?;
        Self::open_locked(options, dir, lock)
    }

    pub(crate) fn salvage_with(options: Options, dir: &Path) -> Result<Salvaged> {
        let lock = lock(&options, dir)?;
        let losses = salvage(dir, &options)?;
        let store = Self::open_locked(options, dir, lock)?;
        let mapping = store.inner.engine()?.mapping();
        let missing = losses.into_iter().map(|loss| Missing::of(loss, mapping)).collect();
        Ok(Salvaged { store, missing })
    }

    fn open_locked(options: Options, dir: &Path, lock: Box<dyn Lock>) -> Result<Self> {
        let engine = Engine::open(dir, options.clone(), None)?;
        let inner = Inner {
            dir: dir.to_path_buf(),
            options,
            engine: RwLock::new(engine),
            closed: AtomicBool::new(false),
            lifecycle: Mutex::new(Lifecycle { turn: None, lock: Some(lock) }),
            turn_over: Condvar::default(),
            scopes: Mutex::default(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// A scope by its name: with the options that [`scope_with`](Self::scope_with) gave it, else
    /// with the defaults.
    ///
    /// # Errors
    ///
    /// [`Error::KeyTooLong`] if the name leaves no room for an id, [`Error::Full`],
    /// [`Error::Closed`], [`Error::Poisoned`].
    pub fn scope(&self, name: impl AsRef<str>) -> Result<Scope> {
        let name = name.as_ref();
        let mut scopes = self.inner.scopes.lock();
        let number = self.scope_number(&mut scopes, name)?;
        let slot = scopes.entry(name.into()).or_default();
        let core = match (&slot.set, slot.plain.upgrade()) {
            (Some(options), _) => self.scope_core(name, number, options.clone()),
            (None, Some(plain)) => plain,
            (None, None) => {
                let core = self.scope_core(name, number, ScopeOptions::default());
                slot.plain = Arc::downgrade(&core);
                core
            }
        };
        Ok(Scope::new(core))
    }

    /// A scope with options, which stay until the store closes. The same options again are fine.
    ///
    /// # Errors
    ///
    /// [`Error::ScopeOptions`] if the scope has other options, or is in use without any;
    /// [`Error::InvalidOption`]; and as [`scope`](Self::scope).
    pub fn scope_with(&self, name: impl AsRef<str>, options: ScopeOptions) -> Result<Scope> {
        let name = name.as_ref();
        options.check()?;
        let mut scopes = self.inner.scopes.lock();
        let number = self.scope_number(&mut scopes, name)?;
        let slot = scopes.entry(name.into()).or_default();
        let fits = match &slot.set {
            Some(set) => *set == options,
            None => slot.plain.strong_count() == 0,
        };
        if !fits {
            return Err(Error::ScopeOptions { scope: name.into() });
        }
        slot.set = Some(options.clone());
        Ok(Scope::new(self.scope_core(name, number, options)))
    }

    fn scope_core(&self, name: &str, number: u32, options: ScopeOptions) -> Arc<ScopeCore> {
        Arc::new(ScopeCore { inner: Arc::clone(&self.inner), name: name.into(), number, options })
    }

    fn scope_number(&self, scopes: &mut HashMap<Box<str>, ScopeSlot>, name: &str) -> Result<u32> {
        let engine = self.inner.engine()?;
        let limit = self.inner.options.max_key_len;
        if name.len() >= limit {
            return Err(Error::KeyTooLong { len: name.len() + 1, limit });
        }
        if let Some(number) = scopes.get(name).and_then(|slot| slot.number) {
            return Ok(number);
        }
        let number = engine.register_scope(name)?;
        scopes.entry(name.into()).or_default().number = Some(number);
        Ok(number)
    }

    /// Ends the store for every clone, scope and guard: waiting calls are answered, everything is
    /// flushed, the directory is unlocked. Everything later is [`Error::Closed`]; claims still in
    /// progress become orphans. Closing a closed store does nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Poisoned`], [`Error::OutcomeUnknown`], [`Error::Io`]: the store is closed all the
    /// same, and what was durable stays so.
    pub fn close(&self) -> Result<()> {
        self.inner.close()
    }

    /// [`close`](Self::close) for any executor, on a thread of its own.
    pub fn close_async(&self) -> Pending<()> {
        let inner = Arc::clone(&self.inner);
        Pending::new(on_thread(move || inner.close()))
    }

    /// Recovers a poisoned store in place, from what the disk really holds. Every `Store` and
    /// [`Scope`] goes on; guards from before are [`Error::Fenced`], their claims orphans.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`], and as [`Options::open`]; after a failure the store stays poisoned, and
    /// this can be tried again.
    pub fn reopen(&self) -> Result<()> {
        self.inner.reopen()
    }

    /// [`reopen`](Self::reopen) for any executor, on a thread of its own.
    pub fn reopen_async(&self) -> Pending<()> {
        let inner = Arc::clone(&self.inner);
        Pending::new(on_thread(move || inner.reopen()))
    }

    /// Makes everything accepted so far durable.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`], [`Error::OutcomeUnknown`], [`Error::Poisoned`].
    pub fn sync(&self) -> Result<()> {
        let engine = self.inner.engine()?;
        engine.wait_durable(engine.accepted()?)
    }

    /// [`sync`](Self::sync) for any executor.
    pub fn sync_async(&self) -> Pending<()> {
        let inner = Arc::clone(&self.inner);
        Pending::new(async move {
            let engine = inner.engine()?;
            let accepted = engine.accepted()?;
            engine.wait_durable_async(accepted).await
        })
    }

    /// Does what the threads of a store without threads would do now, see
    /// [`Options::threads`]. Nothing in a store with threads, or one that is closed.
    #[cfg(any(test, feature = "simulation"))]
    pub fn tick(&self) {
        if let Ok(engine) = self.inner.engine() {
            engine.tick();
        }
    }

    /// Does now what the background threads do: flushes, merges and expires.
    ///
    /// # Errors
    ///
    /// [`Error::Full`], [`Error::Io`] (nothing is lost, the journal still holds it all),
    /// [`Error::Corrupt`], [`Error::Closed`], [`Error::Poisoned`].
    pub fn maintain(&self) -> Result<Maintenance> {
        self.inner.engine()?.maintain()
    }

    /// Reads every file and checks everything that can be checked: checksums, the order of records
    /// and frames, filters, and that the files fit one another. The store stays in use meanwhile, and
    /// damage does not end the check. It reads from the device and not from the page cache; let it
    /// run as often as you would have a disk scrubbed.
    ///
    /// What it does not read is in no use: free journal segments, responses that no record points to.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`], [`Error::OutcomeUnknown`], [`Error::Poisoned`]. Damage is no error here.
    pub fn verify(&self) -> Result<Verification> {
        self.verify_with(|_| {})
    }

    /// [`verify`](Self::verify), and says now and then how far it is.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = oncedb::Store::open(dir.path())?;
    /// let verification = store.verify_with(|progress| {
    ///     println!("{} of {} bytes, at {}", progress.bytes_done, progress.bytes_total, progress.path.display());
    /// })?;
    /// assert!(verification.is_sound());
    /// # Ok::<(), oncedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`verify`](Self::verify).
    pub fn verify_with(&self, mut progress: impl FnMut(&VerifyProgress<'_>)) -> Result<Verification> {
        self.inner.engine()?.verify(&mut progress)
    }

    /// [`verify`](Self::verify) for any executor, on a thread of its own.
    pub fn verify_async(&self) -> Pending<Verification> {
        let store = self.clone();
        Pending::new(on_thread(move || store.verify()))
    }

    /// A picture of the store. Looks at every recent key: not for a hot path.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.inner.engine.read().clone().stats()
    }

    /// Completes many claims with one sync, answered in the order of the input: an inner error is
    /// [`Error::Fenced`]. Durable on return.
    ///
    /// # Errors
    ///
    /// As [`Guard::complete`], but for `Fenced`.
    pub fn complete_all(&self, guards: impl IntoIterator<Item = Guard>) -> Result<Vec<Result<()>>> {
        settle_all(guards.into_iter().map(|guard| (guard, None)))
    }

    /// [`complete_all`](Self::complete_all) for any executor. Dropped before its first poll it
    /// aborts all; after that it is carried out in any case.
    pub fn complete_all_async(&self, guards: impl IntoIterator<Item = Guard>) -> Pending<Vec<Result<()>>> {
        let guards: Vec<_> = guards.into_iter().map(|guard| (guard, None)).collect();
        Pending::new(settle_all_async(guards))
    }

    /// [`complete_all`](Self::complete_all), each with a response.
    ///
    /// # Errors
    ///
    /// As [`complete_all`](Self::complete_all).
    pub fn complete_all_with<R: AsRef<[u8]>>(
        &self,
        guards: impl IntoIterator<Item = (Guard, R)>,
    ) -> Result<Vec<Result<()>>> {
        settle_all(guards.into_iter().map(|(guard, response)| (guard, Some(response.as_ref().to_vec()))))
    }

    /// [`complete_all_with`](Self::complete_all_with) for any executor, dropped like
    /// [`complete_all_async`](Self::complete_all_async).
    pub fn complete_all_with_async<R: AsRef<[u8]>>(
        &self,
        guards: impl IntoIterator<Item = (Guard, R)>,
    ) -> Pending<Vec<Result<()>>> {
        let guards: Vec<_> =
            guards.into_iter().map(|(guard, response)| (guard, Some(response.as_ref().to_vec()))).collect();
        Pending::new(settle_all_async(guards))
    }

    /// Claims and completes many requests with one sync, each with its own options, answered in the
    /// order of the input; inner errors are of one request. Durable on return.
    ///
    /// # Errors
    ///
    /// Those that concern the whole store, as [`Scope::claim`].
    pub fn claim_requests(
        &self,
        requests: impl IntoIterator<Item = Request>,
    ) -> Result<Vec<Result<Outcome<Record>>>> {
        let (engine, batch) = self.batch_of(requests, claim_purpose)?;
        Ok(all_claimed(&engine, batch.run()?))
    }

    /// [`claim_requests`](Self::claim_requests) for any executor. Dropped before it is ready, its
    /// claims are taken back.
    pub fn claim_requests_async(
        &self,
        requests: impl IntoIterator<Item = Request>,
    ) -> Pending<Vec<Result<Outcome<Record>>>> {
        let (store, requests) = (self.clone(), requests.into_iter().collect::<Vec<_>>());
        Pending::new(async move {
            let (engine, batch) = store.batch_of(requests, claim_purpose)?;
            Ok(all_claimed(&engine, batch.run_async().await?))
        })
    }

    /// Begins many requests, each with its own options, answered in the order of the input; inner
    /// errors are of one request.
    ///
    /// # Errors
    ///
    /// Those that concern the whole store, as [`Scope::begin`].
    pub fn begin_requests(
        &self,
        requests: impl IntoIterator<Item = Request>,
    ) -> Result<Vec<Result<Outcome<Guard>>>> {
        let (engine, batch) = self.batch_of(requests, || Purpose::Begin)?;
        Ok(self.all_begun(&engine, batch.run()?))
    }

    /// [`begin_requests`](Self::begin_requests) for any executor. Dropped, it gives the keys back.
    pub fn begin_requests_async(
        &self,
        requests: impl IntoIterator<Item = Request>,
    ) -> Pending<Vec<Result<Outcome<Guard>>>> {
        let (store, requests) = (self.clone(), requests.into_iter().collect::<Vec<_>>());
        Pending::new(async move {
            let (engine, batch) = store.batch_of(requests, || Purpose::Begin)?;
            Ok(store.all_begun(&engine, batch.run_async().await?))
        })
    }

    fn all_begun(&self, engine: &Arc<Engine>, batch: Batch) -> Vec<Result<Outcome<Guard>>> {
        batch.deliver().into_iter().map(|answer| Ok(begun(&self.inner, engine, answer?))).collect()
    }

    fn batch_of(
        &self,
        requests: impl IntoIterator<Item = Request>,
        purpose: impl Fn() -> Purpose,
    ) -> Result<(Arc<Engine>, Batch)> {
        let engine = self.inner.engine()?;
        let ask = |request: Request| -> Result<Ask> {
            if !request.scope().is_of(&self.inner) {
                return Err(Error::InvalidOption {
                    option: "requests",
                    reason: "they are of this store's scopes",
                });
            }
            request.ask(&engine, purpose())
        };
        let batch = Batch::new(Arc::clone(&engine), requests.into_iter().map(ask).collect());
        Ok((engine, batch))
    }
}

fn all_claimed(engine: &Arc<Engine>, batch: Batch) -> Vec<Result<Outcome<Record>>> {
    let mapping = engine.mapping();
    batch.deliver().into_iter().map(|answer| Ok(claimed(engine, mapping, answer?))).collect()
}

/// Takes the lock of a directory, which is made if it is not there.
fn lock(options: &Options, dir: &Path) -> Result<Box<dyn Lock>> {
    options.disk.create_dir(dir).map_err(|error| Error::io(dir, error))?;
    let path = dir.join(LOCK_FILE);
    options.disk.lock(&path).map_err(|error| match error.kind() {
        std::io::ErrorKind::WouldBlock => Error::Locked { path: dir.to_path_buf() },
        _ => Error::io(&path, error),
    })
}

fn claim_purpose() -> Purpose {
    Purpose::Claim { response: None, deferred: true }
}

/// Settles guards, then waits once for all: frames are in order, so the last one stands for all.
fn settle_all(guards: impl Iterator<Item = (Guard, Option<Vec<u8>>)>) -> Result<Vec<Result<()>>> {
    let (mut answers, mut frames) = (Vec::new(), Vec::new());
    for (guard, response) in guards {
        match guard.settle_unsynced(false, response) {
            Ok((engine, seq)) => {
                frames.extend(seq.map(|seq| (engine, seq)));
                answers.push(Ok(()));
            }
            Err(Error::Fenced) => answers.push(Err(Error::Fenced)),
            Err(error) => return Err(error),
        }
    }
    for (engine, seq) in frames.into_iter().rev() {
        engine.wait_durable(seq)?;
    }
    Ok(answers)
}

async fn settle_all_async(guards: Vec<(Guard, Option<Vec<u8>>)>) -> Result<Vec<Result<()>>> {
    let (mut answers, mut frames) = (Vec::new(), Vec::new());
    // Carried out after the first poll, whatever happens to this future.
    let mut rest = SettleRest(guards.into_iter());
    for (guard, response) in rest.0.by_ref() {
        match guard.settle_unsynced_async(false, response).await {
            Ok((engine, seq)) => {
                frames.extend(seq.map(|seq| (engine, seq)));
                answers.push(Ok(()));
            }
            Err(Error::Fenced) => answers.push(Err(Error::Fenced)),
            Err(error) => return Err(error),
        }
    }
    for (engine, seq) in frames.into_iter().rev() {
        engine.wait_durable_async(seq).await?;
    }
    Ok(answers)
}

/// Guards that are settled even if the future that settles them is dropped.
struct SettleRest(std::vec::IntoIter<(Guard, Option<Vec<u8>>)>);

impl Drop for SettleRest {
    fn drop(&mut self) {
        for (guard, response) in self.0.by_ref() {
            guard.settle_now(response);
        }
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("dir", &self.inner.dir)
            .field("closed", &self.inner.closed.load(Ordering::Relaxed))
            .finish_non_exhaustive()
    }
}
