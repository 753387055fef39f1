//! Windows from a second to a century, in one store together.

use crate::common::{DAY, SECOND, new};
use crate::{Place, common::duplicate};
use std::time::Duration;

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// From the shortest to the longest, three to an octave.
fn windows() -> Vec<Duration> {
    let mut windows = vec![SECOND];
    while let Some(&last) = windows.last()
        && last < 80 * YEAR
    {
        windows.push(last * 5 / 4);
    }
    windows.push(100 * YEAR);
    windows
}

#[test]
fn each_window_ends_when_it_should_beside_all_others() {
    let place = Place::new();
    let options = || place.options().memory_limit(1 << 20);
    let (mut store, mut scope) = crate::open(options());
    let windows = windows();
    let id = |number: usize| format!("key {number}");
    for (number, &window) in windows.iter().enumerate() {
        new(scope.request(id(number)).window(window).claim_with([1; 1_500]));
        store.maintain().unwrap();
    }
    let mut passed = Duration::ZERO;
    for (number, &window) in windows.iter().enumerate() {
        place.clock.advance(window.saturating_sub(passed + Duration::from_nanos(1)));
        passed = window;
        for later in number..windows.len().min(number + 3) {
            duplicate(scope.claim(id(later)));
        }
        place.clock.advance(Duration::from_nanos(1));
        assert!(!scope.contains(id(number)).unwrap(), "a window of {window:?}");
        store.maintain().unwrap();
        assert!(store.stats().runs <= 64 * 8, "a bounded number of buckets");
        if number % 25 == 0 {
            store.close().unwrap();
            (store, scope) = crate::open(options());
        }
    }
    place.clock.advance(SECOND);
    store.maintain().unwrap();
    assert_eq!(store.stats().live_keys, 0);
    assert_eq!(place.files("run").1, 0, "what has expired is gone");
    assert_eq!(place.files("responses").1, 0, "what has expired is gone");
}

#[test]
fn long_windows_do_not_hold_up_the_room_of_short_ones() {
    let place = Place::new();
    let (store, scope) = crate::open(place.options().memory_limit(1 << 20));
    // As many long ones, of different ends, as there are buckets and more.
    let long: Vec<_> = (0..250).map(|number| 30 * DAY + number * 140 * DAY).collect();
    for (number, &window) in long.iter().enumerate() {
        new(scope.request(format!("long {number}")).window(window).claim());
    }
    store.maintain().unwrap();
    assert_eq!(store.stats().runs, 64, "a run for each bucket there can be");
    let mut most = 0;
    let mut written = 0;
    for round in 0..200 {
        let ids = (0..50).map(|number| format!("short {round} {number}"));
        let requests = ids.map(|id| scope.request(id).window(SECOND));
        let guards = store.begin_requests(requests.collect::<Vec<_>>()).unwrap();
        let guards = guards.into_iter().map(|guard| (new(guard), [2; 2_000]));
        assert!(store.complete_all_with(guards.collect::<Vec<_>>()).unwrap().iter().all(Result::is_ok));
        written += 50 * 2_000;
        store.maintain().unwrap();
        place.clock.advance(SECOND);
        store.maintain().unwrap();
        most = most.max(place.files("run").0 + place.files("responses").0);
    }
    assert!(most < written / 5, "{most} bytes at most, of {written} that expired in turn");
    for number in 0..long.len() {
        duplicate(scope.claim(format!("long {number}")));
    }
}
