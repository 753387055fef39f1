//! A run, open for reading. How the file is laid out is told in [`writer`](super::writer).

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::block::entries;
use super::files::{FileCache, KeptFile};
use super::filter::Filter;
use super::index::Index;
use super::layout::{
    FOOTER_LEN, Footer, HEADER_LEN, RUN_MAGIC, RunSummary, Section, check_header, read_error,
};
use super::scan::Scan;
use crate::catalog::{FileKind, Listed};
use crate::disk::{Disk, DiskFile, read_exact_at};
use crate::error::{Error, Result};
use crate::record::key_of;

/// An immutable file of records. Index and filter are in memory, and a search reads one block.
pub(crate) struct Run {
    file: KeptFile,
    summary: RunSummary,
    pub(super) index: Index,
    filter: Filter,
}

/// A record found by its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) seq: u64,
    pub(crate) record: Arc<[u8]>,
}

impl Run {
    /// Opens the run at `path`, known to `files` by `id`. Checks all of it but the blocks, each of
    /// which is checked whenever it is read.
    pub(crate) fn open(files: &Arc<FileCache>, id: u64, path: PathBuf) -> Result<Self> {
        let kept = KeptFile::new(files, id, path);
        let path = kept.path();
        let file = kept.handle().map_err(|error| read_error(path, 0, error))?;
        let Footer { index, filter, summary } = read_footer(&*file, path)?;

        // The footer was found to agree with the length of the file, so neither section is longer.
        let read = |section: Section, what| {
            let corrupt = || Error::corrupt(path, section.offset, what);
            let mut bytes = vec![0; usize::try_from(section.len).map_err(|_| corrupt())?];
            read_exact_at(&*file, &mut bytes, section.offset)
                .map_err(|error| read_error(path, section.offset, error))?;
            if crc32fast::hash(&bytes) == section.crc { Ok(bytes) } else { Err(corrupt()) }
        };
        let bytes = read(index, "the index's checksum does not match")?;
        let index = Index::from_bytes(&bytes, HEADER_LEN as u64, index.offset)
            .ok_or_else(|| Error::corrupt(path, index.offset, "the index does not fit the blocks"))?;
        drop(bytes);
        let bytes = read(filter, "the filter's checksum does not match")?;
        let filter = Filter::from_bytes(&bytes)
            .ok_or_else(|| Error::corrupt(path, filter.offset, "the filter is not made of whole blocks"))?;
        Ok(Self { file: kept, summary, index, filter })
    }

    pub(crate) fn id(&self) -> u64 {
        self.file.id()
    }

    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    pub(crate) fn summary(&self) -> &RunSummary {
        &self.summary
    }

    /// How the catalog lists it in a bucket.
    pub(crate) fn listed(&self, bucket: u64) -> Listed {
        let RunSummary { bytes, records, written, .. } = self.summary;
        Listed { kind: FileKind::Run, bucket, bytes, records, written }
    }

    /// Bytes of memory that the index and the filter take.
    pub(crate) fn memory(&self) -> usize {
        self.index.memory() + self.filter.byte_len()
    }

    /// False only if the run has no record of this hash. Reads nothing from the disk.
    #[inline]
    pub(crate) fn may_contain(&self, hash: u64) -> bool {
        self.filter.contains(hash)
    }

    /// The record of a key. Does not ask the filter.
    pub(crate) fn find(&self, hash: u64, key: &[u8]) -> Result<Option<Found>> {
        let mut buffer = Vec::new();
        for block in self.index.first_candidate(hash).. {
            let Some(range) = self.index.range(block) else { break };
            if self.index.first_hash(block).is_none_or(|first| first > hash) {
                break;
            }
            let offset = range.start;
            let corrupt = |what| Error::corrupt(self.path(), offset, what);
            self.read(range, &mut buffer)?;
            for entry in entries(&buffer).map_err(corrupt)? {
                let entry = entry.map_err(corrupt)?;
                if entry.hash < hash {
                    continue;
                }
                let found = key_of(entry.record);
                if (entry.hash, found) > (hash, key) {
                    return Ok(None);
                }
                if found == key {
                    return Ok(Some(Found { seq: entry.seq, record: entry.record.into() }));
                }
            }
        }
        Ok(None)
    }

    /// All records, in the order of (hash, key).
    pub(crate) fn scan(self: &Arc<Self>) -> Scan {
        Scan::new(Arc::clone(self), false)
    }

    /// The same, but damaged blocks are left out, each with an error in its place.
    pub(crate) fn scan_sound(self: &Arc<Self>) -> Scan {
        Scan::new(Arc::clone(self), true)
    }

    /// Opens the file again, as it is on the device.
    pub(crate) fn read_again(&self, disk: &Arc<dyn Disk>) -> Result<Arc<Self>> {
        let files = Arc::new(FileCache::new(Arc::clone(disk), 1));
        let failed = |error| read_error(self.path(), 0, error);
        files.get(self.id(), self.path()).and_then(|file| file.drop_cache()).map_err(failed)?;
        let again = Self::open(&files, self.id(), self.path().to_path_buf())?;
        if again.summary != self.summary {
            return Err(Error::corrupt(
                self.path(),
                again.summary.bytes,
                "it is another run than was opened",
            ));
        }
        Ok(Arc::new(again))
    }

    /// Has the file removed when the last who uses the run lets go of it. Call it once nobody can
    /// find the run in the catalog any more.
    pub(crate) fn doom(&self) {
        self.file.doom();
    }

    /// Reads a part of the file into `buffer`, which becomes as long as the part.
    pub(super) fn read(&self, range: Range<u64>, buffer: &mut Vec<u8>) -> Result<()> {
        let failed = |error| read_error(self.path(), range.start, error);
        let file = self.file.handle().map_err(failed)?;
        let len = usize::try_from(range.end - range.start)
            .map_err(|_| Error::corrupt(self.path(), range.start, "a block is larger than memory"))?;
        buffer.resize(len, 0);
        read_exact_at(&*file, buffer, range.start).map_err(failed)
    }
}

/// What a run says that it holds.
pub(crate) fn summary_of(file: &dyn DiskFile, path: &Path) -> Result<RunSummary> {
    read_footer(file, path).map(|footer| footer.summary)
}

fn read_footer(file: &dyn DiskFile, path: &Path) -> Result<Footer> {
    let len = check_header(file, path, RUN_MAGIC)?;
    let footer_at = len
        .checked_sub(FOOTER_LEN as u64)
        .filter(|&at| at >= HEADER_LEN as u64)
        .ok_or_else(|| Error::corrupt(path, 0, "the file is too short for a run"))?;
    let mut bytes = [0; FOOTER_LEN];
    read_exact_at(file, &mut bytes, footer_at).map_err(|error| read_error(path, footer_at, error))?;
    Footer::from_bytes(&bytes, len).map_err(|what| Error::corrupt(path, footer_at, what))
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("file", &self.file)
            .field("summary", &self.summary)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
