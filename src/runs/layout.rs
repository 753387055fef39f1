//! The fixed parts of the files: the header of all of them, the footer of a run.
//!
//! | bytes | header |
//! |---|---|
//! | 0..8 | magic, by the kind of file |
//! | 8..12 | format version |
//! | 12..60 | zero |
//! | 60..64 | CRC-32 of the bytes before |
//!
//! | bytes | footer |
//! |---|---|
//! | 0..8, 8..16, 16..20 | index: offset, length, CRC-32 |
//! | 20..28, 28..36, 36..40 | filter: offset, length, CRC-32 |
//! | 40..48 | records |
//! | 48..56 | completed claims among them |
//! | 56..64, 64..72 | lowest and highest sequence number |
//! | 72..80, 80..88 | first and last `expires_at` of a completed claim |
//! | 88..96 | last `purge_at` of a record |
//! | 96..104, 104..112 | first and last moment at which a record in it was made |
//! | 112..120 | id of its bucket |
//! | 120..128 | length of the file |
//! | 128..136 | magic of a run |
//! | 136..140 | CRC-32 of the bytes before |
//!
//! All integers are little-endian.

use std::io;
use std::path::Path;

use crate::clock::Time;
use crate::codec::Reader;
use crate::disk::{DiskFile, read_exact_at};
use crate::error::{Error, Result};
use crate::record::{Body, StoredRecord};
use crate::span::Span;

pub(super) const VERSION: u32 = 1;
pub(super) const HEADER_LEN: usize = 64;
pub(super) const FOOTER_LEN: usize = 140;

pub(super) const RUN_MAGIC: [u8; 8] = *b"oncerun\n";
pub(super) const RESPONSES_MAGIC: [u8; 8] = *b"oncersp\n";

/// What a run holds, known without reading it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunSummary {
    pub(crate) records: u64,
    /// Completed claims among the records.
    pub(crate) done: u64,
    /// The length of the file.
    pub(crate) bytes: u64,
    /// Zero, as `max_seq`, in a run without records.
    pub(crate) min_seq: u64,
    pub(crate) max_seq: u64,
    /// Of completed claims; zero, as `last_expiry`, if there are none.
    pub(crate) first_expiry: Time,
    pub(crate) last_expiry: Time,
    /// When the last record of any kind can go.
    pub(crate) last_purge: Time,
    /// When the records in it were made.
    pub(crate) written: Span,
    /// The id of the bucket it was written for.
    pub(crate) bucket: u64,
}

impl RunSummary {
    /// Takes one more record into account.
    pub(super) fn add(&mut self, seq: u64, record: &StoredRecord<'_>) {
        self.min_seq = if self.records == 0 { seq } else { self.min_seq.min(seq) };
        self.max_seq = self.max_seq.max(seq);
        self.last_purge = self.last_purge.max(record.purge_at);
        self.records += 1;
        self.written.add(record.written_at());
        if let Body::Done(done) = record.body {
            let first = if self.done == 0 { done.expires_at } else { self.first_expiry.min(done.expires_at) };
            self.first_expiry = first;
            self.last_expiry = self.last_expiry.max(done.expires_at);
            self.done += 1;
        }
    }
}

/// A part of a file with a checksum of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) crc: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Footer {
    pub(super) index: Section,
    pub(super) filter: Section,
    pub(super) summary: RunSummary,
}

impl Footer {
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(FOOTER_LEN);
        for section in [self.index, self.filter] {
            bytes.extend_from_slice(&section.offset.to_le_bytes());
            bytes.extend_from_slice(&section.len.to_le_bytes());
            bytes.extend_from_slice(&section.crc.to_le_bytes());
        }
        let RunSummary { records, done, bytes: file_len, min_seq, max_seq, bucket, .. } = self.summary;
        let RunSummary { first_expiry, last_expiry, last_purge, written, .. } = self.summary;
        for field in [records, done, min_seq, max_seq] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        for time in [first_expiry, last_expiry, last_purge, written.first, written.last] {
            bytes.extend_from_slice(&time.0.to_le_bytes());
        }
        bytes.extend_from_slice(&bucket.to_le_bytes());
        bytes.extend_from_slice(&file_len.to_le_bytes());
        bytes.extend_from_slice(&RUN_MAGIC);
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
        debug_assert_eq!(bytes.len(), FOOTER_LEN);
        bytes
    }

    /// Reads the footer of a file of `file_len` bytes, and sees to it that the header, the blocks,
    /// the index, the filter and the footer fill the file without gaps, in this order.
    pub(super) fn from_bytes(bytes: &[u8; FOOTER_LEN], file_len: u64) -> Result<Self, &'static str> {
        let (checked, crc) = bytes.split_last_chunk().ok_or("the footer is too short")?;
        if u32::from_le_bytes(*crc) != crc32fast::hash(checked) {
            return Err("the footer's checksum does not match");
        }
        let footer = Self::parse(checked).ok_or("the footer has an impossible value")?;
        if footer.summary.bytes != file_len {
            return Err("the file has another length than its footer says");
        }
        let RunSummary { records, done, min_seq, max_seq, first_expiry, last_expiry, .. } = footer.summary;
        let chained = footer.index.offset >= HEADER_LEN as u64
            && footer.index.offset.checked_add(footer.index.len) == Some(footer.filter.offset)
            && footer.filter.offset.checked_add(footer.filter.len) == file_len.checked_sub(FOOTER_LEN as u64);
        if chained && done <= records && min_seq <= max_seq && first_expiry <= last_expiry {
            Ok(footer)
        } else {
            Err("the footer contradicts itself")
        }
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let mut section = || Some(Section { offset: reader.u64()?, len: reader.u64()?, crc: reader.u32()? });
        let (index, filter) = (section()?, section()?);
        let summary = RunSummary {
            records: reader.u64()?,
            done: reader.u64()?,
            min_seq: reader.u64()?,
            max_seq: reader.u64()?,
            first_expiry: Time(reader.u64()?),
            last_expiry: Time(reader.u64()?),
            last_purge: Time(reader.u64()?),
            written: Span { first: Time(reader.u64()?), last: Time(reader.u64()?) },
            bucket: reader.u64()?,
            bytes: reader.u64()?,
        };
        let magic = reader.take(RUN_MAGIC.len())?;
        (magic == RUN_MAGIC && reader.is_empty()).then_some(Self { index, filter, summary })
    }
}

/// Reads a record that may be in a run: one that lasts, so no begin and no log start.
pub(super) fn decode(record: &[u8]) -> Option<StoredRecord<'_>> {
    StoredRecord::decode(record)
        .filter(|record| !matches!(record.body, Body::Begin(_) | Body::LogStart { .. }))
}

/// The first bytes of a file of the kind that `magic` names.
pub(super) fn header(magic: [u8; 8]) -> [u8; HEADER_LEN] {
    header_of_version(magic, VERSION)
}

fn header_of_version(magic: [u8; 8], version: u32) -> [u8; HEADER_LEN] {
    let mut bytes = [0; HEADER_LEN];
    bytes[..8].copy_from_slice(&magic);
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    let crc = crc32fast::hash(&bytes[..60]);
    bytes[60..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Reads and checks the header of `file`, and gives the file's length.
pub(super) fn check_header(file: &dyn DiskFile, path: &Path, magic: [u8; 8]) -> Result<u64> {
    let len = file.len().map_err(|error| read_error(path, 0, error))?;
    let mut bytes = [0; HEADER_LEN];
    read_exact_at(file, &mut bytes, 0).map_err(|error| read_error(path, 0, error))?;
    if bytes[..8] != magic {
        return Err(Error::corrupt(path, 0, "the file is not of the expected kind"));
    }
    // The checksum comes before the version: a damaged version is damage, not another version.
    if bytes[60..] != crc32fast::hash(&bytes[..60]).to_le_bytes() {
        return Err(Error::corrupt(path, 0, "the header's checksum does not match"));
    }
    let found = u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
    if found != VERSION {
        return Err(Error::Version { found, supported: VERSION });
    }
    if bytes != header(magic) {
        return Err(Error::corrupt(path, 12, "the header has bytes that this version does not know"));
    }
    Ok(len)
}

/// A file that is not there or too short is damage; every other failure is the disk's.
pub(super) fn read_error(path: &Path, offset: u64, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound => Error::corrupt(path, 0, "the file is missing"),
        io::ErrorKind::UnexpectedEof => Error::corrupt(path, offset, "the file ends too early"),
        _ => Error::io(path, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::memory::MemoryDisk;
    use crate::disk::{Disk, write_all_at};
    use proptest::prelude::*;

    fn header_is(bytes: &[u8]) -> Result<u64> {
        let (disk, path) = (MemoryDisk::new(0), Path::new("d/run"));
        let file = disk.create(path).unwrap();
        write_all_at(&*file, bytes, 0).unwrap();
        check_header(&*file, path, RUN_MAGIC)
    }

    #[test]
    fn a_header_is_accepted_only_whole_and_of_this_version() {
        assert_eq!(header_is(&header(RUN_MAGIC)).unwrap(), 64);
        assert!(header_is(&header(RUN_MAGIC)[..63]).unwrap_err().is_corruption());
        assert!(header_is(&header(RESPONSES_MAGIC)).unwrap_err().is_corruption());
        let newer = header_is(&header_of_version(RUN_MAGIC, 2)).unwrap_err();
        assert!(matches!(newer, Error::Version { found: 2, supported: VERSION }));
        for place in 0..HEADER_LEN {
            let mut bytes = header(RUN_MAGIC);
            bytes[place] ^= 1;
            assert!(header_is(&bytes).unwrap_err().is_corruption(), "byte {place}");
        }
    }

    proptest! {
        #[test]
        fn a_footer_with_arbitrary_fields_is_refused_or_consistent(fields: [u8; 128], file_len: u64) {
            let mut bytes = fields.to_vec();
            bytes.extend_from_slice(&RUN_MAGIC);
            bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
            let bytes = bytes.try_into().unwrap();
            prop_assert!(Footer::from_bytes(&bytes, file_len).is_err());
        }

        #[test]
        fn footers_come_back(blocks in 0_u64..1 << 40, index in 0_u64..1 << 40, filter in 0_u64..1 << 40) {
            let index = Section { offset: 64 + blocks, len: index, crc: 1 };
            let filter = Section { offset: index.offset + index.len, len: filter, crc: 2 };
            let len = filter.offset + filter.len + FOOTER_LEN as u64;
            let summary = RunSummary { records: 3, bytes: len, last_purge: Time::NEVER, ..RunSummary::default() };
            let footer = Footer { index, filter, summary };
            let bytes = footer.to_bytes().try_into().unwrap();
            prop_assert_eq!(Footer::from_bytes(&bytes, len), Ok(footer));
            prop_assert!(Footer::from_bytes(&bytes, len + 1).is_err());
        }
    }
}
