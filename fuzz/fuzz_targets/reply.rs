//! Stored replies of the HTTP layers. Bytes that decode say the same once they are encoded again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use oncedb::fuzzing::reply;
use oncedb_fuzz::memory::bounded;

fuzz_target!(|data: &[u8]| {
    // A header of three bytes takes some two hundred in memory, and there are two copies.
    bounded(data.len(), 400, 8 << 10, || {
        if let Some((encoded, same)) = reply(data) {
            assert!(same, "what was decoded is encoded");
            // Repeated headers come together, so the bytes may be in another order.
            assert_eq!(encoded.len(), data.len(), "a reply has one length");
        }
    });
});
