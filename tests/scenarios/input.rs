//! What a caller got wrong is told at once, as an error and never as a verdict, and leaves nothing
//! behind.

use crate::common::{DAY, HOUR, Place, SECOND, assert_error, assert_first, duplicate, new, stale};
use crate::doors::{Door, through_every_door};
use oncedb::{ScopeOptions, Timestamp};
use std::time::Duration;

through_every_door! {
    bad_input_is_an_error_and_records_nothing,
    batch_with_a_bad_id_claims_none,
    batch_of_requests_answers_each,
}

#[test]
fn options_of_a_scope_are_set_once_while_it_is_open() {
    let place = Place::new();
    let store = place.open();
    let options = || ScopeOptions::new().window(HOUR);
    let first = store.scope_with("stripe", options()).unwrap();
    store.scope_with("stripe", options()).expect("the same options again are fine");
    store.scope("stripe").expect("a plain scope joins");
    assert_error!(store.scope_with("stripe", options().lease(SECOND)), ScopeOptions);
    assert_error!(store.scope_with("stripe", ScopeOptions::new()), ScopeOptions);
    drop(first);
    assert_error!(store.scope_with("stripe", options().lease(SECOND)), ScopeOptions);

    let plain = store.scope("github").unwrap();
    assert_error!(store.scope_with("github", options()), ScopeOptions);
    assert_error!(store.scope_with("github", ScopeOptions::new()), ScopeOptions);
    drop(plain);
    let scope = store.scope_with("github", options()).expect("nobody holds it plain any more");
    drop(scope);
    store.close().unwrap();

    let store = place.open();
    store.scope_with("stripe", options().lease(SECOND)).expect("a new deploy may change them");
}

#[test]
fn options_out_of_range_are_refused_at_open() {
    let place = Place::new();
    let refused = [
        place.options().window(Duration::from_millis(999)),
        place.options().window(101 * 366 * DAY),
        place.options().memory_limit((1 << 20) - 1),
    ];
    for options in refused {
        assert_error!(options.open(place.path()), InvalidOption);
    }
    let store = place.open();
    for window in [Duration::from_millis(999), 101 * 366 * DAY] {
        let options = ScopeOptions::new().window(window);
        assert_error!(store.scope_with("stripe", options), InvalidOption);
    }
    store.close().unwrap();
    place.open_with(place.options().window(SECOND).memory_limit(1 << 20)).close().unwrap();
    place.open_with(place.options().window(100 * 365 * DAY)).close().unwrap();
}

fn bad_input_is_an_error_and_records_nothing(door: Door) {
    let place = Place::new();
    let store = place.open_with(place.options().max_key_len(40).max_note_len(10));
    let scope = store.scope("stripe").unwrap();
    let request = || scope.request("evt_1");
    let at = Timestamp::from_secs(1);
    assert_error!(door.claim(&scope, ""), EmptyId);
    assert_error!(door.begin(&scope, []), EmptyId);
    assert_error!(door.get(&scope, ""), EmptyId);
    assert_error!(door.claim_request(request().order("", at)), EmptyId);
    assert_error!(door.advance(&scope, "", at), EmptyId);
    assert_error!(scope.last_applied(""), EmptyId);

    let longest = "i".repeat(40 - "stripe".len());
    new(door.claim(&scope, &longest));
    assert_error!(door.claim(&scope, format!("{longest}i")), KeyTooLong);
    let entity = "e".repeat(40 - "stripe".len());
    assert_error!(door.begin_request(request().order(format!("{entity}e"), at)), KeyTooLong);
    assert_error!(door.claim_request(request().fingerprint([7; 65])), FingerprintTooLong);

    assert_error!(door.claim_request(request().window(Duration::ZERO)), InvalidOption);
    assert_error!(door.begin_request(request().window(101 * 366 * DAY)), InvalidOption);
    assert_error!(door.begin_request(request().lease(Duration::ZERO)), InvalidOption);

    let guard = new(door.begin_request(request().fingerprint([7; 64]).order(entity, at)));
    assert_first(&guard);
    assert_error!(door.note(&guard, "eleven long"), NoteTooLong);
    door.note(&guard, "ten, at it").unwrap();
    let error = door.claim(&scope, "").unwrap_err();
    assert!(error.is_invalid_input(), "the caller's data: {error}");
}

fn batch_with_a_bad_id_claims_none(door: Door) {
    let place = Place::new();
    let (_store, scope) = place.stripe();
    assert_error!(door.claim_many(&scope, ["a", "b", ""]), EmptyId);
    for outcome in door.claim_many(&scope, ["a", "b"]).unwrap() {
        assert_eq!(new(Ok(outcome)).attempt(), 1);
    }
    assert!(door.claim_many(&scope, [""; 0]).unwrap().is_empty());
}

fn batch_of_requests_answers_each(door: Door) {
    let place = Place::new();
    let (store, scope) = place.stripe();
    let other = store.scope("github").unwrap();
    let requests = vec![
        scope.request("a").window(HOUR),
        scope.request(""),
        other.request("a"),
        scope.request("b").order("acct_7", Timestamp::from_secs(10)),
        scope.request("c").order("acct_7", Timestamp::from_secs(5)),
    ];
    let mut answers = door.claim_requests(&store, requests).unwrap().into_iter();
    new(answers.next().unwrap());
    assert_error!(answers.next().unwrap(), EmptyId);
    new(answers.next().unwrap());
    new(answers.next().unwrap());
    stale(answers.next().unwrap());
    assert!(answers.next().is_none());
    place.clock.advance(HOUR);
    new(door.claim(&scope, "a"));
    duplicate(door.claim(&other, "a"));
}
