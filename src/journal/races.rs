//! The commit pipeline alone, under schedules that a test chooses. Built with `--cfg shuttle` only.

use std::future::poll_fn;
use std::io;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use shuttle::rand::{Rng, thread_rng};
use shuttle::thread::{JoinHandle, spawn};

use super::batch::Fault;
use super::commit::{AppendError, End, Haste, Journal, Lead, Room};
use super::frame::{self, frame_bound};
use super::segment::{Origin, SEGMENT_HEADER, Segment, Use};
use crate::disk::DiskFile;
use crate::disk::memory::MemoryDisk;
use crate::pending::block_on_until;
use harness::check;

#[path = "../../tests/races/harness.rs"]
mod harness;

/// The bytes of each test's records, and of their frames.
const RECORD: [u8; 40] = [7; 40];
const MAX_FRAME: u64 = frame_bound(RECORD.len());

/// What a segment's file has been given, and what it has made durable: numbers of frames. Other threads
/// may go on before and after each of its syncs.
#[derive(Debug, Default)]
struct Device {
    written: AtomicU64,
    synced: AtomicU64,
    /// Syncs until one fails, 0 for never.
    fails_at: AtomicU64,
    pause: shuttle::sync::atomic::AtomicBool,
}

impl Device {
    fn pause(&self) {
        self.pause.load(Ordering::SeqCst);
    }

    fn synced(&self) -> u64 {
        self.synced.load(Ordering::SeqCst)
    }
}

#[derive(Debug)]
struct Watched {
    file: Arc<dyn DiskFile>,
    device: Arc<Device>,
}

impl DiskFile for Watched {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let mut rest = bytes;
        while !rest.is_empty() {
            rest = &rest[frame::size(rest)..];
            self.device.written.fetch_add(1, Ordering::SeqCst);
        }
        self.file.write_at(bytes, offset)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }
    fn sync(&self) -> io::Result<()> {
        self.device.pause();
        let left = self.device.fails_at.load(Ordering::SeqCst);
        if left == 1 {
            return Err(io::Error::other("no"));
        }
        self.device.fails_at.store(left.saturating_sub(1), Ordering::SeqCst);
        // What is written while the device syncs need not be on it.
        let written = self.device.written.load(Ordering::SeqCst);
        self.device.pause();
        self.device.synced.store(written, Ordering::SeqCst);
        self.file.sync()
    }
    fn drop_cache(&self) -> io::Result<()> {
        self.file.drop_cache()
    }
}

struct Rig {
    journal: Arc<Journal>,
    device: Arc<Device>,
    ticker: JoinHandle<()>,
}

/// A journal with its sync thread, in segments of so many frames.
fn rig(segments: u32, frames: u64) -> Rig {
    let disk = MemoryDisk::new(1);
    let device = Arc::new(Device::default());
    let segment = |ordinal: u32| {
        let size = SEGMENT_HEADER + (frames + 1) * MAX_FRAME;
        let origin = Origin::default();
        let use_ = Use { file_id: ordinal, ordinal: ordinal.into(), epoch: 7, size, origin };
        let mut segment = Segment::prepare(&disk, Path::new("journal"), use_).unwrap();
        segment.file = Arc::new(Watched { file: segment.file, device: Arc::clone(&device) });
        segment
    };
    let journal = Arc::new(Journal::new(segment(1), 0, Vec::new(), MAX_FRAME));
    (2..=segments).for_each(|ordinal| journal.add_ready(segment(ordinal)));
    let syncing = Arc::clone(&journal);
    let ticker = spawn(move || syncing.run_ticker(|| {}));
    Rig { journal, device, ticker }
}

impl Rig {
    fn spawn<T: 'static + Send>(
        &self,
        body: impl FnOnce(&Journal, &Device) -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let (journal, device) = (Arc::clone(&self.journal), Arc::clone(&self.device));
        spawn(move || body(&journal, &device))
    }

    /// As an engine ends its journal.
    fn end(self) {
        self.journal.stop();
        self.ticker.join().unwrap();
        self.journal.answer_rest();
    }
}

fn append(journal: &Journal, haste: Haste) -> Result<u64, AppendError> {
    journal.append(&[&RECORD], Room::Claim { reserve: 0 }, haste)
}

/// Waits in one of the ways there are.
fn wait(journal: &Journal, seq: u64) -> Result<(), Fault> {
    match thread_rng().gen_range(0..6) {
        0 | 1 => journal.wait(seq),
        2 => journal.wait_by(seq, Lead::Always),
        3 => journal.wait_by(seq, Lead::Never),
        _ => block_on_until(poll_fn(|context| journal.poll(seq, context.waker())), None).unwrap(),
    }
}

fn any_haste() -> Haste {
    match thread_rng().gen_range(0..4) {
        0 | 1 => Haste::Awaited,
        2 => Haste::Written,
        _ => Haste::Synced(std::time::Duration::from_secs(1)),
    }
}

/// Appends and waits a few times; what came of each frame.
fn work(journal: &Journal, device: &Device, rounds: u32) -> Vec<(u64, Result<(), Fault>)> {
    let mut answers = Vec::new();
    for _ in 0..rounds {
        let seq = match append(journal, any_haste()) {
            Ok(seq) => seq,
            Err(AppendError::Closed | AppendError::Fault(Fault::Poisoned(_))) => break,
            Err(error) => panic!("{error:?}"),
        };
        let answer = wait(journal, seq);
        if answer.is_ok() {
            let synced = device.synced();
            assert!(synced >= seq, "told that {seq} is durable, but only {synced} is");
        }
        answers.push((seq, answer));
    }
    answers
}

/// Whoever waits is answered, and not before the device has made the frame durable.
#[test]
fn everybody_is_answered_and_nobody_before_the_sync() {
    check(6_000, || {
        let rig = rig(2, 20);
        let workers: Vec<_> = (0..3).map(|_| rig.spawn(|journal, device| work(journal, device, 2))).collect();
        for worker in workers {
            assert!(worker.join().unwrap().iter().all(|(_, answer)| answer.is_ok()));
        }
        rig.end();
    });
}

/// Frames that nobody waits for are written and synced in time by the sync thread.
#[test]
fn what_nobody_waits_for_is_synced_in_time() {
    check(3_000, || {
        let rig = rig(2, 20);
        let appenders: Vec<_> = (0..2)
            .map(|_| {
                rig.spawn(|journal, _| {
                    append(journal, Haste::Written).unwrap();
                    append(journal, Haste::Synced(std::time::Duration::from_secs(1))).unwrap()
                })
            })
            .collect();
        let last = appenders.into_iter().map(|appender| appender.join().unwrap()).max().unwrap();
        // Waits without asking: only the deadline makes it durable.
        let done = poll_fn(|context| {
            if rig.journal.durable() >= last {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            shuttle::thread::yield_now();
            Poll::Pending
        });
        block_on_until(done, None).unwrap();
        rig.end();
    });
}

/// A failed sync makes the outcome of its own batch unknown and refuses everything later; nobody hangs
/// and nobody is told of more than is durable.
#[test]
fn a_failed_sync_leaves_its_batch_unknown_and_everything_later_refused() {
    check(6_000, || {
        let rig = rig(3, 3);
        rig.device.fails_at.store(thread_rng().gen_range(1..4), Ordering::SeqCst);
        let workers: Vec<_> = (0..3).map(|_| rig.spawn(|journal, device| work(journal, device, 3))).collect();
        let mut answers: Vec<_> = workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect();
        answers.sort_by_key(|(seq, _)| *seq);
        // In the order of the frames: durable ones, then the batch that failed, then what came after it.
        let rank = |answer: &Result<(), Fault>| match answer {
            Ok(()) => 0,
            Err(Fault::Unknown(_)) => 1,
            Err(Fault::Poisoned(_)) => 2,
        };
        assert!(answers.is_sorted_by_key(|(_, answer)| rank(answer)), "{answers:?}");
        let written = rig.device.written.load(Ordering::SeqCst);
        for (seq, answer) in &answers {
            match answer {
                Ok(()) => assert!(*seq <= rig.device.synced()),
                Err(Fault::Unknown(_)) => {}
                Err(Fault::Poisoned(_)) => assert!(*seq > written, "{seq} was written"),
            }
        }
        if rig.journal.failure().is_some() {
            assert!(matches!(append(&rig.journal, Haste::Awaited), Err(AppendError::Fault(_))));
        }
        rig.end();
    });
}

/// A failure that is announced from outside answers everyone who waits.
#[test]
fn poison_from_outside_answers_everybody() {
    check(3_000, || {
        let rig = rig(2, 20);
        let workers: Vec<_> = (0..2).map(|_| rig.spawn(|journal, device| work(journal, device, 2))).collect();
        rig.journal.poison(Arc::new(io::Error::other("the catalog failed")));
        assert!(matches!(append(&rig.journal, Haste::Awaited), Err(AppendError::Fault(_))));
        rig.end();
        for worker in workers {
            worker.join().unwrap();
        }
    });
}

/// A future that was to lead its batch and is dropped leaves the others answered.
#[test]
fn a_dropped_future_leaves_nobody_waiting() {
    check(4_000, || {
        let rig = rig(2, 20);
        let dropped: Vec<_> = (0..2)
            .map(|_| {
                rig.spawn(|journal, _| {
                    let seq = append(journal, Haste::Awaited).unwrap();
                    let future = pin!(poll_fn(|context| journal.poll(seq, context.waker())));
                    let _ = future.poll(&mut Context::from_waker(Waker::noop()));
                })
            })
            .collect();
        let waiting = rig.spawn(|journal, device| work(journal, device, 2));
        for dropped in dropped {
            dropped.join().unwrap();
        }
        assert!(waiting.join().unwrap().iter().all(|(_, answer)| answer.is_ok()));
        rig.end();
    });
}

/// Batches go on from segment to segment, and each frame is durable when that is said.
#[test]
fn a_batch_that_runs_over_a_segment_is_answered_as_a_whole() {
    check(3_000, || {
        let rig = rig(8, 2);
        let workers: Vec<_> = (0..2)
            .map(|_| {
                rig.spawn(|journal, device| {
                    for _ in 0..3 {
                        append(journal, Haste::Written).unwrap();
                    }
                    work(journal, device, 1)
                })
            })
            .collect();
        for worker in workers {
            assert!(worker.join().unwrap().iter().all(|(_, answer)| answer.is_ok()));
        }
        assert!(rig.journal.segments().1 > 0, "a segment is full");
        rig.end();
    });
}

/// Closing makes durable what was accepted, answers those who wait and refuses what comes later.
#[test]
fn close_answers_everybody_and_refuses_the_rest() {
    check(4_000, || {
        let rig = rig(2, 20);
        let workers: Vec<_> = (0..3).map(|_| rig.spawn(|journal, device| work(journal, device, 2))).collect();
        rig.journal.end(End::Closed).unwrap();
        assert!(matches!(append(&rig.journal, Haste::Awaited), Err(AppendError::Closed)));
        assert_eq!(rig.device.synced(), rig.journal.appended());
        rig.end();
        for worker in workers {
            assert!(worker.join().unwrap().iter().all(|(_, answer)| answer.is_ok()));
        }
    });
}
