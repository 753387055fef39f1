//! The only code that calls the operating system.
//!
//! Everything above works on the two traits here, so that the in-memory twin ([`memory`]) can stand
//! under the journal, the runs and the catalog alike.

#[cfg(any(test, feature = "simulation"))]
pub(crate) mod memory;
mod real;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) use real::RealDisk;

/// A directory tree of files. Creations and removals are durable only after [`Disk::sync_dir`].
pub(crate) trait Disk: fmt::Debug + Send + Sync {
    /// Creates a directory and its parents, durably.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;
    /// Takes the exclusive lock on a file, creating it; `WouldBlock` when another holder lives.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>>;
    /// Creates an empty file; one that is there already is emptied.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;
    /// Opens an existing file for reading and writing.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Every file in a directory.
    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>>;
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// A number nobody can guess: epochs and hash seeds.
    fn random(&self) -> u64;
}

/// Held until dropped.
pub(crate) trait Lock: fmt::Debug + Send + Sync {}

/// One open file. Written bytes are durable only after [`DiskFile::sync`].
pub(crate) trait DiskFile: fmt::Debug + Send + Sync {
    fn len(&self) -> io::Result<u64>;
    /// May read less than asked; zero at the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// May write less than asked.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Makes written bytes and the length durable (`fdatasync`).
    fn sync(&self) -> io::Result<()>;
    /// Drops clean cached pages, so that the next read shows what the device holds.
    fn drop_cache(&self) -> io::Result<()>;
}

/// Reads exactly `buffer.len()` bytes, through short reads and interrupted calls.
pub(crate) fn read_exact_at(file: &dyn DiskFile, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !buffer.is_empty() {
        match file.read_at(buffer, offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                buffer = &mut buffer[count..];
                offset += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes all of `bytes`, through short writes and interrupted calls.
pub(crate) fn write_all_at(file: &dyn DiskFile, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write_at(bytes, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                bytes = &bytes[count..];
                offset += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Syncs, retrying calls that a signal interrupted before they did anything.
pub(crate) fn sync(file: &dyn DiskFile) -> io::Result<()> {
    loop {
        match file.sync() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Whether an error means that the disk or a quota has no room.
pub(crate) fn is_no_space(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Moves one byte a call and is interrupted at every other call.
    #[derive(Debug, Default)]
    struct Stuttering {
        calls: AtomicUsize,
        bytes: parking_lot::Mutex<Vec<u8>>,
    }

    impl Stuttering {
        fn interrupted(&self) -> io::Result<()> {
            if self.calls.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
                Err(io::ErrorKind::Interrupted.into())
            } else {
                Ok(())
            }
        }
    }

    impl DiskFile for Stuttering {
        fn len(&self) -> io::Result<u64> {
            Ok(self.bytes.lock().len() as u64)
        }
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            self.interrupted()?;
            let Some(byte) = self.bytes.lock().get(usize::try_from(offset).unwrap()).copied() else {
                return Ok(0);
            };
            buffer[0] = byte;
            Ok(1)
        }
        fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
            self.interrupted()?;
            let mut all = self.bytes.lock();
            assert_eq!(all.len() as u64, offset);
            all.push(bytes[0]);
            Ok(1)
        }
        fn set_len(&self, _: u64) -> io::Result<()> {
            Ok(())
        }
        fn sync(&self) -> io::Result<()> {
            self.interrupted()
        }
        fn drop_cache(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn short_and_interrupted_calls_are_carried_through() {
        let file = Stuttering::default();
        write_all_at(&file, b"hello", 0).unwrap();
        let mut back = [0; 5];
        read_exact_at(&file, &mut back, 0).unwrap();
        assert_eq!(&back, b"hello");
        sync(&file).unwrap();
        let past = read_exact_at(&file, &mut back, 1).unwrap_err();
        assert_eq!(past.kind(), io::ErrorKind::UnexpectedEof);
    }
}
