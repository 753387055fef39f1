//! Response files. What a sound reference points to is read, and everything else is damage.
#![no_main]

use libfuzzer_sys::fuzz_target;
use oncedb::fuzzing::{FILE_ID, responses};
use oncedb_fuzz::memory::bounded;
use oncedb_fuzz::records::file_header;
use oncedb_fuzz::responses::{Plan, range};

fuzz_target!(|plan: Plan| {
    let built = plan.build();
    let asked: usize = built.places.len();
    let read = bounded(built.bytes.len() * (asked + 1), 4, 64 << 10, || {
        responses(&built.bytes, built.listed, &built.places)
    });
    let sound =
        built.bytes.starts_with(&file_header(*b"oncersp\n")) && built.listed == built.bytes.len() as u64;
    assert_eq!(read.is_ok(), sound, "a file opens if its header and its length are right");
    for (&(file, offset, len, crc), response) in built.places.iter().zip(read.into_iter().flatten()) {
        let there = range(&built.bytes, offset, len).filter(|_| file == FILE_ID && offset >= 64);
        let there = there.filter(|there| crc32fast::hash(there) == crc);
        match response {
            Ok(response) => assert_eq!(Some(&response[..]), there, "what is read is what the record says"),
            Err(error) => {
                assert!(error.is_corruption() && there.is_none(), "a response cannot be read: {error}");
            }
        }
    }
});
