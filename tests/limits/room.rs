//! The limits of memory and disk: named when they are reached, and no obstacle once there is room.

use crate::Place;
use crate::common::{HOUR, duplicate, new};
use oncedb::{Error, Outcome, Response};

#[track_caller]
fn assert_full<T: std::fmt::Debug>(answer: oncedb::Result<T>, most: u64) {
    match answer {
        Err(error @ Error::Full { limit, .. }) => {
            assert_eq!(limit, Some(most));
            assert!(error.is_retryable());
            assert!(error.to_string().contains(&most.to_string()), "{error} names the limit");
        }
        other => panic!("expected Full, got {other:?}"),
    }
}

#[test]
fn claims_in_progress_fill_the_memory_and_their_end_makes_room() {
    const LIMIT: u64 = 1 << 20;
    let place = Place::new();
    let options = place.options().memory_limit(1 << 20).max_key_len(32_768).window(HOUR);
    let (store, scope) = crate::open(options);
    let id = |number: u8| [vec![number], vec![0; 30_000]].concat();
    for round in 0..3 {
        let mut guards = Vec::new();
        let refused = loop {
            let number = u8::try_from(guards.len()).expect("the limit is reached");
            match scope.begin(id(number)) {
                Ok(Outcome::New(guard)) => guards.push(guard),
                answer => {
                    assert_full(answer, LIMIT);
                    break number;
                }
            }
        };
        assert!(guards.len() >= 8, "round {round}: room for {} at once", guards.len());
        assert_full(scope.claim(id(refused)), LIMIT);
        assert_full(scope.request(id(refused)).claim_with("reply"), LIMIT);
        assert_full(scope.claim_many([&b"small"[..], &id(refused)]), LIMIT);
        assert!(!scope.contains(id(refused)).unwrap(), "a refused claim is not recorded");
        assert!(!scope.contains("small").unwrap(), "nor is a batch of which one was refused");
        let kept = u8::try_from(guards.len()).unwrap();
        for guard in guards {
            guard.complete_with("reply").expect("settling never waits for room");
        }
        let guard = new(scope.begin(id(refused)));
        assert_eq!(guard.attempt(), 1, "a refused claim is not counted");
        guard.complete().unwrap();
        for number in 0..kept {
            assert_eq!(duplicate(scope.claim(id(number))).response(), Response::Stored(b"reply"));
        }
        place.clock.advance(HOUR);
        store.maintain().unwrap();
    }
}

#[test]
fn the_disk_limit_comes_and_goes() {
    const LIMIT: u64 = 6 << 20;
    let place = Place::new();
    let options = || place.options().memory_limit(1 << 20).max_response_len(4_096).disk_limit(LIMIT);
    let (mut store, mut scope) = crate::open(options().window(HOUR));
    for round in 0..3 {
        let guard = new(scope.begin(format!("running {round}")));
        let full = (0..100_000).find(|number| {
            let id = format!("{round} {number}");
            let answer = scope.request(&id).claim_with([7; 4_000]);
            if answer.is_ok() {
                return false;
            }
            assert_full(answer, LIMIT);
            assert_full(scope.begin(&id), LIMIT);
            assert_full(scope.advance("entity", oncedb::Timestamp::sequence(1)), LIMIT);
            assert!(!scope.contains(&id).unwrap());
            true
        });
        assert!(full.expect("the limit is reached") > 100);
        guard.complete_with("reply").expect("room was set aside");
        assert!(scope.last_applied("entity").unwrap().is_none());
        duplicate(scope.claim(format!("{round} 0")));
        if round == 1 {
            store.close().unwrap();
            (store, scope) = crate::open(options().window(HOUR));
        }
        place.clock.advance(HOUR);
        store.maintain().unwrap();
        new(scope.claim(format!("room again {round}")));
    }
}
