//! Writes the seeds of every target, the same ones each time: `cargo run --example seeds`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use arbitrary::{Arbitrary, Unstructured};
use oncedb::fuzzing::{SegmentFile, replay, run};
use oncedb_fuzz::{catalog, frames, responses, runs};

fn main() -> io::Result<()> {
    match fs::remove_dir_all(seeds()) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut records = Vec::new();
    let mut chance = Chance(1);
    for closed in [false, true] {
        for (path, bytes) in catalog::image(closed) {
            let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let is = |ending: &str| path.extension().is_some_and(|extension| extension == ending);
            if is("run") {
                write("run", &file, &[&[0x0f], &bytes[..]].concat())?;
                let contents = run(&bytes, &[]).expect("a sound run");
                records
                    .extend(contents.scanned.expect("a sound run").into_iter().map(|(_, _, record)| record));
            }
            if is("segment") && !closed {
                let used = bytes.iter().rposition(|&byte| byte != 0).unwrap_or(0) + 1;
                if used > frames::FRAMES_AT {
                    write("frames", &file, &[&[1, 255], &bytes[frames::FRAMES_AT..used]].concat())?;
                    let number =
                        |at: usize| bytes[at..at + 8].first_chunk().copied().map_or(0, u64::from_le_bytes);
                    let (ordinal, epoch) = (number(16), number(24));
                    let released = number(frames::FRAMES_AT + 8) - 1;
                    let log =
                        replay(&[SegmentFile { ordinal, epoch, bytes }], released, 0).expect("a sound log");
                    records.extend(log.records.into_iter().map(|(_, record)| record));
                }
            }
        }
    }
    // A raw segment under the ordinal and the epoch that the target expects.
    let frame = frames::frame(1, 0, 2, &[&[21], &[3, 0, 1, 0, b'k'][..], &[9; 16]].concat());
    let header = frames::header(1, 2, (frames::FRAMES_AT + frame.len()) as u64, [1, 0, 0, 0]);
    write("frames", "raw", &[&[0], &header[..], &frame].concat())?;

    write("reply", "kept", b"\x01\x01\xc9\x00\x02\x01a\x02bc\x01a\x01d\x03xyz\x01\x01\x01t\x010")?;
    write("reply", "omitted", &[1, 2, 200, 0, 0xac, 0x02])?;

    records.sort();
    records.dedup_by_key(|record| (record.first().copied(), record.get(1).copied()));
    for (number, record) in records.iter().enumerate() {
        write("record", &number.to_string(), record)?;
    }
    planned(&mut chance, "frames", &[2], 6, |plan: &frames::Plan| {
        let built = plan.build();
        built.honest && built.files.len() > 1 && built.frames.len() > 4
    })?;
    planned(&mut chance, "run", &[0x80], 4, |plan: &runs::Plan| {
        let built = plan.build();
        built.honest && built.items.len() > 2
    })?;
    planned(&mut chance, "responses", &[], 4, |plan: &responses::Plan| {
        plan.sound_header && plan.listed == 0 && plan.bytes.len() > 4 && plan.places.len() > 1
    })?;
    for kind in 0..5 {
        planned(&mut chance, "catalog", &[], 2, |plan: &catalog::Plan| match &plan.change {
            catalog::Change::Bytes(changes) => kind == 0 && changes.len() > 1,
            catalog::Change::Head(changes) => kind == 1 && changes.len() > 1,
            catalog::Change::Cut(_) => kind == 2,
            catalog::Change::Whole(bytes) => kind == 3 && !bytes.is_empty(),
            catalog::Change::Rows(rows, _) => kind == 4 && rows.len() > 3,
        })?;
    }
    for kind in 0..16 {
        let choices = chance.bytes(300);
        write("operations", &format!("{kind}"), &[&[kind, 0, 40 + kind, kind], &choices[..]].concat())?;
    }
    Ok(())
}

/// Writes `count` seeds of chance that make a plan as it is wanted, behind `head`.
fn planned<P: for<'a> Arbitrary<'a>>(
    chance: &mut Chance,
    target: &str,
    head: &[u8],
    count: usize,
    wanted: impl Fn(&P) -> bool,
) -> io::Result<()> {
    let mut written = 0;
    while written < count {
        let len = 40 + usize::from(chance.bytes(1)[0]) * 2;
        let bytes = chance.bytes(len);
        if P::arbitrary_take_rest(Unstructured::new(&bytes)).is_ok_and(|plan| wanted(&plan)) {
            let name = format!("plan-{:08x}", crc32fast::hash(&bytes));
            write(target, &name, &[head, &bytes].concat())?;
            written += 1;
        }
    }
    Ok(())
}

fn write(target: &str, name: &str, bytes: &[u8]) -> io::Result<()> {
    let dir = seeds().join(target);
    fs::create_dir_all(&dir)?;
    fs::write(dir.join(name), bytes)
}

fn seeds() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds")
}

/// Reproducible bytes.
struct Chance(u64);

impl Chance {
    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut byte = || {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            self.0.to_le_bytes()[7]
        };
        (0..len).map(|_| byte()).collect()
    }
}
