//! Every caller is told what is true of exactly its own id, and exactly one of all the copies is
//! told to do the work.

use crate::common::{Place, assert_follows, at_once, duplicate, in_progress, mismatch, new, stale};
use crate::doors::{Door, through_every_door};
use oncedb::{Busy, Cause, Outcome, Response, Scope, Timestamp};
use std::collections::HashMap;
use std::fmt::Debug;

through_every_door! {
    two_identical_deliveries_in_the_same_millisecond,
    two_identical_deliveries_one_runs,
    identical_ids_in_one_batch,
    identical_batches_at_once,
    same_id_other_payload,
    refusal_is_the_real_answer,
    passing_error_is_not_kept_as_the_answer,
    skipped_event_is_not_taken_for_an_applied_one,
    reply_too_large_to_keep,
}

fn two_identical_deliveries_in_the_same_millisecond(door: Door) {
    let place = Place::new();
    let (_store, scope) = place.stripe();
    for number in 0..100 {
        let id = format!("evt_{number}");
        let answers = at_once(8, |_| door.claim(&scope, &id).unwrap());
        let news = answers.iter().filter(|outcome| outcome.is_new()).count();
        let duplicates = answers.iter().filter(|outcome| outcome.is_duplicate()).count();
        assert_eq!((news, duplicates), (1, 7), "one copy does the work, the others are told");
    }
}

fn two_identical_deliveries_one_runs(door: Door) {
    let place = Place::new();
    let (_store, scope) = place.stripe();
    for number in 0..100 {
        let id = format!("evt_{number}");
        let answers = at_once(8, |_| door.begin(&scope, &id).unwrap());
        let busy = answers.iter().filter(|outcome| outcome.is_in_progress()).count();
        assert_eq!(busy, 7, "the others are told that one runs");
        let mut guards: Vec<_> = answers.into_iter().filter_map(Outcome::into_new).collect();
        door.complete(guards.pop().expect("one copy runs")).unwrap();
        assert!(guards.is_empty(), "one copy runs and no other");
    }
}

fn identical_ids_in_one_batch(door: Door) {
    let place = Place::new();
    let (store, scope) = place.stripe();
    let answers = door.claim_many(&scope, ["a", "b", "a", "c", "b", "a"]).unwrap();
    let news: Vec<_> = answers.iter().map(Outcome::is_new).collect();
    assert_eq!(news, [true, true, false, true, false, false], "in input order");
    assert!(answers.iter().all(|outcome| outcome.is_new() || outcome.is_duplicate()));

    let requests = ["d", "a", "d"].map(|id| scope.request(id)).into();
    let mut answers = door.claim_requests(&store, requests).unwrap().into_iter();
    new(answers.next().unwrap());
    duplicate(answers.next().unwrap());
    duplicate(answers.next().unwrap());

    let requests = ["e", "a", "e"].map(|id| scope.request(id)).into();
    let mut answers = door.begin_requests(&store, requests).unwrap().into_iter();
    let guard = new(answers.next().unwrap());
    duplicate(answers.next().unwrap());
    assert_eq!(in_progress(answers.next().unwrap()).token(), guard.token());
}

fn identical_batches_at_once(door: Door) {
    let place = Place::new();
    let (_store, scope) = place.stripe();
    for round in 0..10 {
        let ids: Vec<_> = (0..60).map(|number| format!("evt_{round}_{}", number % 40)).collect();
        let answers = at_once(6, |worker| {
            let mut mine = ids.clone();
            mine.rotate_left(worker * 7);
            let outcomes = door.claim_many(&scope, &mine).unwrap();
            assert!(outcomes.iter().all(|outcome| outcome.is_new() || outcome.is_duplicate()));
            mine.into_iter().zip(outcomes).filter(|(_, outcome)| outcome.is_new()).collect()
        });
        let mut news: HashMap<String, u32> = HashMap::new();
        for (id, _) in answers.into_iter().flat_map(|mine: Vec<_>| mine) {
            *news.entry(id).or_default() += 1;
        }
        assert_eq!(news.len(), 40, "every id was new to somebody");
        assert!(news.values().all(|&count| count == 1), "and to nobody else: {news:?}");
    }
}

fn same_id_other_payload(door: Door) {
    let place = Place::new();
    let (_store, scope) = place.stripe();
    let with = |fingerprint: &str| scope.request("evt_1").fingerprint(fingerprint);
    let guard = new(door.begin_request(with("one")));
    let record = mismatch(door.begin_request(with("two")));
    assert_eq!(record.fingerprint(), Some(&b"one"[..]));
    assert_eq!((record.completed_at(), record.expires_at()), (None, None), "it still runs");
    in_progress(door.begin_request(with("one")));
    in_progress(door.begin(&scope, "evt_1"));

    door.abort(guard).unwrap();
    let guard = new(door.begin_request(with("two")));
    mismatch(door.claim_request(with("one")));
    door.complete_with(guard, "reply").unwrap();
    let record = mismatch(door.claim_request(with("one")));
    assert_eq!(record.fingerprint(), Some(&b"two"[..]));
    assert_eq!(record.response(), Response::Stored(b"reply"));
    duplicate(door.claim_request(with("two")));
    duplicate(door.claim(&scope, "evt_1"));

    new(door.claim(&scope, "evt_2"));
    duplicate(door.claim_request(scope.request("evt_2").fingerprint("any")));
}

fn refusal_is_the_real_answer(door: Door) {
    let place = Place::new();
    let (store, scope) = place.stripe();
    door.refuse(new(door.begin(&scope, "evt_1")), "the slot is taken").unwrap();
    door.complete_with(new(door.begin(&scope, "evt_2")), "booked").unwrap();
    let assert_kept = |scope: &Scope| {
        let refused = duplicate(door.begin(scope, "evt_1"));
        assert!(refused.is_refusal());
        assert_eq!(refused.response(), Response::Stored(b"the slot is taken"));
        assert!(!duplicate(door.begin(scope, "evt_2")).is_refusal());
    };
    assert_kept(&scope);
    door.close(&store).unwrap();
    assert_kept(&place.stripe().1);
}

fn passing_error_is_not_kept_as_the_answer(door: Door) {
    let place = Place::new();
    let (store, scope) = place.stripe();
    door.abort(new(door.begin(&scope, "evt_1"))).unwrap();
    assert!(door.get(&scope, "evt_1").unwrap().is_none());
    door.close(&store).unwrap();

    let (_store, scope) = place.stripe();
    let guard = new(door.begin(&scope, "evt_1"));
    assert_follows(&guard, Cause::Aborted, None);
}

fn skipped_event_is_not_taken_for_an_applied_one(door: Door) {
    fn kinds<N: Debug>(outcome: &Outcome<N>) -> [bool; 4] {
        [outcome.is_duplicate(), outcome.is_in_progress(), outcome.is_mismatch(), outcome.is_stale()]
    }
    let place = Place::new();
    let (_store, scope) = place.stripe();
    let ordered =
        |id: &str, entity, secs| scope.request(id).fingerprint(id).order(entity, Timestamp::from_secs(secs));
    new(door.claim_request(ordered("done", "acct_7", 20)));
    let _guard = new(door.begin_request(ordered("running", "acct_8", 20)));

    let skipped = [
        (door.claim_request(ordered("done", "acct_7", 20)), [true, false, false, false]),
        (door.claim_request(ordered("running", "acct_8", 20)), [false, true, false, false]),
        (door.claim_request(scope.request("done").fingerprint("x")), [false, false, true, false]),
        (door.claim_request(ordered("older", "acct_7", 10)), [false, false, false, true]),
        (door.claim_request(ordered("other", "acct_8", 30)), [false, true, false, false]),
    ];
    for (outcome, expected) in skipped {
        let outcome = outcome.unwrap();
        assert!(!outcome.is_new());
        assert_eq!(kinds(&outcome), expected, "{outcome:?}");
        assert!(outcome.into_new().is_none(), "only New is yours");
    }

    for unrecorded in ["older", "other"] {
        assert!(!scope.contains(unrecorded).unwrap(), "all but New record nothing");
    }
    assert_eq!(stale(door.claim_request(ordered("older", "acct_7", 10))).entity(), b"acct_7");
    let busy = in_progress(door.claim_request(ordered("other", "acct_8", 30)));
    assert_eq!(busy.busy(), Busy::Entity);
    new(door.claim(&scope, "older"));
}

fn reply_too_large_to_keep(door: Door) {
    let place = Place::new();
    let limited = || place.open_with(place.options().max_response_len(1000));
    let store = limited();
    let scope = store.scope("stripe").unwrap();
    let (kept, omitted) = (vec![b'k'; 1000], vec![b'o'; 1001]);
    door.complete_with(new(door.begin(&scope, "kept")), &kept).unwrap();
    door.complete_with(new(door.begin(&scope, "omitted")), &omitted).unwrap();
    door.refuse(new(door.begin(&scope, "refused")), &omitted).unwrap();
    new(door.claim_with(scope.request("claimed"), &omitted));
    new(door.claim(&scope, "none"));

    let assert_answers = |scope: &Scope| {
        let answer = |id: &str| duplicate(door.claim(scope, id));
        assert_eq!(answer("kept").response(), Response::Stored(&kept));
        assert_eq!(answer("kept").stored_response().as_deref(), Some(&kept[..]));
        for id in ["omitted", "refused", "claimed"] {
            assert_eq!(answer(id).response(), Response::Omitted { len: 1001 });
            assert!(answer(id).stored_response().is_none());
        }
        assert_eq!(answer("none").response(), Response::None);
    };
    assert_answers(&scope);
    door.close(&store).unwrap();
    assert_answers(&limited().scope("stripe").unwrap());
}
