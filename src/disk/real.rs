//! The operating system's files.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process;
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
            Ok(()) => Ok(Box::new(RealLock { file, holder: process::id() })),
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
        RandomState::new().hash_one(process::id())
    }
}

/// The lock goes with the open file, so the kernel frees it when the process dies.
#[derive(Debug)]
struct RealLock {
    file: File,
    holder: u32,
}

impl Lock for RealLock {}

impl Drop for RealLock {
    fn drop(&mut self) {
        // Closing is not enough: a process that is being started shares the open file until it runs its own
        // program. A fork of this one must not unlock what is not its own.
        if self.holder == process::id() {
            drop(self.file.unlock());
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that is being started shares every open file for a moment.
    #[test]
    fn a_lock_that_is_given_up_is_free_though_its_file_is_still_open_elsewhere() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path).unwrap();
        file.try_lock().unwrap();
        let elsewhere = file.try_clone().unwrap();
        drop(RealLock { file, holder: process::id() });
        let next = RealDisk.lock(&path).unwrap();
        drop(elsewhere);
        assert_eq!(RealDisk.lock(&path).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(next);
    }

    #[test]
    fn a_fork_of_the_holder_does_not_give_up_its_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path).unwrap();
        file.try_lock().unwrap();
        let inherited = file.try_clone().unwrap();
        drop(RealLock { file: inherited, holder: 0 });
        assert_eq!(RealDisk.lock(&path).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
