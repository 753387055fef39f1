//! The life of a run: written, opened, searched, scanned, damaged, removed.

use super::*;
use crate::disk::memory::MemoryDisk;
use crate::disk::{Disk, RealDisk, write_all_at};
use crate::runs::layout::VERSION;
use crate::runs::writer::tests::{done, tombstone, write_run};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

const PATH: &str = "d/run";

type Records = Vec<(u64, u64, Vec<u8>)>;

fn cache(disk: &MemoryDisk) -> Arc<FileCache> {
    Arc::new(FileCache::new(Arc::new(disk.clone()), 2))
}

fn written(records: &Records) -> (MemoryDisk, Arc<Run>) {
    let disk = MemoryDisk::new(0);
    let summary = write_run(&disk, PATH.as_ref(), records);
    let run = Run::open(&cache(&disk), 1, PATH.into()).unwrap();
    assert_eq!(*run.summary(), summary);
    (disk, Arc::new(run))
}

/// Everything that can be asked of a run, or the first error.
fn read_all(disk: &MemoryDisk, records: &Records) -> Result<(Records, Vec<Option<Found>>)> {
    let run = Arc::new(Run::open(&cache(disk), 1, PATH.into())?);
    let found =
        records.iter().map(|(hash, _, record)| run.find(*hash, key_of(record))).collect::<Result<_>>();
    let scanned =
        run.scan().map(|item| item.map(|item| (item.hash, item.seq, item.record))).collect::<Result<_>>();
    assert!(found.is_err() <= scanned.is_err(), "a scan misses nothing that a search sees");
    Ok((scanned?, found?))
}

fn check(records: &Records) {
    let (disk, run) = written(records);
    let (scanned, found) = read_all(&disk, records).unwrap();
    assert_eq!(scanned, *records);
    for ((_, seq, record), found) in records.iter().zip(found) {
        assert_eq!(found, Some(Found { seq: *seq, record: record[..].into() }));
    }
    for (hash, _, record) in records {
        assert!(run.may_contain(*hash));
        let mut other = key_of(record).to_vec();
        // Longer than any key there is.
        other.resize(other.len() + 1_000, 0xff);
        assert_eq!(run.find(*hash, &other).unwrap(), None);
        assert_eq!(run.find(hash ^ (1 << 63), key_of(record)).unwrap(), None);
    }
}

/// Three blocks, one of them with a record of its own, and a tombstone.
fn sample() -> Records {
    let record = |key: &[u8], len| done(key, 80, &vec![7; len]);
    vec![
        (3, 9, record(b"a", 40)),
        (3, 8, tombstone(b"b", 90)),
        (5, 7, record(b"a", 1_500)),
        (6, 6, record(b"c", 5_000)),
        (9, 5, record(b"d", 2)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn runs_come_back(
        keys in btree_map((0_u64..40, vec(any::<u8>(), 0..6)), (any::<u64>(), 0_usize..900), 0..60),
    ) {
        let records = keys
            .into_iter()
            .map(|((hash, key), (seq, len))| (hash, seq, done(&key, 80, &vec![1; len])))
            .collect();
        check(&records);
    }
}

#[test]
fn keys_of_one_hash_are_found_across_blocks() {
    let key = |number: u32| number.swap_bytes().to_le_bytes();
    let mut records: Records = (0..500).map(|number| (7, 1, done(&key(number), 80, b"response"))).collect();
    records.insert(0, (6, 1, done(b"before", 80, b"")));
    records.push((8, 1, done(b"behind", 80, b"")));
    let (_, run) = written(&records);
    assert!(run.index.blocks() > 3);
    check(&records);
}

#[test]
fn an_empty_run_answers() {
    let (_, run) = written(&Vec::new());
    assert_eq!(run.find(1, b"a").unwrap(), None);
    assert!(!run.may_contain(1));
    assert_eq!(run.scan().count(), 0);
}

#[test]
fn a_run_larger_than_a_piece_is_scanned_whole() {
    let records: Records = (0..1_000).map(|number| (number, number, done(b"k", 80, &[3; 700]))).collect();
    let (disk, run) = written(&records);
    assert!(run.summary().bytes > 600_000);
    assert!(read_all(&disk, &records).unwrap().0 == records);
}

#[test]
fn every_changed_byte_and_every_cut_is_reported() {
    let records = sample();
    let (disk, run) = written(&records);
    assert_eq!(run.index.blocks(), 3);
    let len = run.summary().bytes;
    let file = disk.open(PATH.as_ref()).unwrap();
    let mut byte = [0];
    let refused = |what: &str| match read_all(&disk, &records) {
        Err(Error::Corrupt { .. } | Error::Version { .. }) => {}
        answer => panic!("{what}: {answer:?}"),
    };
    for offset in 0..len {
        read_exact_at(&*file, &mut byte, offset).unwrap();
        for mask in [0x01, 0x80, 0xff] {
            disk.damage(PATH, offset, &[byte[0] ^ mask]);
            refused(&format!("byte {offset} under {mask:#x}"));
        }
        disk.damage(PATH, offset, &byte);
    }
    assert!(read_all(&disk, &records).is_ok(), "the damage is undone");

    let mut whole = vec![0; usize::try_from(len).unwrap()];
    read_exact_at(&*file, &mut whole, 0).unwrap();
    write_all_at(&*file, &[0], len).unwrap();
    refused("one byte more");
    for cut in (0..len).rev() {
        file.set_len(cut).unwrap();
        refused(&format!("cut at {cut}"));
    }
}

#[test]
fn damage_after_opening_is_reported_with_the_place() {
    let records = sample();
    let (disk, run) = written(&records);
    let second = run.index.range(1).unwrap().start;
    disk.damage(PATH, second + 100, &[0xee]);
    assert!(run.find(3, b"a").unwrap().is_some(), "another block is not affected");
    let error = run.find(6, b"c").unwrap_err();
    assert!(matches!(error, Error::Corrupt { offset, .. } if offset == second), "{error}");
    let answers: Vec<_> = run.scan().collect();
    assert!(answers.last().unwrap().is_err() && answers.len() == 4, "the first block, the error, the end");
    disk.open(PATH.as_ref()).unwrap().set_len(second).unwrap();
    assert!(run.find(9, b"d").unwrap_err().is_corruption());
}

#[test]
fn a_missing_file_is_damage() {
    let error = Run::open(&cache(&MemoryDisk::new(0)), 1, PATH.into()).unwrap_err();
    assert!(matches!(error, Error::Corrupt { offset: 0, what: "the file is missing", .. }));
}

#[test]
fn another_version_is_not_damage() {
    let (disk, _) = written(&sample());
    let mut header = [0; HEADER_LEN];
    read_exact_at(&*disk.open(PATH.as_ref()).unwrap(), &mut header, 0).unwrap();
    header[8..12].copy_from_slice(&(VERSION + 1).to_le_bytes());
    let crc = crc32fast::hash(&header[..60]);
    header[60..].copy_from_slice(&crc.to_le_bytes());
    disk.damage(PATH, 0, &header);
    let error = Run::open(&cache(&disk), 1, PATH.into()).unwrap_err();
    assert!(matches!(error, Error::Version { .. }));
}

#[test]
fn a_scan_checks_what_checksums_cannot() {
    // A filter that denies a record and a block that does not begin where the index says, both
    // with valid sums, as a bug in the writer would leave them.
    let records = sample();
    let (disk, _) = written(&records);
    let opened = || Run::open(&cache(&disk), 1, PATH.into()).unwrap();
    let mut run = opened();
    run.filter = Filter::with_capacity(1);
    assert!(Arc::new(run).scan().any(|item| item.is_err_and(|error| error.is_corruption())));
    let mut run = opened();
    let mut index = run.index.to_bytes();
    index[0] ^= 1;
    run.index = Index::from_bytes(&index, HEADER_LEN as u64, run.index.end()).unwrap();
    assert!(Arc::new(run).scan().next().unwrap().unwrap_err().is_corruption());
}

#[test]
fn a_doomed_file_goes_with_the_last_reader() {
    let records = sample();
    let (disk, run) = written(&records);
    let mut scan = run.scan();
    assert_eq!(scan.next().unwrap().unwrap().seq, 9);
    run.doom();
    drop(run);
    assert_eq!(disk.files().len(), 1);
    assert_eq!(scan.by_ref().map(Result::unwrap).count(), 4);
    drop(scan);
    assert_eq!(disk.files().len(), 0);
}

#[test]
fn a_run_that_is_not_doomed_stays() {
    let (disk, run) = written(&sample());
    drop(run);
    assert_eq!(disk.files().len(), 1);
}

#[test]
fn the_operating_systems_files_will_do() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    let records: Records = (0..20_000).map(|number| (number << 40, number, done(b"k", 80, b"r"))).collect();
    let summary = write_run(&RealDisk, &path, &records);
    assert_eq!(path.metadata().unwrap().len(), summary.bytes);
    let files = Arc::new(FileCache::new(Arc::new(RealDisk), 1));
    let run = Arc::new(Run::open(&files, 1, path.clone()).unwrap());
    assert_eq!(run.scan().map(Result::unwrap).count(), 20_000);
    assert_eq!(run.find(777 << 40, b"k").unwrap().unwrap().seq, 777);
    assert!(run.memory() < 60_000);
    run.doom();
    drop(run);
    assert!(!path.exists());
}
