//! The catalog: the one place that says which files count.
//!
//! `catalog.redb` is a redb database; every change to it is one durable commit.
//!
//! | table | key | value |
//! |---|---|---|
//! | `meta` | name, see [`Meta`] | `u64` |
//! | `scopes` | scope name | scope number, `u32` |
//! | `buckets` | bucket id | its end on the store's timeline, ns; all ones: never |
//! | `files` | file id | (kind: 0 run, 1 responses; bucket id; bytes; records; when the first and last were made, ns) |
//! | `segments` | segment file id | (ordinal, or 0 while it is free; epoch) |
//!
//! The database checks its pages only after a crash, so a [`sum`] over all rows stands in `meta`. Where
//! it meets bytes it did not write, redb may panic; that is caught, and is damage like any other.

mod backend;
mod sum;

use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::{Builder, Database, ReadableDatabase, ReadableTable, TableDefinition};

use crate::clock::Time;
use crate::disk::{self, Disk};
use crate::error::{Error, Result};
use crate::span::Span;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use backend::{FileBackend, ImageBackend, is_of_the_disk, of_the_disk};

/// The version of every format of this crate, kept in the catalog.
pub(crate) const FORMAT: u32 = 1;

pub(crate) const CATALOG_FILE: &str = "catalog.redb";

/// The catalog is small; what redb keeps of it in memory should be, too.
const CACHE_BYTES: usize = 1 << 20;

const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
const SCOPES: TableDefinition<'_, &str, u32> = TableDefinition::new("scopes");
const BUCKETS: TableDefinition<'_, u64, u64> = TableDefinition::new("buckets");
const FILES: TableDefinition<'_, u64, (u8, u64, u64, u64, u64, u64)> = TableDefinition::new("files");
const SEGMENTS: TableDefinition<'_, u32, (u64, u64)> = TableDefinition::new("segments");

/// Names of single numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Meta {
    /// [`FORMAT`].
    Format,
    /// Seed of the key hash.
    Seed,
    /// How often the store was opened: the high bits of every token.
    Era,
    /// Up to here the journal is not needed any more.
    Released,
    /// The journal reached at least here.
    Durable,
    /// The clock's stamp: store time in ns, and the wall time that went with it in ns since 1970
    /// (two's complement).
    StoreTime,
    WallTime,
    /// The stamp from before the wall clock went back, or the same again if it did not.
    AboveStoreTime,
    AboveWallTime,
    /// The next id for a run or response file, for a segment file and for a bucket.
    NextFile,
    NextSegment,
    NextBucket,
    /// The highest ordinal given to a segment.
    Ordinal,
    /// Claims that were in progress when the store was closed.
    Orphans,
    /// Counts commits, to learn whether one that failed took effect.
    Commits,
    /// The sum over all other rows.
    Sum,
    /// Store time of the creation.
    Created,
}

impl Meta {
    fn name(self) -> &'static str {
        match self {
            Self::Format => "format",
            Self::Seed => "seed",
            Self::Era => "era",
            Self::Released => "released",
            Self::Durable => "durable",
            Self::StoreTime => "store_time",
            Self::WallTime => "wall_time",
            Self::AboveStoreTime => "above_store_time",
            Self::AboveWallTime => "above_wall_time",
            Self::NextFile => "next_file",
            Self::NextSegment => "next_segment",
            Self::NextBucket => "next_bucket",
            Self::Ordinal => "ordinal",
            Self::Orphans => "orphans",
            Self::Commits => "commits",
            Self::Sum => "sum",
            Self::Created => "created",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    Run,
    Responses,
}

/// A run or response file, as listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) kind: FileKind,
    pub(crate) bucket: u64,
    pub(crate) bytes: u64,
    /// How many there are in a run; 0 for responses.
    pub(crate) records: u64,
    /// When the records in it were made, or the claims completed whose responses are in it.
    pub(crate) written: Span,
}

/// One change. A commit makes any number of them, or none.
#[derive(Clone, Debug)]
pub(crate) enum Edit {
    Meta(Meta, u64),
    Scope(Box<str>, u32),
    Bucket { id: u64, end: u64 },
    DropBucket(u64),
    File(u64, Listed),
    DropFile(u64),
    Segment { file_id: u32, ordinal: u64, epoch: u64 },
    DropSegment(u32),
}

/// Everything the catalog holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Contents {
    meta: BTreeMap<&'static str, u64>,
    pub(crate) scopes: BTreeMap<Box<str>, u32>,
    /// The highest number of a scope; 0 if there is none.
    pub(crate) last_scope: u32,
    pub(crate) buckets: BTreeMap<u64, u64>,
    pub(crate) files: BTreeMap<u64, Listed>,
    pub(crate) segments: BTreeMap<u32, (u64, u64)>,
}

impl Contents {
    /// A number, 0 where it was never set.
    pub(crate) fn meta(&self, meta: Meta) -> u64 {
        self.meta.get(meta.name()).copied().unwrap_or(0)
    }

    fn add_scope(&mut self, name: Box<str>, number: u32) {
        self.last_scope = self.last_scope.max(number);
        self.scopes.insert(name, number);
    }

    /// What some changes make of it.
    pub(crate) fn after(mut self, edits: &[Edit]) -> Self {
        for edit in edits {
            self.apply(edit);
        }
        self
    }

    /// The changes that make this of nothing, but for segments.
    pub(crate) fn without_segments(&self) -> Vec<Edit> {
        let meta = ALL_META.into_iter().filter(|meta| !matches!(meta, Meta::Commits | Meta::Sum));
        let meta = meta.map(|meta| Edit::Meta(meta, self.meta(meta)));
        let scopes = self.scopes.iter().map(|(name, &number)| Edit::Scope(name.clone(), number));
        let buckets = self.buckets.iter().map(|(&id, &end)| Edit::Bucket { id, end });
        let files = self.files.iter().map(|(&id, &listed)| Edit::File(id, listed));
        meta.chain(scopes).chain(buckets).chain(files).collect()
    }

    fn apply(&mut self, edit: &Edit) {
        match edit {
            Edit::Meta(meta, value) => drop(self.meta.insert(meta.name(), *value)),
            Edit::Scope(name, number) => self.add_scope(name.clone(), *number),
            Edit::Bucket { id, end } => drop(self.buckets.insert(*id, *end)),
            Edit::DropBucket(id) => drop(self.buckets.remove(id)),
            Edit::File(id, listed) => drop(self.files.insert(*id, *listed)),
            Edit::DropFile(id) => drop(self.files.remove(id)),
            Edit::Segment { file_id, ordinal, epoch } => {
                self.segments.insert(*file_id, (*ordinal, *epoch));
            }
            Edit::DropSegment(id) => drop(self.segments.remove(id)),
        }
    }
}

/// The open catalog.
#[derive(Debug)]
pub(crate) struct Catalog {
    path: PathBuf,
    disk: Arc<dyn Disk>,
    inner: Mutex<Inner>,
    bytes: AtomicU64,
}

struct Inner {
    /// `None` between a failure and the next try, and after the end.
    database: Option<Database>,
    closed: bool,
    contents: Contents,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner").field("contents", &self.contents).finish_non_exhaustive()
    }
}

/// Why a commit did not take effect.
#[derive(Debug)]
pub(crate) enum CommitError {
    /// No room on the disk; later it may work.
    NoSpace(io::Error),
    /// The catalog can't be relied on until the store is reopened.
    Failed(io::Error),
    /// The same, and the commit may have taken effect.
    Unknown(io::Error),
}

impl CommitError {
    pub(crate) fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown(_))
    }
}

impl Catalog {
    /// Opens the catalog of a directory. With `fresh`, there is no other file of a store: then what
    /// a crash left of its creation is begun anew.
    pub(crate) fn open(disk: Arc<dyn Disk>, dir: &Path, fresh: bool) -> Result<Self> {
        let path = dir.join(CATALOG_FILE);
        let create = || {
            let created = disk.create(&path).and_then(|_| disk.sync_dir(dir));
            created.map_err(|error| Error::io(&path, error))
        };
        if let Err(error) = disk.open(&path).map(drop) {
            if error.kind() != io::ErrorKind::NotFound {
                return Err(Error::io(&path, error));
            }
            if !fresh {
                return Err(Error::corrupt(
                    &path,
                    0,
                    "it is missing, but there are files of a store beside it",
                ));
            }
            create()?;
        }
        if !fresh {
            Self::peek(&*disk, &path)?;
        }
        let open = || load(&*disk, &path).map_err(|error| to_error(&path, error));
        let (database, contents) = match open() {
            Err(error) if fresh && !matches!(error, Error::Version { .. }) => {
                create()?;
                open()?
            }
            opened => opened?,
        };
        check_format(&contents)?;
        let inner = Mutex::new(Inner { database: Some(database), closed: false, contents });
        let catalog = Self { path, disk, inner, bytes: AtomicU64::new(0) };
        catalog.measure();
        Ok(catalog)
    }

    /// Reads a catalog without changing it, as redb does where it repairs a file; what it cannot use
    /// stays as it is.
    pub(crate) fn peek(disk: &dyn Disk, path: &Path) -> Result<Contents> {
        let bytes = image(disk, path)?;
        let contents = shielded(|| match read_image(bytes)? {
            (contents, true) => Ok(contents),
            _ => Err(redb::Error::Corrupted("a page is damaged".into())),
        });
        let contents = contents.map_err(|error| to_error(path, error))?;
        check_format(&contents)?;
        if contents.meta(Meta::Format) == 0 {
            return Err(Error::corrupt(path, 0, "it is empty, but there are files of a store beside it"));
        }
        Ok(contents)
    }

    /// What the catalog holds now.
    pub(crate) fn contents(&self) -> Contents {
        self.inner.lock().contents.clone()
    }

    /// The number of a scope, if it has one.
    pub(crate) fn scope(&self, name: &str) -> Option<u32> {
        self.inner.lock().contents.scopes.get(name).copied()
    }

    /// The highest number of a scope; 0 if there is none.
    pub(crate) fn last_scope(&self) -> u32 {
        self.inner.lock().contents.last_scope
    }

    /// A single number.
    pub(crate) fn meta(&self, meta: Meta) -> u64 {
        self.inner.lock().contents.meta(meta)
    }

    /// Makes changes durable, all or none.
    pub(crate) fn commit(&self, edits: Vec<Edit>) -> Result<(), CommitError> {
        self.commit_with(|_| Ok(edits))
    }

    /// The same, with changes that depend on what is there.
    pub(crate) fn commit_with(
        &self,
        edits: impl FnOnce(&Contents) -> io::Result<Vec<Edit>>,
    ) -> Result<(), CommitError> {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        if inner.closed {
            return Err(CommitError::Failed(io::Error::other("the catalog is closed")));
        }
        if inner.database.is_none() {
            let (database, contents) = load(&*self.disk, &self.path).map_err(failed)?;
            inner.contents = contents;
            inner.database = Some(database);
        }
        let Some(database) = &inner.database else {
            return Err(CommitError::Failed(io::Error::other("the catalog is not open")));
        };
        let mut edits = edits(&inner.contents).map_err(|error| failed(redb::Error::Io(error)))?;
        let number = inner.contents.meta(Meta::Commits) + 1;
        edits.push(Edit::Meta(Meta::Commits, number));
        let sum = inner.contents.sum_after(&edits);
        edits.push(Edit::Meta(Meta::Sum, sum));
        let error = match shielded(|| write(database, &edits)) {
            Ok(()) => {
                for edit in &edits {
                    inner.contents.apply(edit);
                }
                self.measure();
                return Ok(());
            }
            Err(error) => error,
        };
        // redb does not say whether a failed commit took effect. Only the disk knows.
        let broken = inner.database.take();
        let _ = shielded(|| {
            drop(broken);
            Ok(())
        });
        let (database, contents) =
            load(&*self.disk, &self.path).map_err(|error| CommitError::Unknown(io::Error::other(error)))?;
        inner.contents = contents;
        inner.database = Some(database);
        if inner.contents.meta(Meta::Commits) == number { Ok(()) } else { Err(failed(error)) }
    }

    /// Reads the file as it is on the device, and checks every page that counts.
    pub(crate) fn check(&self) -> Result<()> {
        let inner = self.inner.lock();
        // Nothing is written meanwhile.
        let bytes = image(&*self.disk, &self.path)?;
        let number = inner.contents.meta(Meta::Commits);
        drop(inner);
        let checked = shielded(|| {
            let (contents, whole) = read_image(bytes)?;
            Ok((contents.meta(Meta::Commits) == number, whole))
        });
        match checked {
            Ok((true, true)) => Ok(()),
            Ok((false, _)) => Err(Error::corrupt(&self.path, 0, "the last commit is not in it any more")),
            Ok((true, false)) => Err(Error::corrupt(&self.path, 0, "a page is damaged")),
            Err(error) => Err(to_error(&self.path, error)),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of the catalog's file after the last commit.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn measure(&self) {
        if let Ok(bytes) = self.disk.open(&self.path).and_then(|file| file.len()) {
            self.bytes.store(bytes, Ordering::Relaxed);
        }
    }

    /// Closes the file cleanly.
    pub(crate) fn close(&self) -> Result<()> {
        let mut inner = self.inner.lock();
        inner.closed = true;
        match inner.database.take() {
            Some(database) => shielded(|| Ok(database.close()?)).map_err(|error| to_error(&self.path, error)),
            None => Ok(()),
        }
    }
}

fn check_format(contents: &Contents) -> Result<()> {
    let format = contents.meta(Meta::Format);
    if format == 0 || format == u64::from(FORMAT) {
        return Ok(());
    }
    Err(Error::Version { found: u32::try_from(format).unwrap_or(u32::MAX), supported: FORMAT })
}

/// The bytes of a catalog's file, as they are on the device.
fn image(disk: &dyn Disk, path: &Path) -> Result<Vec<u8>> {
    let read = || {
        let file = disk.open(path)?;
        disk::sync(&*file)?;
        file.drop_cache()?;
        let mut bytes = vec![0; usize::try_from(file.len()?).map_err(io::Error::other)?];
        disk::read_exact_at(&*file, &mut bytes, 0)?;
        Ok(bytes)
    };
    read().map_err(|error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => Error::corrupt(path, 0, "the file is missing"),
        _ => Error::io(path, error),
    })
}

/// Reads the database in a file's bytes, and whether every page of it is sound, those included that
/// only a later commit would read.
fn read_image(bytes: Vec<u8>) -> Result<(Contents, bool), redb::Error> {
    let image = ImageBackend { bytes: Mutex::new(bytes) };
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_BYTES);
    let mut database = builder.create_with_backend(image)?;
    let contents = read(&database)?;
    Ok((contents, database.check_integrity()?))
}

/// Opens and reads the database.
fn load(disk: &dyn Disk, path: &Path) -> Result<(Database, Contents), redb::Error> {
    shielded(|| {
        let database = open_database(disk, path)?;
        let contents = read(&database)?;
        Ok((database, contents))
    })
}

/// Turns a panic of redb, which takes the bytes it reads for its own, into an error.
fn shielded<T>(work: impl FnOnce() -> Result<T, redb::Error>) -> Result<T, redb::Error> {
    let gave_up = |_| Err(redb::Error::Corrupted("redb panicked on what it read".into()));
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(gave_up)
}

/// Opens the database on what the device holds, not on what a failed sync or a killed process left
/// in the page cache.
fn open_database(disk: &dyn Disk, path: &Path) -> Result<Database, redb::Error> {
    let file = disk.open(path).map_err(of_the_disk)?;
    disk::sync(&*file).and_then(|()| file.drop_cache()).map_err(of_the_disk)?;
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_BYTES);
    Ok(builder.create_with_backend(FileBackend { file })?)
}

fn read(database: &Database) -> Result<Contents, redb::Error> {
    let mut contents = Contents::default();
    let transaction = database.begin_read()?;
    let meta = match transaction.open_table(META) {
        Ok(table) => table,
        // Never set up.
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(contents),
        Err(error) => return Err(error.into()),
    };
    for name in ALL_META.map(Meta::name) {
        if let Some(value) = meta.get(name)? {
            contents.meta.insert(name, value.value());
        }
    }
    for row in transaction.open_table(SCOPES)?.iter()? {
        let (name, number) = row?;
        contents.add_scope(name.value().into(), number.value());
    }
    for row in transaction.open_table(BUCKETS)?.iter()? {
        let (id, end) = row?;
        contents.buckets.insert(id.value(), end.value());
    }
    for row in transaction.open_table(FILES)?.iter()? {
        let (id, listed) = row?;
        let (kind, bucket, bytes, records, first, last) = listed.value();
        let written = Span { first: Time(first), last: Time(last) };
        let kind = match kind {
            0 => FileKind::Run,
            1 => FileKind::Responses,
            _ => return Err(redb::Error::Corrupted("an unknown kind of file is listed".into())),
        };
        contents.files.insert(id.value(), Listed { kind, bucket, bytes, records, written });
    }
    for row in transaction.open_table(SEGMENTS)?.iter()? {
        let (id, segment) = row?;
        contents.segments.insert(id.value(), segment.value());
    }
    if contents.sum() != contents.meta(Meta::Sum) {
        return Err(redb::Error::Corrupted("the rows are not the ones that were written".into()));
    }
    Ok(contents)
}

const ALL_META: [Meta; 17] = [
    Meta::Format,
    Meta::Seed,
    Meta::Era,
    Meta::Released,
    Meta::Durable,
    Meta::StoreTime,
    Meta::WallTime,
    Meta::AboveStoreTime,
    Meta::AboveWallTime,
    Meta::NextFile,
    Meta::NextSegment,
    Meta::NextBucket,
    Meta::Ordinal,
    Meta::Orphans,
    Meta::Commits,
    Meta::Sum,
    Meta::Created,
];

fn write(database: &Database, edits: &[Edit]) -> Result<(), redb::Error> {
    let mut transaction = database.begin_write()?;
    // Opening after a crash must not walk the file.
    transaction.set_quick_repair(true);
    {
        let mut meta = transaction.open_table(META)?;
        let mut scopes = transaction.open_table(SCOPES)?;
        let mut buckets = transaction.open_table(BUCKETS)?;
        let mut files = transaction.open_table(FILES)?;
        let mut segments = transaction.open_table(SEGMENTS)?;
        for edit in edits {
            match edit {
                Edit::Meta(name, value) => drop(meta.insert(name.name(), value)?),
                Edit::Scope(name, number) => drop(scopes.insert(&**name, number)?),
                Edit::Bucket { id, end } => drop(buckets.insert(id, end)?),
                Edit::DropBucket(id) => drop(buckets.remove(id)?),
                Edit::File(id, listed) => {
                    let Span { first, last } = listed.written;
                    let kind = match listed.kind {
                        FileKind::Run => 0,
                        FileKind::Responses => 1,
                    };
                    let Listed { bucket, bytes, records, .. } = *listed;
                    drop(files.insert(id, (kind, bucket, bytes, records, first.0, last.0))?);
                }
                Edit::DropFile(id) => drop(files.remove(id)?),
                Edit::Segment { file_id, ordinal, epoch } => {
                    drop(segments.insert(file_id, (*ordinal, *epoch))?);
                }
                Edit::DropSegment(id) => drop(segments.remove(id)?),
            }
        }
    }
    Ok(transaction.commit()?)
}

fn to_error(path: &Path, error: redb::Error) -> Error {
    match error {
        redb::Error::Io(error) if is_of_the_disk(&error) => Error::io(path, error),
        error @ (redb::Error::PreviousIo
        | redb::Error::DatabaseClosed
        | redb::Error::DatabaseAlreadyOpen
        | redb::Error::LockPoisoned(_)) => Error::io(path, io::Error::other(error)),
        redb::Error::TableTypeMismatch { .. } | redb::Error::TypeDefinitionChanged { .. } => {
            Error::corrupt(path, 0, "a table is not of the expected type")
        }
        _ => Error::corrupt(path, 0, "the database is damaged"),
    }
}

fn failed(error: redb::Error) -> CommitError {
    match error {
        redb::Error::Io(error) if disk::is_no_space(&error) => CommitError::NoSpace(error),
        redb::Error::Io(error) => CommitError::Failed(error),
        other => CommitError::Failed(io::Error::other(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::memory::{Fault, FaultKind, MemoryDisk};

    #[test]
    fn commits_come_back() {
        let disk = MemoryDisk::new(1);
        let catalog = Catalog::open(Arc::new(disk.clone()), Path::new("d"), true).unwrap();
        assert_eq!(catalog.meta(Meta::Format), 0);
        let listed =
            Listed { kind: FileKind::Responses, bucket: 4, bytes: 100, records: 0, written: Span::EMPTY };
        catalog
            .commit(vec![
                Edit::Meta(Meta::Format, FORMAT.into()),
                Edit::Scope("stripe".into(), 1),
                Edit::Bucket { id: 4, end: u64::MAX },
                Edit::File(7, listed),
                Edit::Segment { file_id: 1, ordinal: 5, epoch: 6 },
            ])
            .unwrap();
        disk.crash();
        let catalog = Catalog::open(Arc::new(disk), Path::new("d"), false).unwrap();
        let contents = catalog.contents();
        assert_eq!(contents.meta(Meta::Commits), 1);
        assert_eq!(contents.scopes.get("stripe"), Some(&1));
        assert_eq!(contents.buckets.get(&4), Some(&u64::MAX));
        assert_eq!(contents.files[&7].bytes, 100);
        assert_eq!(contents.segments[&1], (5, 6));
        catalog.commit(vec![Edit::DropFile(7), Edit::DropBucket(4)]).unwrap();
        catalog.close().unwrap();
        assert!(catalog.contents().files.is_empty());
    }

    #[test]
    fn a_creation_cut_short_is_begun_anew() {
        for left in [Vec::new(), vec![0; 10_000], vec![0xa5; 4096]] {
            let disk = MemoryDisk::new(1);
            let file = Disk::create(&disk, Path::new("d/catalog.redb")).unwrap();
            disk::write_all_at(&*file, &left, 0).unwrap();
            let catalog = Catalog::open(Arc::new(disk.clone()), Path::new("d"), true).unwrap();
            assert_eq!(catalog.meta(Meta::Format), 0);
            catalog.close().unwrap();
        }
    }

    /// Whatever call fails while a sound catalog is opened, that is the disk's failure and no damage.
    #[test]
    fn a_failing_call_is_not_taken_for_damage() {
        let sound = MemoryDisk::new(1);
        let catalog = Catalog::open(Arc::new(sound.clone()), Path::new("d"), true).unwrap();
        catalog.commit(vec![Edit::Meta(Meta::Format, FORMAT.into())]).unwrap();
        catalog.close().unwrap();
        let bytes = sound.contents("d/catalog.redb").unwrap();
        for calls in 0.. {
            let disk = MemoryDisk::new(1);
            disk.replace("d/catalog.redb", &bytes);
            disk.inject(Fault::new(FaultKind::Io).after(calls));
            match Catalog::open(Arc::new(disk.clone()), Path::new("d"), false) {
                Err(error) => assert!(matches!(error, Error::Io { .. }), "call {calls}: {error}"),
                Ok(_) if disk.injected() == 0 => return assert!(calls > 8, "only {calls} calls"),
                Ok(_) => {}
            }
        }
    }

    #[test]
    fn another_format_version_is_refused() {
        let disk = MemoryDisk::new(1);
        let catalog = Catalog::open(Arc::new(disk.clone()), Path::new("d"), true).unwrap();
        catalog.commit(vec![Edit::Meta(Meta::Format, 2)]).unwrap();
        catalog.close().unwrap();
        let error = Catalog::open(Arc::new(disk), Path::new("d"), false).unwrap_err();
        assert!(matches!(error, Error::Version { found: 2, supported: 1, .. }), "{error}");
    }
}
