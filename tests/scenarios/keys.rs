//! The full key decides: two keys are never taken for one, and all the copies of one key cost
//! nothing but a look.

use crate::common::{Place, at_once, duplicate, in_progress, new, poll_once};
use crate::doors::{Door, through_every_door};
use oncedb::Response;

through_every_door! {
    same_id_from_two_tenants,
    ids_that_collide_under_weak_hashes,
    hot_key_with_thousands_of_copies,
}

fn same_id_from_two_tenants(door: Door) {
    let place = Place::new();
    let names = ["a", "ab", "a\0b", "a/b", "a/", "A", "ä"];
    let ids: [&[u8]; 7] = [b"bc", b"c", b"b/c", b"/b/c", b"\0bc", b"\0b\0c", b"\xffc"];
    let store = place.open();
    for name in names {
        let scope = store.scope(name).unwrap();
        for id in ids {
            let reply = [name.as_bytes(), b" says ", id].concat();
            new(door.claim_with(scope.request(id), reply));
        }
    }
    door.close(&store).unwrap();

    let store = place.open();
    for name in names {
        let scope = store.scope(name).unwrap();
        assert_eq!(scope.name(), name);
        for id in ids {
            let reply = [name.as_bytes(), b" says ", id].concat();
            let record = duplicate(door.claim(&scope, id));
            assert_eq!(record.response(), Response::Stored(&reply), "no other tenant's reply");
        }
    }
}

fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn adler32(bytes: &[u8]) -> u32 {
    let (low, high) = bytes.iter().fold((1, 0), |(low, high), &byte| {
        let low = (low + u32::from(byte)) % 65_521;
        (low, (high + low) % 65_521)
    });
    (high << 16) | low
}

fn ids_that_collide_under_weak_hashes(door: Door) {
    let place = Place::new();
    let (_store, scope) = place.stripe();
    let zero = [0xd5, 0x6b, 0xb9, 0x53, 0x42, 0x87, 0x08, 0x36];
    let fnv: Vec<_> = (0..20).map(|tail| [&zero[..], &vec![0; tail]].concat()).collect();
    assert!(fnv.iter().all(|id| fnv1a(id) == 0), "one hash for all of them");
    let adler: [&[u8]; 3] = [b"evt_aaaaea", b"evt_aaabcb", b"evt_aaacac"];
    assert!(adler.iter().all(|id| adler32(id) == adler32(adler[0])), "one sum for all of them");

    let ids = fnv.iter().map(Vec::as_slice).chain(adler);
    for id in ids.clone() {
        new(door.claim_with(scope.request(id), id));
    }
    for id in ids {
        assert_eq!(duplicate(door.claim(&scope, id)).response(), Response::Stored(id));
    }
}

fn hot_key_with_thousands_of_copies(door: Door) {
    let place = Place::new();
    let (store, scope) = place.stripe();
    let guard = new(door.begin(&scope, "hot"));
    at_once(4, |_| {
        for _ in 0..2000 {
            in_progress(door.begin(&scope, "hot"));
        }
    });
    door.complete_with(guard, "reply").unwrap();
    let syncs = store.stats().syncs;
    at_once(4, |_| {
        for _ in 0..2000 {
            duplicate(door.claim(&scope, "hot"));
        }
    });
    let stats = store.stats();
    assert_eq!(stats.syncs, syncs, "a duplicate costs no sync");
    assert_eq!(stats.live_keys, 1, "the copies leave nothing behind");
    assert_eq!(stats.in_progress, 0, "nor a lock");

    let mut copy = Box::pin(scope.claim_async("hot"));
    assert!(poll_once(copy.as_mut()).is_ready(), "a duplicate waits for nothing");
}
