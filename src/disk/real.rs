//! The operating system's files.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Disk, DiskFile, Lock};

/// The file system of this machine.
#[derive(Debug)]
pub(crate) struct RealDisk;

impl Disk for RealDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        let known = dir.is_dir();
        fs::create_dir_all(dir)?;
        // New entries live in their parents; a parent that cannot be opened cannot be synced. One that
        // was there may still be unsynced by the process that made it.
        for parent in dir.ancestors().skip(1).take(if known { 1 } else { usize::MAX }) {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            if File::open(parent).and_then(|file| file.sync_all()).is_err() {
                break;
            }
        }
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Box::new(RealLock { _file: file })),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
        Ok(Arc::new(RealFile { file }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Arc::new(RealFile { file }))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                files.push(entry.path());
            }
        }
        Ok(files)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn random(&self) -> u64 {
        // The standard library keys its hasher from the operating system's entropy.
        RandomState::new().hash_one(std::process::id())
    }
}

/// The lock goes with the open file, so the kernel frees it when the process dies.
#[derive(Debug)]
struct RealLock {
    _file: File,
}

impl Lock for RealLock {}

#[derive(Debug)]
struct RealFile {
    file: File,
}

impl DiskFile for RealFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.file.write_at(bytes, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    #[cfg(target_os = "linux")]
    fn drop_cache(&self) -> io::Result<()> {
        Ok(rustix::fs::fadvise(&self.file, 0, None, rustix::fs::Advice::DontNeed)?)
    }

    #[cfg(not(target_os = "linux"))]
    fn drop_cache(&self) -> io::Result<()> {
        Ok(())
    }
}
