//! Runs. What a whole scan passes, a search finds; nothing else is found; a run that could have been
//! written is read.
#![no_main]

use arbitrary::{Arbitrary, Unstructured};
use libfuzzer_sys::fuzz_target;
use oncedb::fuzzing::{RunContents, key_of, run};
use oncedb_fuzz::memory::bounded;
use oncedb_fuzz::runs::{Plan, repair};

fuzz_target!(|data: &[u8]| {
    let Some((&way, data)) = data.split_first() else { return };
    if way < 128 {
        let mut bytes = data.to_vec();
        repair(&mut bytes, way);
        let keys = keys_in(&bytes);
        let _ = read(&bytes, &keys);
    } else if let Ok(plan) = Plan::arbitrary_take_rest(Unstructured::new(data)) {
        let built = plan.build();
        let result = read(&built.bytes, &built.keys);
        if built.honest {
            let contents = result.expect("a sound run opens");
            assert_eq!(contents.scanned.expect("a sound run is scanned"), built.items);
        }
    }
});

/// Keys that may be in the file: small hashes, and what lies where blocks begin.
fn keys_in(bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let place = |at: usize| {
        let hash = bytes.get(at..at + 8)?.first_chunk().copied().map(u64::from_le_bytes)?;
        Some((hash, key_of(bytes.get(at + 10..)?).to_vec()))
    };
    [76, 100, 128].into_iter().filter_map(place).chain([(0, Vec::new()), (u64::MAX, b"k".to_vec())]).collect()
}

fn read(bytes: &[u8], keys: &[(u64, Vec<u8>)]) -> oncedb::Result<RunContents> {
    let contents = bounded(bytes.len(), 16, 512 << 10, || run(bytes, keys))?;
    if let Ok(items) = &contents.scanned {
        for ((hash, key), (filter, found)) in keys.iter().zip(&contents.found) {
            let item = items.iter().find(|(other, _, record)| other == hash && key_of(record) == key);
            let found = found.as_ref().expect("what a scan passes a search can read");
            let expected = item.map(|(_, seq, record)| (*seq, record.clone()));
            assert_eq!(*found, expected, "what is found of {key:?}");
            assert!(*filter || item.is_none(), "the filter denies {key:?}");
        }
        let all: Vec<_> = items.iter().map(|(hash, _, record)| (*hash, key_of(record).to_vec())).collect();
        for ((filter, found), (_, seq, record)) in run(bytes, &all)?.found.into_iter().zip(items) {
            let found = found.expect("what a scan passes a search can read");
            assert!(filter && found.as_ref() == Some(&(*seq, record.clone())), "a record is not found");
        }
    }
    Ok(contents)
}
