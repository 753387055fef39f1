//! A salvage that is cut short can be done again.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use crate::clock::ManualClock;
use crate::disk::memory::MemoryDisk;
use crate::disk::{Disk, DiskFile, Lock};
use crate::options::Options;
use crate::salvage::{Missing, Salvaged};
use crate::store::Store;

const DIR: &str = "store";

/// Loses its power after so many changes.
#[derive(Clone, Debug)]
struct Cutting {
    disk: MemoryDisk,
    changes_left: Arc<AtomicU64>,
}

impl Cutting {
    fn change(&self) {
        if self.changes_left.fetch_sub(1, Ordering::Relaxed) == 0 {
            self.disk.crash();
        }
    }

    fn file(&self, file: io::Result<Arc<dyn DiskFile>>) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(CuttingFile { file: file?, disk: self.clone() }))
    }
}

#[derive(Debug)]
struct CuttingFile {
    file: Arc<dyn DiskFile>,
    disk: Cutting,
}

impl Disk for Cutting {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.create_dir(dir)
    }
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        self.disk.lock(path)
    }
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.change();
        self.file(self.disk.create(path))
    }
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.file(self.disk.open(path))
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.change();
        self.disk.remove(path)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        self.disk.list(dir)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.change();
        self.disk.sync_dir(dir)
    }
    fn random(&self) -> u64 {
        self.disk.random()
    }
}

impl DiskFile for CuttingFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.disk.change();
        self.file.write_at(bytes, offset)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.disk.change();
        self.file.set_len(len)
    }
    fn sync(&self) -> io::Result<()> {
        self.disk.change();
        self.file.sync()
    }
    fn drop_cache(&self) -> io::Result<()> {
        self.file.drop_cache()
    }
}

fn options(clock: &ManualClock) -> Options {
    Store::options().memory_limit(1 << 20).max_response_len(4 << 10).clock(clock.clone())
}

/// The files of a store with runs, responses and a journal, and when each key was completed.
fn written(clock: &ManualClock) -> (BTreeMap<PathBuf, Vec<u8>>, BTreeMap<String, SystemTime>) {
    let disk = MemoryDisk::new(5);
    let store = options(clock).disk(&disk).open(DIR).unwrap();
    let scope = store.scope("s").unwrap();
    let mut keys = BTreeMap::new();
    for number in 0..60 {
        clock.advance(Duration::from_secs(200));
        let id = format!("evt_{number}");
        let response = vec![7; if number % 4 == 0 { 2_000 } else { 10 }];
        let record = scope.request(&id).claim_with(response).unwrap().into_new().unwrap();
        keys.insert(id, record.completed_at().unwrap());
        if number == 15 || number == 35 {
            store.maintain().unwrap();
        }
    }
    disk.crash();
    let files = disk.files().into_iter().map(|(path, _)| (path.clone(), disk.contents(&path).unwrap()));
    (files.collect(), keys)
}

fn copy(files: &BTreeMap<PathBuf, Vec<u8>>, seed: u64) -> MemoryDisk {
    let disk = MemoryDisk::new(seed);
    for (path, bytes) in files {
        disk.replace(path, bytes);
    }
    disk
}

fn is_lost(missing: &[Missing], at: SystemTime) -> bool {
    missing.iter().filter_map(|missing| missing.claims.as_ref()).any(|range| range.contains(&at))
}

/// Damages a run, a response file and the journal.
fn damage(files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    let of = |ending| files.keys().filter(move |path| path.to_string_lossy().ends_with(ending)).cloned();
    let first = |ending| of(ending).next().unwrap();
    let (run, responses) = (of(".run").next_back().unwrap(), first(".responses"));
    let frames = |path: &PathBuf| files[path][512..].iter().rposition(|&byte| byte != 0).unwrap_or(0);
    let journal = of(".segment").max_by_key(frames).unwrap();
    let (in_runs, in_no_run) = (512 + frames(&journal) / 3, 512 + frames(&journal) / 6 * 5);
    for (path, place) in [(run, 100), (responses, 100), (journal.clone(), in_runs), (journal, in_no_run)] {
        files.get_mut(&path).unwrap()[place] ^= 0x55;
    }
}

/// What was damaged is told by the last salvage, or stands in the report of one before it.
fn assert_told(disk: &MemoryDisk, missing: &[Missing], expected: &[Missing]) {
    let is_report =
        |path: &Path| path.starts_with("store/damaged") && path.to_string_lossy().contains("report");
    let paths = disk.files().into_iter().map(|(path, _)| path).filter(|path| is_report(path));
    let reports: String =
        paths.map(|path| String::from_utf8(disk.contents(path).unwrap()).unwrap()).collect();
    for loss in expected {
        let told = missing.iter().any(|told| told.path == loss.path)
            || reports.contains(&*loss.path.to_string_lossy());
        assert!(told, "nobody tells of {loss:?} beside {missing:?}: {reports}");
    }
}

#[test]
fn a_salvage_cut_short_anywhere_can_be_done_again() {
    // Whatever of it has been done, what is sound is there in the end, and no more is lost.
    let clock = ManualClock::new(SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_268_800));
    let (mut files, keys) = written(&clock);
    damage(&mut files);
    let mut without_catalog = files.clone();
    without_catalog.remove(Path::new("store/catalog.redb")).unwrap();
    for (seed, files) in [(1, files), (2, without_catalog)] {
        let Salvaged { store, missing: expected, .. } =
            options(&clock).disk(&copy(&files, seed)).salvage(DIR).unwrap();
        let scope = store.scope("s").unwrap();
        let found: BTreeSet<_> = keys.keys().filter(|id| scope.contains(id).unwrap()).cloned().collect();
        store.close().unwrap();
        assert!(expected.len() >= 3, "{expected:?}");
        let kept = keys.values().filter(|&&at| !is_lost(&expected, at)).count();
        assert!(kept > 20 && kept < keys.len(), "{kept} kept: {expected:?}");
        for changes in 0.. {
            let disk = copy(&files, seed + changes);
            let changes_left = Arc::new(AtomicU64::new(changes));
            let mut cut = options(&clock);
            cut.disk = Arc::new(Cutting { disk: disk.mounted(), changes_left: Arc::clone(&changes_left) });
            let whole = cut.salvage(DIR).is_ok() && changes_left.load(Ordering::Relaxed) < 1 << 40;
            disk.crash();
            let salvaged = options(&clock).disk(&disk).salvage(DIR).unwrap();
            assert_told(&disk, &salvaged.missing, &expected);
            let scope = salvaged.store.scope("s").unwrap();
            for (id, &at) in &keys {
                let there = scope.contains(id).unwrap();
                assert!(there || is_lost(&expected, at));
                assert!(there || !found.contains(id), "{id} is lost after {changes} changes (seed {seed})");
            }
            assert!(salvaged.store.verify().unwrap().is_sound(), "after {changes} changes");
            salvaged.store.close().unwrap();
            if whole {
                break;
            }
        }
    }
}
