//! The catalog: the one place that says which files count.
//!
//! `catalog.redb` is a redb database; every change to it is one durable commit.
//!
//! | table | key | value |
//! |---|---|---|
//! | `meta` | name, see [`Meta`] | `u64` |
//! | `scopes` | scope name | scope number, `u32` |
//! | `buckets` | bucket id | its end on the store's timeline, ns; all ones: never |
//! | `files` | file id | (kind: 0 run, 1 responses; bucket id; bytes) |
//! | `segments` | segment file id | (ordinal, or 0 while it is free; epoch) |

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::{Builder, Database, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition};

use crate::disk::{self, Disk, DiskFile};
use crate::error::{Error, Result};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};

/// The version of every format of this crate, kept in the catalog.
pub(crate) const FORMAT: u32 = 1;

pub(crate) const CATALOG_FILE: &str = "catalog.redb";

/// The catalog is small; what redb keeps of it in memory should be, too.
const CACHE_BYTES: usize = 1 << 20;

const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
const SCOPES: TableDefinition<'_, &str, u32> = TableDefinition::new("scopes");
const BUCKETS: TableDefinition<'_, u64, u64> = TableDefinition::new("buckets");
const FILES: TableDefinition<'_, u64, (u8, u64, u64)> = TableDefinition::new("files");
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
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    Run,
    Responses,
}

/// A run or response file, as listed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listed {
    pub(crate) kind: FileKind,
    pub(crate) bucket: u64,
    pub(crate) bytes: u64,
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
        let open = || {
            let database = open_database(&*disk, &path).map_err(|error| to_error(&path, error))?;
            let contents = read(&database).map_err(|error| to_error(&path, error))?;
            Ok((database, contents))
        };
        let (database, contents) = match open() {
            Err(error) if fresh && !matches!(error, Error::Version { .. }) => {
                create()?;
                open()?
            }
            opened => opened?,
        };
        let format = contents.meta(Meta::Format);
        if format != 0 && format != u64::from(FORMAT) {
            return Err(Error::Version {
                found: u32::try_from(format).unwrap_or(u32::MAX),
                supported: FORMAT,
            });
        }
        let inner = Mutex::new(Inner { database: Some(database), closed: false, contents });
        let catalog = Self { path, disk, inner, bytes: AtomicU64::new(0) };
        catalog.measure();
        Ok(catalog)
    }

    /// What the catalog holds now.
    pub(crate) fn contents(&self) -> Contents {
        self.inner.lock().contents.clone()
    }

    /// The number of a scope, if it has one.
    pub(crate) fn scope(&self, name: &str) -> Option<u32> {
        self.inner.lock().contents.scopes.get(name).copied()
    }

    /// A single number.
    pub(crate) fn meta(&self, meta: Meta) -> u64 {
        self.inner.lock().contents.meta(meta)
    }

    /// Makes changes durable, all or none.
    pub(crate) fn commit(&self, edits: Vec<Edit>) -> Result<(), CommitError> {
        self.commit_with(|_| edits)
    }

    /// The same, with changes that depend on what is there.
    pub(crate) fn commit_with(&self, edits: impl FnOnce(&Contents) -> Vec<Edit>) -> Result<(), CommitError> {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        if inner.closed {
            return Err(CommitError::Failed(io::Error::other("the catalog is closed")));
        }
        if inner.database.is_none() {
            let database = open_database(&*self.disk, &self.path).map_err(failed)?;
            inner.contents = read(&database).map_err(failed)?;
            inner.database = Some(database);
        }
        let Some(database) = &inner.database else {
            return Err(CommitError::Failed(io::Error::other("the catalog is not open")));
        };
        let mut edits = edits(&inner.contents);
        let number = inner.contents.meta(Meta::Commits) + 1;
        edits.push(Edit::Meta(Meta::Commits, number));
        let error = match write(database, &edits) {
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
        inner.database = None;
        let (database, contents) = open_database(&*self.disk, &self.path)
            .and_then(|database| read(&database).map(|contents| (database, contents)))
            .map_err(|error| CommitError::Unknown(io::Error::other(error)))?;
        inner.contents = contents;
        inner.database = Some(database);
        if inner.contents.meta(Meta::Commits) == number { Ok(()) } else { Err(failed(error)) }
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
            Some(database) => database.close().map_err(|error| to_error(&self.path, error.into())),
            None => Ok(()),
        }
    }
}

/// Opens the database on what the device holds, not on what a failed sync or a killed process left
/// in the page cache.
fn open_database(disk: &dyn Disk, path: &Path) -> Result<Database, redb::Error> {
    let file = disk.open(path)?;
    disk::sync(&*file)?;
    file.drop_cache()?;
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_BYTES);
    Ok(builder.create_with_backend(Backend { file })?)
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
        let (kind, bucket, bytes) = listed.value();
        let kind = match kind {
            0 => FileKind::Run,
            1 => FileKind::Responses,
            _ => return Err(redb::Error::Corrupted("an unknown kind of file is listed".into())),
        };
        contents.files.insert(id.value(), Listed { kind, bucket, bytes });
    }
    for row in transaction.open_table(SEGMENTS)?.iter()? {
        let (id, segment) = row?;
        contents.segments.insert(id.value(), segment.value());
    }
    Ok(contents)
}

const ALL_META: [Meta; 15] = [
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
                    let kind = match listed.kind {
                        FileKind::Run => 0,
                        FileKind::Responses => 1,
                    };
                    drop(files.insert(id, (kind, listed.bucket, listed.bytes))?);
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
        redb::Error::Io(error) => Error::io(path, error),
        redb::Error::Corrupted(_) => Error::corrupt(path, 0, "the database is damaged"),
        redb::Error::TableTypeMismatch { .. } | redb::Error::TypeDefinitionChanged { .. } => {
            Error::corrupt(path, 0, "a table is not of the expected type")
        }
        other => Error::io(path, io::Error::other(other)),
    }
}

fn failed(error: redb::Error) -> CommitError {
    match error {
        redb::Error::Io(error) if disk::is_no_space(&error) => CommitError::NoSpace(error),
        redb::Error::Io(error) => CommitError::Failed(error),
        other => CommitError::Failed(io::Error::other(other)),
    }
}

/// redb's storage on our disk.
#[derive(Debug)]
struct Backend {
    file: Arc<dyn DiskFile>,
}

impl StorageBackend for Backend {
    fn len(&self) -> Result<u64, io::Error> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        disk::read_exact_at(&*self.file, out, offset)
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        disk::sync(&*self.file)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        disk::write_all_at(&*self.file, data, offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::memory::MemoryDisk;

    #[test]
    fn commits_come_back() {
        let disk = MemoryDisk::new(1);
        let catalog = Catalog::open(Arc::new(disk.clone()), Path::new("d"), true).unwrap();
        assert_eq!(catalog.meta(Meta::Format), 0);
        let listed = Listed { kind: FileKind::Responses, bucket: 4, bytes: 100 };
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
