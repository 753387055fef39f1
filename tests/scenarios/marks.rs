//! The mark of an entity: how long it stays, what moves it, and what to do about a wrong one.

use crate::common::{DAY, HOUR, Place, SECOND, assert_error, duplicate, new, noon, stale};
use crate::doors::{Door, through_every_door};
use crate::order::{assert_advance_stale, assert_applied, assert_mark, at, event, open};
use oncedb::{Error, Retention, ScopeOptions, Ties, Timestamp};
use std::time::SystemTime;

through_every_door! {
    mark_lasts_as_long_as_it_was_asked_to,
    repeat_after_forget_passes_whatever_the_ties,
    wrong_clock_sends_a_date_of_2099,
    way_out_after_a_wrong_date,
    advance_moves_the_mark_before_the_work,
    sequence_numbers_order_like_times,
}

fn mark_lasts_as_long_as_it_was_asked_to(door: Door) {
    let after = |retention: Option<Retention>, days: u32| {
        let place = Place::new();
        let options = match retention {
            Some(retention) => ScopeOptions::new().mark_retention(retention),
            None => ScopeOptions::new(),
        };
        let (store, scope) = open(&place, options);
        new(door.claim_request(event(&scope, "newer", 30)));
        place.clock.advance(days * DAY);
        store.maintain().unwrap();
        let kept = scope.last_applied("acct_7").unwrap().is_some();
        let refused = door.claim_request(event(&scope, "older", 20)).unwrap().is_stale();
        assert_eq!(kept, refused, "the mark and the verdict agree");
        kept
    };
    assert!(after(None, 29), "thirty days by default");
    assert!(!after(None, 30));
    assert!(after(Some(Retention::For(90 * DAY)), 89));
    assert!(!after(Some(Retention::For(90 * DAY)), 90));
    assert!(after(Some(Retention::Forever), 36_500));
}

fn repeat_after_forget_passes_whatever_the_ties(door: Door) {
    for ties in [Ties::Accept, Ties::Reject] {
        let place = Place::new();
        let (_store, scope) = open(&place, ScopeOptions::new().ties(ties));
        new(door.claim_request(event(&scope, "evt_1", 30)));
        assert!(door.forget(&scope, "evt_1").unwrap());
        assert_mark(&scope, Some(at(30)));
        let again = new(door.claim_request(event(&scope, "evt_1", 30)));
        assert_eq!(again.attempt(), 1, "attempts start again");
        duplicate(door.claim_request(event(&scope, "evt_1", 30)));
        stale(door.claim_request(event(&scope, "older", 29)));
    }
}

fn wrong_clock_sends_a_date_of_2099(door: Door) {
    let place = Place::new();
    let (_store, scope) = open(&place, ScopeOptions::new().max_ahead(HOUR));
    let ordered = |id: &str, time: SystemTime| scope.request(id).order("acct_7", time);
    new(door.claim_request(ordered("right", noon())));
    new(door.claim_request(ordered("a little ahead", noon() + HOUR)));
    let wrong = || ordered("wrong", noon() + 73 * 365 * DAY);
    for refused in [door.claim_request(wrong()).map(drop), door.begin_request(wrong()).map(drop)] {
        match refused {
            Err(ref error @ Error::TooFarAhead { ahead, limit, .. }) => {
                assert_eq!((ahead, limit), (73 * 365 * DAY, HOUR));
                assert!(error.is_invalid_input(), "the sender's mistake");
            }
            other => panic!("expected TooFarAhead, got {other:?}"),
        }
    }
    assert_error!(door.advance(&scope, "acct_7", (noon() + HOUR + SECOND).into()), TooFarAhead);
    assert_mark(&scope, Some((noon() + HOUR).into()));
    assert!(!scope.contains("wrong").unwrap(), "nothing is recorded");
    new(door.claim_request(ordered("later", noon() + HOUR)));
    new(door.claim_request(scope.request("n").order("acct_8", Timestamp::sequence(u64::MAX))));
}

fn way_out_after_a_wrong_date(door: Door) {
    let place = Place::new();
    let (store, scope) = open(&place, ScopeOptions::new());
    new(door.claim_request(event(&scope, "wrong", 4_083_912_000)));
    stale(door.claim_request(event(&scope, "right", 20)));
    assert!(scope.forget_mark("acct_7").unwrap());
    assert!(!scope.forget_mark("acct_7").unwrap(), "there is none any more");
    assert_mark(&scope, None);
    door.close(&store).unwrap();

    let (_store, scope) = open(&place, ScopeOptions::new());
    assert_mark(&scope, None);
    new(door.claim_request(event(&scope, "right", 20)));
    assert_mark(&scope, Some(at(20)));
}

fn advance_moves_the_mark_before_the_work(door: Door) {
    let place = Place::new();
    let (store, scope) = open(&place, ScopeOptions::new());
    assert_applied(&door.advance(&scope, "acct_7", at(20)));
    assert_applied(&door.advance(&scope, "acct_7", at(20)));
    assert_advance_stale(&door.advance(&scope, "acct_7", at(19)), at(20));
    stale(door.claim_request(event(&scope, "older", 10)));
    door.close(&store).unwrap();

    let (_store, scope) = open(&place, ScopeOptions::new());
    assert_mark(&scope, Some(at(20)));
    assert_advance_stale(&door.advance(&scope, "acct_7", at(19)), at(20));
    assert_applied(&door.advance(&scope, "acct_7", at(21)));
}

fn sequence_numbers_order_like_times(door: Door) {
    let place = Place::new();
    let (_store, scope) = open(&place, ScopeOptions::new());
    let number = Timestamp::sequence;
    let event = |id: &str, at: Timestamp| scope.request(id).order("acct_7", at);
    new(door.claim_request(event("five", number(5))));
    stale(door.claim_request(event("four", number(4))));
    for refused in [
        door.claim_request(event("time", at(6))).map(drop),
        door.begin_request(event("time", at(1))).map(drop),
        door.advance(&scope, "acct_7", at(6)).map(drop),
    ] {
        match refused {
            Err(ref error @ Error::TimestampKind { .. }) => assert!(error.is_invalid_input()),
            other => panic!("expected TimestampKind, got {other:?}"),
        }
    }
    assert!(!scope.contains("time").unwrap(), "nothing is recorded");
    new(door.claim_request(event("max", number(u64::MAX))));
    assert_mark(&scope, Some(number(u64::MAX)));
}
