//! Fingerprints, notes, timestamps, batches and attempts at their ends.

use crate::common::{assert_error, duplicate, mismatch, new, poll_once, stale};
use crate::{KEPT, Place};
use oncedb::{Advance, Error, Outcome, Timestamp};

#[test]
fn fingerprints_of_every_length_are_compared_whole() {
    for kept in KEPT {
        let place = Place::new();
        let (store, scope) = crate::open(place.options());
        for len in 0..=64 {
            new(scope.request([len]).fingerprint(vec![0; len.into()]).claim());
        }
        for request in [scope.request("long").fingerprint([0; 65]), scope.request([1]).fingerprint([0; 4096])]
        {
            match request.claim() {
                Err(error @ Error::FingerprintTooLong { limit, .. }) => {
                    assert_eq!(limit, 64);
                    assert!(error.is_invalid_input());
                }
                other => panic!("expected FingerprintTooLong, got {other:?}"),
            }
        }
        assert_eq!(new(scope.begin("long")).attempt(), 1, "nothing was recorded");
        drop(scope);
        let options = place.options();
        let (_place, store) = kept(place, options, store);
        let scope = store.scope("s").unwrap();
        for len in 0..=64 {
            let record = duplicate(scope.request([len]).fingerprint(vec![0; len.into()]).claim());
            assert_eq!(record.fingerprint(), Some(&vec![0; len.into()][..]));
            let other = if len == 64 { 63 } else { len + 1 };
            mismatch(scope.request([len]).fingerprint(vec![0; other.into()]).begin());
            duplicate(scope.request([len]).begin());
        }
    }
}

#[test]
fn notes_are_kept_up_to_the_limit_and_a_longer_one_changes_nothing() {
    for limit in [0, 1, 4_096, 100_000] {
        for kept in KEPT {
            let place = Place::new();
            let options = place.options().memory_limit(1 << 20).max_note_len(limit);
            let (store, scope) = crate::open(options.clone());
            let note = vec![0xa5; limit];
            let guard = new(scope.begin("a"));
            guard.note(&note).unwrap();
            match guard.note(vec![1; limit + 1]) {
                Err(Error::NoteTooLong { len, limit: most, .. }) => {
                    assert_eq!((len, most), (limit + 1, limit));
                }
                other => panic!("expected NoteTooLong, got {other:?}"),
            }
            drop((guard, scope));
            let (place, store) = kept(place, options, store);
            let guard = new(store.scope("s").unwrap().begin("a"));
            assert_eq!(guard.previous().and_then(|before| before.note.as_deref()), Some(&note[..]));
            // Under a lower limit it is shown all the same.
            drop(guard);
            drop(store);
            let (_store, scope) = crate::open(place.options().max_note_len(0));
            let guard = new(scope.begin("a"));
            assert_eq!(guard.previous().and_then(|before| before.note.as_deref()), Some(&note[..]));
        }
    }
}

#[test]
fn timestamps_order_at_the_ends_of_what_they_hold() {
    let times = [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX - 1, i64::MAX].map(Timestamp::from_micros);
    let numbers = [0, 1, u64::MAX / 2, u64::MAX - 1, u64::MAX].map(Timestamp::sequence);
    for kept in KEPT {
        let place = Place::new();
        let (store, scope) = crate::open(place.options());
        for (entity, marks) in [("times", &times[..]), ("numbers", &numbers[..])] {
            for (number, &at) in marks.iter().enumerate() {
                if number % 2 == 0 {
                    assert!(matches!(scope.advance(entity, at).unwrap(), Advance::Applied));
                } else {
                    new(scope.request(format!("{entity} {number}")).order(entity, at).claim());
                }
                for &older in &marks[..number] {
                    assert_eq!(stale(scope.request("x").order(entity, older).begin()).timestamp(), at);
                }
            }
        }
        assert_error!(scope.advance("times", numbers[0]), TimestampKind);
        assert_error!(scope.request("x").order("numbers", times[6]).claim(), TimestampKind);
        assert_eq!(new(scope.begin("x")).attempt(), 1, "no refused claim was recorded");
        drop(scope);
        let options = place.options();
        let (_place, store) = kept(place, options, store);
        let scope = store.scope("s").unwrap();
        for (entity, last) in [("times", times[6]), ("numbers", numbers[4])] {
            assert_eq!(scope.last_applied(entity).unwrap().unwrap().timestamp(), last);
            assert!(matches!(scope.advance(entity, last).unwrap(), Advance::Applied), "a tie");
        }
    }
}

#[test]
fn batches_of_none_one_and_very_many() {
    let place = Place::new();
    let options = || place.options().memory_limit(1 << 20);
    let (store, scope) = crate::open(options());
    assert!(scope.claim_many([""; 0]).unwrap().is_empty());
    assert!(store.claim_requests([]).unwrap().is_empty());
    assert!(store.begin_requests([]).unwrap().is_empty());
    assert!(store.complete_all([]).unwrap().is_empty());
    assert!(
        store
            .complete_all_with([(); 0].map(|()| -> (oncedb::Guard, &str) { unreachable!() }))
            .unwrap()
            .is_empty()
    );
    assert!(scope.claim_many(["one"]).unwrap()[0].is_new());
    let ids = || (0..100_000_u32).map(u32::to_le_bytes);
    assert!(scope.claim_many(ids()).unwrap().iter().all(Outcome::is_new), "more than the memory holds");
    // A last one that is refused takes all with it.
    let refused = (100_000..120_000_u32).map(|number| number.to_le_bytes().to_vec()).chain([Vec::new()]);
    assert_error!(scope.claim_many(refused), EmptyId);
    assert_eq!(store.stats().live_keys, 100_001);
    store.close().unwrap();
    let (_store, scope) = crate::open(options());
    assert!(scope.claim_many(ids()).unwrap().iter().all(Outcome::is_duplicate));
    assert!(!scope.contains(100_000_u32.to_le_bytes()).unwrap());
}

#[test]
fn attempts_are_counted_for_as_long_as_there_are_any() {
    let place = Place::new();
    let (mut store, mut scope) = crate::open(place.options());
    let mut token = 0;
    for attempt in 1..=3_000 {
        let guard = new(scope.begin("a"));
        assert_eq!(guard.attempt(), attempt);
        assert!(guard.token() > token, "tokens grow");
        token = guard.token();
        if attempt % 500 == 0 {
            drop(guard);
            store.maintain().unwrap();
            drop((store, scope));
            (store, scope) = crate::open(place.options());
        }
    }
    new(scope.begin("a")).complete().unwrap();
    assert_eq!(duplicate(scope.claim("a")).attempt(), 3_001);
}

#[test]
fn what_was_kept_under_a_higher_key_limit_stands_in_nobodys_way() {
    for crashed in [false, true] {
        let place = Place::new();
        let least = || place.options().max_key_len(3).max_response_len(0).max_note_len(0);
        let long = vec![b'i'; 30_000];
        let at = Timestamp::sequence;
        let (store, scope) = crate::open(place.options().max_key_len(32_768));
        new(scope.request(&long).order("e", at(1)).claim_with("reply"));
        new(scope.begin([&long[..], b"running"].concat())).note("half done").unwrap();
        if crashed {
            place.disk.crash();
        } else {
            store.close().unwrap();
        }
        drop((store, scope));

        let (store, scope) = crate::open(least());
        assert_error!(scope.claim(&long), KeyTooLong);
        assert_eq!(scope.last_applied("e").unwrap().unwrap().timestamp(), at(1));
        stale(scope.request("b").order("e", at(0)).claim());
        // Taking this back puts the mark back that the long id set.
        let mut taken = scope.request("b").order("e", at(2)).claim_async();
        assert!(poll_once(std::pin::Pin::new(&mut taken)).is_pending());
        store.sync().unwrap();
        drop(taken);
        let after = scope.last_applied("e").unwrap().unwrap().timestamp();
        let free = scope.begin("b").unwrap().is_in_progress() || !scope.contains("b").unwrap();
        assert!(free && after == at(1), "taken back whole: {after:?}");
        store.maintain().unwrap();
        store.close().unwrap();

        let (_store, scope) = crate::open(place.options().max_key_len(32_768));
        let record = duplicate(scope.claim(&long));
        assert_eq!(
            record.stored_response().as_deref(),
            Some(&b"reply"[..]),
            "and is read back once it may be"
        );
        let guard = new(scope.begin([&long[..], b"running"].concat()));
        assert_eq!(guard.previous().and_then(|before| before.note.as_deref()), Some(&b"half done"[..]));
    }
}
