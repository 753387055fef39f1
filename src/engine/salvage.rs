//! Making a damaged store one that opens, without losing what is sound.
//!
//! 1. Everything is read. What is sound and complete is left alone.
//! 2. Damaged files are copied to `damaged/`, durably; nothing is removed before.
//! 3. What is sound in damaged runs and response files is written to new ones, and what is sound in
//!    the journal is flushed to runs: also what a damaged run held, if no segment of it was freed yet.
//! 4. One commit lists the new files in place of the old ones, and frees all segments.
//!
//! A crash leaves a store on which the same can be done again. What the catalog lists no more is
//! removed by the open that follows.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::open::{
    JOURNAL_DIR, RUNS_DIR, adopt_orphans, check_counts, check_last_commit, is_fresh, open_segments,
    stamp_edits, start_time, stored_stamps,
};
use super::rebuild::{Rebuilt, rebuild};
use crate::catalog::{CATALOG_FILE, Catalog, Contents, Edit, FORMAT, Meta};
use crate::clock::{Time, WallMapping};
use crate::disk::{Disk, read_exact_at};
use crate::error::{Error, Result};
use crate::identity::Identity;
use crate::journal::replay::{Known, replay};
use crate::journal::rescue::{Rescued, Wanted, rescue};
use crate::key::{Key, KeyHasher};
use crate::lenient::{set_aside, write_report};
use crate::live::{LiveMap, State};
use crate::options::Options;
use crate::record::{Body, StoredRecord};
use crate::runs::{FlushError, Flushed, LostFile, Rescue, RunStore};
use crate::span::Span;
use crate::stamp::Stamp;
use crate::verification::Problem;

/// A damaged file, and what of it is lost.
#[derive(Debug)]
pub(crate) struct Loss {
    pub(crate) problem: Problem,
    /// Where a copy is, if there was something to copy.
    pub(crate) set_aside: Option<PathBuf>,
    /// When the claims were completed of which some are lost; [`Time::NEVER`] for now.
    pub(crate) claims: Span,
    /// When those were completed whose responses are lost.
    pub(crate) responses: Span,
}

/// Makes a store one that opens. The caller holds the lock of the directory.
pub(crate) fn salvage(dir: &Path, options: &Options) -> Result<Vec<Loss>> {
    let disk = &options.disk;
    for dir in [dir.join(JOURNAL_DIR), dir.join(RUNS_DIR)] {
        disk.create_dir(&dir).map_err(|error| Error::io(&dir, error))?;
    }
    if is_fresh(dir, options)? {
        return Ok(Vec::new());
    }
    // Not opened before it is known to be sound: redb would change it.
    let sound = |contents| {
        check_counts(&contents, dir)?;
        check_last_commit(options, dir, &contents).map(|()| contents)
    };
    let (catalog, base) = match Catalog::peek(&**disk, &dir.join(CATALOG_FILE)).and_then(sound) {
        Ok(contents) => {
            let released = contents.meta(Meta::Released);
            let catalog = Catalog::open(Arc::clone(disk), dir, false)?;
            (Some(catalog), Rebuilt { contents, released, problem: None })
        }
        Err(Error::Corrupt { what, .. }) => (None, rebuild(dir, options, what)?),
        Err(Error::Io { .. }) if does_not_read(&**disk, &dir.join(CATALOG_FILE)) => {
            (None, rebuild(dir, options, "the device does not read it")?)
        }
        Err(error) => return Err(error),
    };
    let copies = Identity::read(&**disk, dir).map_err(|error| Error::io(dir, error))?;
    if copies.newest.is_some_and(|copy| copy.seed != base.contents.meta(Meta::Seed)) {
        // With one of the two hashes nothing would be found; which one it is, nobody can tell.
        let what = "it is the catalog of another store than the files named identity beside it";
        return Err(Error::corrupt(&dir.join(CATALOG_FILE), 0, what));
    }
    let hasher = KeyHasher::new(base.contents.meta(Meta::Seed));
    let runs = Rescue::read(disk, dir.join(RUNS_DIR), &hasher, &base.contents.files)?;
    let log_is_sound = base.problem.is_none() && runs.last_seq() <= base.contents.meta(Meta::Durable) && {
        log_is_sound(dir, options, &base.contents)?
    };
    if let Some(catalog) = &catalog
        && runs.is_sound()
        && log_is_sound
    {
        catalog.close()?;
        return Ok(Vec::new());
    }
    let salvage = Salvage { dir, options, hasher: &hasher, base };
    salvage.run(catalog, &runs, log_is_sound)
}

/// Whether a file is there, and cannot be read from end to end.
fn does_not_read(disk: &dyn Disk, path: &Path) -> bool {
    let Ok(file) = disk.open(path) else { return false };
    let len = file.len().ok().and_then(|len| usize::try_from(len).ok());
    len.is_some_and(|len| read_exact_at(&*file, &mut vec![0; len], 0).is_err())
}

/// Whether the journal reads as an open would have it.
fn log_is_sound(dir: &Path, options: &Options, contents: &Contents) -> Result<bool> {
    let known = Known { released: contents.meta(Meta::Released), durable: contents.meta(Meta::Durable) };
    let segments = open_segments(options, &dir.join(JOURNAL_DIR), contents, &mut Vec::new());
    match segments.and_then(|segments| replay(segments, known, &mut |_, _, _| {})) {
        Ok(_) => Ok(true),
        Err(error @ Error::Version { .. }) => Err(error),
        Err(_) => Ok(false),
    }
}

struct Salvage<'a> {
    dir: &'a Path,
    options: &'a Options,
    hasher: &'a KeyHasher,
    base: Rebuilt,
}

/// What the journal still holds.
struct Log {
    rescued: Rescued,
    live: LiveMap,
    orphans: u64,
    latest: Time,
}

impl Salvage<'_> {
    fn run(mut self, catalog: Option<Catalog>, runs: &Rescue<'_>, log_is_sound: bool) -> Result<Vec<Loss>> {
        // What is missing in runs may still be in a sound journal.
        let log =
            if log_is_sound && runs.is_sound() { None } else { Some(self.read_log(runs, log_is_sound)?) };
        let mut aside = BTreeMap::new();
        let segments = log.iter().flat_map(|log| &log.rescued.lost).map(|lost| lost.problem.path.clone());
        let lost_catalog = self.base.problem.iter().map(|problem| problem.path.clone());
        for path in runs.damaged().into_iter().chain(segments).chain(lost_catalog) {
            let copy = set_aside(&*self.options.disk, self.dir, &path)?;
            aside.insert(path, copy);
        }
        if self.base.problem.is_some() {
            let buckets = runs.buckets_of_responses(&self.base.contents.buckets);
            self.base.place_responses(&buckets);
        }
        let mut next_file = self.base.contents.meta(Meta::NextFile).max(1);
        let replaced = runs.replace(&mut next_file)?;

        let mut losses: Vec<Loss> = Vec::new();
        let mut lose = |problem: Problem, claims, responses| {
            let set_aside = aside.get(&problem.path).cloned().flatten();
            losses.push(Loss { problem, set_aside, claims, responses });
        };
        if let Some(problem) = self.base.problem.clone() {
            lose(problem, Span::EMPTY, Span::EMPTY);
        }
        for LostFile { problem, claims, responses } in replaced.lost {
            lose(problem, claims, responses);
        }
        for lost in log.iter().flat_map(|log| &log.rescued.lost) {
            lose(lost.problem.clone(), lost.claims, Span::EMPTY);
        }
        let latest = log.as_ref().map_or(Time(0), |log| log.latest);
        let now = start_time(self.options, stored_stamps(&self.base.contents), latest);
        write_report(&*self.options.disk, self.dir, &self.report(&losses, now))?;

        let mut edits = replaced.edits;
        edits.push(Edit::Meta(Meta::NextFile, next_file));
        for (bucket, purge) in replaced.purges {
            let end = self.base.contents.buckets.get(&bucket).copied().unwrap_or(0).max(purge.0);
            edits.push(Edit::Bucket { id: bucket, end });
        }
        let last_seq = log.as_ref().map_or(0, |log| log.rescued.last_seq).max(runs.last_seq());
        if log.is_some() {
            edits.push(Edit::Meta(Meta::Durable, last_seq));
        }
        let catalog = match catalog {
            Some(catalog) => catalog,
            None => self.create_catalog()?,
        };
        // One commit: damaged runs that have been replaced do not say that the journal is needed for them.
        match &log {
            Some(log) => self.flush_log(&catalog, log, last_seq, now, edits)?,
            None => catalog.commit(edits).map_err(|error| Error::from(FlushError::Catalog(error)))?,
        }
        catalog.close()?;
        Ok(losses)
    }

    fn wanted(&self) -> Vec<Wanted> {
        let segments = self.base.contents.segments.iter();
        let in_use = segments.filter(|(_, (ordinal, _))| *ordinal > 0);
        in_use.map(|(&file_id, &(ordinal, epoch))| (file_id, ordinal, epoch)).collect()
    }

    /// Up to here every record is in a run that is sound.
    fn in_runs(&self, runs: &Rescue<'_>) -> u64 {
        if self.base.problem.is_none() && !runs.is_sound() { 0 } else { self.base.released }
    }

    fn read_log(&self, runs: &Rescue<'_>, is_sound: bool) -> Result<Log> {
        let contents = &self.base.contents;
        let released = match self.base.problem {
            None => contents.meta(Meta::Released),
            // What was flushed last is in runs up to the end of them, too.
            Some(_) => self.base.released.max(runs.last_seq()),
        };
        let known = Known { released, durable: contents.meta(Meta::Durable) };
        let created = Time(contents.meta(Meta::Created));
        let in_runs = self.in_runs(runs);
        let live = LiveMap::default();
        let mut latest = Time(0);
        let mut keep = |seq, record: StoredRecord<'_>, bytes: &[u8]| {
            latest = latest.max(record.written_at());
            if seq > in_runs && !matches!(record.body, Body::LogStart { .. }) {
                let key = Key { hash: self.hasher.hash(record.key), bytes: record.key.into() };
                let state = State::Settled { record: bytes.into(), undelivered: None };
                live.lock(&key, None).set_first(&key, seq, state);
            }
        };
        let dir = self.dir.join(JOURNAL_DIR);
        let rescued = if is_sound {
            let segments = open_segments(self.options, &dir, contents, &mut Vec::new())?;
            Rescued { last_seq: replay(segments, known, &mut keep)?.last_seq, lost: Vec::new() }
        } else {
            let before = |seq| runs.written_before(seq).max(created);
            rescue(&*self.options.disk, &dir, &self.wanted(), known, &before, &mut keep)?
        };
        let now = start_time(self.options, stored_stamps(contents), latest);
        let orphans = adopt_orphans(&live, in_runs, now);
        Ok(Log { rescued, live, orphans, latest })
    }

    /// A new catalog with all that could be found out. Without a format it is not one that opens.
    fn create_catalog(&self) -> Result<Catalog> {
        let disk = &self.options.disk;
        let path = self.dir.join(CATALOG_FILE);
        disk.create(&path).map_err(|error| Error::io(&path, error))?;
        let catalog = Catalog::open(Arc::clone(disk), self.dir, true)?;
        let edits = self.base.contents.without_segments();
        catalog.commit(edits).map_err(|error| Error::from(FlushError::Catalog(error)))?;
        Ok(catalog)
    }

    /// Writes the states that the journal still tells to runs, and frees all segments, in one commit
    /// with `edits`.
    fn flush_log(
        &self,
        catalog: &Catalog,
        log: &Log,
        last_seq: u64,
        now: Time,
        mut edits: Vec<Edit>,
    ) -> Result<()> {
        let (disk, dir) = (&self.options.disk, self.dir.join(RUNS_DIR));
        let (runs, _) = RunStore::open(disk, dir, &catalog.contents().after(&edits))?;
        let mut states = Vec::new();
        for shard in log.live.shards() {
            for entry in shard.lock().entries() {
                let State::Settled { record, .. } = &entry.state else { continue };
                states.push(Flushed { hash: entry.hash, seq: entry.seq, record: Arc::clone(record) });
            }
        }
        let lost = |file_id| log.rescued.lost.iter().any(|lost| lost.file_id == file_id);
        edits.extend([
            Edit::Meta(Meta::Format, FORMAT.into()),
            Edit::Meta(Meta::Released, last_seq),
            Edit::Meta(Meta::Durable, last_seq),
            Edit::Meta(Meta::Orphans, log.orphans),
        ]);
        let stamp = Stamp::new(now, self.options.clock.wall());
        edits.extend(stamp_edits(stored_stamps(&self.base.contents).then(stamp)));
        for &file_id in self.base.contents.segments.keys() {
            let free = Edit::Segment { file_id, ordinal: 0, epoch: 0 };
            edits.push(if lost(file_id) { Edit::DropSegment(file_id) } else { free });
        }
        runs.flush(catalog, states, now, Time(0), || Ok(edits))?;
        Ok(())
    }

    /// The same as the caller is told, for whoever looks at the directory.
    fn report(&self, losses: &[Loss], now: Time) -> String {
        let mapping = WallMapping { now, wall: self.options.clock.wall() };
        let seconds = |time: Time| {
            let wall = mapping.wall_of(time.min(now));
            wall.duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs())
        };
        let mut report = String::from("Times are seconds since 1970.\n");
        for loss in losses {
            let _ = writeln!(report, "{}", loss.problem);
            if let Some(copy) = &loss.set_aside {
                let _ = writeln!(report, "  copied to {}", copy.display());
            }
            for (what, span) in [("claims", loss.claims), ("responses of claims", loss.responses)] {
                if !span.is_empty() {
                    let (first, last) = (seconds(span.first), seconds(span.last));
                    let _ = writeln!(report, "  {what} from {first} to {last} may be missing");
                }
            }
        }
        report
    }
}

#[cfg(test)]
mod tests;
