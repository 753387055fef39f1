//! Merging runs into one.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::mem;
use std::path::Path;
use std::sync::Arc;

use super::run::Run;
use super::scan::{Item, Scan};
use super::writer::{RunSummary, RunWriter};
use crate::clock::Time;
use crate::error::{Error, Result};

/// Writes the newest record of every key in `inputs` to `writer`, except those whose `purge_at`
/// is `now` or before. `path` is the writer's, to tell its failures from those of the inputs.
///
/// Dropping the newest record brings no older one back: it is never purged before a record that it
/// replaced, here or in a run that is not among the inputs.
pub(crate) fn merge(
    inputs: &[Arc<Run>],
    now: Time,
    mut writer: RunWriter,
    path: &Path,
) -> Result<RunSummary> {
    let failed = |error| Error::io(path, error);
    let mut heads = BinaryHeap::with_capacity(inputs.len());
    for run in inputs {
        let mut rest = run.scan();
        if let Some(item) = rest.next() {
            heads.push(Head { item: item?, rest });
        }
    }
    let mut newest: Option<Item> = None;
    while let Some(mut head) = heads.peek_mut() {
        let item = match head.rest.next() {
            Some(next) => mem::replace(&mut head.item, next?),
            None => PeekMut::pop(head).item,
        };
        if newest.as_ref().is_some_and(|newest| newest.place() == item.place()) {
            continue;
        }
        if item.purge_at > now {
            writer.push(item.hash, item.seq, &item.record).map_err(failed)?;
        }
        newest = Some(item);
    }
    writer.finish().map_err(failed)
}

/// What is left of one input.
struct Head {
    item: Item,
    rest: Scan,
}

/// Reversed, because the heap gives its greatest first: the lowest (hash, key) and, of one key, the
/// highest sequence number.
impl Ord for Head {
    fn cmp(&self, other: &Self) -> Ordering {
        let order = self.item.place().cmp(&other.item.place());
        order.then(other.item.seq.cmp(&self.item.seq)).reverse()
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Head {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Disk;
    use crate::disk::memory::MemoryDisk;
    use crate::runs::files::FileCache;
    use crate::runs::writer::tests::{done, tombstone, write_run};
    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    const OUT: &str = "d/out";

    type Place = (u64, Vec<u8>);

    fn open(files: &Arc<FileCache>, id: u64, path: impl Into<PathBuf>) -> Arc<Run> {
        Arc::new(Run::open(files, id, path.into()).unwrap())
    }

    fn run_of(files: &Arc<FileCache>, id: u64, records: &[(u64, u64, Vec<u8>)]) -> Arc<Run> {
        let path = PathBuf::from(format!("d/{id}"));
        write_run(&**files.disk(), &path, records);
        open(files, id, path)
    }

    fn merge_into(files: &Arc<FileCache>, inputs: &[Arc<Run>], now: u64) -> Result<RunSummary> {
        let expected = inputs.iter().map(|run| usize::try_from(run.summary().records).unwrap()).sum();
        let writer = RunWriter::new(files.disk().create(OUT.as_ref()).unwrap(), expected, 0).unwrap();
        merge(inputs, Time(now), writer, OUT.as_ref())
    }

    fn files(disk: &MemoryDisk) -> Arc<FileCache> {
        Arc::new(FileCache::new(Arc::new(disk.clone()), 2))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn a_merge_is_the_newest_of_each_key(
            inputs in vec(
                btree_map((0_u64..5, vec(0_u8..3, 0..3)), (0_u64..100, 0_usize..2_000), 0..30),
                0..6,
            ),
            now in 0_u64..110,
        ) {
            let files = files(&MemoryDisk::new(0));
            let mut model: BTreeMap<Place, (u64, u64, Vec<u8>)> = BTreeMap::new();
            let mut runs = Vec::new();
            let count = inputs.len() as u64;
            for (id, input) in (0..).zip(inputs) {
                let records: Vec<_> = (0..)
                    .zip(input)
                    .map(|(number, ((hash, key), (purge_at, len)))| {
                        // Neither input nor place in it decides which one is newer.
                        let seq = (number * 7 + id * 13) % 64 * count + id;
                        let record =
                            if len == 0 { tombstone(&key, purge_at) } else { done(&key, purge_at.max(1), &vec![2; len]) };
                        let purge_at = if len == 0 { purge_at } else { purge_at.max(1) };
                        let entry = model.entry((hash, key)).or_default();
                        if entry.2.is_empty() || entry.0 < seq {
                            *entry = (seq, purge_at, record.clone());
                        }
                        (hash, seq, record)
                    })
                    .collect();
                runs.push(run_of(&files, id, &records));
            }
            let summary = merge_into(&files, &runs, now).unwrap();
            let expected: Vec<_> = model
                .into_iter()
                .filter(|(_, (_, purge_at, _))| *purge_at > now)
                .map(|((hash, _), (seq, _, record))| (hash, seq, record))
                .collect();
            prop_assert_eq!(summary.records, expected.len() as u64);
            let merged = open(&files, 99, OUT);
            let found: Vec<_> =
                merged.scan().map(Result::unwrap).map(|item| (item.hash, item.seq, item.record)).collect();
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn damage_in_an_input_and_failure_of_the_output_are_told_apart() {
        let disk = MemoryDisk::new(0);
        let files = files(&disk);
        let inputs = [
            run_of(&files, 0, &[(1, 1, tombstone(b"a", 9))]),
            run_of(&files, 1, &[(2, 2, tombstone(b"a", 9))]),
        ];
        assert_eq!(merge_into(&files, &inputs, 0).unwrap().records, 2);

        let writer = RunWriter::new(disk.create(OUT.as_ref()).unwrap(), 2, 0).unwrap();
        let mut unordered = RunWriter::new(disk.create(OUT.as_ref()).unwrap(), 2, 0).unwrap();
        unordered.push(9, 9, &tombstone(b"a", 9)).unwrap();
        let failed = merge(&inputs, Time(0), unordered, OUT.as_ref()).unwrap_err();
        assert!(matches!(failed, Error::Io { path, .. } if path == Path::new(OUT)));

        disk.damage("d/1", 70, &[0xaa]);
        let damaged = merge(&inputs, Time(0), writer, OUT.as_ref()).unwrap_err();
        assert!(matches!(damaged, Error::Corrupt { path, .. } if path == Path::new("d/1")));
    }
}
