//! What the benchmarks share: stores in directories of their own, ids, and the bare disk to compare
//! with.
#![allow(dead_code, reason = "each benchmark uses its own part of this")]

use std::env;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{self, Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use oncedb::{Durability, Options, Scope, Store};
use tempfile::TempDir;

/// The bytes of an id here, as many as those of a Stripe event.
pub const ID_LEN: usize = 28;

/// What the claim of such an id takes in the journal.
pub const FRAME_LEN: usize = 88;

/// As large as a journal segment is by default.
const BARE_LEN: u64 = 8 << 20;

/// Zeros are written in pieces of this size: pages that were written in larger ones are slower to
/// sync on some file systems, because they are kept in larger units.
const FILL_PIECE: usize = 64 << 10;

/// Whether this is a measurement, and not a check that the benchmarks still run.
pub fn is_measuring() -> bool {
    let given = |flag| env::args().any(|arg| arg == flag);
    given("--bench") && !given("--test")
}

/// A number of things to do, or a few of them where nothing is measured.
pub fn scaled(count: usize) -> usize {
    if is_measuring() { count } else { count.min(100) }
}

/// Acknowledges claims without waiting for the disk: what is left is the work of the processor.
pub fn relaxed() -> Options {
    Store::options().durability(Durability::Interval(Duration::from_millis(100)))
}

/// A directory beside the build: on a disk, where the system's temporary files may be in memory.
pub fn directory() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary directory")
}

/// A store of its own, which goes with its directory.
pub struct Fixture {
    pub scope: Scope,
    pub store: Store,
    pub dir: TempDir,
}

impl Fixture {
    pub fn new(options: Options) -> Self {
        let dir = directory();
        let store = options.open(dir.path()).expect("the store opens");
        let scope = store.scope("stripe").expect("the scope is there");
        Self { scope, store, dir }
    }
}

/// Ids that nobody else has in this process.
pub struct Ids {
    block: u32,
    next: u64,
}

impl Ids {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        Self { block: NEXT.fetch_add(1, Ordering::Relaxed), next: 0 }
    }

    /// The `number`th of these ids; the same number gives the same id.
    pub fn nth(&self, number: u64) -> [u8; ID_LEN] {
        let mut id = *b"evt_000000000000000000000000";
        let mut rest = u128::from(self.block) << 64 | u128::from(number);
        for place in id[4..].iter_mut().rev() {
            *place = b"0123456789abcdef"[(rest & 15) as usize];
            rest >>= 4;
        }
        id
    }

    /// One that was not there before.
    pub fn fresh(&mut self) -> [u8; ID_LEN] {
        self.next += 1;
        self.nth(self.next)
    }

    pub fn many(&mut self, count: usize) -> Vec<[u8; ID_LEN]> {
        (0..count).map(|_| self.fresh()).collect()
    }
}

/// Claims fresh ids, a thousand a call.
pub fn fill(scope: &Scope, ids: &mut Ids, count: usize) {
    for start in (0..count).step_by(1_000) {
        let outcomes = scope.claim_many(ids.many(1_000.min(count - start))).expect("the claims are granted");
        assert!(outcomes.iter().all(oncedb::Outcome::is_new));
    }
}

/// The time that `threads` threads take for `rounds` claims each, from a common start.
pub fn claim_at_once(scope: &Scope, threads: usize, rounds: u64) -> Duration {
    let barrier = Barrier::new(threads + 1);
    thread::scope(|spawner| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                spawner.spawn(|| {
                    let mut ids = Ids::new();
                    barrier.wait();
                    for _ in 0..rounds {
                        assert!(scope.claim(ids.fresh()).expect("the claim is granted").is_new());
                    }
                })
            })
            .collect();
        barrier.wait();
        let started = Instant::now();
        for worker in workers {
            worker.join().expect("a worker ends well");
        }
        started.elapsed()
    })
}

/// A file of zeros, written over piece by piece: the least that a durable claim can cost.
pub struct BareFile {
    file: File,
    piece: Vec<u8>,
    offset: u64,
    _dir: TempDir,
}

impl BareFile {
    pub fn new(piece: usize) -> Self {
        let dir = directory();
        let path = dir.path().join("bare");
        let file = OpenOptions::new().write(true).create_new(true).open(path).expect("a new file");
        let zeros = vec![0; FILL_PIECE];
        for offset in (0..BARE_LEN).step_by(FILL_PIECE) {
            file.write_all_at(&zeros, offset).expect("room for the file");
        }
        file.sync_all().expect("the file is synced");
        Self { file, piece: vec![b'x'; piece], offset: 0, _dir: dir }
    }

    /// Writes the next piece and waits for the disk.
    pub fn write(&mut self) {
        if self.offset + self.piece.len() as u64 > BARE_LEN {
            self.offset = 0;
        }
        self.file.write_all_at(&self.piece, self.offset).expect("the piece is written");
        self.file.sync_data().expect("the piece is synced");
        self.offset += self.piece.len() as u64;
    }
}

/// What a killed process left, to be opened again and again.
pub struct Remains {
    dir: TempDir,
}

const ROLE: &str = "ONCEDB_BENCH_ROLE";
const KEYS: &str = "ONCEDB_BENCH_KEYS";
const MEMORY: &str = "ONCEDB_BENCH_MEMORY";

impl Remains {
    /// Has another process claim `keys` ids and kills it once they are durable. For that `main` must
    /// call [`be_killed_if_asked`] first.
    pub fn of(keys: usize, memory_limit: usize) -> Self {
        let dir = directory();
        let mut child = Command::new(env::current_exe().expect("this program has a path"))
            .env(ROLE, dir.path())
            .env(KEYS, keys.to_string())
            .env(MEMORY, memory_limit.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program runs itself again");
        let mut said = String::new();
        let output = child.stdout.take().expect("its output is piped");
        BufReader::new(output).read_line(&mut said).expect("it says something");
        child.kill().expect("it can be killed");
        child.wait().expect("it has ended");
        assert_eq!(said, "claimed\n");
        Self { dir }
    }

    /// A copy, durable, as a directory that a store has just been killed in.
    pub fn copy(&self) -> TempDir {
        let to = directory();
        copy_tree(self.dir.path(), to.path()).expect("the directory is copied");
        to
    }
}

fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            fs::create_dir(&to)?;
            copy_tree(&entry.path(), &to)?;
        } else {
            fs::copy(entry.path(), &to)?;
            File::open(&to)?.sync_all()?;
        }
    }
    File::open(to)?.sync_all()
}

/// If this process was started to leave [`Remains`], leaves them and does not return.
pub fn be_killed_if_asked() {
    let Some(dir) = env::var_os(ROLE) else { return };
    let number = |name| env::var(name).ok().and_then(|value| value.parse().ok()).expect("a number is given");
    let store = relaxed().memory_limit(number(MEMORY)).open(dir).expect("the store opens");
    fill(&store.scope("stripe").expect("the scope is there"), &mut Ids::new(), number(KEYS));
    store.sync().expect("the claims are durable");
    println!("claimed");
    io::stdout().flush().expect("the output is open");
    // Until the other process kills this one, or is gone itself.
    let _ = io::stdin().read(&mut [0]);
    process::exit(1);
}
