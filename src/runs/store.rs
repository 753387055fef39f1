//! Writing runs, publishing them, merging them, and letting go of what has expired.
//!
//! A file is created and synced, its directory synced, and only then listed in the catalog; it is
//! taken out of the catalog before it is removed.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::bucket::{Bucket, Fold, Placement};
use super::files::FileCache;
use super::merge::merge;
use super::responses::{ResponseFile, ResponseWriter};
use super::run::Run;
use super::set::RunSet;
use super::writer::RunWriter;
use crate::catalog::{Catalog, CommitError, Contents, Edit, FileKind, Listed, Meta};
use crate::clock::Time;
use crate::disk::{self, Disk, DiskFile};
use crate::error::{Error, Result};
use crate::record::{Body, Done, Reply, StoredRecord, key_of};
use crate::sabotage::{self, Break};
use crate::span::Span;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, RwLock};

/// Open handles kept for run and response files.
const OPEN_FILES: usize = 128;

/// A response longer than this lies in a response file, so that merges need not copy it.
const INLINE_RESPONSE: usize = 1024;

/// A state on its way to a run.
#[derive(Clone, Debug)]
pub(crate) struct Flushed {
    pub(crate) hash: u64,
    pub(crate) seq: u64,
    pub(crate) record: Arc<[u8]>,
}

/// The runs of an open store.
#[derive(Debug)]
pub(crate) struct RunStore {
    dir: PathBuf,
    files: Arc<FileCache>,
    current: RwLock<Arc<RunSet>>,
    /// Held over a catalog commit and the switch to the list it made.
    publishing: Mutex<()>,
    /// Held over a merge: two would choose the same inputs. The buckets in which one met damage, which
    /// are left alone: lookups that meet it say so.
    merging: Mutex<BTreeSet<u64>>,
    next_file: AtomicU64,
    bytes: AtomicU64,
}

/// New files that no list has yet.
struct Written {
    runs: Vec<(u64, Arc<Run>)>,
    responses: Vec<(u64, Arc<ResponseFile>, Span)>,
    ends: BTreeMap<u64, Time>,
    folds: Vec<Fold>,
    next_bucket: u64,
}

pub(super) fn file_path(dir: &Path, id: u64, kind: FileKind) -> PathBuf {
    let ending = match kind {
        FileKind::Run => "run",
        FileKind::Responses => "responses",
    };
    dir.join(format!("{id:012}.{ending}"))
}

impl RunStore {
    /// Opens what the catalog lists; the paths of files that it does not list.
    pub(crate) fn open(
        disk: &Arc<dyn Disk>,
        dir: PathBuf,
        contents: &Contents,
    ) -> Result<(Self, Vec<PathBuf>)> {
        let files = Arc::new(FileCache::new(Arc::clone(disk), OPEN_FILES));
        let mut buckets: BTreeMap<u64, Bucket> = contents
            .buckets
            .iter()
            .map(|(&id, &end)| (id, Bucket { id, end: Time(end), runs: Vec::new(), responses: Vec::new() }))
            .collect();
        let mut listed = Vec::new();
        for (&id, file) in &contents.files {
            let path = file_path(&dir, id, file.kind);
            let Some(bucket) = buckets.get_mut(&file.bucket) else {
                return Err(Error::corrupt(
                    &path,
                    0,
                    "the catalog lists the file in a bucket that is not there",
                ));
            };
            match file.kind {
                FileKind::Run => {
                    let run = Run::open(&files, id, path.clone())?;
                    if run.listed(file.bucket) != *file {
                        let what = "the run is not the one that the catalog lists";
                        return Err(Error::corrupt(&path, run.summary().bytes, what));
                    }
                    if run.summary().max_seq > contents.meta(Meta::Durable) {
                        return Err(Error::corrupt(&path, 0, "the run is ahead of the journal"));
                    }
                    bucket.runs.push(Arc::new(run));
                }
                FileKind::Responses => {
                    bucket.responses.push(Arc::new(ResponseFile::open(
                        &files,
                        id,
                        path.clone(),
                        file.bytes,
                    )?));
                }
            }
            listed.push(path);
        }
        let unlisted = disk.list(&dir).map_err(|error| Error::io(&dir, error))?;
        let unlisted = unlisted.into_iter().filter(|path| !listed.contains(path)).collect();
        let bytes = contents.files.values().map(|file| file.bytes).sum();
        let set = RunSet { version: 0, buckets: buckets.into_values().collect() };
        let store = Self {
            dir,
            files,
            current: RwLock::new(Arc::new(set)),
            publishing: Mutex::new(()),
            merging: Mutex::default(),
            next_file: AtomicU64::new(contents.meta(Meta::NextFile).max(1)),
            bytes: AtomicU64::new(bytes),
        };
        Ok((store, unlisted))
    }

    /// The list that counts now.
    pub(crate) fn current(&self) -> Arc<RunSet> {
        Arc::clone(&self.current.read())
    }

    /// Bytes of all listed files.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Writes states to new runs and publishes them, together with the changes that
    /// `before_publishing` asks for. Returns how many records were written; those that had expired
    /// by `removal` are not.
    pub(crate) fn flush(
        &self,
        catalog: &Catalog,
        states: Vec<Flushed>,
        now: Time,
        removal: Time,
        before_publishing: impl FnOnce() -> Result<Vec<Edit>>,
    ) -> Result<u64, FlushError> {
        let (written, records) = self.write(states, catalog.meta(Meta::NextBucket), now, removal)?;
        let extra = match before_publishing() {
            Ok(extra) => extra,
            Err(error) => {
                written.discard();
                return Err(FlushError::Store(error));
            }
        };
        self.publish(catalog, written, extra)?;
        Ok(records)
    }

    fn write(
        &self,
        mut states: Vec<Flushed>,
        next_bucket: u64,
        now: Time,
        removal: Time,
    ) -> Result<(Written, u64), FlushError> {
        let set = self.current();
        let mut placement = Placement::new(&set.buckets, next_bucket.max(1), now);
        states.sort_unstable_by(|a, b| {
            a.hash.cmp(&b.hash).then_with(|| key_of(&a.record).cmp(key_of(&b.record)))
        });
        let mut placed = Vec::with_capacity(states.len());
        for state in states {
            let record = StoredRecord::decode(&state.record);
            let purge_at = record.map_or(Time::NEVER, |record| record.purge_at);
            if purge_at > removal {
                placed.push((placement.place(purge_at), state));
            }
        }
        let mut by_bucket: BTreeMap<u64, Vec<Flushed>> = BTreeMap::new();
        for (id, state) in placed {
            by_bucket.entry(placement.resolve(id)).or_default().push(state);
        }
        let (ends, folds, next_bucket) = placement.finish();
        let mut written = Written { runs: Vec::new(), responses: Vec::new(), ends, folds, next_bucket };
        let mut records = 0;
        for (bucket, states) in by_bucket {
            records += states.len() as u64;
            if let Err(error) = self.write_bucket(bucket, &states, &mut written) {
                written.discard();
                return Err(error);
            }
        }
        Ok((written, records))
    }

    fn write_bucket(&self, bucket: u64, states: &[Flushed], written: &mut Written) -> Result<(), FlushError> {
        let mut paths = Vec::new();
        let result = self.write_files(bucket, states, &mut paths);
        if result.is_err() {
            // Half-written files would keep the room that may be missing.
            for path in &paths {
                let _ = self.files.disk().remove(path);
            }
        }
        let (run, responses) = result?;
        let span = run.summary().written;
        written.runs.push((bucket, run));
        written.responses.extend(responses.map(|file| (bucket, file, span)));
        Ok(())
    }

    /// Writes one run, and the large responses of its records beside it.
    fn write_files(
        &self,
        bucket: u64,
        states: &[Flushed],
        paths: &mut Vec<PathBuf>,
    ) -> Result<(Arc<Run>, Option<Arc<ResponseFile>>), FlushError> {
        let (run_id, run_file) = self.create(FileKind::Run, paths)?;
        let failed = |error| FlushError::Write(self.dir.clone(), error);
        let mut writer = RunWriter::new(run_file, states.len(), bucket).map_err(failed)?;
        let mut responses: Option<ResponseWriter> = None;
        let mut rewritten = Vec::new();
        for state in states {
            let large = StoredRecord::decode(&state.record).and_then(large_response);
            let Some((record, done, bytes)) = large else {
                writer.push(state.hash, state.seq, &state.record).map_err(failed)?;
                continue;
            };
            let file = match &mut responses {
                Some(file) => file,
                none => {
                    let (id, file) = self.create(FileKind::Responses, paths)?;
                    none.insert(ResponseWriter::new(file, id).map_err(failed)?)
                }
            };
            let reply = Reply::Far(file.push(bytes).map_err(failed)?);
            rewritten.clear();
            StoredRecord { body: Body::Done(Done { reply, ..done }), ..record }.encode(&mut rewritten);
            writer.push(state.hash, state.seq, &rewritten).map_err(failed)?;
        }
        writer.finish().map_err(failed)?;
        let responses = responses.map(|file| Ok((file.id(), file.finish()?))).transpose().map_err(failed)?;
        if !sabotage::is(Break::SkipDirSync) {
            self.files.disk().sync_dir(&self.dir).map_err(failed)?;
        }
        let responses = responses.map(|(id, bytes)| {
            let path = file_path(&self.dir, id, FileKind::Responses);
            ResponseFile::open(&self.files, id, path, bytes).map(Arc::new)
        });
        let run = Run::open(&self.files, run_id, file_path(&self.dir, run_id, FileKind::Run))?;
        Ok((Arc::new(run), responses.transpose()?))
    }

    fn create(
        &self,
        kind: FileKind,
        paths: &mut Vec<PathBuf>,
    ) -> Result<(u64, Arc<dyn DiskFile>), FlushError> {
        let id = self.next_file.fetch_add(1, Ordering::Relaxed);
        let path = file_path(&self.dir, id, kind);
        paths.push(path.clone());
        match self.files.disk().create(&path) {
            Ok(file) => Ok((id, file)),
            Err(error) => Err(FlushError::Write(path, error)),
        }
    }

    fn publish(&self, catalog: &Catalog, written: Written, extra: Vec<Edit>) -> Result<(), FlushError> {
        let _publishing = self.publishing.lock();
        let mut set = RunSet { version: 0, buckets: self.current().buckets.clone() };
        let mut edits = extra;
        let mut added = 0;
        edits.push(Edit::Meta(Meta::NextFile, self.next_file.load(Ordering::Relaxed)));
        edits.push(Edit::Meta(Meta::NextBucket, written.next_bucket));
        if !written.folds.is_empty() {
            // Files that this very commit lists are moved like the others.
            let listed = catalog.contents().after(&edits).files;
            for fold in &written.folds {
                fold_bucket(&mut set, *fold, &listed, &mut edits);
            }
        }
        let touched = written.runs.iter().map(|(bucket, _)| *bucket);
        for id in touched.clone() {
            // Only a later end: another flush may have raised it meanwhile.
            let end = written.ends.get(&id).copied().unwrap_or(Time::NEVER);
            let bucket = bucket_mut(&mut set, id, end);
            bucket.end = bucket.end.max(end);
            edits.push(Edit::Bucket { id, end: bucket.end.0 });
        }
        for (bucket, run) in &written.runs {
            added += run.summary().bytes;
            edits.push(Edit::File(run.id(), run.listed(*bucket)));
            bucket_mut(&mut set, *bucket, Time::NEVER).runs.push(Arc::clone(run));
        }
        for (bucket, file, span) in &written.responses {
            added += file.bytes();
            edits.push(Edit::File(file.id(), file.listed(*bucket, *span)));
            bucket_mut(&mut set, *bucket, Time::NEVER).responses.push(Arc::clone(file));
        }
        match catalog.commit(edits) {
            Ok(()) => {
                self.bytes.fetch_add(added, Ordering::Relaxed);
                self.switch_to(set);
                Ok(())
            }
            Err(error) => {
                // If the commit may have taken effect, the files may be listed.
                if !error.is_unknown() {
                    written.discard();
                }
                Err(FlushError::Catalog(error))
            }
        }
    }

    fn switch_to(&self, mut set: RunSet) {
        let mut current = self.current.write();
        set.version = current.version + 1;
        *current = Arc::new(set);
    }

    /// Merges one bucket's runs, if one needs it and the result fits into `room` bytes; whether it
    /// did. `idle_since`: see [`Bucket::to_merge`].
    pub(crate) fn merge_one(
        &self,
        catalog: &Catalog,
        now: Time,
        idle_since: u64,
        room: u64,
        clock: impl Fn() -> Vec<Edit>,
    ) -> Result<bool, FlushError> {
        let mut damaged = self.merging.lock();
        let set = self.current();
        let size = |runs: &[Arc<Run>]| runs.iter().map(|run| run.summary().bytes).sum::<u64>();
        let wanted = set.buckets.iter().filter(|bucket| !damaged.contains(&bucket.id)).find_map(|bucket| {
            let inputs = bucket.to_merge(idle_since).filter(|inputs| size(inputs) <= room)?;
            Some((bucket.id, inputs))
        });
        let Some((bucket, inputs)) = wanted else { return Ok(false) };
        let disk = self.files.disk();
        let id = self.next_file.fetch_add(1, Ordering::Relaxed);
        let path = file_path(&self.dir, id, FileKind::Run);
        let expected = inputs.iter().map(|run| run.summary().records).sum::<u64>();
        let made = disk
            .create(&path)
            .and_then(|file| RunWriter::new(file, usize::try_from(expected).unwrap_or(usize::MAX), bucket))
            .map_err(|error| Error::io(&path, error))
            .and_then(|writer| merge(&inputs, now, writer, &path))
            .and_then(|_| disk.sync_dir(&self.dir).map_err(|error| Error::io(&path, error)))
            .and_then(|()| Run::open(&self.files, id, path.clone()));
        let merged = match made {
            Ok(run) => Arc::new(run),
            Err(error) => {
                let _ = disk.remove(&path);
                if error.is_corruption() {
                    damaged.insert(bucket);
                }
                return Err(FlushError::Store(error));
            }
        };
        self.publish_merge(catalog, bucket, &inputs, &merged, clock())?;
        Ok(true)
    }

    fn publish_merge(
        &self,
        catalog: &Catalog,
        bucket: u64,
        inputs: &[Arc<Run>],
        merged: &Arc<Run>,
        mut edits: Vec<Edit>,
    ) -> Result<(), FlushError> {
        let _publishing = self.publishing.lock();
        let mut set = RunSet { version: 0, buckets: self.current().buckets.clone() };
        let Some(place) = set.buckets.iter_mut().find(|known| known.id == bucket) else {
            // The bucket has expired meanwhile.
            merged.doom();
            return Ok(());
        };
        if !inputs.iter().all(|input| place.runs.iter().any(|run| run.id() == input.id())) {
            // It has expired, and was made again.
            merged.doom();
            return Ok(());
        }
        let bytes = merged.summary().bytes;
        edits.push(Edit::Meta(Meta::NextFile, self.next_file.load(Ordering::Relaxed)));
        edits.push(Edit::File(merged.id(), merged.listed(bucket)));
        edits.extend(inputs.iter().map(|run| Edit::DropFile(run.id())));
        place.runs.retain(|run| inputs.iter().all(|input| input.id() != run.id()));
        place.runs.push(Arc::clone(merged));
        if let Err(error) = catalog.commit(edits) {
            if !error.is_unknown() {
                merged.doom();
            }
            return Err(FlushError::Catalog(error));
        }
        let before: u64 = inputs.iter().map(|run| run.summary().bytes).sum();
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.bytes.fetch_sub(before, Ordering::Relaxed);
        self.switch_to(set);
        for run in inputs {
            run.doom();
        }
        Ok(())
    }

    /// Lets go of every bucket whose last record has expired; returns how many.
    pub(crate) fn expire(
        &self,
        catalog: &Catalog,
        now: Time,
        clock: impl FnOnce() -> Vec<Edit>,
    ) -> Result<u64, FlushError> {
        let _publishing = self.publishing.lock();
        let current = self.current();
        let (over, kept): (Vec<Bucket>, Vec<Bucket>) =
            current.buckets.iter().cloned().partition(|bucket| bucket.is_over(now));
        if over.is_empty() {
            return Ok(0);
        }
        // Time must not start before a removal: what had expired then could show again.
        let mut edits = clock();
        let mut freed = 0;
        for bucket in &over {
            edits.push(Edit::DropBucket(bucket.id));
            edits.extend(bucket.runs.iter().map(|run| Edit::DropFile(run.id())));
            edits.extend(bucket.responses.iter().map(|file| Edit::DropFile(file.id())));
            freed += bucket.runs.iter().map(|run| run.summary().bytes).sum::<u64>();
            freed += bucket.responses.iter().map(|file| file.bytes()).sum::<u64>();
        }
        if sabotage::is(Break::UnlinkBeforeUnpublish) {
            for run in over.iter().flat_map(|bucket| &bucket.runs) {
                let _ = self.files.disk().remove(run.path());
            }
        }
        catalog.commit(edits).map_err(FlushError::Catalog)?;
        self.bytes.fetch_sub(freed, Ordering::Relaxed);
        self.switch_to(RunSet { version: 0, buckets: kept });
        for bucket in &over {
            bucket.runs.iter().for_each(|run| run.doom());
            bucket.responses.iter().for_each(|file| file.doom());
        }
        Ok(over.len() as u64)
    }
}

impl Written {
    /// Removes the files: nobody will list them.
    fn discard(self) {
        self.runs.iter().for_each(|(_, run)| run.doom());
        self.responses.iter().for_each(|(_, file, _)| file.doom());
    }
}

/// The bucket with this id, made if it is not there.
fn bucket_mut(set: &mut RunSet, id: u64, end: Time) -> &mut Bucket {
    let place = set.buckets.iter().position(|bucket| bucket.id == id).unwrap_or_else(|| {
        set.buckets.push(Bucket { id, end, runs: Vec::new(), responses: Vec::new() });
        set.buckets.len() - 1
    });
    &mut set.buckets[place]
}

/// Moves a bucket's files into another one, unless it has expired meanwhile.
fn fold_bucket(set: &mut RunSet, fold: Fold, listed: &BTreeMap<u64, Listed>, edits: &mut Vec<Edit>) {
    let Some(place) = set.buckets.iter().position(|bucket| bucket.id == fold.from) else { return };
    let from = set.buckets.swap_remove(place);
    let into = bucket_mut(set, fold.into, fold.end);
    into.end = into.end.max(fold.end);
    edits.push(Edit::Bucket { id: into.id, end: into.end.0 });
    let bucket = into.id;
    let ids = from.runs.iter().map(|run| run.id()).chain(from.responses.iter().map(|file| file.id()));
    let moved = ids.filter_map(|id| Some(Edit::File(id, Listed { bucket, ..*listed.get(&id)? })));
    edits.extend(moved);
    into.runs.extend(from.runs);
    into.responses.extend(from.responses);
    edits.push(Edit::DropBucket(from.id));
}

/// The response of a record that is too long to lie in a run.
fn large_response(record: StoredRecord<'_>) -> Option<(StoredRecord<'_>, Done<'_>, &[u8])> {
    match record.body {
        Body::Done(done) => match done.reply {
            Reply::Inline(bytes) if bytes.len() > INLINE_RESPONSE => Some((record, done, bytes)),
            _ => None,
        },
        _ => None,
    }
}

/// Why runs could not be written, merged or removed. Nothing is lost: the journal and the old files
/// still hold it all.
#[derive(Debug)]
pub(crate) enum FlushError {
    Write(PathBuf, io::Error),
    Catalog(CommitError),
    Store(Error),
}

impl FlushError {
    /// Whether it was for lack of room, so that a later try may succeed.
    pub(crate) fn is_no_space(&self) -> bool {
        match self {
            Self::Write(_, error) => disk::is_no_space(error),
            Self::Catalog(CommitError::NoSpace(_)) => true,
            Self::Store(Error::Io { source, .. }) => disk::is_no_space(source),
            Self::Catalog(CommitError::Failed(_) | CommitError::Unknown(_)) | Self::Store(_) => false,
        }
    }
}

impl From<Error> for FlushError {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl From<FlushError> for Error {
    fn from(error: FlushError) -> Self {
        if error.is_no_space() {
            return Self::Full { limit: None, what: "the disk" };
        }
        match error {
            FlushError::Write(path, error) => Self::io(&path, error),
            FlushError::Catalog(
                CommitError::NoSpace(source) | CommitError::Failed(source) | CommitError::Unknown(source),
            ) => Self::Poisoned { source: Arc::new(source) },
            FlushError::Store(error) => error,
        }
    }
}
