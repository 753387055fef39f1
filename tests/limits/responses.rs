//! Responses: byte for byte up to the limit, and their length beyond it, whichever way they come in.

use crate::common::{Dice, block_on, duplicate, new};
use crate::{KEPT, Place};
use oncedb::{Options, Response, Scope, Store};

const LIMIT: usize = 5_000;

/// None at all, the border between runs and files of responses, the limit, and far over.
const LENGTHS: [usize; 9] = [0, 1, 1_023, 1_024, 1_025, LIMIT - 1, LIMIT, LIMIT + 1, 2_000_000];

fn response(len: usize) -> Vec<u8> {
    Dice::new(len as u64).bytes(len)
}

fn shown(len: usize, limit: usize, response: &[u8]) -> Response<'_> {
    if len <= limit { Response::Stored(response) } else { Response::Omitted { len: len as u64 } }
}

type Way = fn(&Store, &Scope, &str, &[u8]);

const WAYS: [(&str, Way); 8] = [
    ("complete_with", |_, scope, id, response| new(scope.begin(id)).complete_with(response).unwrap()),
    ("refuse", |_, scope, id, response| new(scope.begin(id)).refuse(response).unwrap()),
    ("claim_with", |_, scope, id, response| drop(new(scope.request(id).claim_with(response)))),
    ("complete_all_with", |store, scope, id, response| {
        let settled = store.complete_all_with([(new(scope.begin(id)), response)]).unwrap();
        assert!(settled.into_iter().all(|settled| settled.is_ok()));
    }),
    ("complete_with_async", |_, scope, id, response| {
        block_on(new(scope.begin(id)).complete_with_async(response)).unwrap();
    }),
    ("refuse_async", |_, scope, id, response| {
        block_on(new(scope.begin(id)).refuse_async(response)).unwrap();
    }),
    ("claim_with_async", |_, scope, id, response| {
        drop(new(block_on(scope.request(id).claim_with_async(response))));
    }),
    ("complete_all_with_async", |store, scope, id, response| {
        let guards = [(new(scope.begin(id)), response)];
        let settled = block_on(store.complete_all_with_async(guards)).unwrap();
        assert!(settled.into_iter().all(|settled| settled.is_ok()));
    }),
];

fn small(place: &Place) -> Options {
    place.options().memory_limit(1 << 20).max_response_len(LIMIT)
}

#[test]
fn responses_of_every_length_come_back_or_say_how_long_they_were() {
    for kept in KEPT {
        let place = Place::new();
        let options = small(&place);
        let (store, scope) = crate::open(options.clone());
        for (way, call) in WAYS {
            for len in LENGTHS {
                call(&store, &scope, &format!("{way} {len}"), &response(len));
            }
        }
        drop(scope);
        let (_place, store) = kept(place, options, store);
        let scope = store.scope("s").unwrap();
        for (way, _) in WAYS {
            for len in LENGTHS {
                let record = duplicate(scope.claim(format!("{way} {len}")));
                let response = response(len);
                assert_eq!(record.response(), shown(len, LIMIT, &response), "{way} {len}");
                let stored = record.stored_response();
                assert_eq!(stored.as_deref(), (len <= LIMIT).then_some(&response[..]), "{way} {len}");
                assert_eq!(record.is_refusal(), way.starts_with("refuse"));
                let got = scope.get(format!("{way} {len}")).unwrap().unwrap();
                assert_eq!(got.response(), record.response());
            }
        }
    }
}

#[test]
fn responses_from_before_the_limit_was_lowered_come_back_whole() {
    for kept in KEPT {
        let place = Place::new();
        let (store, scope) = crate::open(small(&place));
        for len in LENGTHS {
            new(scope.begin(format!("{len}"))).complete_with(response(len)).unwrap();
        }
        // Once with the journal still needed, and once without.
        drop((store, scope));
        place.disk.crash();
        let options = small(&place).max_response_len(0);
        let (store, scope) = crate::open(options.clone());
        new(scope.begin("later")).complete_with("r").unwrap();
        new(scope.begin("later, empty")).complete_with("").unwrap();
        drop(scope);
        let (_place, store) = kept(place, options, store);
        let scope = store.scope("s").unwrap();
        for len in LENGTHS {
            let record = duplicate(scope.begin(format!("{len}")));
            assert_eq!(record.response(), shown(len, LIMIT, &response(len)));
        }
        assert_eq!(duplicate(scope.claim("later")).response(), Response::Omitted { len: 1 });
        assert_eq!(duplicate(scope.claim("later, empty")).response(), Response::Stored(b""));
    }
}

#[test]
fn one_response_may_be_larger_than_the_memory_for_claims() {
    let place = Place::new();
    let options = place.options().memory_limit(1 << 20).max_response_len(4 << 20);
    for len in [700 << 10, 1 << 20, 4 << 20, (4 << 20) + 1] {
        let (store, scope) = crate::open(options.clone());
        let _guard = new(scope.begin(format!("running {len}")));
        for (way, call) in WAYS {
            call(&store, &scope, &format!("{way} {len}"), &response(len));
        }
        store.close().unwrap();
        let (store, scope) = crate::open(options.clone());
        for (way, _) in WAYS {
            let record = duplicate(scope.claim(format!("{way} {len}")));
            assert_eq!(record.response(), shown(len, 4 << 20, &response(len)), "{way}");
        }
        store.close().unwrap();
    }
}
