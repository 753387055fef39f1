//! Recovery: from what the disk holds to an engine that answers.
//!
//! 1. The catalog is read; a directory without one is set up.
//! 2. The runs it lists are opened.
//! 3. Every journal segment is synced, dropped from the page cache and read: what a killed process or
//!    a failed sync left in the cache need not be on the disk.
//! 4. The log is replayed. A claim that was in progress becomes an orphan. Files that the catalog does
//!    not list are removed.
//! 5. A fresh segment is begun, whose first frame says where the old log ended. It is durable before
//!    the first verdict.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::handover::Handover;
use super::maintain::{FlushHistory, Hold, SegmentPool};
use super::work::Work;
use super::{Counters, Engine, Life, TOKEN_BITS};
use crate::catalog::{CATALOG_FILE, Catalog, Contents, Edit, FORMAT, Meta};
use crate::clock::{Time, Timeline};
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::guard::Cause;
use crate::identity::Identity;
use crate::journal::replay::{Known, Replayed, replay};
use crate::journal::segment::{Segment, begun_after};
use crate::journal::{AppendError, Haste, Journal, Room};
use crate::key::{Key, KeyHasher};
use crate::live::{LiveMap, State};
use crate::options::{Downtime, LONGEST_WINDOW, Options};
use crate::record::{Body, Released, StoredRecord};
use crate::runs::{FlushError, RunStore};
use crate::sabotage::{self, Break};
use crate::stamp::{Stamp, Stamps};
use crate::sync::atomic::{AtomicBool, AtomicU64};
use crate::sync::{Mutex, RwLock, thread};

pub(crate) const JOURNAL_DIR: &str = "journal";
pub(super) const RUNS_DIR: &str = "runs";

/// Tokens grow with every opening, and have this many.
const MOST_OPENINGS: u64 = 1 << (u64::BITS - TOKEN_BITS);

/// Numbers that only go up stay below this for as long as a store lives; a higher one is damage, and
/// counting on from it would end.
pub(super) const MOST_COUNTED: u64 = 1 << 62;

/// The numbers of the catalog that only go up.
const COUNTED: [Meta; 8] = [
    Meta::Era,
    Meta::Released,
    Meta::Durable,
    Meta::NextFile,
    Meta::NextBucket,
    Meta::Ordinal,
    Meta::Orphans,
    Meta::Commits,
];

/// How long nothing is removed after the clock has jumped by more than the largest window.
const HOLD: Duration = Duration::from_secs(600);

/// A jump at open need go no further: by then everything has expired that ever will. A wild clock
/// then leaves time to come.
const FURTHEST_JUMP: Duration = LONGEST_WINDOW.saturating_add(HOLD);

impl Engine {
    /// Recovers the store in a directory, whose lock the caller holds.
    /// In place of `superseded`, time goes on from it and not from the wall clock.
    pub(crate) fn open(dir: &Path, options: Options, superseded: Option<&Self>) -> Result<Arc<Self>> {
        let disk = Arc::clone(&options.disk);
        for dir in [dir.join(JOURNAL_DIR), dir.join(RUNS_DIR)] {
            disk.create_dir(&dir).map_err(|error| Error::io(&dir, error))?;
        }
        // Whoever made these entries may have been killed before it synced them.
        disk.sync_dir(dir).map_err(|error| Error::io(dir, error))?;
        let fresh = is_fresh(dir, &options)?;
        let catalog = Catalog::open(Arc::clone(&disk), dir, fresh)?;
        check_counts(&catalog.contents(), dir)?;
        if catalog.meta(Meta::Format) == 0 {
            set_up(&catalog, &options)?;
        }
        agree_on_identity(&catalog, dir, &*disk)?;
        let contents = catalog.contents();
        check_last_commit(&options, dir, &contents)?;
        let (runs, mut unlisted) = RunStore::open(&disk, dir.join(RUNS_DIR), &contents)?;
        let hasher = KeyHasher::new(contents.meta(Meta::Seed));

        let live = LiveMap::default();
        let mut latest = Time(0);
        let segments = open_segments(&options, &dir.join(JOURNAL_DIR), &contents, &mut unlisted)?;
        // The catalog's number, unless it lost the commits since.
        let era = segments.iter().map(|segment| segment.origin.era).max().unwrap_or(0);
        let known = Known { released: contents.meta(Meta::Released), durable: contents.meta(Meta::Durable) };
        let replayed = replay(segments, known, &mut |seq, record, bytes| {
            latest = latest.max(record.written_at());
            if !matches!(record.body, Body::LogStart { .. }) {
                let key = Key { hash: hasher.hash(record.key), bytes: record.key.into() };
                let state = State::Settled { record: bytes.into(), undelivered: None };
                live.lock(&key, None).set_first(&key, seq, state);
            }
        })?;

        // Only now: nothing is removed from a store that does not read.
        for path in &unlisted {
            disk.remove(path).map_err(|error| Error::io(path, error))?;
        }

        let (before, start, hold) = if let Some(engine) = superseded {
            (engine.timeline.stamps(), engine.now().max(latest), engine.hold)
        } else {
            let stamps = stored_stamps(&contents);
            let start = start_time(&options, stamps, latest);
            (stamps, start, hold_after(stamps.last.time, start, &options, &live, &runs))
        };
        let timeline = Timeline::starting_at(start, before, Arc::clone(&options.clock));
        let orphans = adopt_orphans(&live, known.released, start);

        let mut pool = segment_pool(&contents, &replayed);
        let era = contents.meta(Meta::Era).max(era).saturating_add(1);
        if era >= MOST_OPENINGS {
            return Err(Error::Full { limit: None, what: "the count of openings, which tokens rely on," });
        }
        commit_open(&catalog, &replayed, &timeline, era)?;
        let current = pool
            .prepare(&options, dir, &catalog, runs.bytes())?
            .ok_or(Error::Full { limit: options.disk_limit, what: "the disk space of the store" })?;
        let Replayed { last_seq, last_segment, used, .. } = replayed;
        let journal = Journal::new(current, last_seq, used, options.max_frame());
        let same_log = sabotage::is(Break::AppendToReplayed) && last_seq > known.released;
        if same_log {
            journal.append_to_replayed();
        }

        let engine = Arc::new(Self {
            dir: dir.to_path_buf(),
            timeline,
            hasher,
            journal,
            live,
            runs,
            catalog,
            phase: Life::default(),
            next_token: AtomicU64::new(if sabotage::is(Break::ReuseTokens) {
                1
            } else {
                (era << TOKEN_BITS) + 1
            }),
            work: Work::default(),
            merges: Work::default(),
            handover: Handover::default(),
            segment_files: AtomicU64::new(pool.files),
            pool: Mutex::new(pool),
            flushing: Mutex::new(FlushHistory { stamped: start, ..FlushHistory::default() }),
            hold,
            gate: RwLock::new(()),
            identity_len: Mutex::default(),
            leased: Mutex::default(),
            failure_announced: AtomicBool::new(false),
            threads: Mutex::default(),
            thread_ids: Mutex::default(),
            counters: Counters::default(),
            orphans_found: orphans + contents.meta(Meta::Orphans),
            options,
        });
        if !same_log {
            engine.start_log(last_segment, last_seq)?;
        }
        engine.start_threads()?;
        Ok(engine)
    }

    /// Writes the first frame of the new log, before any verdict is given.
    fn start_log(&self, segment: u64, last_seq: u64) -> Result<()> {
        let body = Body::LogStart { segment, last_seq };
        let record = StoredRecord { key: &[], purge_at: Time(0), body }.to_bytes();
        let room = Room::Claim { reserve: 0 };
        let seq = self.journal.append(&[&record], room, Haste::Awaited).map_err(AppendError::into_error)?;
        Ok(self.journal.wait(seq)?)
    }

    fn start_threads(self: &Arc<Self>) -> Result<()> {
        if !self.options.threads {
            return Ok(());
        }
        self.start_thread("oncedb-sync", |engine| engine.journal.run_ticker(|| engine.on_tick()))?;
        self.start_thread("oncedb-flush", |engine| {
            engine.work.run(|| engine.background_round());
        })?;
        self.start_thread("oncedb-merge", |engine| engine.merges.run(|| engine.merge_round()))?;
        self.work.kick();
        Ok(())
    }

    fn start_thread(self: &Arc<Self>, name: &str, body: impl FnOnce(&Self) + Send + 'static) -> Result<()> {
        let engine = Arc::clone(self);
        let thread = thread::Builder::new().name(name.into()).spawn(move || body(&engine));
        let handle = thread.map_err(|error| {
            self.abandon();
            Error::io(&self.dir, error)
        })?;
        self.thread_ids.lock().push(handle.thread().id());
        self.threads.lock().push(handle);
        Ok(())
    }
}

/// Sees to it that the catalog and the copies of the identity know the same.
fn agree_on_identity(catalog: &Catalog, dir: &Path, disk: &dyn Disk) -> Result<()> {
    let failed = |error| Error::io(dir, error);
    let copies = Identity::read(disk, dir).map_err(failed)?;
    let contents = catalog.contents();
    if let Some(copy) = &copies.newest {
        if copy.seed != contents.meta(Meta::Seed) {
            let what = "it is the catalog of another store than the files named identity beside it";
            return Err(Error::corrupt(catalog.path(), 0, what));
        }
        // A scope that was written down before the process died, or whose commit the catalog has lost.
        let taken: BTreeSet<u32> = contents.scopes.values().copied().collect();
        let unknown = copy.scopes.iter().filter(|(name, _)| !contents.scopes.contains_key(*name));
        let unknown = unknown.filter(|&(_, number)| !taken.contains(number));
        let edits: Vec<_> = unknown.map(|(name, &number)| Edit::Scope(name.clone(), number)).collect();
        if !edits.is_empty() {
            catalog.commit(edits).map_err(|error| Error::from(FlushError::Catalog(error)))?;
        }
    }
    let identity = Identity::of(&catalog.contents());
    if copies.complete && copies.newest.is_some_and(|copy| copy.is_same_as(&identity)) {
        return Ok(());
    }
    identity.write(disk, dir).map(drop).map_err(failed)
}

/// Whether there is no run, no segment and no identity.
pub(super) fn is_fresh(dir: &Path, options: &Options) -> Result<bool> {
    for part in [dir.join(JOURNAL_DIR), dir.join(RUNS_DIR)] {
        if !options.disk.list(&part).map_err(|error| Error::io(&part, error))?.is_empty() {
            return Ok(false);
        }
    }
    let copies = Identity::read(&*options.disk, dir).map_err(|error| Error::io(dir, error))?;
    Ok(!copies.any)
}

/// Sees to it that every number of the catalog can be counted on from.
pub(super) fn check_counts(contents: &Contents, dir: &Path) -> Result<()> {
    let counts = COUNTED.into_iter().map(|meta| contents.meta(meta));
    let ordinals = contents.segments.values().map(|(ordinal, _)| *ordinal);
    let short = contents.segments.keys().chain(contents.scopes.values()).map(|number| u64::from(*number));
    let sound = counts.chain(ordinals).all(|count| count < MOST_COUNTED)
        && short.chain([contents.meta(Meta::NextSegment)]).all(|count| count < u32::MAX.into());
    if sound {
        Ok(())
    } else {
        Err(Error::corrupt(&dir.join(CATALOG_FILE), 0, "it has a number that no store counts up to"))
    }
}

/// Makes an empty store.
fn set_up(catalog: &Catalog, options: &Options) -> Result<()> {
    let wall = options.clock.wall();
    let mut edits = stamp_edits(Stamps { last: Stamp::new(Time::from_wall(wall), wall), above: None });
    edits.push(Edit::Meta(Meta::Format, FORMAT.into()));
    edits.push(Edit::Meta(Meta::Seed, options.disk.random()));
    edits.push(Edit::Meta(Meta::Created, Time::from_wall(wall).0));
    catalog.commit(edits).map_err(|error| FlushError::Catalog(error).into())
}

/// Opens the segments in use, and adds to the paths of files that the catalog does not list.
pub(super) fn open_segments(
    options: &Options,
    dir: &Path,
    contents: &Contents,
    unlisted: &mut Vec<PathBuf>,
) -> Result<Vec<Segment>> {
    let disk = &*options.disk;
    let listed: Vec<_> =
        contents.segments.keys().map(|&file_id| crate::journal::segment::path(dir, file_id)).collect();
    let there = disk.list(dir).map_err(|error| Error::io(dir, error))?;
    unlisted.extend(there.into_iter().filter(|path| !listed.contains(path)));
    let in_use = contents.segments.iter().filter(|(_, (ordinal, _))| *ordinal > 0);
    in_use.map(|(&file_id, &(ordinal, epoch))| Segment::open(disk, dir, file_id, ordinal, epoch)).collect()
}

/// Fails if frames were written to a segment that was prepared after the catalog's last commit: it has
/// lost the commit that listed this segment, which must not be removed or used anew as one that nobody
/// needs. The commit is durable before the first frame is written.
pub(super) fn check_last_commit(options: &Options, dir: &Path, contents: &Contents) -> Result<()> {
    let segments = dir.join(JOURNAL_DIR);
    for path in options.disk.list(&segments).map_err(|error| Error::io(&segments, error))? {
        if begun_after(&*options.disk, &path, contents.meta(Meta::Ordinal))? {
            let what = "its last commits are not in it any more: it does not know all of the journal";
            return Err(Error::corrupt(&dir.join(CATALOG_FILE), 0, what));
        }
    }
    Ok(())
}

pub(super) fn stored_stamps(contents: &Contents) -> Stamps {
    let stamp =
        |time, wall| Stamp { time: Time(contents.meta(time)), wall: contents.meta(wall).cast_signed() };
    Stamps::new(stamp(Meta::StoreTime, Meta::WallTime), stamp(Meta::AboveStoreTime, Meta::AboveWallTime))
}

pub(super) fn stamp_edits(stamps: Stamps) -> Vec<Edit> {
    let above = stamps.above.unwrap_or(stamps.last);
    vec![
        Edit::Meta(Meta::StoreTime, stamps.last.time.0),
        Edit::Meta(Meta::WallTime, stamps.last.wall.cast_unsigned()),
        Edit::Meta(Meta::AboveStoreTime, above.time.0),
        Edit::Meta(Meta::AboveWallTime, above.wall.cast_unsigned()),
    ]
}

/// Where the timeline goes on.
pub(super) fn start_time(options: &Options, stamps: Stamps, latest: Time) -> Time {
    let most = match options.downtime {
        Downtime::Counts => FURTHEST_JUMP,
        Downtime::Pauses { at_most } => at_most.min(FURTHEST_JUMP),
    };
    let wall = Stamp::new(Time(0), options.clock.wall()).wall;
    // Never before what the log has seen: time does not go back.
    stamps.resume(wall, most).max(latest)
}

/// What to hold on to after a jump past the largest window: the store's, or that of whichever key
/// has the longest to live.
fn hold_after(stored: Time, start: Time, options: &Options, live: &LiveMap, runs: &RunStore) -> Option<Hold> {
    if start.since(stored) <= options.window {
        return None;
    }
    let last = last_expiry(live).max(runs.current().last_expiry());
    (start >= last).then(|| Hold { until: start.after(HOLD), before: stored })
}

/// When the last completed key in memory expires.
fn last_expiry(live: &LiveMap) -> Time {
    let mut last = Time(0);
    for shard in live.shards() {
        for entry in shard.lock().entries() {
            let State::Settled { record, .. } = &entry.state else { continue };
            if let Some(Body::Done(done)) = StoredRecord::decode(record).map(|record| record.body) {
                last = last.max(done.expires_at);
            }
        }
    }
    last
}

/// Makes orphans of the claims in progress that the log left, drops what runs hold already, and
/// returns how many orphans there are.
pub(super) fn adopt_orphans(live: &LiveMap, released: u64, now: Time) -> u64 {
    let mut orphans = 0;
    for shard in live.shards() {
        let (mut before, mut after) = (0, 0);
        for entry in shard.lock().entries_mut() {
            let State::Settled { record, .. } = &entry.state else { continue };
            let Some(StoredRecord { key, purge_at, body: Body::Begin(begin) }) = StoredRecord::decode(record)
            else {
                continue;
            };
            orphans += 1;
            let expires_at = now.after(begin.window);
            let body = Body::Released(Released {
                given_up_at: now,
                expires_at,
                attempt: begin.attempt,
                cause: Cause::Orphaned,
                hides: false,
                note: begin.note,
            });
            let body =
                if sabotage::is(Break::DropOrphans) { Body::Tombstone { forgotten_at: now } } else { body };
            let record = StoredRecord { key, purge_at: purge_at.max(expires_at), body }.to_bytes();
            before += entry.cost();
            // Not in a run yet, however old its frame is.
            entry.seq = entry.seq.max(released + 1);
            entry.state = State::Settled { record: record.into(), undelivered: None };
            after += entry.cost();
        }
        live.add_bytes(before, after);
    }
    live.sweep(|entry| entry.seq <= released);
    orphans
}

fn segment_pool(contents: &Contents, replayed: &Replayed) -> SegmentPool {
    let free =
        contents.segments.iter().filter(|(_, (ordinal, _))| *ordinal == 0).map(|(&file_id, _)| file_id);
    let unused = replayed.unused.iter().map(|segment| segment.file_id);
    SegmentPool {
        free: free.chain(unused).collect(),
        next_file: u32::try_from(contents.meta(Meta::NextSegment)).unwrap_or(u32::MAX).max(1),
        ordinal: contents.meta(Meta::Ordinal),
        files: contents.segments.len() as u64,
    }
}

/// Records that the store was opened: a new era of tokens, the clock, and that segments which hold
/// nothing of the log are free, so that none is begun under an epoch it was used with.
fn commit_open(catalog: &Catalog, replayed: &Replayed, timeline: &Timeline, era: u64) -> Result<()> {
    let mut edits = stamp_edits(timeline.stamps());
    edits.push(Edit::Meta(Meta::Era, era));
    edits.push(Edit::Meta(Meta::Orphans, 0));
    let free = |segment: &Segment| Edit::Segment { file_id: segment.file_id, ordinal: 0, epoch: 0 };
    edits.extend(replayed.unused.iter().map(free));
    catalog.commit(edits).map_err(|error| FlushError::Catalog(error).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::memory::MemoryDisk;
    use crate::journal::segment::{Origin, Use};

    const DIR: &str = "d";

    fn open(disk: &MemoryDisk) -> Result<crate::Store> {
        options(disk).open(DIR)
    }

    fn options(disk: &MemoryDisk) -> Options {
        Options::default().disk(disk).threads(false).memory_limit(1 << 20).segment_size(8 << 10)
    }

    /// A catalog that names the end of a number's range is damage; nothing is counted on from there.
    #[test]
    fn a_number_that_cannot_be_counted_on_from_is_damage() {
        // Each commit counts `Commits` itself.
        let long = COUNTED.into_iter().chain([Meta::NextSegment]).filter(|meta| *meta != Meta::Commits);
        let mut edits: Vec<_> = long.map(|meta| Edit::Meta(meta, u64::MAX)).collect();
        edits.push(Edit::Meta(Meta::NextSegment, u32::MAX.into()));
        edits.push(Edit::Scope("stripe".into(), u32::MAX));
        edits.push(Edit::Segment { file_id: u32::MAX, ordinal: 0, epoch: 0 });
        edits.push(Edit::Segment { file_id: 9, ordinal: u64::MAX, epoch: 1 });
        for edit in edits {
            let disk = MemoryDisk::new(1);
            open(&disk).unwrap().close().unwrap();
            let catalog = Catalog::open(Arc::new(disk.clone()), Path::new(DIR), false).unwrap();
            catalog.commit(vec![edit.clone()]).unwrap();
            catalog.close().unwrap();
            let error = open(&disk).unwrap_err();
            assert!(
                matches!(&error, Error::Corrupt { path, .. } if path.ends_with(CATALOG_FILE)),
                "{edit:?}: {error}"
            );
            let salvaged = options(&disk).salvage(DIR).unwrap_or_else(|error| panic!("{edit:?}: {error}"));
            salvaged.store.close().unwrap();
        }
    }

    /// The last scope that has a number is used and found again; the one after it is refused, and that
    /// changes nothing.
    #[test]
    fn scopes_are_numbered_up_to_the_last_number_and_no_further() {
        let disk = MemoryDisk::new(1);
        open(&disk).unwrap().close().unwrap();
        let catalog = Catalog::open(Arc::new(disk.clone()), Path::new(DIR), false).unwrap();
        catalog.commit(vec![Edit::Scope("before".into(), u32::MAX - 2)]).unwrap();
        catalog.close().unwrap();
        for is_new in [true, false] {
            let store = open(&disk).unwrap();
            let last = store.scope("last").unwrap();
            assert_eq!(last.claim("evt").unwrap().is_new(), is_new);
            for _ in 0..2 {
                let refused = store.scope("one more");
                assert!(matches!(refused, Err(Error::Full { .. })), "{refused:?}");
            }
            assert!(store.scope("before").unwrap().claim("evt").unwrap().is_new() == is_new);
            assert!(store.verify().unwrap().is_sound());
            drop(last);
            store.close().unwrap();
        }
    }

    /// The same in a segment's header: an open fails, and so does a salvage, with an error.
    #[test]
    fn a_header_with_a_number_that_cannot_be_counted_on_from_is_an_error() {
        let most = Origin { era: u64::MAX, released: u64::MAX, ..Origin::default() };
        for origin in [Origin { era: u64::MAX, ..Origin::default() }, most] {
            let disk = MemoryDisk::new(1);
            let store = open(&disk).unwrap();
            drop(store.scope("stripe").unwrap().begin("evt_1").unwrap());
            store.sync().unwrap();
            disk.crash();
            drop(store);
            let contents = Catalog::peek(&disk, &Path::new(DIR).join(CATALOG_FILE)).unwrap();
            let dir = Path::new(DIR).join(JOURNAL_DIR);
            for (&file_id, &(ordinal, epoch)) in
                contents.segments.iter().filter(|(_, (ordinal, _))| *ordinal > 0)
            {
                let size = Segment::open(&disk, &dir, file_id, ordinal, epoch).unwrap().size;
                Segment::prepare(&disk, &dir, Use { file_id, ordinal, epoch, size, origin }).unwrap();
            }
            let error = open(&disk).unwrap_err();
            assert!(matches!(error, Error::Full { .. }), "{error}");
            Disk::remove(&disk, &Path::new(DIR).join(CATALOG_FILE)).unwrap();
            let error = options(&disk).salvage(DIR).unwrap_err();
            assert!(error.is_corruption(), "{error}");
        }
    }
}
