//! Memory, disk, open files and threads are bounded by what is alive, never by what has expired.

use std::path::Path;
use std::time::{Duration, SystemTime};

use oncedb::{ManualClock, Store};

const HOUR: Duration = Duration::from_secs(3600);
const BATCH: u64 = 1_000;
const BATCHES_AN_HOUR: u64 = 100;
/// Five million claims in all, twice the window and more.
const HOURS: u64 = 50;

const MEMORY_LIMIT: u64 = 16 << 20;
/// The most that are alive at once: the window, and two hours for whole files to go.
const ALIVE: u64 = 26 * BATCHES_AN_HOUR * BATCH;

/// What the process and the store take.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Footprint {
    memory: u64,
    disk: u64,
    files: u64,
    threads: u64,
    runs: u64,
}

impl Footprint {
    fn of(store: &Store, dir: &Path) -> Self {
        let stats = store.stats();
        Self {
            memory: stats.memory_bytes,
            disk: size_of(dir),
            files: entries("/proc/self/fd"),
            threads: entries("/proc/self/task"),
            runs: stats.runs,
        }
    }

    fn max(self, other: Self) -> Self {
        Self {
            memory: self.memory.max(other.memory),
            disk: self.disk.max(other.disk),
            files: self.files.max(other.files),
            threads: self.threads.max(other.threads),
            runs: self.runs.max(other.runs),
        }
    }
}

fn size_of(dir: &Path) -> u64 {
    let sizes = std::fs::read_dir(dir).unwrap().map(|entry| {
        let entry = entry.unwrap();
        // A file may go between being listed and being looked at.
        entry.metadata().map_or(0, |meta| if meta.is_dir() { size_of(&entry.path()) } else { meta.len() })
    });
    sizes.sum()
}

/// How many entries a directory has; 0 on systems without it.
fn entries(dir: &str) -> u64 {
    std::fs::read_dir(dir).map_or(0, |entries| entries.count() as u64)
}

#[test]
fn five_million_claims_over_two_days_take_no_more_than_one_day_may() {
    let dir = tempfile::tempdir().unwrap();
    let clock = ManualClock::new(SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000));
    let store = Store::options()
        .memory_limit(usize::try_from(MEMORY_LIMIT).unwrap())
        .clock(clock.clone())
        .open(dir.path())
        .unwrap();
    let scope = store.scope("orders").unwrap();
    let step = HOUR / u32::try_from(BATCHES_AN_HOUR).unwrap();
    let id = |number: u64| format!("evt_{:016x}", number.wrapping_mul(0x9E37_79B9_7F4A_7C15));

    let (mut one_day, mut later) = (Footprint::default(), Footprint::default());
    let mut next = 0;
    for hour in 0..HOURS {
        for _ in 0..BATCHES_AN_HOUR {
            let ids = next..next + BATCH;
            next += BATCH;
            let outcomes = scope.claim_many(ids.map(id)).unwrap();
            assert!(outcomes.iter().all(oncedb::Outcome::is_new));
            clock.advance(step);
        }
        // A day's worth, and what is due to go at the next look.
        let footprint = Footprint::of(&store, dir.path());
        if hour < 26 {
            one_day = one_day.max(footprint);
        } else {
            later = later.max(footprint);
        }
        if hour >= 24 {
            let young = next - 23 * BATCHES_AN_HOUR * BATCH;
            assert!(scope.contains(id(young)).unwrap(), "a key of 23 hours is there in hour {hour}");
            let old = next - 25 * BATCHES_AN_HOUR * BATCH;
            assert!(!scope.contains(id(old)).unwrap(), "a key of 25 hours is gone in hour {hour}");
        }
    }
    assert_eq!(next, 5_000_000);

    println!("at most within the first day: {one_day:?}\nat most later: {later:?}");
    for most in [one_day, later] {
        // What the options promise: the limit, and 3 bytes of filter a key.
        assert!(most.memory <= MEMORY_LIMIT + 3 * ALIVE, "{most:?}");
        // 80 bytes a key, and a journal of a few segments. All five million would be twice that.
        assert!(most.disk <= 80 * ALIVE + 2 * MEMORY_LIMIT, "{most:?}");
        // One run for each bucket, and a few where there has been no time to merge.
        assert!(most.runs <= 64, "{most:?}");
        assert!(most.files <= 192, "{most:?}");
    }
    assert_eq!(later.threads, one_day.threads);

    clock.advance(25 * HOUR);
    store.maintain().unwrap();
    let stats = store.stats();
    assert_eq!(stats.live_keys, 0);
    assert_eq!(stats.runs, 0, "what has expired is gone as whole files");
    assert!(size_of(dir.path()) < one_day.disk / 4, "only the journal and the catalog are left");
}
