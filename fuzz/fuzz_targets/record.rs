//! Records. Bytes that decode are the one encoding of what they say.
#![no_main]

use libfuzzer_sys::fuzz_target;
use oncedb::fuzzing::{key_of, record};
use oncedb_fuzz::memory::bounded;

fuzz_target!(|data: &[u8]| {
    bounded(data.len(), 8, 1 << 10, || {
        let key = key_of(data);
        if let Some((decoded, encoded)) = record(data) {
            assert_eq!(encoded, data, "a record has one encoding");
            assert_eq!(decoded, key, "its key is where it is looked for");
        }
    });
});
