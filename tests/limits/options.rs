//! An option out of its range is refused by name, and nothing is made.

use crate::Place;
use crate::common::{DAY, HOUR, assert_error, new};
use oncedb::{Durability, Error, Options, Retention, ScopeOptions};
use std::fmt::Debug;
use std::time::Duration;

const TINY: Duration = Duration::from_millis(999);
const CENTURY: Duration = Duration::from_secs(100 * 366 * 24 * 3600);

#[track_caller]
fn assert_names<T: Debug>(answer: oncedb::Result<T>, name: &str) {
    match answer {
        Err(error @ Error::InvalidOption { .. }) => {
            assert!(error.is_invalid_input());
            assert!(error.to_string().contains(name), "{error} names {name}");
        }
        other => panic!("expected InvalidOption for {name}, got {other:?}"),
    }
}

#[test]
fn option_out_of_range_is_named_and_no_store_is_made() {
    let place = Place::new();
    let over = |nanos| CENTURY + Duration::from_nanos(nanos);
    let refused: [(&str, Options); 12] = [
        ("window", place.options().window(TINY)),
        ("window", place.options().window(over(1))),
        ("window", place.options().window(Duration::MAX)),
        ("memory_limit", place.options().memory_limit((1 << 20) - 1)),
        ("memory_limit", place.options().memory_limit(usize::MAX)),
        ("max_key_len", place.options().max_key_len(0)),
        ("max_key_len", place.options().max_key_len(32_769)),
        ("max_response_len", place.options().max_response_len((64 << 20) + 1)),
        ("max_note_len", place.options().max_note_len((1 << 20) + 1)),
        ("durability", place.options().durability(Durability::Interval(Duration::from_micros(999)))),
        ("durability", place.options().durability(Durability::Interval(HOUR + Duration::from_nanos(1)))),
        ("max_note_len", place.options().max_note_len(usize::MAX)),
    ];
    for (name, options) in refused {
        assert_names(options.open("store"), name);
        assert!(place.disk.files().is_empty(), "{name}: nothing is made");
    }
    let (store, scope) = crate::open(place.options());
    let refused = [
        ("window", ScopeOptions::new().window(TINY)),
        ("window", ScopeOptions::new().window(over(1))),
        ("lease", ScopeOptions::new().lease(Duration::from_micros(999))),
        ("lease", ScopeOptions::new().lease(over(1))),
        ("mark_retention", ScopeOptions::new().mark_retention(Retention::For(TINY))),
        ("mark_retention", ScopeOptions::new().mark_retention(Retention::For(over(1)))),
    ];
    for (name, options) in refused {
        assert_names(store.scope_with("other", options), name);
        let request = scope.request("a");
        match name {
            "window" => assert_names(request.window(TINY).begin(), name),
            "lease" => assert_names(request.lease(over(1)).begin(), name),
            _ => assert_names(request.durability(Durability::Interval(Duration::ZERO)).claim(), "durability"),
        }
    }
    store.scope_with("other", ScopeOptions::new().window(HOUR)).expect("no refused options were kept");
    assert_eq!(new(scope.begin("a")).attempt(), 1, "no refused claim was counted");
}

#[test]
fn options_at_the_ends_of_their_ranges_work() {
    let smallest = |place: &Place| {
        let options = place.options().window(Duration::from_secs(1)).memory_limit(1 << 20).max_key_len(2);
        options.max_response_len(0).max_note_len(0)
    };
    let place = Place::new();
    let (store, scope) = crate::open(smallest(&place));
    assert_eq!(new(scope.claim("a")).attempt(), 1);
    assert_error!(scope.claim("ab"), KeyTooLong);
    let guard = new(scope.begin("b"));
    guard.note("").unwrap();
    assert_error!(guard.note("n"), NoteTooLong);
    store.close().unwrap();

    let (store, scope) =
        crate::open(place.options().window(CENTURY).max_key_len(32_768).max_note_len(1 << 20));
    let guard = new(scope.request("b").lease(CENTURY).begin());
    guard.note(vec![7; 1 << 20]).unwrap();
    place.clock.advance(99 * 365 * DAY);
    guard.complete().unwrap();
    store.maintain().unwrap();
    let (nano, end) = (Duration::from_nanos(1), CENTURY);
    place.clock.advance(end.saturating_sub(nano));
    assert!(scope.contains("b").unwrap());
    place.clock.advance(nano);
    assert!(!scope.contains("b").unwrap());
}
