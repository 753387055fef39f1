//! Response files: what is too large to be copied along with its record.
//!
//! | part | |
//! |---|---|
//! | header, 64 bytes | see [`layout`](super::layout) |
//! | responses | one behind the other, nothing between them |
//!
//! Where a response lies, how long it is and its CRC-32 are in the record that it belongs to, see
//! [`Far`]. A file is written once and never rewritten; it goes with its bucket.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::files::{FileCache, KeptFile};
use super::layout::{HEADER_LEN, RESPONSES_MAGIC, check_header, header, read_error};
use super::output::Output;
use crate::catalog::{FileKind, Listed};
use crate::disk::{DiskFile, read_exact_at};
use crate::error::{Error, Result};
use crate::record::Far;
use crate::span::Span;

/// Writes one response file. It is of no use before [`finish`](Self::finish) has succeeded.
#[derive(Debug)]
pub(crate) struct ResponseWriter {
    output: Output,
    file_id: u64,
}

impl ResponseWriter {
    /// Responses in `file`, which is empty and known to the file cache by `file_id`.
    pub(crate) fn new(file: Arc<dyn DiskFile>, file_id: u64) -> io::Result<Self> {
        let mut output = Output::new(file);
        output.put(&header(RESPONSES_MAGIC))?;
        Ok(Self { output, file_id })
    }

    /// The id of the file.
    pub(crate) fn id(&self) -> u64 {
        self.file_id
    }

    /// Adds a response and says where it will lie.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> io::Result<Far> {
        let far = Far {
            file: self.file_id,
            offset: self.output.offset(),
            len: bytes.len() as u64,
            crc: crc32fast::hash(bytes),
        };
        self.output.put(bytes)?;
        Ok(far)
    }

    /// Makes the content durable, but not the name, and gives the length of the file.
    pub(crate) fn finish(self) -> io::Result<u64> {
        self.output.finish()
    }
}

/// A response file, open for reading.
#[derive(Debug)]
pub(crate) struct ResponseFile {
    file: KeptFile,
    bytes: u64,
}

impl ResponseFile {
    /// Opens the file at `path`, known to `files` by `id`, which is to be `bytes` long.
    pub(crate) fn open(files: &Arc<FileCache>, id: u64, path: PathBuf, bytes: u64) -> Result<Self> {
        let file = KeptFile::new(files, id, path);
        let handle = file.handle().map_err(|error| read_error(file.path(), 0, error))?;
        if check_header(&*handle, file.path(), RESPONSES_MAGIC)? != bytes {
            return Err(Error::corrupt(file.path(), 0, "the file has another length than it is listed with"));
        }
        Ok(Self { file, bytes })
    }

    pub(crate) fn id(&self) -> u64 {
        self.file.id()
    }

    /// The length of the file.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Checks the header and the length again, as they are on the device.
    pub(crate) fn check(&self) -> Result<()> {
        let path = self.file.path();
        let handle = self.file.handle().map_err(|error| read_error(path, 0, error))?;
        handle.drop_cache().map_err(|error| Error::io(path, error))?;
        if check_header(&*handle, path, RESPONSES_MAGIC)? != self.bytes {
            return Err(Error::corrupt(path, 0, "the file has another length than it is listed with"));
        }
        Ok(())
    }

    /// How the catalog lists it in a bucket; `written` is when its responses were recorded.
    pub(crate) fn listed(&self, bucket: u64, written: Span) -> Listed {
        Listed { kind: FileKind::Responses, bucket, bytes: self.bytes, records: 0, written }
    }

    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Has the file removed when the last who uses it lets go of it.
    pub(crate) fn doom(&self) {
        self.file.doom();
    }

    /// Reads one response, which lies in this file.
    pub(crate) fn read(&self, far: Far) -> Result<Arc<[u8]>> {
        let failed = |error| read_error(self.file.path(), far.offset, error);
        let corrupt = |what| Error::corrupt(self.file.path(), far.offset, what);
        let end = far.offset.checked_add(far.len);
        let inside = far.offset >= HEADER_LEN as u64 && end.is_some_and(|end| end <= self.bytes);
        if far.file != self.id() || !inside {
            return Err(corrupt("a record points to a response that does not lie in the file"));
        }
        let len = usize::try_from(far.len).map_err(|_| corrupt("a response is larger than memory"))?;
        let mut bytes = vec![0; len];
        let file = self.file.handle().map_err(failed)?;
        read_exact_at(&*file, &mut bytes, far.offset).map_err(failed)?;
        if crc32fast::hash(&bytes) != far.crc {
            return Err(corrupt("a response's checksum does not match"));
        }
        Ok(bytes.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Disk;
    use crate::disk::memory::MemoryDisk;
    use proptest::collection::vec;
    use proptest::prelude::*;

    const PATH: &str = "d/responses";

    fn open(disk: &MemoryDisk, bytes: u64) -> Result<ResponseFile> {
        let files = Arc::new(FileCache::new(Arc::new(disk.clone()), 1));
        ResponseFile::open(&files, 5, PATH.into(), bytes)
    }

    fn written(responses: &[Vec<u8>]) -> (MemoryDisk, ResponseFile, Vec<Far>) {
        let disk = MemoryDisk::new(0);
        let mut writer = ResponseWriter::new(disk.create(PATH.as_ref()).unwrap(), 5).unwrap();
        let fars = responses.iter().map(|response| writer.push(response).unwrap()).collect();
        let len = writer.finish().unwrap();
        assert_eq!(disk.files(), [(PATH.into(), len)]);
        let file = open(&disk, len).unwrap();
        (disk, file, fars)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn responses_come_back(mut responses in vec(vec(any::<u8>(), 0..5_000), 0..10), large in 0_usize..600_000) {
            responses.push(vec![9; large]);
            let (_, file, fars) = written(&responses);
            for (far, response) in fars.iter().zip(&responses) {
                prop_assert_eq!(far.file, 5);
                prop_assert!(*file.read(*far).unwrap() == **response);
            }
        }
    }

    #[test]
    fn a_place_outside_of_the_file_is_damage_and_nothing_is_allocated_for_it() {
        let (_, file, fars) = written(&[vec![1; 100]]);
        let far = fars[0];
        for wrong in [
            Far { len: u64::MAX, ..far },
            Far { len: 101, ..far },
            Far { offset: u64::MAX, ..far },
            Far { offset: 65, ..far },
            Far { offset: 0, len: 1, ..far },
            Far { len: 99, ..far },
            Far { crc: far.crc ^ 1, ..far },
            Far { file: 6, ..far },
        ] {
            assert!(file.read(wrong).unwrap_err().is_corruption(), "{wrong:?}");
        }
    }

    #[test]
    fn every_changed_byte_and_every_cut_is_reported() {
        let (disk, opened, fars) = written(&[vec![1; 40], vec![2; 30]]);
        let len = opened.bytes();
        let file = disk.open(PATH.as_ref()).unwrap();
        let all = || {
            let opened = open(&disk, len)?;
            fars.iter().try_for_each(|far| opened.read(*far).map(drop))
        };
        let mut byte = [0];
        for offset in 0..len {
            read_exact_at(&*file, &mut byte, offset).unwrap();
            disk.damage(PATH, offset, &[byte[0] ^ 4]);
            assert!(all().unwrap_err().is_corruption(), "byte {offset}");
            disk.damage(PATH, offset, &byte);
        }
        all().unwrap();
        for cut in (0..len).rev() {
            file.set_len(cut).unwrap();
            assert!(all().unwrap_err().is_corruption(), "cut at {cut}");
        }
        assert!(opened.read(fars[0]).unwrap_err().is_corruption(), "cut after it was opened");
        disk.remove(PATH.as_ref()).unwrap();
        let missing = open(&disk, len).unwrap_err();
        assert!(matches!(missing, Error::Corrupt { offset: 0, what: "the file is missing", .. }));
    }

    #[test]
    fn a_doomed_file_goes_with_the_last_reader() {
        let (disk, file, fars) = written(&[vec![1; 40]]);
        let file = Arc::new(file);
        let reader = Arc::clone(&file);
        file.doom();
        drop(file);
        assert_eq!(*reader.read(fars[0]).unwrap(), [1; 40]);
        drop(reader);
        assert_eq!(disk.files(), []);
    }
}
