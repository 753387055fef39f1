//! A check of all files finds what is wrong while the store is in use, and nothing else.

use super::cases::{Damage, flips, is_beyond_promise, seed};
use super::common::{Dice, at_once, new};
use super::panics;
use super::sample::{DIR, Image, SCOPES, sample};
use oncedb::Store;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// Opens a sound copy, damages the files under it, and checks.
fn damaged_in_use(image: &Image, damage: &Damage) -> oncedb::Verification {
    let disk = image.disk(1);
    let store = image.options(&disk).open(DIR).unwrap();
    if let Damage::Flip { path, offset, by } = damage
        && let Some(bytes) = disk.contents(path)
    {
        disk.damage(path, *offset as u64, &[bytes[*offset] ^ by]);
    }
    store.verify().unwrap()
}

#[test]
fn every_changed_byte_of_runs_and_used_segments_is_found() {
    // No byte that a lookup, a merge or a recovery may read one day is left out.
    panics::watch();
    let seed = seed();
    let image = sample(false);
    let mut damages = flips(&image, 12, &mut Dice::new(seed));
    damages.retain(|damage| !is_beyond_promise(&image, damage));
    // Files that the opening itself removes, or makes ready for another use, are in no use.
    let mut read = Vec::new();
    let disk = image.disk(1);
    let store = image.options(&disk).open(DIR).unwrap();
    store.verify_with(|progress| read.push(progress.path.to_path_buf())).unwrap();
    read.retain(|path| disk.contents(path).as_ref() == image.files.get(path));
    let used = |path: &PathBuf| {
        let in_use = path.extension().is_some_and(|ending| ending == "run");
        let frames = path.extension().is_some_and(|ending| ending == "segment")
            && super::sample::frames(&image.files[path]).len() > 1;
        read.contains(path) && (in_use || frames)
    };
    let mut tried = 0;
    for damage in &damages {
        let Damage::Flip { path, offset, .. } = damage else { continue };
        let framed = super::sample::frames(&image.files[path]).last().map_or(512, |(_, end, ..)| *end);
        if used(path) && (path.extension().is_some_and(|ending| ending == "run") || *offset < framed) {
            let found = damaged_in_use(&image, damage);
            tried += 1;
            let named = found.problems.iter().any(|problem| problem.path == *path);
            assert!(named, "{damage:?} was not found: {:?} (ONCEDB_SEED={seed})", found.problems);
        }
    }
    assert!(tried > 50, "only {tried} were tried");
}

#[test]
fn one_check_finds_all_that_is_wrong() {
    // Damage does not end a check: what lies behind it is read, too.
    let image = sample(false);
    let disk = image.disk(1);
    let store = image.options(&disk).open(DIR).unwrap();
    let runs: Vec<_> =
        disk.files().into_iter().filter(|(path, _)| path.to_string_lossy().ends_with(".run")).collect();
    assert!(runs.len() > 3);
    for (path, len) in &runs {
        // In its first block, and in its last bytes.
        disk.damage(path, 80, b"damage");
        disk.damage(path, len - 3, b"x");
    }
    let found = store.verify().unwrap();
    for (path, _) in &runs {
        assert!(found.problems.iter().any(|problem| problem.path == *path), "{}", path.display());
    }
    let scope = store.scope(SCOPES[0]).unwrap();
    let _ = new(scope.claim("goes on"));
}

#[test]
fn a_check_beside_claims_and_maintenance_raises_no_false_alarm() {
    // Segments are recycled and runs merged away under the reader, and both are no damage.
    let disk = oncedb::simulation::MemoryDisk::new(9);
    let store =
        Store::options().memory_limit(1 << 20).max_response_len(4 << 10).disk(&disk).open(DIR).unwrap();
    let ended = AtomicBool::new(false);
    let checks = at_once(3, |thread| {
        let mut checks = 0;
        if thread == 0 {
            while !ended.load(Ordering::Acquire) {
                let found = store.verify().unwrap();
                assert!(found.is_sound(), "{:?}", found.problems);
                checks += 1;
            }
            return checks;
        }
        let scope = store.scope("s").unwrap();
        for round in 0..60 {
            let ids: Vec<_> = (0..400).map(|number| format!("{thread} {round} {number}")).collect();
            assert!(scope.claim_many(&ids).unwrap().iter().all(oncedb::Outcome::is_new));
            let _ = new(scope.request(format!("large {thread} {round}")).claim_with(vec![7; 3_000]));
            if round % 3 == 0 {
                store.maintain().unwrap();
            }
        }
        ended.store(true, Ordering::Release);
        checks
    });
    assert!(checks[0] > 0);
}

#[test]
fn progress_grows_to_the_end_and_names_every_file() {
    // Whoever shows it to a person can show a bar that never goes back.
    let image = sample(false);
    let store = image.open().unwrap();
    let (mut last, mut total, mut paths) = (0, 0, Vec::new());
    let found = store
        .verify_with(|progress| {
            assert!(progress.bytes_done >= last && progress.bytes_done <= progress.bytes_total);
            (last, total) = (progress.bytes_done, progress.bytes_total);
            paths.push(progress.path.to_path_buf());
        })
        .unwrap();
    paths.dedup();
    assert_eq!(last, total);
    assert!(found.files > 10 && found.records > 100 && found.responses > 10 && found.bytes == total);
    assert!(paths.len() as u64 >= found.files);
    let found = super::common::block_on(store.verify_async()).unwrap();
    assert!(found.is_sound());
    store.close().unwrap();
    assert!(matches!(store.verify(), Err(oncedb::Error::Closed { .. })));
}
