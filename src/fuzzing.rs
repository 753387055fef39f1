//! What the fuzz targets call: the readers of our own formats, on bytes that anybody may have made.
//! Built only for fuzzing, and no part of the public interface.

use std::path::Path;
use std::sync::Arc;

use crate::disk::memory::MemoryDisk;
use crate::error::Result;
use crate::journal::replay::Known;
use crate::journal::segment::{self, Segment};
use crate::record::{self, Far, StoredRecord};
use crate::runs::fuzzing::{FileCache, ResponseFile, Run};

const DIR: &str = "d";
const FILE: &str = "d/file";

/// The id that [`run`] and [`responses`] give their file.
pub const FILE_ID: u64 = 5;

/// The file of one journal segment, and how the catalog lists it.
#[derive(Clone, Debug, Default)]
pub struct SegmentFile {
    /// Its place in the log.
    pub ordinal: u64,
    /// The random number of its use.
    pub epoch: u64,
    /// All of its bytes, header included.
    pub bytes: Vec<u8>,
}

/// What was read of a log.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// Sequence number and bytes of every record, in order.
    pub records: Vec<(u64, Vec<u8>)>,
    /// The last sequence number.
    pub last_seq: u64,
    /// The ordinal of the segment it is in; 0 if there is none.
    pub last_segment: u64,
    /// The ordinals of segments that hold a part of the log.
    pub used: Vec<u64>,
    /// The ordinals of those that hold none.
    pub unused: Vec<u64>,
}

/// Opens segments and reads the log back, as recovery does.
///
/// # Errors
///
/// Whatever recovery would say.
pub fn replay(segments: &[SegmentFile], released: u64, durable: u64) -> Result<Log> {
    let (disk, dir) = (MemoryDisk::new(0), Path::new(DIR));
    let mut opened = Vec::new();
    for (file_id, segment) in (1..).zip(segments) {
        disk.replace(segment::path(dir, file_id), &segment.bytes);
        opened.push(Segment::open(&disk, dir, file_id, segment.ordinal, segment.epoch)?);
    }
    let mut records = Vec::new();
    let found = crate::journal::replay::replay(opened, Known { released, durable }, &mut |seq, _, bytes| {
        records.push((seq, bytes.to_vec()));
    })?;
    Ok(Log {
        records,
        last_seq: found.last_seq,
        last_segment: found.last_segment,
        used: found.used.iter().map(|used| used.segment.ordinal).collect(),
        unused: found.unused.iter().map(|segment| segment.ordinal).collect(),
    })
}

/// A record of a run: its hash, its sequence number and its bytes.
pub type Item = (u64, u64, Vec<u8>);

/// What was read of a run.
#[derive(Debug)]
pub struct RunContents {
    /// All of it, or the first error.
    pub scanned: Result<Vec<Item>>,
    /// For each key that was asked for: what the filter says, and what a search finds.
    pub found: Vec<(bool, Result<Option<(u64, Vec<u8>)>>)>,
}

/// Opens a run, looks up keys, each with its hash, and scans it.
///
/// # Errors
///
/// What opening it says.
pub fn run(bytes: &[u8], keys: &[(u64, Vec<u8>)]) -> Result<RunContents> {
    let run = Arc::new(Run::open(&files(bytes), FILE_ID, FILE.into())?);
    let scanned = run.scan().map(|item| item.map(|item| (item.hash, item.seq, item.record))).collect();
    let find = |(hash, key): &(u64, Vec<u8>)| {
        let found = run.find(*hash, key);
        (run.may_contain(*hash), found.map(|found| found.map(|found| (found.seq, found.record.to_vec()))))
    };
    Ok(RunContents { scanned, found: keys.iter().map(find).collect() })
}

/// Where a record says that its response lies: file, offset, length, CRC-32.
pub type Place = (u64, u64, u64, u32);

/// Opens a response file that is listed with `listed` bytes, and reads the responses at `places`.
///
/// # Errors
///
/// What opening it says.
pub fn responses(bytes: &[u8], listed: u64, places: &[Place]) -> Result<Vec<Result<Vec<u8>>>> {
    let file = ResponseFile::open(&files(bytes), FILE_ID, FILE.into(), listed)?;
    let read = |&(id, offset, len, crc): &Place| {
        file.read(Far { file: id, offset, len, crc }).map(|response| response.to_vec())
    };
    Ok(places.iter().map(read).collect())
}

/// Decodes a record; gives its key and its encoding.
#[must_use]
pub fn record(bytes: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let record = StoredRecord::decode(bytes)?;
    Some((record.key.to_vec(), record.to_bytes()))
}

/// The key of what may be a record.
#[must_use]
pub fn key_of(bytes: &[u8]) -> &[u8] {
    record::key_of(bytes)
}

fn files(bytes: &[u8]) -> Arc<FileCache> {
    let disk = MemoryDisk::new(0);
    disk.replace(FILE, bytes);
    Arc::new(FileCache::new(Arc::new(disk), 1))
}

/// The stored form of a reply over HTTP, decoded and encoded again; and what that decodes to is the same.
#[cfg(feature = "tower")]
pub fn reply(bytes: &[u8]) -> Option<(Vec<u8>, bool)> {
    use crate::http::stored::StoredReply;
    let decoded = StoredReply::decode(bytes)?;
    let encoded = decoded.encode();
    let again = StoredReply::decode(&encoded);
    Some((encoded, again == Some(decoded)))
}
