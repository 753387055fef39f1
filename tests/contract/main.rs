//! The public API is what was promised: every name, parameter, return type and trait of it is used
//! here, so that a change to any of them does not compile.
#![deny(unfulfilled_lint_expectations, unreachable_patterns)]

#[path = "../common/mod.rs"]
mod common;

mod matches;
mod signatures;
mod traits;

use common::{Place, block_on, duplicate, new};
use oncedb::{Outcome, Pending, Record, Response, Scope};
use std::error::Error as _;

fn copied(scope: &Scope) -> Pending<Outcome<Record>> {
    let id = String::from("evt_1");
    scope.claim_async(&id)
}

#[test]
fn a_future_borrows_nothing_of_its_arguments() {
    let place = Place::new();
    let future = copied(&place.open().scope("stripe").unwrap());
    let elsewhere = std::thread::spawn(move || block_on(future));
    assert_eq!(new(elsewhere.join().unwrap()).id(), b"evt_1");
}

#[test]
fn debug_output_shortens_ids_and_responses() {
    let place = Place::new();
    let (store, scope) = place.stripe();
    let id = "i".repeat(1000);
    let guard = new(scope.begin(&id));
    let running = format!("{guard:?}");
    guard.complete_with(vec![b'r'; 100_000]).unwrap();
    let record = duplicate(scope.claim(&id));
    assert!(matches!(record.response(), Response::Stored(reply) if reply.len() == 100_000));
    let request = scope.request(&id).fingerprint([7; 64]);
    for shown in [running, format!("{record:?}"), format!("{request:?}"), format!("{store:?}")] {
        assert!(shown.len() < 1000, "{} bytes are too many for a log: {shown}", shown.len());
    }
}

#[test]
fn an_error_says_what_failed_in_a_sentence() {
    let place = Place::new();
    let (_store, scope) = place.stripe();
    let path = place.path().display().to_string();
    let locked = place.options().open(place.path()).unwrap_err();
    assert!(locked.to_string().contains(&path), "it says where: {locked}");
    let errors = [locked, scope.claim("").unwrap_err(), scope.claim([0; 2000]).unwrap_err()];
    for error in errors {
        let sentence = error.to_string();
        assert!(sentence.split_whitespace().count() >= 4, "a sentence: {sentence}");
        assert_ne!(sentence, format!("{error:?}"), "written for people");
        assert!(error.source().is_none(), "nothing is behind this one");
    }
}
