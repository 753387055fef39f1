//! redb's storage on our disk, and on bytes in memory.

use std::error;
use std::fmt;
use std::io;
use std::sync::Arc;

use redb::StorageBackend;

use crate::disk::{self, DiskFile};
use crate::sync::Mutex;

/// A catalog's file.
#[derive(Debug)]
pub(super) struct FileBackend {
    pub(super) file: Arc<dyn DiskFile>,
}

impl StorageBackend for FileBackend {
    fn len(&self) -> Result<u64, io::Error> {
        self.file.len().map_err(of_the_disk)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        disk::read_exact_at(&*self.file, out, offset).map_err(|error| match error.kind() {
            // Pages that are not there are damage, not a failing disk.
            io::ErrorKind::UnexpectedEof => error,
            _ => of_the_disk(error),
        })
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.file.set_len(len).map_err(of_the_disk)
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        disk::sync(&*self.file).map_err(of_the_disk)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        disk::write_all_at(&*self.file, data, offset).map_err(of_the_disk)
    }
}

/// A copy of a catalog's file, to look at while the file is in use.
#[derive(Debug)]
pub(super) struct ImageBackend {
    pub(super) bytes: Mutex<Vec<u8>>,
}

impl ImageBackend {
    fn range(offset: u64, len: usize) -> io::Result<std::ops::Range<usize>> {
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let end = start.checked_add(len).ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(start..end)
    }
}

impl StorageBackend for ImageBackend {
    fn len(&self) -> Result<u64, io::Error> {
        Ok(self.bytes.lock().len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        let range = Self::range(offset, out.len())?;
        out.copy_from_slice(self.bytes.lock().get(range).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.bytes.lock().resize(Self::range(len, 0)?.end, 0);
        Ok(())
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        let range = Self::range(offset, data.len())?;
        let mut bytes = self.bytes.lock();
        if bytes.len() < range.end {
            bytes.resize(range.end, 0);
        }
        bytes[range].copy_from_slice(data);
        Ok(())
    }
}

/// Marks what the disk said, so that it is told from what redb says of the bytes it read.
#[derive(Debug)]
struct OfTheDisk(io::Error);

impl fmt::Display for OfTheDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl error::Error for OfTheDisk {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        self.0.source()
    }
}

/// An error that the disk gave, and not redb.
pub(super) fn of_the_disk(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), OfTheDisk(error))
}

/// Whether an error is the disk's.
pub(super) fn is_of_the_disk(error: &io::Error) -> bool {
    error.get_ref().is_some_and(<dyn error::Error + Send + Sync>::is::<OfTheDisk>)
}
