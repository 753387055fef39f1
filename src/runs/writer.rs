//! Writing a run: an immutable file of records, sorted by hash and key.
//!
//! | part | see |
//! |---|---|
//! | header, 64 bytes | [`layout`](super::layout) |
//! | blocks of about 4 KiB | [`block`](super::block) |
//! | sparse index | [`index`](super::index) |
//! | filter over the hashes | [`filter`](super::filter) |
//! | footer, 140 bytes | [`layout`](super::layout) |
//!
//! The parts follow one another without gaps, and each is under a checksum of its own.

use std::io;
use std::sync::Arc;

use super::block::{BlockBuilder, MAX_RECORD};
use super::filter::Filter;
use super::index::Index;
pub(crate) use super::layout::RunSummary;
use super::layout::{FOOTER_LEN, Footer, HEADER_LEN, RUN_MAGIC, Section, decode, header};
use super::output::Output;
use crate::disk::DiskFile;

/// Writes one run. The file is of no use before [`finish`](Self::finish) has succeeded.
#[derive(Debug)]
pub(crate) struct RunWriter {
    output: Output,
    block: BlockBuilder,
    index: Index,
    filter: Filter,
    summary: RunSummary,
    last_hash: u64,
    last_key: Vec<u8>,
}

impl RunWriter {
    /// A run in `file`, which is empty. The filter is made for `expected_records`; with more it
    /// works less well. `bucket` is the one that the run is written for.
    pub(crate) fn new(file: Arc<dyn DiskFile>, expected_records: usize, bucket: u64) -> io::Result<Self> {
        let mut output = Output::new(file);
        output.put(&header(RUN_MAGIC))?;
        Ok(Self {
            output,
            block: BlockBuilder::new(),
            index: Index::starting_at(HEADER_LEN as u64),
            filter: Filter::with_capacity(expected_records),
            summary: RunSummary { bucket, ..RunSummary::default() },
            last_hash: 0,
            last_key: Vec::new(),
        })
    }

    /// Adds a record, encoded, whose (hash, key) is above that of the one before. `InvalidInput`
    /// and no change if it is not, or if the bytes are no record that may be in a run.
    pub(crate) fn push(&mut self, hash: u64, seq: u64, record: &[u8]) -> io::Result<()> {
        let decoded = decode(record).ok_or_else(|| invalid("not a record that lasts"))?;
        if record.len() > MAX_RECORD {
            return Err(invalid("the record is too long for a run"));
        }
        // Readers search by this order, so a run without it would deny records it has.
        if self.summary.records > 0 && (self.last_hash, &*self.last_key) >= (hash, decoded.key) {
            return Err(invalid("records of a run must ascend"));
        }
        if !self.block.has_room_for(record) {
            self.write_block()?;
        }
        self.block.push(hash, seq, record);
        self.filter.insert(hash);
        self.summary.add(seq, &decoded);
        self.last_hash = hash;
        self.last_key.clear();
        self.last_key.extend_from_slice(decoded.key);
        Ok(())
    }

    /// Completes the file and makes its content durable, but not its name.
    pub(crate) fn finish(mut self) -> io::Result<RunSummary> {
        if !self.block.is_empty() {
            self.write_block()?;
        }
        let start = self.output.offset();
        let mut crc = crc32fast::Hasher::new();
        let bytes = self.index.to_bytes();
        crc.update(&bytes);
        self.output.put(&bytes)?;
        let index = Section { offset: start, len: self.output.offset() - start, crc: crc.finalize() };

        let start = self.output.offset();
        let mut crc = crc32fast::Hasher::new();
        for bytes in self.filter.to_bytes() {
            crc.update(&bytes);
            self.output.put(&bytes)?;
        }
        let filter = Section { offset: start, len: self.output.offset() - start, crc: crc.finalize() };

        self.summary.bytes = self.output.offset() + FOOTER_LEN as u64;
        self.output.put(&Footer { index, filter, summary: self.summary }.to_bytes())?;
        let written = self.output.finish()?;
        debug_assert_eq!(written, self.summary.bytes);
        Ok(self.summary)
    }

    fn write_block(&mut self) -> io::Result<()> {
        let (first_hash, len, bytes) = self.block.seal();
        self.output.put(bytes)?;
        self.index.push(first_hash, len);
        self.block.clear();
        Ok(())
    }
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::clock::Time;
    use crate::disk::Disk;
    use crate::disk::memory::MemoryDisk;
    use crate::record::{Begin, Body, Done, Reply, StoredRecord};
    use crate::runs::files::FileCache;
    use crate::runs::run::Run;
    use crate::span::Span;
    use std::path::Path;
    use std::time::Duration;

    pub(in crate::runs) fn done(key: &[u8], expires_at: u64, response: &[u8]) -> Vec<u8> {
        let done = Done {
            claimed_at: Time(1),
            completed_at: Time(1),
            expires_at: Time(expires_at),
            attempt: 1,
            refusal: false,
            fingerprint: None,
            reply: Reply::Inline(response),
        };
        StoredRecord { key, purge_at: Time(expires_at), body: Body::Done(done) }.to_bytes()
    }

    pub(in crate::runs) fn tombstone(key: &[u8], purge_at: u64) -> Vec<u8> {
        StoredRecord { key, purge_at: Time(purge_at), body: Body::Tombstone { forgotten_at: Time(1) } }
            .to_bytes()
    }

    /// Writes (hash, seq, record) triples, in the order they are in.
    pub(in crate::runs) fn write_run(
        disk: &dyn Disk,
        path: &Path,
        records: &[(u64, u64, Vec<u8>)],
    ) -> RunSummary {
        let mut writer = RunWriter::new(disk.create(path).unwrap(), records.len(), 0).unwrap();
        for (hash, seq, record) in records {
            writer.push(*hash, *seq, record).unwrap();
        }
        writer.finish().unwrap()
    }

    #[test]
    fn a_summary_says_what_was_written() {
        let (disk, path) = (MemoryDisk::new(0), Path::new("d/run"));
        let empty = write_run(&disk, path, &[]);
        let bytes = disk.open(path).unwrap().len().unwrap();
        assert_eq!(empty, RunSummary { bytes, ..RunSummary::default() });

        let records =
            [(1, 20, done(b"a", 70, b"")), (1, 10, tombstone(b"b", 90)), (2, 30, done(b"a", 60, b""))];
        let summary = write_run(&disk, path, &records);
        let expected = RunSummary {
            records: 3,
            done: 2,
            bytes: disk.open(path).unwrap().len().unwrap(),
            min_seq: 10,
            max_seq: 30,
            first_expiry: Time(60),
            last_expiry: Time(70),
            last_purge: Time(90),
            written: Span { first: Time(1), last: Time(1) },
            bucket: 0,
        };
        assert_eq!(summary, expected);
    }

    #[test]
    fn disorder_repeats_and_what_does_not_last_are_refused() {
        let file = MemoryDisk::new(0).create(Path::new("d/run")).unwrap();
        let mut writer = RunWriter::new(file, 3, 0).unwrap();
        writer.push(5, 1, &tombstone(b"b", 9)).unwrap();
        let body = Body::Begin(Begin {
            claimed_at: Time(1),
            window: Duration::ZERO,
            attempt: 1,
            fingerprint: None,
            note: None,
        });
        let begin = StoredRecord { key: b"z", purge_at: Time(9), body }.to_bytes();
        for (hash, record) in [
            (5, tombstone(b"b", 9)),
            (5, tombstone(b"a", 9)),
            (4, tombstone(b"c", 9)),
            (6, begin),
            (6, Vec::new()),
        ] {
            let refused = writer.push(hash, 2, &record).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        }
        writer.push(5, 2, &tombstone(b"c", 9)).unwrap();
        assert_eq!(writer.finish().unwrap().records, 2);
    }

    #[test]
    fn a_finished_run_survives_a_crash_whole() {
        let (disk, path) = (MemoryDisk::new(3), Path::new("d/run"));
        disk.create(path).unwrap();
        disk.sync_dir(Path::new("d")).unwrap();
        let mut writer = RunWriter::new(disk.open(path).unwrap(), 1, 0).unwrap();
        writer.push(1, 1, &tombstone(b"a", 9)).unwrap();
        let summary = writer.finish().unwrap();
        disk.crash();
        let files = Arc::new(FileCache::new(Arc::new(disk), 1));
        let run = Arc::new(Run::open(&files, 1, path.to_path_buf()).unwrap());
        assert_eq!(*run.summary(), summary);
        assert_eq!(run.scan().map(Result::unwrap).count(), 1);
    }
}
