//! Which listed run and response files are damaged, and new files of what is sound in them.
//!
//! Nothing that is there is changed: new files get new ids, and the caller lists them in place of the
//! old ones. A run is written anew if it is damaged, or if a record in it points to a response file
//! that is; a response that does not read becomes an omitted one.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::files::FileCache;
use super::layout::{HEADER_LEN, RESPONSES_MAGIC, check_header, read_error};
use super::responses::ResponseWriter;
use super::run::Run;
use super::sound::{SoundRecord, sound_records};
use super::store::file_path;
use super::writer::RunWriter;
use crate::catalog::{Edit, FileKind, Listed};
use crate::clock::Time;
use crate::disk::{Disk, DiskFile, read_exact_at};
use crate::error::{Error, Result};
use crate::key::KeyHasher;
use crate::record::{Body, Done, Far, Reply, StoredRecord};
use crate::span::Span;
use crate::verification::Problem;

/// A damaged file, and what of it is lost.
#[derive(Debug)]
pub(crate) struct LostFile {
    pub(crate) problem: Problem,
    /// When the claims were completed of which some are lost.
    pub(crate) claims: Span,
    /// When those were completed whose responses are lost.
    pub(crate) responses: Span,
}

/// What replaces damaged files.
#[derive(Debug, Default)]
pub(crate) struct Replaced {
    pub(crate) edits: Vec<Edit>,
    pub(crate) lost: Vec<LostFile>,
    /// The last `purge_at` of what was written for each bucket.
    pub(crate) purges: BTreeMap<u64, Time>,
}

/// The run and response files of a store that is not open.
#[derive(Debug)]
pub(crate) struct Rescue<'a> {
    disk: &'a Arc<dyn Disk>,
    dir: PathBuf,
    hasher: &'a KeyHasher,
    runs: BTreeMap<u64, ReadRun>,
    responses: BTreeMap<u64, ReadResponses>,
}

#[derive(Debug)]
struct ReadRun {
    listed: Listed,
    /// The run, if all of it is sound.
    sound: Option<Arc<Run>>,
    problem: Option<Problem>,
    /// The response files that its records point to.
    points_to: BTreeSet<u64>,
    last_seq: u64,
}

#[derive(Debug)]
struct ReadResponses {
    file: Option<Arc<dyn DiskFile>>,
    problem: Option<Problem>,
    lost: Span,
}

impl<'a> Rescue<'a> {
    /// Reads every file of `listed` from end to end.
    pub(crate) fn read(
        disk: &'a Arc<dyn Disk>,
        dir: PathBuf,
        hasher: &'a KeyHasher,
        listed: &BTreeMap<u64, Listed>,
    ) -> Result<Self> {
        let mut rescue = Self { disk, dir, hasher, runs: BTreeMap::new(), responses: BTreeMap::new() };
        for (&id, listed) in listed.iter().filter(|(_, listed)| listed.kind == FileKind::Responses) {
            let read = rescue.read_responses(id, *listed)?;
            rescue.responses.insert(id, read);
        }
        for (&id, listed) in listed.iter().filter(|(_, listed)| listed.kind == FileKind::Run) {
            let read = rescue.read_run(id, *listed)?;
            rescue.runs.insert(id, read);
        }
        Ok(rescue)
    }

    /// Whether every file is as it was written.
    pub(crate) fn is_sound(&self) -> bool {
        self.runs.values().all(|run| run.problem.is_none())
            && self.responses.values().all(|file| file.problem.is_none())
            && !self.runs.values().any(|run| self.points_astray(run))
    }

    /// The damaged files that are there.
    pub(crate) fn damaged(&self) -> Vec<PathBuf> {
        let runs = self.runs.iter().filter(|(_, run)| run.problem.is_some());
        let responses = self.responses.iter().filter(|(_, file)| file.problem.is_some());
        runs.map(|(&id, _)| file_path(&self.dir, id, FileKind::Run))
            .chain(responses.map(|(&id, _)| file_path(&self.dir, id, FileKind::Responses)))
            .collect()
    }

    /// The highest sequence number that was read.
    pub(crate) fn last_seq(&self) -> u64 {
        self.runs.values().map(|run| run.last_seq).max().unwrap_or(0)
    }

    /// The bucket of each response file that a record points to: of those that end when `ends` says, the
    /// last one.
    pub(crate) fn buckets_of_responses(&self, ends: &BTreeMap<u64, u64>) -> BTreeMap<u64, u64> {
        let mut buckets: BTreeMap<u64, u64> = BTreeMap::new();
        for run in self.runs.values() {
            let bucket = run.listed.bucket;
            for &id in &run.points_to {
                let known = buckets.entry(id).or_insert(bucket);
                if ends.get(&bucket) > ends.get(known) {
                    *known = bucket;
                }
            }
        }
        buckets
    }

    /// When the last claim was completed in runs that hold nothing from `seq` on.
    pub(crate) fn written_before(&self, seq: u64) -> Time {
        let before = self.runs.values().filter_map(|run| run.sound.as_ref());
        let before = before.filter(|run| run.summary().max_seq < seq).map(|run| run.summary().written);
        before.filter(|span| !span.is_empty()).map(|span| span.last).max().unwrap_or(Time(0))
    }

    fn open(&self, path: &Path) -> Result<Option<Arc<dyn DiskFile>>> {
        match self.disk.open(path) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            // It may be there and sound: not for us to say.
            Err(error) => Err(Error::io(path, error)),
        }
    }

    fn read_responses(&self, id: u64, listed: Listed) -> Result<ReadResponses> {
        let path = file_path(&self.dir, id, FileKind::Responses);
        let Some(file) = self.open(&path)? else {
            let problem = Some(missing(&path));
            return Ok(ReadResponses { file: None, problem, lost: Span::EMPTY });
        };
        let problem = match check_header(&*file, &path, RESPONSES_MAGIC) {
            Ok(len) if len == listed.bytes => None,
            Ok(_) => Some(Problem::new(&path, 0, "the file has another length than it is listed with")),
            Err(error @ Error::Version { .. }) => return Err(error),
            Err(error) => Some(Problem::of(&path, &error)),
        };
        Ok(ReadResponses { file: Some(file), problem, lost: Span::EMPTY })
    }

    fn read_run(&mut self, id: u64, listed: Listed) -> Result<ReadRun> {
        let path = file_path(&self.dir, id, FileKind::Run);
        let mut read =
            ReadRun { listed, sound: None, problem: None, points_to: BTreeSet::new(), last_seq: 0 };
        let Some(file) = self.open(&path)? else {
            read.problem = Some(missing(&path));
            return Ok(read);
        };
        match self.read_sound(id, &path, &mut read) {
            Ok(run) => read.sound = Some(run),
            Err(error @ Error::Version { .. }) => return Err(error),
            Err(error) => {
                read.problem = Some(Problem::of(&path, &error));
                let hasher = self.hasher;
                sound_records(&*file, hasher, &mut |record| {
                    self.note(&mut read, record.seq, &record.record);
                    Ok(())
                })?;
            }
        }
        Ok(read)
    }

    fn read_sound(&mut self, id: u64, path: &Path, read: &mut ReadRun) -> Result<Arc<Run>> {
        let files = Arc::new(FileCache::new(Arc::clone(self.disk), 1));
        files.get(id, path).and_then(|file| file.drop_cache()).map_err(|error| read_error(path, 0, error))?;
        let run = Arc::new(Run::open(&files, id, path.to_path_buf())?);
        if run.listed(read.listed.bucket) != read.listed {
            let what = "the run is not the one that the catalog lists";
            return Err(Error::corrupt(path, run.summary().bytes, what));
        }
        for item in run.scan() {
            let item = item?;
            let Some(record) = StoredRecord::decode(&item.record) else { continue };
            if self.hasher.hash(record.key) != item.hash {
                return Err(Error::corrupt(path, 0, "a record's hash is not that of its key"));
            }
            self.note(read, item.seq, &record);
        }
        Ok(run)
    }

    /// Looks at one record, and at the response that it points to.
    fn note(&mut self, read: &mut ReadRun, seq: u64, record: &StoredRecord<'_>) {
        read.last_seq = read.last_seq.max(seq);
        let Body::Done(Done { reply: Reply::Far(far), completed_at, .. }) = record.body else { return };
        read.points_to.insert(far.file);
        let path = file_path(&self.dir, far.file, FileKind::Responses);
        // One that nobody lists is missed by the records that point to it.
        let file = self.responses.entry(far.file).or_insert_with(|| ReadResponses {
            file: None,
            problem: Some(missing(&path)),
            lost: Span::EMPTY,
        });
        if far_response(file.file.as_deref(), far).is_none() {
            file.lost.add(completed_at);
            file.problem.get_or_insert_with(|| {
                Problem::new(&path, far.offset, "a response's checksum does not match")
            });
        }
    }

    /// Whether a record points to a response file that is damaged or not listed.
    fn points_astray(&self, run: &ReadRun) -> bool {
        run.points_to.iter().any(|id| self.responses.get(id).is_none_or(|file| file.problem.is_some()))
    }

    /// Writes what is sound to new files, durably, with ids from `next_file` on.
    pub(crate) fn replace(&self, next_file: &mut u64) -> Result<Replaced> {
        let mut replaced = Replaced::default();
        for (&id, run) in &self.runs {
            if run.problem.is_none() && !self.points_astray(run) {
                continue;
            }
            replaced.edits.push(Edit::DropFile(id));
            let kept = self.write_anew(id, run, next_file, &mut replaced)?;
            let whole = kept == Some((run.listed.records, run.listed.written));
            let claims = if whole { Span::EMPTY } else { run.listed.written };
            let lost = |problem| LostFile { problem, claims, responses: Span::EMPTY };
            replaced.lost.extend(run.problem.clone().map(lost));
        }
        self.disk.sync_dir(&self.dir).map_err(|error| Error::io(&self.dir, error))?;
        for (&id, file) in &self.responses {
            if let Some(problem) = file.problem.clone() {
                replaced.edits.push(Edit::DropFile(id));
                replaced.lost.push(LostFile { problem, claims: Span::EMPTY, responses: file.lost });
            }
        }
        Ok(replaced)
    }

    /// Writes a run's sound records to a new one, with their responses where the old file of these is
    /// given up; how many, and when they were made.
    fn write_anew(
        &self,
        id: u64,
        run: &ReadRun,
        next_file: &mut u64,
        replaced: &mut Replaced,
    ) -> Result<Option<(u64, Span)>> {
        let old = file_path(&self.dir, id, FileKind::Run);
        let Some(file) = self.open(&old)? else { return Ok(None) };
        let mut output = Output::new(self, run.listed, next_file)?;
        match &run.sound {
            Some(sound) => {
                for item in sound.scan() {
                    let item = item?;
                    let Some(record) = StoredRecord::decode(&item.record) else { continue };
                    output.push(SoundRecord {
                        hash: item.hash,
                        seq: item.seq,
                        bytes: &item.record,
                        record,
                    })?;
                }
            }
            None => sound_records(&*file, self.hasher, &mut |record| output.push(record))?,
        }
        output.finish(replaced)
    }
}

fn missing(path: &Path) -> Problem {
    Problem::new(path, 0, "the file is missing")
}

/// Reads a response, if it is there and sound.
fn far_response(file: Option<&dyn DiskFile>, far: Far) -> Option<Vec<u8>> {
    let file = file?;
    let end = far.offset.checked_add(far.len)?;
    if far.offset < HEADER_LEN as u64 || end > file.len().ok()? {
        return None;
    }
    let mut bytes = vec![0; usize::try_from(far.len).ok()?];
    read_exact_at(file, &mut bytes, far.offset).ok()?;
    (crc32fast::hash(&bytes) == far.crc).then_some(bytes)
}

/// A new run, and a new response file if it needs one.
struct Output<'a> {
    rescue: &'a Rescue<'a>,
    bucket: u64,
    next_file: &'a mut u64,
    id: u64,
    path: PathBuf,
    writer: RunWriter,
    responses: Option<ResponseWriter>,
    written: Span,
}

impl<'a> Output<'a> {
    fn new(rescue: &'a Rescue<'a>, listed: Listed, next_file: &'a mut u64) -> Result<Self> {
        let (id, file) = create(rescue, FileKind::Run, next_file)?;
        let path = file_path(&rescue.dir, id, FileKind::Run);
        let expected = usize::try_from(listed.records.min(listed.bytes)).unwrap_or(usize::MAX);
        let writer =
            RunWriter::new(file, expected, listed.bucket).map_err(|error| Error::io(&path, error))?;
        let bucket = listed.bucket;
        let (responses, written) = (None, Span::EMPTY);
        Ok(Self { rescue, bucket, next_file, id, path, writer, responses, written })
    }

    fn push(&mut self, found: SoundRecord<'_>) -> Result<()> {
        let SoundRecord { hash, seq, bytes, record } = found;
        let pushed = match record.body {
            Body::Done(done @ Done { reply: Reply::Far(far), .. }) if self.is_given_up(far.file) => {
                let reply = self.moved(far, &done)?;
                let body = Body::Done(Done { reply, ..done });
                self.writer.push(hash, seq, &StoredRecord { body, ..record }.to_bytes())
            }
            _ => self.writer.push(hash, seq, bytes),
        };
        match pushed {
            Ok(()) => {}
            // Out of order: a block that lies where none was written.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
            Err(error) => return Err(Error::io(&self.path, error)),
        }
        Ok(())
    }

    fn is_given_up(&self, response_file: u64) -> bool {
        self.rescue.responses.get(&response_file).is_none_or(|file| file.problem.is_some())
    }

    fn moved(&mut self, far: Far, done: &Done<'_>) -> Result<Reply<'static>> {
        let old = self.rescue.responses.get(&far.file).and_then(|file| file.file.as_deref());
        let Some(bytes) = far_response(old, far) else { return Ok(Reply::Omitted { len: far.len }) };
        let failed = |error| Error::io(&self.path, error);
        let file = match &mut self.responses {
            Some(file) => file,
            none => {
                let (id, file) = create(self.rescue, FileKind::Responses, self.next_file)?;
                none.insert(ResponseWriter::new(file, id).map_err(failed)?)
            }
        };
        self.written.add(done.completed_at);
        Ok(Reply::Far(file.push(&bytes).map_err(failed)?))
    }

    fn finish(self, replaced: &mut Replaced) -> Result<Option<(u64, Span)>> {
        let failed = |error| Error::io(&self.path, error);
        let summary = self.writer.finish().map_err(failed)?;
        if summary.records == 0 {
            let _ = self.rescue.disk.remove(&self.path);
            return Ok(None);
        }
        let files = Arc::new(FileCache::new(Arc::clone(self.rescue.disk), 1));
        let run = Run::open(&files, self.id, self.path.clone())?;
        let purge = replaced.purges.entry(self.bucket).or_default();
        *purge = summary.last_purge.max(*purge);
        replaced.edits.push(Edit::File(self.id, run.listed(self.bucket)));
        if let Some(responses) = self.responses {
            let id = responses.id();
            let bytes = responses.finish().map_err(failed)?;
            let (kind, bucket, written) = (FileKind::Responses, self.bucket, self.written);
            replaced.edits.push(Edit::File(id, Listed { kind, bucket, bytes, records: 0, written }));
        }
        Ok(Some((summary.records, summary.written)))
    }
}

fn create(rescue: &Rescue<'_>, kind: FileKind, next_file: &mut u64) -> Result<(u64, Arc<dyn DiskFile>)> {
    let id = *next_file;
    *next_file += 1;
    let path = file_path(&rescue.dir, id, kind);
    let file = rescue.disk.create(&path).map_err(|error| Error::io(&path, error))?;
    Ok((id, file))
}
