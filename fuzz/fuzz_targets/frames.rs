//! The journal's frames and its replay. Of what was promised nothing is passed over in silence; an
//! honest journal is read as far as it goes.
#![no_main]

use arbitrary::{Arbitrary, Unstructured};
use libfuzzer_sys::fuzz_target;
use oncedb::fuzzing::{Log, SegmentFile, replay};
use oncedb_fuzz::frames::{FRAMES_AT, Plan, header, repair};
use oncedb_fuzz::memory::bounded;

fuzz_target!(|data: &[u8]| {
    let Some((&way, data)) = data.split_first() else { return };
    match way % 4 {
        0 => raw(data),
        1 => repaired(data),
        _ => planned(data),
    }
});

fn read(files: &[SegmentFile], released: u64, durable: u64) -> oncedb::Result<Log> {
    let len = files.iter().map(|file| file.bytes.len()).sum();
    let result = bounded(len, 24, 256 << 10, || replay(files, released, durable));
    if let Ok(log) = &result {
        assert!(log.last_seq >= durable, "the log ends before what is known to be durable");
        let mut ordinals: Vec<_> = log.used.iter().chain(&log.unused).copied().collect();
        ordinals.sort_unstable();
        let mut all: Vec<_> = files.iter().map(|file| file.ordinal).collect();
        all.sort_unstable();
        assert_eq!(ordinals, all, "every segment is used or not");
        assert!(log.used.iter().all(|&ordinal| ordinal <= log.last_segment));
        for pair in log.records.windows(2) {
            assert!(pair[1].0 == pair[0].0 || pair[1].0 == pair[0].0 + 1, "numbers are dense");
        }
    }
    result
}

/// All bytes of the file are the fuzzer's.
fn raw(data: &[u8]) {
    let (ordinal, epoch) = (1, 2);
    let _ = read(&[SegmentFile { ordinal, epoch, bytes: data.to_vec() }], 0, 0);
}

/// The frames are the fuzzer's, their sums are not; two segments.
fn repaired(data: &[u8]) {
    let Some((&split, data)) = data.split_first() else { return };
    let split = data.len() * usize::from(split) / 256 / 8 * 8;
    let (front, back) = data.split_at(split);
    let file = |(ordinal, frames): (u64, &[u8])| {
        let epoch = ordinal + 7;
        let mut bytes = header(ordinal, epoch, (FRAMES_AT + frames.len()) as u64, [1, 0, 0, 0]).to_vec();
        bytes.extend_from_slice(frames);
        repair(&mut bytes[FRAMES_AT..], epoch);
        SegmentFile { ordinal, epoch, bytes }
    };
    let _ = read(&[(1, front), (2, back)].map(file), 0, 0);
}

fn planned(data: &[u8]) {
    let Ok(plan) = Plan::arbitrary_take_rest(Unstructured::new(data)) else { return };
    let built = plan.build();
    let result = read(&built.files, built.released, built.durable);
    if built.honest && !built.has_log_start {
        let expected = built.expected();
        match &result {
            Ok(log) => {
                assert_eq!(Some(log.last_seq), expected, "where the log ends");
                let there = built.records.iter().filter(|(seq, _)| *seq <= log.last_seq);
                assert!(log.records.iter().eq(there), "all of its records and no other ones");
            }
            Err(error) => {
                assert!(
                    error.is_corruption() && expected.is_none(),
                    "an honest journal does not read: {error}"
                );
            }
        }
    }
    if let Ok(log) = result
        && !built.has_log_start
    {
        for frame in built.frames.iter().filter(|frame| frame.sound && frame.ordinal >= log.last_segment) {
            let promises = frame.seq > log.last_seq && frame.durable > log.last_seq;
            assert!(!promises, "{frame:?} promises more than was read, up to {}", log.last_seq);
        }
    }
}
