//! Room on the disk: completions have it set aside, and what has expired gives it back.

use crate::common::{Dice, HOUR, Place, duplicate, new};
use crate::doors::{Door, through_every_door};
use oncedb::{Error, Guard, Options, Response, Scope, Store};

through_every_door! {
    disk_full_in_the_middle,
    disk_does_not_hold_what_has_expired,
}

const DISK_LIMIT: u64 = 16 << 20;

/// A store that keeps little in memory and in its journal.
fn small(place: &Place) -> Options {
    let options = place.options().window(HOUR);
    options.memory_limit(1 << 20).max_response_len(4 << 10)
}

fn open_limited(place: &Place) -> (Store, Scope) {
    place.stripe_with(small(place).disk_limit(DISK_LIMIT))
}

/// Claims with replies of a kilobyte, in batches and then one by one, until the disk is full; what
/// was granted, in order.
fn fill(door: Door, store: &Store, scope: &Scope) -> Vec<String> {
    let mut dice = Dice::new(1);
    let mut granted = Vec::new();
    let mut full = false;
    for batch in 0..1000 {
        let ids: Vec<_> = (0..100).map(|number| format!("fill_{batch}_{number}")).collect();
        let requests = ids.iter().map(|id| scope.request(id)).collect();
        let mut guards = Vec::new();
        match door.begin_requests(store, requests) {
            Ok(answers) => {
                for (id, answer) in ids.into_iter().zip(answers) {
                    if let Err(error) = &answer {
                        assert_full(error);
                        full = true;
                    } else {
                        guards.push((new(answer), dice.bytes(1024)));
                        granted.push(id);
                    }
                }
            }
            Err(error) => {
                assert_full(&error);
                full = true;
            }
        }
        let settled = door.complete_all_with(store, guards);
        for settled in settled.expect("what was granted settles") {
            settled.expect("what was granted settles");
        }
        if full {
            break;
        }
    }
    assert!(full, "the disk limit of {DISK_LIMIT} is never reached");
    for number in 0..100_000 {
        let id = format!("fill_{number}");
        match door.claim_with(scope.request(&id), dice.bytes(1024)) {
            Ok(outcome) => new(Ok(outcome)),
            Err(error) => {
                assert_full(&error);
                assert!(!scope.contains(&id).unwrap(), "a refused claim is not recorded");
                return granted;
            }
        };
        granted.push(id);
    }
    panic!("there is always room for one more claim");
}

#[track_caller]
fn assert_full(error: &Error) {
    match error {
        Error::Full { limit, .. } => assert_eq!(*limit, Some(DISK_LIMIT)),
        other => panic!("expected Full, got {other:?}"),
    }
    assert!(error.is_retryable(), "the sender may come again");
}

fn disk_full_in_the_middle(door: Door) {
    let place = Place::new();
    let (store, scope) = open_limited(&place);
    let running: Vec<(String, Guard)> = (0..100)
        .map(|number| format!("running_{number}"))
        .map(|id| (id.clone(), new(door.begin(&scope, id))))
        .collect();
    let filled = fill(door, &store, &scope);
    let mut done = Vec::new();
    for (id, guard) in running {
        let settled = door.complete_with(guard, vec![b'r'; 1024]);
        settled.expect("room was set aside for completions");
        done.push(id);
    }
    assert!(place.bytes_on_disk() <= DISK_LIMIT / 4 * 5, "the limit is kept but for completions");
    duplicate(door.claim(&scope, &filled[0]));
    door.close(&store).unwrap();

    let (store, scope) = open_limited(&place);
    for id in done.iter().chain(&filled) {
        let record = duplicate(door.begin(&scope, id));
        match record.response() {
            Response::Stored(reply) => assert_eq!(reply.len(), 1024),
            Response::Omitted { len } => assert_eq!(len, 1024, "there was no room for the reply"),
            Response::None => panic!("{id} was completed with a reply"),
        }
    }

    place.clock.advance(2 * HOUR);
    store.maintain().unwrap();
    new(door.claim(&scope, "after expiry there is room again"));
}

fn disk_does_not_hold_what_has_expired(door: Door) {
    let place = Place::new();
    let (store, scope) = place.stripe_with(small(&place));
    let mut dice = Dice::new(2);
    let mut most = 0;
    let mut written = 0;
    for round in 0..12 {
        for batch in 0..10 {
            let id = |number| format!("evt_{round}_{batch}_{number}");
            let requests = (0..200).map(|number| scope.request(id(number))).collect();
            let granted = door.begin_requests(&store, requests).unwrap();
            let replies = granted.into_iter().map(|answer| (new(answer), dice.bytes(2048)));
            for settled in door.complete_all_with(&store, replies.collect()).unwrap() {
                settled.unwrap();
            }
        }
        written += 2000 * 2048;
        store.maintain().unwrap();
        most = most.max(place.bytes_on_disk());
        place.clock.advance(2 * HOUR);
        store.maintain().unwrap();
    }
    assert!(most < written / 3, "{most} bytes at most, of {written} that expired in turn");
    let empty = place.bytes_on_disk();
    assert!(empty < written / 12, "{empty} bytes are left when everything has expired");
    assert_eq!(store.stats().live_keys, 0);
}
