//! A store's files, and a catalog that says something else of them.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use arbitrary::Arbitrary;
use oncedb::redb::{
    Database, Error, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition, TableError,
};
use oncedb::simulation::MemoryDisk;
use oncedb::{ManualClock, Options, Store, Timestamp};
use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};

pub const DIR: &str = "d";
pub const CATALOG: &str = "d/catalog.redb";
pub const IDS: u32 = 12;

/// How a catalog is changed.
#[derive(Arbitrary, Clone, Debug)]
pub struct Plan {
    /// Of a store that was closed, and not cut off.
    pub closed: bool,
    pub change: Change,
}

#[derive(Arbitrary, Clone, Debug)]
pub enum Change {
    /// Bytes of the file, wherever they are.
    Bytes(Vec<(u32, u8)>),
    /// Bytes in its first pages, where redb says of itself what is where.
    Head(Vec<(u8, u8)>),
    Cut(u32),
    Whole(Vec<u8>),
    /// Rows, by way of redb, so that only our own reading is put to the test; whether their sum is
    /// made right.
    Rows(Vec<Row>, bool),
}

#[derive(Arbitrary, Clone, Debug)]
pub enum Row {
    Meta(u8, Number),
    Scope(String, u32),
    Bucket(Number, Number),
    DropBucket(u8),
    File(Number, u8, [Number; 5]),
    DropFile(u8),
    Segment(Number, Number, u64),
    DropSegment(u8),
    DropTable(u8),
}

/// Most mistakes are made near the ends.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Number {
    Low(u8),
    Any(u64),
    High(u8),
}

impl Number {
    fn long(self) -> u64 {
        match self {
            Self::Low(number) => number.into(),
            Self::Any(number) => number,
            Self::High(by) => u64::MAX - u64::from(by / 16),
        }
    }

    fn short(self) -> u32 {
        match self {
            Self::Low(number) => number.into(),
            Self::Any(number) => (number >> 32) as u32,
            Self::High(by) => u32::MAX - u32::from(by / 16),
        }
    }
}

const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
const SCOPES: TableDefinition<'_, &str, u32> = TableDefinition::new("scopes");
const BUCKETS: TableDefinition<'_, u64, u64> = TableDefinition::new("buckets");
const FILES: TableDefinition<'_, u64, (u8, u64, u64, u64, u64, u64)> = TableDefinition::new("files");
const SEGMENTS: TableDefinition<'_, u32, (u64, u64)> = TableDefinition::new("segments");

/// The last one is no name of the store's.
const NAMES: [&str; 18] = [
    "format",
    "seed",
    "era",
    "released",
    "durable",
    "store_time",
    "wall_time",
    "next_file",
    "next_segment",
    "next_bucket",
    "ordinal",
    "orphans",
    "commits",
    "above_store_time",
    "above_wall_time",
    "created",
    SUM,
    "another",
];

const SUM: &str = "sum";

fn name_of(number: u8) -> &'static str {
    NAMES[usize::from(number) % NAMES.len()]
}

/// The files of a store.
pub type Image = Vec<(PathBuf, Vec<u8>)>;

fn clock() -> ManualClock {
    ManualClock::new(SystemTime::UNIX_EPOCH + Duration::from_hours(490_908))
}

#[must_use]
pub fn options(disk: &MemoryDisk) -> Options {
    Store::options()
        .memory_limit(1 << 20)
        .max_key_len(64)
        .max_response_len(3_000)
        .max_note_len(64)
        .clock(clock())
        .disk(disk)
        .threads(false)
        .segment_size(8 << 10)
}

#[must_use]
pub fn id(number: u32) -> String {
    format!("evt_{number}")
}

/// A store with runs, responses, marks and a journal.
///
/// # Panics
///
/// If a sound disk fails.
#[must_use]
pub fn image(closed: bool) -> Image {
    let disk = MemoryDisk::new(1);
    let store = options(&disk).open(DIR).expect("a sound disk");
    let scope = store.scope("alpha").expect("a sound disk");
    for number in 0..IDS {
        let window = Duration::from_secs(if number % 2 == 0 { 600 } else { 100_000 });
        let request = scope.request(id(number)).window(window);
        let request = request.order("entity", Timestamp::sequence(number.into()));
        let response = vec![7; if number % 3 == 0 { 2_000 } else { 20 }];
        let _ = request.claim_with(response).expect("a sound disk");
        if number % 5 == 4 {
            store.maintain().expect("a sound disk");
        }
    }
    let guard = scope.begin("running").expect("a sound disk");
    if closed {
        store.close().expect("a sound disk");
    } else {
        store.sync().expect("a sound disk");
        disk.crash();
    }
    drop(guard);
    let files = disk.files().into_iter();
    files.map(|(path, _)| (path.clone(), disk.contents(&path).unwrap_or_default())).collect()
}

impl Plan {
    /// Whether it may be read as another store's catalog: rows whose sum is made right, or given.
    #[must_use]
    pub fn may_be_believed(&self) -> bool {
        let gives_sum = |row: &Row| matches!(row, Row::Meta(name, _) if name_of(*name) == SUM);
        matches!(&self.change, Change::Rows(rows, summed) if *summed || rows.iter().any(gives_sum))
    }

    /// The changed catalog.
    ///
    /// # Panics
    ///
    /// If redb does not open its own file.
    #[must_use]
    pub fn apply(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        let len = bytes.len();
        match &self.change {
            Change::Bytes(changes) => {
                for &(place, byte) in changes {
                    bytes[place as usize % len] = byte;
                }
            }
            Change::Head(changes) => {
                for &(place, byte) in changes {
                    bytes[usize::from(place) * 2 % len] = byte;
                }
            }
            Change::Cut(place) => bytes.truncate(*place as usize % (len + 1)),
            Change::Whole(whole) => bytes.clone_from(whole),
            Change::Rows(rows, summed) => {
                let file = Arc::new(Mutex::new(bytes));
                if let Err(error) = write(&file, rows, *summed) {
                    panic!("redb does not write to its own file: {error}");
                }
                bytes = std::mem::take(&mut *file.lock().unwrap_or_else(PoisonError::into_inner));
            }
        }
        bytes
    }
}

fn write(file: &Arc<Mutex<Vec<u8>>>, rows: &[Row], summed: bool) -> Result<(), Error> {
    let database = Database::builder().create_with_backend(Backend { file: Arc::clone(file) })?;
    let mut transaction = database.begin_write()?;
    transaction.set_quick_repair(true);
    for row in rows {
        match row {
            Row::Meta(name, value) => {
                transaction.open_table(META)?.insert(name_of(*name), value.long())?;
            }
            Row::Scope(name, number) => drop(transaction.open_table(SCOPES)?.insert(&**name, number)?),
            Row::Bucket(id, end) => drop(transaction.open_table(BUCKETS)?.insert(id.long(), end.long())?),
            Row::DropBucket(id) => drop(transaction.open_table(BUCKETS)?.remove(u64::from(*id))?),
            Row::File(id, kind, numbers) => {
                let [bucket, bytes, records, first, last] = numbers.map(Number::long);
                let value = (*kind, bucket, bytes, records, first, last);
                transaction.open_table(FILES)?.insert(id.long(), value)?;
            }
            Row::DropFile(id) => drop(transaction.open_table(FILES)?.remove(u64::from(*id))?),
            Row::Segment(id, ordinal, epoch) => {
                transaction.open_table(SEGMENTS)?.insert(id.short(), (ordinal.long(), *epoch))?;
            }
            Row::DropSegment(id) => drop(transaction.open_table(SEGMENTS)?.remove(u32::from(*id))?),
            Row::DropTable(0) => drop(transaction.delete_table(SCOPES)?),
            Row::DropTable(1) => drop(transaction.delete_table(BUCKETS)?),
            Row::DropTable(2) => drop(transaction.delete_table(FILES)?),
            Row::DropTable(3) => drop(transaction.delete_table(SEGMENTS)?),
            Row::DropTable(_) => drop(transaction.delete_table(META)?),
        }
    }
    transaction.commit()?;
    if summed && let Some(sum) = sum(&database)? {
        let mut transaction = database.begin_write()?;
        transaction.set_quick_repair(true);
        transaction.open_table(META)?.insert(SUM, sum)?;
        transaction.commit()?;
    }
    Ok(())
}

/// The sum over all rows, or nothing if there is no table for it.
fn sum(database: &Database) -> Result<Option<u64>, Error> {
    let transaction = database.begin_read()?;
    let mut sum = 0;
    let mut add = |table: u8, value: &[u64], key: &[u8]| {
        let mut bytes = vec![table];
        for index in 0..6 {
            bytes.extend_from_slice(&value.get(index).copied().unwrap_or(0).to_le_bytes());
        }
        bytes.extend_from_slice(key);
        sum ^= rapidhash_v3_seeded(&bytes, &RapidSecrets::seed(0));
    };
    let Some(meta) = there(transaction.open_table(META))? else { return Ok(None) };
    for row in meta.iter()? {
        let (name, value) = row?;
        if name.value() != SUM && NAMES[..NAMES.len() - 1].contains(&name.value()) {
            add(0, &[value.value()], name.value().as_bytes());
        }
    }
    if let Some(scopes) = there(transaction.open_table(SCOPES))? {
        for row in scopes.iter()? {
            let (name, number) = row?;
            add(1, &[number.value().into()], name.value().as_bytes());
        }
    }
    if let Some(buckets) = there(transaction.open_table(BUCKETS))? {
        for row in buckets.iter()? {
            let (id, end) = row?;
            add(2, &[end.value()], &id.value().to_le_bytes());
        }
    }
    if let Some(files) = there(transaction.open_table(FILES))? {
        for row in files.iter()? {
            let (id, listed) = row?;
            let (kind, bucket, bytes, records, first, last) = listed.value();
            add(3, &[kind.into(), bucket, bytes, records, first, last], &id.value().to_le_bytes());
        }
    }
    if let Some(segments) = there(transaction.open_table(SEGMENTS))? {
        for row in segments.iter()? {
            let (id, segment) = row?;
            let (ordinal, epoch) = segment.value();
            add(4, &[ordinal, epoch], &id.value().to_le_bytes());
        }
    }
    Ok(Some(sum))
}

fn there<T>(table: Result<T, TableError>) -> Result<Option<T>, TableError> {
    match table {
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        table => table.map(Some),
    }
}

#[derive(Debug)]
struct Backend {
    file: Arc<Mutex<Vec<u8>>>,
}

impl Backend {
    fn with<T>(&self, work: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        work(&mut self.file.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn place(offset: u64, len: usize) -> std::ops::Range<usize> {
    let start = usize::try_from(offset).unwrap_or(usize::MAX);
    start..start.saturating_add(len)
}

impl StorageBackend for Backend {
    fn len(&self) -> std::io::Result<u64> {
        Ok(self.with(|bytes| bytes.len() as u64))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        self.with(|bytes| {
            let found = bytes.get(place(offset, out.len())).ok_or(std::io::ErrorKind::UnexpectedEof)?;
            out.copy_from_slice(found);
            Ok(())
        })
    }

    fn set_len(&self, len: u64) -> std::io::Result<()> {
        self.with(|bytes| bytes.resize(place(len, 0).start, 0));
        Ok(())
    }

    fn sync_data(&self) -> std::io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.with(|bytes| bytes[place(offset, data.len())].copy_from_slice(data));
        Ok(())
    }
}
