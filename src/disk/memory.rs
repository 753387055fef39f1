//! A disk in memory that forgets, at a crash, what was not synced.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::{Disk, DiskFile, Lock};

/// What a crash tears a write at.
const SECTOR: usize = 512;

/// A disk in memory, for tests: fast, and able to crash.
///
/// Clones share one content, so a store can be opened again on what an earlier one left. Give it to
/// [`Options::disk`](crate::Options::disk).
///
/// ```
/// use oncedb::simulation::MemoryDisk;
///
/// let disk = MemoryDisk::new(1);
/// let store = oncedb::Store::options().disk(&disk).open("anywhere")?;
/// assert!(store.scope("stripe")?.claim("evt_1")?.is_new());
/// drop(store);
/// let store = oncedb::Store::options().disk(&disk).open("anywhere")?;
/// assert!(store.scope("stripe")?.claim("evt_1")?.is_duplicate());
/// # Ok::<(), oncedb::Error>(())
/// ```
#[derive(Clone)]
pub struct MemoryDisk {
    state: Arc<Mutex<State>>,
    /// The boot that a store belongs to: it does nothing to the disk after a crash. `None` for the
    /// hands of a test.
    boot: Option<u64>,
}

impl fmt::Debug for MemoryDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("MemoryDisk").field("files", &state.names.len()).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct State {
    random: u64,
    /// Raised at a crash; files and locks from before it are dead.
    boot: u64,
    names: BTreeMap<PathBuf, Arc<Mutex<Content>>>,
    durable_names: BTreeMap<PathBuf, Arc<Mutex<Content>>>,
    locks: HashSet<PathBuf>,
}

#[derive(Debug, Default)]
struct Content {
    now: Vec<u8>,
    durable: Vec<u8>,
    /// Byte ranges written since the last sync, in order.
    unsynced: Vec<Range<usize>>,
}

impl MemoryDisk {
    /// An empty disk; `seed` decides what its crashes keep and its random numbers.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let state = State {
            random: seed,
            boot: 0,
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            locks: HashSet::new(),
        };
        Self { state: Arc::new(Mutex::new(state)), boot: None }
    }

    /// The disk as a store sees it that is opened now.
    pub(crate) fn mounted(&self) -> Self {
        Self { state: Arc::clone(&self.state), boot: Some(self.state.lock().boot) }
    }

    fn running(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.state.lock();
        if self.boot.is_none_or(|boot| boot == state.boot) { Ok(state) } else { Err(no_power()) }
    }

    /// Cuts the power: an arbitrary choice of the sectors written since each file's last sync
    /// survives, and so does an arbitrary choice of the creations and removals since its
    /// directory's. Stores that are open fail with an I/O error from here on.
    pub fn crash(&self) {
        let mut state = self.state.lock();
        let state = &mut *state;
        state.boot += 1;
        state.locks.clear();
        let paths: Vec<PathBuf> = state.names.keys().chain(state.durable_names.keys()).cloned().collect();
        let mut kept = BTreeMap::new();
        for path in paths {
            let keep_new = next_random(&mut state.random).is_multiple_of(2);
            let side = if keep_new { &state.names } else { &state.durable_names };
            if let Some(content) = side.get(&path) {
                kept.insert(path, Arc::clone(content));
            }
        }
        // Each file is copied, so that a dead handle cannot write to what survives.
        for content in kept.values_mut() {
            let old = content.lock();
            let mut survivor = old.durable.clone();
            for range in &old.unsynced {
                for sector in sectors(range) {
                    if next_random(&mut state.random).is_multiple_of(2) {
                        let bytes = old.now.get(sector.clone()).unwrap_or_default();
                        if survivor.len() < sector.start + bytes.len() {
                            survivor.resize(sector.start + bytes.len(), 0);
                        }
                        survivor[sector.start..sector.start + bytes.len()].copy_from_slice(bytes);
                    }
                }
            }
            drop(old);
            *content = Arc::new(Mutex::new(Content {
                now: survivor.clone(),
                durable: survivor,
                unsynced: Vec::new(),
            }));
        }
        state.durable_names.clone_from(&kept);
        state.names = kept;
    }

    /// The files there are, each with its length in bytes.
    #[must_use]
    pub fn files(&self) -> Vec<(PathBuf, u64)> {
        let state = self.state.lock();
        state.names.iter().map(|(path, content)| (path.clone(), content.lock().now.len() as u64)).collect()
    }

    /// Changes bytes of a file behind the store's back, as damage would. Does nothing to a file
    /// that is not there or a range past its end.
    pub fn damage(&self, path: impl AsRef<Path>, offset: u64, bytes: &[u8]) {
        let state = self.state.lock();
        if let (Some(content), Ok(start)) = (state.names.get(path.as_ref()), usize::try_from(offset)) {
            let mut content = content.lock();
            let content = &mut *content;
            for side in [&mut content.now, &mut content.durable] {
                if let Some(place) = side.get_mut(start..start + bytes.len()) {
                    place.copy_from_slice(bytes);
                }
            }
        }
    }

    /// What a file holds now; `None` if it is not there.
    #[must_use]
    pub fn contents(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        let state = self.state.lock();
        state.names.get(path.as_ref()).map(|content| content.lock().now.clone())
    }

    /// Puts a file with this content in place, durably, behind the store's back.
    pub fn replace(&self, path: impl AsRef<Path>, bytes: &[u8]) {
        let content = Content { now: bytes.to_vec(), durable: bytes.to_vec(), unsynced: Vec::new() };
        let content = Arc::new(Mutex::new(content));
        let mut state = self.state.lock();
        state.names.insert(path.as_ref().to_path_buf(), Arc::clone(&content));
        state.durable_names.insert(path.as_ref().to_path_buf(), content);
    }

    /// Removes a file, durably, behind the store's back.
    pub fn delete(&self, path: impl AsRef<Path>) {
        let mut state = self.state.lock();
        state.names.remove(path.as_ref());
        state.durable_names.remove(path.as_ref());
    }

    fn file(&self, boot: u64, content: Arc<Mutex<Content>>) -> Arc<dyn DiskFile> {
        Arc::new(MemoryFile { disk: Arc::clone(&self.state), boot, content })
    }
}

/// The parts of a written range that a crash keeps or loses one by one.
fn sectors(range: &Range<usize>) -> impl Iterator<Item = Range<usize>> + use<> {
    let (mut start, end) = (range.start, range.end);
    std::iter::from_fn(move || {
        let from = start;
        start = ((from / SECTOR + 1) * SECTOR).min(end);
        (from < end).then_some(from..start)
    })
}

/// `SplitMix64`.
fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

fn no_power() -> io::Error {
    io::Error::other("the simulated machine has lost power")
}

fn not_found(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("no file {}", path.display()))
}

impl Disk for MemoryDisk {
    fn create_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        let mut state = self.running()?;
        if !state.locks.insert(path.to_path_buf()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(MemoryLock { disk: Arc::clone(&self.state), boot: state.boot, path: path.to_path_buf() }))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.running()?;
        let content = Arc::new(Mutex::new(Content::default()));
        state.names.insert(path.to_path_buf(), Arc::clone(&content));
        Ok(self.file(state.boot, content))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let state = self.running()?;
        let content = state.names.get(path).ok_or_else(|| not_found(path))?;
        Ok(self.file(state.boot, Arc::clone(content)))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.running()?.names.remove(path).map(drop).ok_or_else(|| not_found(path))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        let state = self.running()?;
        Ok(state.names.keys().filter(|path| path.parent() == Some(dir)).cloned().collect())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.running()?;
        let state = &mut *state;
        state.durable_names.retain(|path, _| path.parent() != Some(dir));
        let now = state.names.iter().filter(|(path, _)| path.parent() == Some(dir));
        state.durable_names.extend(now.map(|(path, content)| (path.clone(), Arc::clone(content))));
        Ok(())
    }

    fn random(&self) -> u64 {
        next_random(&mut self.state.lock().random)
    }
}

#[derive(Debug)]
struct MemoryLock {
    disk: Arc<Mutex<State>>,
    boot: u64,
    path: PathBuf,
}

impl Lock for MemoryLock {}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        let mut state = self.disk.lock();
        if state.boot == self.boot {
            state.locks.remove(&self.path);
        }
    }
}

#[derive(Debug)]
struct MemoryFile {
    disk: Arc<Mutex<State>>,
    boot: u64,
    content: Arc<Mutex<Content>>,
}

impl MemoryFile {
    fn content(&self) -> io::Result<MutexGuard<'_, Content>> {
        if self.disk.lock().boot == self.boot { Ok(self.content.lock()) } else { Err(no_power()) }
    }
}

fn place(offset: u64) -> io::Result<usize> {
    usize::try_from(offset).map_err(|_| io::ErrorKind::FileTooLarge.into())
}

impl DiskFile for MemoryFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.content()?.now.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let content = self.content()?;
        let bytes = content.now.get(place(offset)?..).unwrap_or_default();
        let count = bytes.len().min(buffer.len());
        buffer[..count].copy_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let start = place(offset)?;
        let end = start + bytes.len();
        let mut content = self.content()?;
        if content.now.len() < end {
            content.now.resize(end, 0);
        }
        content.now[start..end].copy_from_slice(bytes);
        content.unsynced.push(start..end);
        Ok(bytes.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        // As a journaling file system does it: the length itself survives a crash.
        let len = place(len)?;
        let mut content = self.content()?;
        content.now.resize(len, 0);
        content.durable.resize(len, 0);
        content.unsynced.retain(|range| range.end <= len);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut content = self.content()?;
        let content = &mut *content;
        content.durable.resize(content.now.len(), 0);
        for range in content.unsynced.drain(..) {
            content.durable[range.clone()].copy_from_slice(&content.now[range]);
        }
        Ok(())
    }

    fn drop_cache(&self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_keeps_what_was_synced_and_tears_the_rest() {
        let (mut kept, mut lost) = (0, 0);
        for seed in 0..64 {
            let disk = MemoryDisk::new(seed);
            let path = Path::new("d/file");
            let file = disk.create(path).unwrap();
            super::super::write_all_at(&*file, &[1; 4096], 0).unwrap();
            file.sync().unwrap();
            disk.sync_dir(Path::new("d")).unwrap();
            super::super::write_all_at(&*file, &[2; 2048], 1024).unwrap();
            disk.crash();
            assert!(file.sync().is_err(), "a handle from before the crash is dead");
            let mut bytes = [0; 4096];
            super::super::read_exact_at(&*disk.open(path).unwrap(), &mut bytes, 0).unwrap();
            assert!(bytes[..1024].iter().chain(&bytes[3072..]).all(|&byte| byte == 1));
            for sector in bytes[1024..3072].chunks(SECTOR) {
                assert!(sector.iter().all(|&byte| byte == sector[0]), "torn inside a sector");
                *(if sector[0] == 2 { &mut kept } else { &mut lost }) += 1;
            }
        }
        assert!(kept > 0 && lost > 0, "both fates occur");
    }

    #[test]
    fn an_unsynced_creation_may_vanish() {
        let fates: HashSet<bool> = (0..64)
            .map(|seed| {
                let disk = MemoryDisk::new(seed);
                disk.create(Path::new("d/file")).unwrap().sync().unwrap();
                disk.crash();
                disk.open(Path::new("d/file")).is_ok()
            })
            .collect();
        assert_eq!(fates.len(), 2);
    }

    #[test]
    fn the_lock_is_exclusive_and_dies_with_its_holder() {
        let disk = MemoryDisk::new(0);
        let held = disk.lock(Path::new("lock")).unwrap();
        assert_eq!(disk.lock(Path::new("lock")).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(held);
        disk.lock(Path::new("lock")).unwrap();
    }
}
