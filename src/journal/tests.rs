//! The journal as a whole: what was waited for is read back, whatever happened in between.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::batch::Fault;
use super::commit::{AppendError, End, Haste, Journal, Room};
use super::frame::{self, frame_bound};
use super::replay::{Known, Replayed, replay};
use super::segment::{Origin, SEGMENT_HEADER, Segment, Use, path};
use crate::clock::Time;
use crate::disk::memory::MemoryDisk;
use crate::disk::{DiskFile, write_all_at};
use crate::error::Result;
use crate::record::{Begin, Body, StoredRecord};

const DIR: &str = "journal";
const SIZE: u64 = 4096;
const MAX_FRAME: u64 = frame_bound(200);
const KNOWN: Known = Known { released: 0, durable: 0 };

fn segment(disk: &MemoryDisk, ordinal: u32) -> Segment {
    let use_ = Use {
        file_id: ordinal,
        ordinal: ordinal.into(),
        epoch: 1_000 + u64::from(ordinal),
        size: SIZE,
        origin: Origin::default(),
    };
    Segment::prepare(disk, Path::new(DIR), use_).unwrap()
}

/// A journal with `ready` segments beside the first.
fn journal(disk: &MemoryDisk, ready: u32) -> Journal {
    let journal = Journal::new(segment(disk, 1), 0, Vec::new(), MAX_FRAME);
    for ordinal in 2..2 + ready {
        journal.add_ready(segment(disk, ordinal));
    }
    journal
}

fn record(number: u64) -> Vec<u8> {
    let begin = Begin {
        claimed_at: Time(number),
        window: Duration::from_secs(1),
        attempt: 1,
        fingerprint: None,
        note: Some(&[7; 60]),
    };
    StoredRecord { key: &number.to_le_bytes(), purge_at: Time(0), body: Body::Begin(begin) }.to_bytes()
}

fn append(journal: &Journal, number: u64, haste: Haste) -> Result<u64, AppendError> {
    journal.append(&[&record(number)], Room::Claim { reserve: 0 }, haste)
}

/// Segments 1 to `count`.
fn opened(disk: &MemoryDisk, count: u32) -> Result<Vec<Segment>> {
    let open = |ordinal: u32| {
        Segment::open(disk, Path::new(DIR), ordinal, ordinal.into(), 1_000 + u64::from(ordinal))
    };
    (1..=count).map(open).collect()
}

/// Reads back segments 1 to `count`; the numbers of their records.
fn read_back(disk: &MemoryDisk, count: u32, known: Known) -> Result<(Vec<u64>, Replayed)> {
    let mut numbers = Vec::new();
    let replayed = replay(opened(disk, count)?, known, &mut |seq, record, _| {
        let number = record.written_at().0;
        assert_eq!(seq, number, "records come in order");
        numbers.push(number);
    })?;
    Ok((numbers, replayed))
}

#[test]
fn what_was_waited_for_is_read_back_over_segments() {
    let disk = MemoryDisk::new(1);
    let journal = journal(&disk, 4);
    for number in 1..=100 {
        let seq = append(&journal, number, Haste::Awaited).unwrap();
        journal.wait(seq).unwrap();
        assert_eq!(journal.durable(), number);
    }
    disk.crash();
    let (numbers, replayed) = read_back(&disk, 5, KNOWN).unwrap();
    assert_eq!(numbers, (1..=100).collect::<Vec<_>>());
    assert!(replayed.used.len() > 2, "the frames lie in several segments");
}

#[test]
fn many_threads_share_syncs_and_all_are_answered() {
    let disk = MemoryDisk::new(1);
    let journal = journal(&disk, 60);
    std::thread::scope(|scope| {
        scope.spawn(|| journal.run_ticker(|| {}));
        let workers: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    for round in 0..100 {
                        // Frames that nobody waits for make the sync thread write and change
                        // segments in the middle of a batch.
                        let haste = if round % 3 == 0 { Haste::Written } else { Haste::Awaited };
                        let record = record(round);
                        let seq = journal.append(&[&record], Room::Claim { reserve: 0 }, haste).unwrap();
                        if round % 3 != 0 {
                            journal.wait(seq).unwrap();
                            assert!(journal.durable() >= seq);
                        }
                    }
                })
            })
            .collect();
        for worker in workers {
            worker.join().unwrap();
        }
        journal.stop();
    });
    journal.end(End::Closed).unwrap();
    assert_eq!(journal.durable(), 800);
}

#[test]
fn a_waiter_is_answered_though_a_write_made_its_frame_durable() {
    let disk = MemoryDisk::new(1);
    let journal = journal(&disk, 4);
    // The write of frames that nobody waits for goes over the end of a segment, which syncs it.
    let seqs: Vec<_> = (1..=60).map(|number| append(&journal, number, Haste::Written).unwrap()).collect();
    journal.write_now();
    assert!(journal.durable() > 0, "a segment was left behind");
    std::thread::scope(|scope| {
        for seq in seqs {
            let journal = &journal;
            scope.spawn(move || journal.wait(seq).unwrap());
        }
    });
}

#[test]
fn without_room_nothing_is_appended_but_what_was_reserved() {
    let disk = MemoryDisk::new(1);
    let journal = journal(&disk, 0);
    let reserve = frame_bound(record(0).len());
    let mut granted = 0;
    while journal.append(&[&record(granted + 1)], Room::Claim { reserve }, Haste::Written).is_ok() {
        granted += 1;
    }
    assert!(granted > 3);
    assert!(matches!(append(&journal, 99, Haste::Written), Err(AppendError::NoRoom)));
    for number in granted + 1..=2 * granted {
        journal.append(&[&record(number)], Room::Settle { reserved: reserve }, Haste::Written).unwrap();
    }
    journal.end(End::Closed).unwrap();
    assert_eq!(read_back(&disk, 1, KNOWN).unwrap().0.len() as u64, 2 * granted);
    assert!(matches!(append(&journal, 1, Haste::Written), Err(AppendError::Closed)));
}

/// Fails every sync while told to.
#[derive(Debug)]
struct Failing {
    file: Arc<dyn DiskFile>,
    fails: Arc<AtomicBool>,
}

impl DiskFile for Failing {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
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
        if self.fails.load(Ordering::Relaxed) { Err(io::Error::other("no")) } else { self.file.sync() }
    }
    fn drop_cache(&self) -> io::Result<()> {
        self.file.drop_cache()
    }
}

#[test]
fn a_failed_sync_poisons_for_good_even_if_the_next_would_succeed() {
    let disk = MemoryDisk::new(1);
    let fails = Arc::new(AtomicBool::new(false));
    let mut first = segment(&disk, 1);
    first.file = Arc::new(Failing { file: first.file, fails: Arc::clone(&fails) });
    let journal = Journal::new(first, 0, Vec::new(), MAX_FRAME);
    let durable = append(&journal, 1, Haste::Awaited).unwrap();
    journal.wait(durable).unwrap();

    fails.store(true, Ordering::Relaxed);
    let lost = append(&journal, 2, Haste::Awaited).unwrap();
    assert!(matches!(journal.wait(lost), Err(Fault::Unknown(_))));
    fails.store(false, Ordering::Relaxed);
    assert!(matches!(append(&journal, 3, Haste::Awaited), Err(AppendError::Fault(Fault::Poisoned(_)))));
    assert!(journal.wait(lost).is_err(), "the outcome stays unknown");
    journal.wait(durable).unwrap();
    assert_eq!(journal.durable(), durable);
}

#[test]
fn an_unsynced_tail_is_torn_and_a_synced_frame_is_not() {
    let (mut shortest, mut longest) = (u64::MAX, 0);
    for seed in 0..200 {
        let disk = MemoryDisk::new(seed);
        let journal = journal(&disk, 1);
        for number in 1..=10 {
            append(&journal, number, Haste::Awaited).unwrap();
        }
        journal.wait(10).unwrap();
        for number in 11..=20 {
            append(&journal, number, Haste::Awaited).unwrap();
        }
        journal.write_now();
        disk.crash();
        let (numbers, replayed) = read_back(&disk, 2, KNOWN).unwrap();
        let last = replayed.last_seq;
        assert!((10..=20).contains(&last), "seed {seed}: {last}");
        assert_eq!(numbers, (1..=last).collect::<Vec<_>>());
        (shortest, longest) = (shortest.min(last), longest.max(last));
    }
    assert!(shortest < longest, "crashes differ");
}

#[test]
fn damage_to_a_frame_that_a_later_one_calls_durable_is_an_error() {
    let disk = MemoryDisk::new(1);
    let journal = journal(&disk, 1);
    for number in 1..=12 {
        let seq = append(&journal, number, Haste::Awaited).unwrap();
        journal.wait(seq).unwrap();
    }
    let file = path(Path::new(DIR), 1);
    let frame = u64::try_from(super::frame::size(&sealed_len())).unwrap();
    for number in 0..12 {
        let (disk, offset) = (copy(&disk), SEGMENT_HEADER + number * frame + 40);
        let mut byte = [0];
        read(&disk, 1, offset, &mut byte);
        disk.damage(&file, offset, &[byte[0] ^ 0x10]);
        let result = read_back(&disk, 2, KNOWN);
        if number == 11 {
            assert_eq!(result.unwrap().1.last_seq, 11, "nothing says that the last frame was durable");
            let known = Known { durable: 12, ..KNOWN };
            assert!(read_back(&disk, 2, known).unwrap_err().is_corruption(), "but the catalog may");
        } else {
            assert!(result.unwrap_err().is_corruption(), "frame {number}");
        }
    }
}

fn sealed_len() -> Vec<u8> {
    let mut bytes = Vec::new();
    super::frame::append(&mut bytes, 1, &[&record(1)]);
    bytes
}

fn read(disk: &MemoryDisk, ordinal: u32, offset: u64, bytes: &mut [u8]) {
    use crate::disk::Disk;
    let file = disk.open(&path(Path::new(DIR), ordinal)).unwrap();
    crate::disk::read_exact_at(&*file, bytes, offset).unwrap();
}

/// A disk of its own with the same journal files.
fn copy(disk: &MemoryDisk) -> MemoryDisk {
    use crate::disk::Disk;
    let other = MemoryDisk::new(2);
    for (path, len) in disk.files() {
        let mut bytes = vec![0; usize::try_from(len).unwrap()];
        crate::disk::read_exact_at(&*disk.open(&path).unwrap(), &mut bytes, 0).unwrap();
        crate::disk::write_all_at(&*other.create(&path).unwrap(), &bytes, 0).unwrap();
    }
    other
}

#[test]
fn a_damaged_first_frame_of_a_later_segment_is_an_error() {
    let disk = MemoryDisk::new(1);
    let journal = journal(&disk, 3);
    for number in 1..=60 {
        let seq = append(&journal, number, Haste::Awaited).unwrap();
        journal.wait(seq).unwrap();
    }
    disk.damage(path(Path::new(DIR), 2), SEGMENT_HEADER + 40, &[0xa5; 8]);
    assert!(read_back(&disk, 4, KNOWN).unwrap_err().is_corruption());
}

#[test]
fn a_log_start_ends_what_an_older_segment_holds() {
    let disk = MemoryDisk::new(1);
    let old = journal(&disk, 0);
    for number in 1..=10 {
        append(&old, number, Haste::Awaited).unwrap();
    }
    old.wait(10).unwrap();
    // A recovery that found only five of them readable goes on after those.
    let body = Body::LogStart { segment: 1, last_seq: 5 };
    let start = StoredRecord { key: &[], purge_at: Time(6), body }.to_bytes();
    let new = Journal::new(segment(&disk, 2), 5, Vec::new(), MAX_FRAME);
    new.append(&[&start], Room::Claim { reserve: 0 }, Haste::Awaited).unwrap();
    append(&new, 7, Haste::Awaited).unwrap();
    new.wait(7).unwrap();
    let segments =
        [1, 2].map(|id| Segment::open(&disk, Path::new(DIR), id, id.into(), 1_000 + u64::from(id)));
    let mut seqs = Vec::new();
    let segments = segments.into_iter().collect::<Result<Vec<_>>>().unwrap();
    let replayed = replay(segments, KNOWN, &mut |seq, _, _| seqs.push(seq)).unwrap();
    assert_eq!(seqs, [1, 2, 3, 4, 5, 6, 7], "each number once, the newer segment's from 6 on");
    assert_eq!((replayed.last_seq, replayed.last_segment), (7, 2));
}

/// Whatever numbers frames and the catalog name, with good checksums, replay ends or reports damage.
#[test]
fn numbers_at_the_end_of_their_range_are_read_without_a_panic() {
    let numbers = [0, 1, 2, u64::MAX - 1, u64::MAX];
    for first in numbers {
        for last_seq in numbers {
            let disk = MemoryDisk::new(1);
            let start = Body::LogStart { segment: last_seq, last_seq };
            let start = StoredRecord { key: &[], purge_at: Time(0), body: start }.to_bytes();
            for (ordinal, seq) in [(1, first), (2, first.wrapping_add(1)), (3, first)] {
                let segment = segment(&disk, ordinal);
                let mut frame = Vec::new();
                let record = if ordinal == 2 { start.clone() } else { record(seq) };
                frame::append(&mut frame, seq, &[&record]);
                frame::seal(&mut frame, last_seq, segment.epoch);
                write_all_at(&*segment.file, &frame, SEGMENT_HEADER).unwrap();
            }
            for released in numbers {
                for durable in numbers {
                    let known = Known { released, durable };
                    for count in 0..=3 {
                        let segments = opened(&disk, count).unwrap();
                        if let Ok(replayed) = replay(segments, known, &mut |_, _, _| {}) {
                            assert!(replayed.last_seq >= durable, "{known:?} {replayed:?}");
                        }
                    }
                }
            }
        }
    }
}
