//! The files of all runs and responses: how many are open, and when one is removed.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hashbrown::HashTable;

use crate::disk::{Disk, DiskFile};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};

/// Opens files when they are needed and closes the least recently used one when there are too
/// many. A handle that was given out lives on until it is let go, cached or not.
#[derive(Debug)]
pub(crate) struct FileCache {
    disk: Arc<dyn Disk>,
    capacity: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    open: HashTable<Open>,
    /// Counts lookups; the stamp of an entry says when it was last wanted.
    clock: u64,
    forgotten: u64,
}

#[derive(Debug)]
struct Open {
    id: u64,
    used: u64,
    file: Arc<dyn DiskFile>,
}

impl FileCache {
    /// A cache of at most `capacity` open files, but at least one.
    pub(crate) fn new(disk: Arc<dyn Disk>, capacity: usize) -> Self {
        Self { disk, capacity: capacity.max(1), state: Mutex::default() }
    }

    pub(crate) fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// The file at `path`, which is the only one ever known by `id`.
    pub(crate) fn get(&self, id: u64, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let forgotten = {
            let mut state = self.state.lock();
            if let Some(file) = state.find(id) {
                return Ok(file);
            }
            state.forgotten
        };
        let file = self.disk.open(path)?;
        let mut closing = None;
        let mut state = self.state.lock();
        if let Some(file) = state.find(id) {
            return Ok(file);
        }
        // A file that was forgotten while it was being opened must not stay behind; which one it
        // was is not known, so none is kept.
        if state.forgotten == forgotten {
            if state.open.len() >= self.capacity {
                closing = state.evict();
            }
            let used = state.clock;
            let open = Open { id, used, file: Arc::clone(&file) };
            state.open.insert_unique(spread(id), open, |open| spread(open.id));
        }
        drop(state);
        // Closing is a call to the system, so it is done outside the lock.
        drop(closing);
        Ok(file)
    }

    /// Closes the file, now or when the last who holds it lets go. Call it before the file is removed.
    pub(crate) fn forget(&self, id: u64) {
        let mut state = self.state.lock();
        state.forgotten += 1;
        let closing = state.remove(id);
        drop(state);
        drop(closing);
    }
}

impl State {
    fn find(&mut self, id: u64) -> Option<Arc<dyn DiskFile>> {
        self.clock += 1;
        let open = self.open.find_mut(spread(id), |open| open.id == id)?;
        open.used = self.clock;
        Some(Arc::clone(&open.file))
    }

    /// Looks at every entry, which is little beside the opening of a file that goes with it, and
    /// leaves a lookup that finds its file with one stamp to write.
    fn evict(&mut self) -> Option<Open> {
        let oldest = self.open.iter().min_by_key(|open| open.used)?.id;
        self.remove(oldest)
    }

    fn remove(&mut self, id: u64) -> Option<Open> {
        let entry = self.open.find_entry(spread(id), |open| open.id == id).ok()?;
        Some(entry.remove().0)
    }
}

/// A file that is kept for as long as somebody uses it, and then removed if it is doomed.
pub(super) struct KeptFile {
    files: Arc<FileCache>,
    id: u64,
    path: PathBuf,
    doomed: AtomicBool,
}

impl KeptFile {
    pub(super) fn new(files: &Arc<FileCache>, id: u64, path: PathBuf) -> Self {
        Self { files: Arc::clone(files), id, path, doomed: AtomicBool::new(false) }
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn handle(&self) -> io::Result<Arc<dyn DiskFile>> {
        self.files.get(self.id, &self.path)
    }

    pub(super) fn doom(&self) {
        self.doomed.store(true, Ordering::Release);
    }
}

impl fmt::Debug for KeptFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeptFile").field(&self.id).field(&self.path).field(&self.doomed).finish()
    }
}

impl Drop for KeptFile {
    fn drop(&mut self) {
        self.files.forget(self.id);
        if self.doomed.load(Ordering::Acquire) {
            // A file that stays is not in the catalog, and the next open removes it.
            let _ = self.files.disk().remove(&self.path);
        }
    }
}

/// Ids count upwards; the table wants the high bits to differ as well.
fn spread(id: u64) -> u64 {
    id.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::memory::MemoryDisk;

    fn cache(files: u64, capacity: usize) -> FileCache {
        let disk = MemoryDisk::new(0);
        for id in 0..files {
            disk.create(&path(id)).unwrap();
        }
        FileCache::new(Arc::new(disk), capacity)
    }

    fn path(id: u64) -> PathBuf {
        format!("d/{id}").into()
    }

    fn is_cached(file: &Arc<dyn DiskFile>) -> bool {
        Arc::strong_count(file) > 1
    }

    #[test]
    fn the_number_of_open_files_is_bounded_and_the_least_recently_used_goes() {
        let cache = cache(10, 3);
        let first = cache.get(0, &path(0)).unwrap();
        let others: Vec<_> = (1..10)
            .map(|id| {
                assert!(Arc::ptr_eq(&first, &cache.get(0, &path(0)).unwrap()));
                cache.get(id, &path(id)).unwrap()
            })
            .collect();
        assert!(is_cached(&first));
        assert_eq!(others.iter().filter(|file| is_cached(file)).count(), 2);
        assert!(is_cached(&others[7]) && is_cached(&others[8]));
    }

    #[test]
    fn a_forgotten_file_is_closed_and_opened_again_on_demand() {
        let cache = cache(1, 3);
        let file = cache.get(0, &path(0)).unwrap();
        cache.forget(0);
        cache.forget(7);
        assert!(!is_cached(&file));
        assert!(!Arc::ptr_eq(&file, &cache.get(0, &path(0)).unwrap()));
    }

    #[test]
    fn a_missing_file_is_an_error_and_is_not_kept() {
        let cache = cache(0, 3);
        assert_eq!(cache.get(0, &path(0)).unwrap_err().kind(), io::ErrorKind::NotFound);
        cache.disk().create(&path(0)).unwrap();
        cache.get(0, &path(0)).unwrap();
    }

    #[test]
    fn threads_share_the_handles() {
        let cache = cache(8, 4);
        std::thread::scope(|scope| {
            for start in 0..4 {
                let cache = &cache;
                scope.spawn(move || {
                    for step in 0..2_000 {
                        let id = (start * 3 + step) % 8;
                        cache.get(id, &path(id)).unwrap().len().unwrap();
                        if step % 50 == 0 {
                            cache.forget(id);
                        }
                    }
                });
            }
        });
        assert!(cache.state.lock().open.len() <= 4);
    }
}
