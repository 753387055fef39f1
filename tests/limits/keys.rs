//! Ids, entities and scope names: any bytes, any length up to the limit, never taken for one another.

use crate::common::{Dice, assert_error, duplicate, new};
use crate::{KEPT, Place};
use oncedb::{Error, Scope, Timestamp};
use std::fmt::Debug;

#[track_caller]
fn assert_too_long<T: Debug>(answer: oncedb::Result<T>, is: usize, most: usize) {
    match answer {
        Err(error @ Error::KeyTooLong { len, limit, .. }) => {
            assert_eq!((len, limit), (is, most));
            assert!(error.to_string().contains("max_key_len"), "{error}");
        }
        other => panic!("expected KeyTooLong, got {other:?}"),
    }
}

/// Every call that takes an id or entity refuses this one.
#[track_caller]
fn assert_refused_by_all(scope: &Scope, name: &[u8], limit: usize) {
    let len = scope.name().len() + name.len();
    let at = Timestamp::from_secs(1);
    assert_too_long(scope.claim(name), len, limit);
    assert_too_long(scope.begin(name), len, limit);
    assert_too_long(scope.claim_many([&b"i"[..], name]), len, limit);
    assert_too_long(scope.request(name).claim_with("reply"), len, limit);
    assert_too_long(scope.request("i").order(name, at).claim(), len, limit);
    assert_too_long(scope.request("i").order(name, at).begin(), len, limit);
    assert_too_long(scope.contains(name), len, limit);
    assert_too_long(scope.get(name), len, limit);
    assert_too_long(scope.forget(name), len, limit);
    assert_too_long(scope.advance(name, at), len, limit);
    assert_too_long(scope.last_applied(name), len, limit);
    assert_too_long(scope.forget_mark(name), len, limit);
}

#[test]
fn ids_of_every_length_are_kept_and_longer_ones_refused() {
    const LIMIT: usize = 1024;
    let place = Place::new();
    let options = || place.options().memory_limit(1 << 20);
    let names = [0, 1, 2, 511, 1000, 1022, 1023].map(|len| "n".repeat(len));
    let ids = |name: &str| {
        let mut dice = Dice::new(name.len() as u64);
        // Zeros differ by nothing but their length.
        let zeros = (1..=LIMIT - name.len()).map(|len| vec![0; len]);
        let noise: Vec<_> = (8..=LIMIT - name.len()).map(|len| dice.bytes(len)).collect();
        zeros.chain(noise).collect::<Vec<_>>()
    };
    let store = options().open("store").unwrap();
    for name in &names {
        let scope = store.scope(name).unwrap();
        let claimed = scope.claim_many(ids(name)).unwrap();
        assert!(claimed.iter().all(oncedb::Outcome::is_new), "scope name of {} bytes", name.len());
        assert_refused_by_all(&scope, &vec![b'i'; LIMIT - name.len() + 1], LIMIT);
        assert_eq!(new(scope.claim("i")).attempt(), 1, "nothing was recorded beside it");
        assert!(scope.last_applied("i").unwrap().is_none());
    }
    assert_too_long(store.scope("n".repeat(LIMIT)), LIMIT + 1, LIMIT);
    store.close().unwrap();

    let store = options().open("store").unwrap();
    for name in &names {
        let scope = store.scope(name).unwrap();
        let ids = ids(name);
        for (id, outcome) in ids.iter().zip(scope.claim_many(&ids).unwrap()) {
            let record = duplicate(Ok(outcome));
            assert_eq!(record.id(), id, "byte for byte");
        }
    }
}

#[test]
fn the_longest_keys_of_all_are_kept_wherever_they_go() {
    const LIMIT: usize = 32_768;
    for kept in KEPT {
        let place = Place::new();
        let options = place.options().memory_limit(1 << 20).max_key_len(LIMIT);
        let store = options.clone().open("store").unwrap();
        let key = |first: u8, len: usize| [vec![first], vec![0; len - 1]].concat();
        let names = [String::new(), "s".into(), "s".repeat(LIMIT - 1)];
        for name in &names {
            let scope = store.scope(name).unwrap();
            let len = LIMIT - name.len();
            let request = scope.request(key(1, len)).fingerprint([9; 64]);
            new(request.order(key(2, len), Timestamp::sequence(5)).claim_with([8; 2000]));
            let guard = new(scope.request(key(3, len)).order(key(4, len), Timestamp::sequence(5)).begin());
            guard.note("half done").unwrap();
            drop(guard);
            assert_refused_by_all(&scope, &key(1, len + 1), LIMIT);
        }
        let (_place, store) = kept(place, options, store);
        for name in &names {
            let scope = store.scope(name).unwrap();
            let len = LIMIT - name.len();
            let record = duplicate(scope.claim(key(1, len)));
            assert_eq!((record.id(), record.fingerprint()), (&key(1, len)[..], Some(&[9; 64][..])));
            assert_eq!(record.stored_response().as_deref(), Some(&[8; 2000][..]));
            let mark = scope.last_applied(key(2, len)).unwrap().expect("a mark");
            assert_eq!((mark.entity(), mark.timestamp()), (&key(2, len)[..], Timestamp::sequence(5)));
            let guard = new(scope.begin(key(3, len)));
            assert_eq!(guard.previous().and_then(|before| before.note.as_deref()), Some(&b"half done"[..]));
        }
    }
}

#[test]
fn a_limit_of_one_byte_leaves_the_scope_without_a_name_and_256_ids() {
    let place = Place::new();
    let store = place.options().max_key_len(1).open("store").unwrap();
    assert_too_long(store.scope("s"), 2, 1);
    let scope = store.scope("").unwrap();
    let ids: Vec<[u8; 1]> = (0..=255).map(|byte| [byte]).collect();
    assert!(scope.claim_many(&ids).unwrap().iter().all(oncedb::Outcome::is_new));
    assert_refused_by_all(&scope, b"ab", 1);
    store.close().unwrap();
    let store = place.options().max_key_len(1).open("store").unwrap();
    for outcome in store.scope("").unwrap().claim_many(&ids).unwrap() {
        duplicate(Ok(outcome));
    }
}

#[test]
fn the_scope_without_a_name_is_one_like_any_other() {
    for kept in KEPT {
        let place = Place::new();
        let store = place.options().open("store").unwrap();
        let names = ["", "\0", " ", "a"];
        for name in names {
            new(store.scope(name).unwrap().request("a").claim_with(name));
            assert_error!(store.scope(name).unwrap().claim(""), EmptyId);
        }
        let options = place.options();
        let (_place, store) = kept(place, options, store);
        for name in names {
            let record = duplicate(store.scope(name).unwrap().claim("a"));
            assert_eq!(record.stored_response().as_deref(), Some(name.as_bytes()));
        }
    }
}

#[test]
fn thousands_of_scopes_are_as_good_as_one() {
    const SCOPES: u32 = 2048;
    let place = Place::new();
    let name = |number: u32| format!("tenant_{number}");
    let store = place.options().open("store").unwrap();
    let claim_all = |store: &oncedb::Store| {
        let scopes: Vec<_> = (0..SCOPES).map(|number| store.scope(name(number)).unwrap()).collect();
        let requests: Vec<_> = scopes.iter().map(|scope| scope.request("a")).collect();
        store.claim_requests(requests).unwrap()
    };
    assert!(claim_all(&store).into_iter().all(|outcome| outcome.unwrap().is_new()), "no two are one");
    let stats = store.stats();
    assert_eq!(stats.live_keys, u64::from(SCOPES));
    let (bytes, _) = place.files("redb");
    assert!(bytes < 4 << 20, "{bytes} bytes for names");
    store.close().unwrap();
    let store = place.options().open("store").unwrap();
    assert!(claim_all(&store).into_iter().all(|outcome| outcome.unwrap().is_duplicate()));
    assert!(store.scope("tenant_").unwrap().claim("a").unwrap().is_new(), "another name, another scope");
}
