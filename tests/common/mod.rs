//! What the integration tests share: a store in a place of its own with a clock of its own, a
//! small executor, and one function a verdict that takes it apart or says what came instead.
#![allow(dead_code, unused_imports, unused_macros, reason = "each test crate uses its own part of this")]

pub mod child;

use oncedb::{Cause, Guard, InProgress, ManualClock, Mark, Options, Outcome, Record, Scope, Store};
use std::env;
use std::fmt::Debug;
use std::future::Future;
use std::io::{self, Write};
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant, SystemTime};
use tempfile::TempDir;

pub const SECOND: Duration = Duration::from_secs(1);
pub const HOUR: Duration = Duration::from_secs(3600);
pub const DAY: Duration = Duration::from_secs(24 * 3600);

/// No call of these tests takes this long unless it hangs.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A directory for one store and the clock it runs by; the clock goes on while the store is closed.
pub struct Place {
    dir: TempDir,
    pub clock: ManualClock,
}

impl Place {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        Self { dir, clock: ManualClock::new(noon()) }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn options(&self) -> Options {
        Store::options().clock(self.clock.clone())
    }

    pub fn open(&self) -> Store {
        self.open_with(self.options())
    }

    #[track_caller]
    pub fn open_with(&self, options: Options) -> Store {
        options.open(self.path()).expect("the store opens")
    }

    /// The store and the scope that most scenarios are about.
    pub fn stripe(&self) -> (Store, Scope) {
        self.stripe_with(self.options())
    }

    #[track_caller]
    pub fn stripe_with(&self, options: Options) -> (Store, Scope) {
        let store = self.open_with(options);
        let scope = store.scope("stripe").expect("the scope opens");
        (store, scope)
    }

    /// What the store's files hold on the disk, in bytes.
    pub fn bytes_on_disk(&self) -> u64 {
        bytes_under(self.path())
    }
}

fn bytes_under(path: &Path) -> u64 {
    let Ok(entries) = path.read_dir() else {
        return 0;
    };
    entries
        .filter_map(Result::ok)
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => bytes_under(&entry.path()),
            Ok(meta) => meta.len(),
            Err(_) => 0,
        })
        .sum()
}

/// The time every `ManualClock` of these tests starts at.
pub fn noon() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_268_800)
}

/// A number from the environment.
pub fn number_from(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is to be a number, not {text}")))
}

/// The seed that `ONCEDB_SEED` asks for, else one that nobody has had.
pub fn fresh_seed() -> u64 {
    number_from("ONCEDB_SEED").unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a time after 1970");
        u64::from(now.subsec_nanos()) ^ now.as_secs()
    })
}

/// Prints a line, also where the harness keeps the output of a test to itself.
pub fn announce(line: &str) {
    // There is nobody to tell that nobody listens.
    let _ = io::stderr().lock().write_all(format!("{line}\n").as_bytes());
}

/// Wakes one thread, and remembers that it did.
pub struct Bell {
    rung: AtomicBool,
    sleeper: Thread,
}

impl Bell {
    /// For this thread; it has rung once, so that there is a first look.
    pub fn new() -> Arc<Self> {
        Arc::new(Self { rung: AtomicBool::new(true), sleeper: thread::current() })
    }

    /// Whether it has rung since the last time that this was asked.
    pub fn has_rung(&self) -> bool {
        self.rung.swap(false, Ordering::Acquire)
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.rung.store(true, Ordering::Release);
        self.sleeper.unpark();
    }
}

/// Polls again only when woken, so that a wake-up that never comes is found.
#[track_caller]
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let bell = Bell::new();
    let waker = Waker::from(Arc::clone(&bell));
    let mut context = Context::from_waker(&waker);
    let deadline = Instant::now() + PATIENCE;
    loop {
        if bell.has_rung() {
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return output;
            }
            continue;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "a future is still pending after {PATIENCE:?}");
        thread::park_timeout(left);
    }
}

/// One poll by an executor that will not be woken.
pub fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Runs `work` on every thread at once and collects what each returns.
pub fn at_once<T: Send>(threads: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let start = Barrier::new(threads);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|number| {
                let (start, work) = (&start, &work);
                scope.spawn(move || {
                    start.wait();
                    work(number)
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    })
}

#[track_caller]
pub fn new<N: Debug>(answer: oncedb::Result<Outcome<N>>) -> N {
    match answer {
        Ok(Outcome::New(new)) => new,
        other => panic!("expected New, got {other:?}"),
    }
}

#[track_caller]
pub fn duplicate<N: Debug>(answer: oncedb::Result<Outcome<N>>) -> Record {
    match answer {
        Ok(Outcome::Duplicate(record)) => record,
        other => panic!("expected Duplicate, got {other:?}"),
    }
}

#[track_caller]
pub fn in_progress<N: Debug>(answer: oncedb::Result<Outcome<N>>) -> InProgress {
    match answer {
        Ok(Outcome::InProgress(running)) => running,
        other => panic!("expected InProgress, got {other:?}"),
    }
}

#[track_caller]
pub fn mismatch<N: Debug>(answer: oncedb::Result<Outcome<N>>) -> Record {
    match answer {
        Ok(Outcome::Mismatch(record)) => record,
        other => panic!("expected Mismatch, got {other:?}"),
    }
}

#[track_caller]
pub fn stale<N: Debug>(answer: oncedb::Result<Outcome<N>>) -> Mark {
    match answer {
        Ok(Outcome::Stale(mark)) => mark,
        other => panic!("expected Stale, got {other:?}"),
    }
}

/// The answer is this error and nothing else.
macro_rules! assert_error {
    ($answer:expr, $error:ident) => {{
        let answer = $answer;
        let expected = stringify!($error);
        assert!(matches!(answer, Err(oncedb::Error::$error { .. })), "expected {expected}, got {answer:?}");
    }};
}
pub(crate) use assert_error;

/// The guard is the attempt after one that ended for `cause` and left `note`.
#[track_caller]
pub fn assert_follows(guard: &Guard, cause: Cause, note: Option<&[u8]>) {
    let previous = guard.previous().expect("a later attempt is told of the one before");
    assert_eq!(previous.cause, cause, "why the attempt before ended");
    assert_eq!(previous.attempt + 1, guard.attempt(), "attempts are counted one by one");
    assert_eq!(previous.note.as_deref(), note, "the last note of the attempt before");
}

#[track_caller]
pub fn assert_first(guard: &Guard) {
    assert_eq!(guard.attempt(), 1, "nothing is known of an earlier attempt");
    assert!(guard.previous().is_none(), "a first attempt follows nothing");
}

/// A small generator of reproducible choices (`SplitMix64`).
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`, which is not zero.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.roll() % limit
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend_from_slice(&self.roll().to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }
}
