//! A disk in memory that forgets, at a crash, what was not synced, and fails when it is told to.
//!
//! One object lies under the journal, the runs and the catalog alike, so that one fault can hit any
//! of them and one crash hits all.

mod content;
mod faults;
mod random;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use self::content::Content;
use self::faults::Faults;
pub use self::faults::{Call, Fault, FaultKind};
use self::random::Random;
use super::{Disk, DiskFile, Lock};

/// A disk in memory, for tests: fast, and able to crash, to fail and to fill up, all decided by a seed.
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
/// disk.crash();
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

/// Lock order: the state, then the content of a file.
type Shared = Arc<Mutex<Content>>;

#[derive(Debug)]
struct State {
    random: Random,
    /// Raised at a crash; files and locks from before it are dead.
    boot: u64,
    names: BTreeMap<PathBuf, Shared>,
    durable_names: BTreeMap<PathBuf, Shared>,
    locks: HashSet<PathBuf>,
    faults: Faults,
    capacity: Option<u64>,
}

impl MemoryDisk {
    /// An empty disk; `seed` decides what its crashes and faults keep, and its random numbers.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let state = State {
            random: Random::new(seed),
            boot: 0,
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            locks: HashSet::new(),
            faults: Faults::default(),
            capacity: None,
        };
        Self { state: Arc::new(Mutex::new(state)), boot: None }
    }

    /// The disk as a store sees it that is opened now.
    pub(crate) fn mounted(&self) -> Self {
        Self { state: Arc::clone(&self.state), boot: Some(self.state.lock().boot) }
    }

    /// Cuts the power: an arbitrary choice of the sectors written since each file's last sync
    /// survives, and so does an arbitrary choice of the creations and removals since its
    /// directory's. Stores that are open fail with an I/O error from here on.
    pub fn crash(&self) {
        self.state.lock().crash();
    }

    /// How often the power was cut.
    #[must_use]
    pub fn crashes(&self) -> u64 {
        self.state.lock().boot
    }

    /// Has a fault happen. Of several that meet at one call the first injected happens.
    pub fn inject(&self, fault: Fault) {
        self.state.lock().faults.add(fault);
    }

    /// Forgets the faults that are still to come.
    pub fn heal(&self) {
        self.state.lock().faults.clear();
    }

    /// Calls that stores have made so far, on everything the disk holds.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.state.lock().faults.calls()
    }

    /// Faults that have happened so far.
    #[must_use]
    pub fn injected(&self) -> u64 {
        self.state.lock().faults.injected()
    }

    /// Bytes that all files together may have; `None`, as at first, for no limit. Over it files do
    /// not grow and none is created: `ENOSPC`.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.state.lock().capacity = bytes;
    }

    /// Bytes that all files together have.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.state.lock().used()
    }

    /// The files there are, each with its length in bytes.
    #[must_use]
    pub fn files(&self) -> Vec<(PathBuf, u64)> {
        let state = self.state.lock();
        state.names.iter().map(|(path, content)| (path.clone(), content.lock().len() as u64)).collect()
    }

    /// Changes bytes of a file behind the store's back, as damage would. Does nothing to a file
    /// that is not there or a range past its end.
    pub fn damage(&self, path: impl AsRef<Path>, offset: u64, bytes: &[u8]) {
        let state = self.state.lock();
        if let (Some(content), Ok(start)) = (state.names.get(path.as_ref()), usize::try_from(offset)) {
            content.lock().damage(start, bytes);
        }
    }

    /// Breaks the sector of 512 bytes that holds this byte of a file, as a device does that ages: reads
    /// of it fail until it is written anew. Does nothing to a file that is not there.
    pub fn break_sector(&self, path: impl AsRef<Path>, offset: u64) {
        let state = self.state.lock();
        if let (Some(content), Ok(start)) = (state.names.get(path.as_ref()), usize::try_from(offset)) {
            content.lock().break_sector(start);
        }
    }

    /// What a file holds now; `None` if it is not there.
    #[must_use]
    pub fn contents(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        let state = self.state.lock();
        state.names.get(path.as_ref()).map(|content| content.lock().bytes().to_vec())
    }

    /// Puts a file with this content in place, durably, behind the store's back.
    pub fn replace(&self, path: impl AsRef<Path>, bytes: &[u8]) {
        let content = Arc::new(Mutex::new(Content::durable(bytes.to_vec())));
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

    /// The state for one call of a store, unless the call fails.
    fn call(&self, call: Call, effect: impl FnOnce(&mut State) -> io::Result<()>) -> io::Result<()> {
        let mut state = State::running(&self.state, self.boot)?;
        match state.faults.at(call) {
            None => effect(&mut state),
            Some(FaultKind::PowerCut) => {
                state.cut_power_around(effect);
                Err(no_power())
            }
            Some(kind) => Err(kind.error()),
        }
    }

    fn open_file(&self, state: &State, content: &Shared) -> Arc<dyn DiskFile> {
        Arc::new(MemoryFile { disk: Arc::clone(&self.state), boot: state.boot, content: Arc::clone(content) })
    }
}

impl State {
    /// The state, unless the power was cut since `boot`.
    fn running(state: &Mutex<Self>, boot: Option<u64>) -> io::Result<MutexGuard<'_, Self>> {
        let state = state.lock();
        if boot.is_none_or(|boot| boot == state.boot) { Ok(state) } else { Err(no_power()) }
    }

    fn crash(&mut self) {
        self.boot += 1;
        self.locks.clear();
        self.faults.clear();
        let paths: Vec<PathBuf> = self.names.keys().chain(self.durable_names.keys()).cloned().collect();
        let mut kept = BTreeMap::new();
        for path in paths {
            let side = if self.random.coin() { &self.names } else { &self.durable_names };
            match side.get(&path) {
                Some(content) => drop(kept.insert(path, Arc::clone(content))),
                None => drop(kept.remove(&path)),
            }
        }
        // Each file is copied, so that a dead handle cannot write to what survives.
        for content in kept.values_mut() {
            let survivor = content.lock().survivor(&mut self.random);
            *content = Arc::new(Mutex::new(survivor));
        }
        self.durable_names.clone_from(&kept);
        self.names = kept;
    }

    /// A crash in the middle of a call: it may have had its effect, which nobody was told.
    fn cut_power_around(&mut self, effect: impl FnOnce(&mut Self) -> io::Result<()>) {
        if self.random.coin() {
            let _ = effect(self);
        }
        self.crash();
    }

    fn used(&self) -> u64 {
        self.names.values().map(|content| content.lock().len() as u64).sum()
    }

    /// Bytes by which files may still grow.
    fn free(&self) -> usize {
        let free = self.capacity.map_or(u64::MAX, |capacity| capacity.saturating_sub(self.used()));
        usize::try_from(free).unwrap_or(usize::MAX)
    }
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
        let mut state = State::running(&self.state, self.boot)?;
        if !state.locks.insert(path.to_path_buf()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(MemoryLock { disk: Arc::clone(&self.state), boot: state.boot, path: path.to_path_buf() }))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let mut file = None;
        self.call(Call::Create, |state| {
            if state.free() == 0 {
                return Err(FaultKind::NoSpace.error());
            }
            // Over another one it is the same file, emptied: whoever has that open sees it, too.
            let content = Arc::clone(state.names.entry(path.to_path_buf()).or_default());
            content.lock().empty();
            file = Some(self.open_file(state, &content));
            Ok(())
        })?;
        file.ok_or_else(|| not_found(path))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let mut file = None;
        self.call(Call::Open, |state| {
            file = state.names.get(path).map(|content| self.open_file(state, content));
            Ok(())
        })?;
        file.ok_or_else(|| not_found(path))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.call(Call::Remove, |state| state.names.remove(path).map(drop).ok_or_else(|| not_found(path)))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        self.call(Call::List, |state| {
            files.extend(state.names.keys().filter(|path| path.parent() == Some(dir)).cloned());
            Ok(())
        })?;
        Ok(files)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.call(Call::SyncDir, |state| {
            state.durable_names.retain(|path, _| path.parent() != Some(dir));
            let now = state.names.iter().filter(|(path, _)| path.parent() == Some(dir));
            state.durable_names.extend(now.map(|(path, content)| (path.clone(), Arc::clone(content))));
            Ok(())
        })
    }

    fn random(&self) -> u64 {
        self.state.lock().random.next()
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
    content: Shared,
}

/// What a call on a file works with.
struct Bench<'a> {
    random: &'a mut Random,
    /// Bytes by which the file may grow.
    free: usize,
    content: &'a mut Content,
}

impl MemoryFile {
    /// One call: what it does, and what it does instead at a fault that is not a power cut.
    fn call<T>(
        &self,
        call: Call,
        effect: impl FnOnce(&mut Bench<'_>) -> io::Result<T>,
        fault: impl FnOnce(&mut Bench<'_>, FaultKind) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut state = State::running(&self.disk, Some(self.boot))?;
        match state.faults.at(call) {
            None => self.with(&mut state, effect),
            Some(FaultKind::PowerCut) => {
                state.cut_power_around(|state| self.with(state, effect).map(drop));
                Err(no_power())
            }
            Some(kind) => self.with(&mut state, |bench| fault(bench, kind)),
        }
    }

    fn with<T>(&self, state: &mut State, work: impl FnOnce(&mut Bench<'_>) -> T) -> T {
        let free = state.free();
        let mut content = self.content.lock();
        work(&mut Bench { random: &mut state.random, free, content: &mut content })
    }
}

impl Bench<'_> {
    /// Writes what there is room for.
    fn write(&mut self, bytes: &[u8], start: usize) -> io::Result<usize> {
        let room = (self.content.len().saturating_add(self.free)).saturating_sub(start);
        let count = bytes.len().min(room);
        if count == 0 && !bytes.is_empty() {
            return Err(FaultKind::NoSpace.error());
        }
        self.content.write(start, &bytes[..count]);
        Ok(count)
    }

    fn read(&self, buffer: &mut [u8], start: usize) -> usize {
        let bytes = self.content.bytes().get(start..).unwrap_or_default();
        let count = bytes.len().min(buffer.len());
        buffer[..count].copy_from_slice(&bytes[..count]);
        count
    }
}

fn fails<T>(_: &mut Bench<'_>, kind: FaultKind) -> io::Result<T> {
    Err(kind.error())
}

fn place(offset: u64) -> io::Result<usize> {
    usize::try_from(offset).map_err(|_| io::ErrorKind::FileTooLarge.into())
}

impl DiskFile for MemoryFile {
    fn len(&self) -> io::Result<u64> {
        let len = |bench: &mut Bench<'_>| Ok(bench.content.len() as u64);
        self.call(Call::Read, len, |bench, kind| match kind {
            FaultKind::Short | FaultKind::Interrupted => len(bench),
            kind => Err(kind.error()),
        })
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let start = place(offset)?;
        let buffer = RefCell::new(buffer);
        self.call(
            Call::Read,
            |bench| {
                let mut buffer = buffer.borrow_mut();
                if bench.content.is_broken(start, buffer.len()) {
                    return Err(FaultKind::Io.error());
                }
                Ok(bench.read(&mut buffer, start))
            },
            |bench, kind| match kind {
                FaultKind::Short => {
                    let mut buffer = buffer.borrow_mut();
                    let half = buffer.len().div_ceil(2);
                    Ok(bench.read(&mut buffer[..half], start))
                }
                kind => Err(kind.error()),
            },
        )
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let start = place(offset)?;
        self.call(
            Call::Write,
            |bench| bench.write(bytes, start),
            |bench, kind| match kind {
                FaultKind::Short => bench.write(&bytes[..bytes.len().div_ceil(2)], start),
                FaultKind::Interrupted => Err(kind.error()),
                kind => {
                    let part = bench.random.below(bytes.len() + 1);
                    let _ = bench.write(&bytes[..part], start);
                    Err(kind.error())
                }
            },
        )
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let len = place(len)?;
        self.call(
            Call::SetLen,
            |bench| {
                if len > bench.content.len().saturating_add(bench.free) {
                    return Err(FaultKind::NoSpace.error());
                }
                bench.content.set_len(len);
                Ok(())
            },
            fails,
        )
    }

    fn sync(&self) -> io::Result<()> {
        self.call(
            Call::Sync,
            |bench| {
                bench.content.sync();
                Ok(())
            },
            |bench, kind| {
                if kind != FaultKind::Interrupted {
                    bench.content.fail_sync(bench.random);
                }
                Err(kind.error())
            },
        )
    }

    fn drop_cache(&self) -> io::Result<()> {
        drop(State::running(&self.disk, Some(self.boot))?);
        self.content.lock().drop_cache();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{is_no_space, read_exact_at, sync, write_all_at};

    const DIR: &str = "d";
    const PATH: &str = "d/file";

    fn with_file(seed: u64) -> (MemoryDisk, Arc<dyn DiskFile>) {
        let disk = MemoryDisk::new(seed);
        let file = disk.create(PATH.as_ref()).unwrap();
        (disk, file)
    }

    #[test]
    fn handles_from_before_a_crash_are_dead() {
        let (disk, file) = with_file(1);
        let mounted = disk.mounted();
        file.sync().unwrap();
        disk.sync_dir(DIR.as_ref()).unwrap();
        disk.crash();
        assert!(file.sync().is_err() && file.len().is_err() && mounted.open(PATH.as_ref()).is_err());
        assert!(disk.mounted().open(PATH.as_ref()).is_ok());
    }

    #[test]
    fn an_unsynced_creation_or_removal_may_be_forgotten() {
        let mut fates = HashSet::new();
        for seed in 0..64 {
            let (disk, file) = with_file(seed);
            file.sync().unwrap();
            disk.crash();
            let created = disk.contents(PATH).is_some();
            disk.replace(PATH, b"");
            disk.remove(PATH.as_ref()).unwrap();
            disk.crash();
            fates.insert((created, disk.contents(PATH).is_some()));
        }
        assert_eq!(fates.len(), 4);
    }

    /// As with `O_TRUNC`: no new file takes the place of the old one.
    #[test]
    fn a_creation_over_a_file_empties_that_file_for_all_who_have_it_open() {
        let mut fates = HashSet::new();
        for seed in 0..64 {
            let (disk, before) = with_file(seed);
            write_all_at(&*before, b"before", 0).unwrap();
            before.sync().unwrap();
            disk.sync_dir(DIR.as_ref()).unwrap();
            let after = disk.create(PATH.as_ref()).unwrap();
            assert_eq!((before.len().unwrap(), after.len().unwrap()), (0, 0));
            write_all_at(&*after, b"new", 0).unwrap();
            let mut seen = [0; 3];
            read_exact_at(&*before, &mut seen, 0).unwrap();
            assert_eq!(&seen, b"new");
            if seed % 2 == 0 {
                before.sync().unwrap();
                disk.crash();
                assert_eq!(disk.contents(PATH).unwrap(), b"new", "the name was durable already");
            } else {
                disk.crash();
                fates.insert(disk.contents(PATH).unwrap());
            }
        }
        let possible: [&[u8]; 4] = [b"before", b"newore", b"new", b""];
        assert_eq!(fates, possible.into_iter().map(<[u8]>::to_vec).collect(), "each change is kept or lost");
    }

    #[test]
    fn the_lock_is_exclusive_and_dies_with_its_holder() {
        let disk = MemoryDisk::new(0);
        let held = disk.lock(Path::new("lock")).unwrap();
        assert_eq!(disk.lock(Path::new("lock")).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(held);
        disk.lock(Path::new("lock")).unwrap();
    }

    #[test]
    fn short_and_interrupted_calls_are_survived_and_all_others_fail() {
        let (disk, file) = with_file(1);
        for kind in [FaultKind::Short, FaultKind::Interrupted] {
            disk.inject(Fault::new(kind).lasting());
            write_all_at(&*file, b"hello", 0).unwrap();
            sync(&*file).unwrap();
            let mut back = [0; 5];
            read_exact_at(&*file, &mut back, 0).unwrap();
            assert_eq!(&back, b"hello");
            disk.heal();
        }
        assert!(disk.injected() > 5);
        disk.inject(Fault::new(FaultKind::Io).on(Call::Read).after(1));
        file.len().unwrap();
        file.len().unwrap_err();
        file.len().unwrap();
    }

    #[test]
    fn a_full_disk_takes_what_fits_and_has_room_again() {
        let (disk, file) = with_file(1);
        disk.set_capacity(Some(6));
        assert_eq!(file.write_at(b"12345678", 0).unwrap(), 6);
        assert!(is_no_space(&file.write_at(b"78", 6).unwrap_err()));
        assert!(is_no_space(&disk.create(Path::new("d/other")).unwrap_err()));
        assert!(is_no_space(&file.set_len(7).unwrap_err()));
        file.write_at(b"x", 5).unwrap();
        file.sync().unwrap();
        disk.set_capacity(Some(8));
        write_all_at(&*file, b"78", 6).unwrap();
    }

    #[test]
    fn a_power_cut_at_a_call_comes_before_its_effect_or_after_it() {
        let mut fates = HashSet::new();
        for seed in 0..64 {
            let (disk, file) = with_file(seed);
            file.write_at(b"a", 0).unwrap();
            file.sync().unwrap();
            disk.sync_dir(DIR.as_ref()).unwrap();
            disk.inject(Fault::new(FaultKind::PowerCut).on(Call::Remove));
            disk.remove(PATH.as_ref()).unwrap_err();
            assert_eq!(disk.crashes(), 1);
            fates.insert(disk.contents(PATH).is_some());
        }
        assert_eq!(fates.len(), 2);
    }
}
