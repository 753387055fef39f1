//! A key lasts exactly its window, counted from completion, on a clock that nothing steps: not the
//! wall clock, not a duplicate that looks, not the collection of what has expired.

use crate::common::{DAY, HOUR, Place, SECOND, duplicate, in_progress, new, noon};
use crate::doors::{Door, through_every_door};
use oncedb::{Downtime, Scope, ScopeOptions};
use std::time::Duration;

through_every_door! {
    retry_lands_exactly_at_expiry,
    duplicates_do_not_extend_the_window,
    expired_key_claimed_again_gets_a_whole_window,
    job_runs_twenty_hours_its_record_lives_four,
    wall_clock_steps,
    wall_clock_steps_back_over_a_restart,
    down_longer_than_the_window,
    different_senders_different_horizons,
    window_is_fixed_when_the_key_is_claimed,
}

const MILLISECOND: Duration = Duration::from_millis(1);

/// Every way of looking says that the key is done.
#[track_caller]
fn assert_live(door: Door, scope: &Scope, id: &str) {
    duplicate(door.claim(scope, id));
    duplicate(door.begin(scope, id));
    assert!(scope.contains(id).unwrap(), "contains agrees with claim");
    assert!(door.get(scope, id).unwrap().is_some(), "get agrees with claim");
}

/// Every way of looking says that the key is not there; claims it, so the claim comes last.
#[track_caller]
fn assert_expired(door: Door, scope: &Scope, id: &str) {
    assert!(!scope.contains(id).unwrap(), "contains agrees with claim");
    assert!(door.get(scope, id).unwrap().is_none(), "get agrees with claim");
    let record = new(door.claim(scope, id));
    assert_eq!(record.attempt(), 1, "what has expired is not counted");
}

fn retry_lands_exactly_at_expiry(door: Door) {
    for collected in [false, true] {
        for restarted in [false, true] {
            let place = Place::new();
            let options = || place.options().window(HOUR);
            let (mut store, mut scope) = place.stripe_with(options());
            door.complete(new(door.begin(&scope, "evt_1"))).unwrap();
            let record = duplicate(door.claim(&scope, "evt_1"));
            assert_eq!(record.completed_at(), Some(noon()));
            assert_eq!(record.expires_at(), Some(noon() + HOUR));
            if restarted {
                drop(scope);
                door.close(&store).unwrap();
                (store, scope) = place.stripe_with(options());
            }

            place.clock.advance(HOUR - MILLISECOND);
            if collected {
                store.maintain().unwrap();
            }
            assert_live(door, &scope, "evt_1");

            place.clock.advance(MILLISECOND);
            if collected {
                store.maintain().unwrap();
            }
            assert_expired(door, &scope, "evt_1");
        }
    }
}

fn duplicates_do_not_extend_the_window(door: Door) {
    let place = Place::new();
    let (_store, scope) = place.stripe_with(place.options().window(DAY));
    new(door.claim(&scope, "evt_1"));
    for _ in 0..23 {
        place.clock.advance(HOUR);
        assert_live(door, &scope, "evt_1");
    }
    place.clock.advance(HOUR);
    assert_expired(door, &scope, "evt_1");
}

fn expired_key_claimed_again_gets_a_whole_window(door: Door) {
    let place = Place::new();
    let (store, scope) = place.stripe_with(place.options().window(HOUR));
    new(door.claim(&scope, "evt_1"));
    for _ in 0..5 {
        place.clock.advance(HOUR);
        assert_expired(door, &scope, "evt_1");
        place.clock.advance(HOUR - SECOND);
        store.maintain().unwrap();
        assert_live(door, &scope, "evt_1");
        place.clock.advance(SECOND);
        assert_expired(door, &scope, "evt_1");
    }
}

fn job_runs_twenty_hours_its_record_lives_four(door: Door) {
    let place = Place::new();
    let (store, scope) = place.stripe_with(place.options().window(4 * HOUR));
    let guard = new(door.begin(&scope, "job"));
    place.clock.advance(20 * HOUR);
    store.maintain().unwrap();
    door.complete(guard).unwrap();
    let record = duplicate(door.claim(&scope, "job"));
    assert_eq!(record.claimed_at(), noon());
    assert_eq!(record.expires_at(), Some(noon() + 24 * HOUR), "counted from completion");

    place.clock.advance(4 * HOUR - SECOND);
    assert_live(door, &scope, "job");
    place.clock.advance(SECOND);
    assert_expired(door, &scope, "job");
}

fn wall_clock_steps(door: Door) {
    let years = 365 * 24 * 3600;
    let place = Place::new();
    let (store, scope) = place.stripe();
    let short = scope.request("short").window(HOUR);
    new(door.claim_request(short));
    new(door.claim(&scope, "done"));
    place.clock.advance(2 * HOUR);
    let running = scope.request("running").lease(30 * SECOND);
    let guard = new(door.begin_request(running));

    for step in [10 * years, -30 * years, 25 * years, -4 * years] {
        place.clock.step_wall(step);
        store.maintain().unwrap();
        assert_live(door, &scope, "done");
        assert!(!scope.contains("short").unwrap(), "what has expired does not revive");
        let hint = in_progress(door.begin(&scope, "running")).retry_after();
        assert_eq!(hint, 30 * SECOND, "a lease is not moved by the wall clock");
    }
    door.complete(guard).unwrap();
    assert_expired(door, &scope, "short");
    place.clock.advance(22 * HOUR - SECOND);
    assert_live(door, &scope, "done");
    place.clock.advance(SECOND);
    assert_expired(door, &scope, "done");
}

fn wall_clock_steps_back_over_a_restart(door: Door) {
    let place = Place::new();
    let (store, scope) = place.stripe();
    new(door.claim_request(scope.request("short").window(HOUR)));
    new(door.claim(&scope, "done"));
    place.clock.advance(2 * HOUR);
    door.close(&store).unwrap();

    place.clock.step_wall(-400 * 24 * 3600);
    let (_store, scope) = place.stripe();
    assert_live(door, &scope, "done");
    assert!(!scope.contains("short").unwrap(), "what has expired does not revive");
    place.clock.advance(22 * HOUR);
    assert_expired(door, &scope, "done");
}

fn down_longer_than_the_window(door: Door) {
    let restarted = |downtime| {
        let place = Place::new();
        let (store, scope) = place.stripe();
        new(door.claim(&scope, "evt_1"));
        place.clock.advance(HOUR);
        door.close(&store).unwrap();
        place.clock.advance(3 * DAY);
        let (store, scope) = place.stripe_with(place.options().downtime(downtime));
        store.maintain().unwrap();
        (place, store, scope)
    };

    let (_place, _store, scope) = restarted(Downtime::Counts);
    assert_expired(door, &scope, "evt_1");

    let (place, store, scope) = restarted(Downtime::Pauses { at_most: 2 * HOUR });
    assert_live(door, &scope, "evt_1");
    place.clock.advance(21 * HOUR - SECOND);
    assert_live(door, &scope, "evt_1");
    place.clock.advance(SECOND);
    store.maintain().unwrap();
    assert_expired(door, &scope, "evt_1");
}

fn different_senders_different_horizons(door: Door) {
    let place = Place::new();
    let horizons = [("hourly", HOUR), ("three days", 3 * DAY), ("nine days", 9 * DAY)];
    let open = || {
        let store = place.open();
        let scopes = horizons
            .map(|(name, window)| store.scope_with(name, ScopeOptions::new().window(window)).unwrap());
        (store, scopes)
    };
    let (mut store, mut scopes) = open();
    for scope in &scopes {
        new(door.claim(scope, "evt"));
        new(door.claim_request(scope.request("own").window(5 * DAY)));
    }
    let mut passed = Duration::ZERO;
    for (scope, at) in [("hourly", HOUR), ("three days", 3 * DAY), ("nine days", 9 * DAY)] {
        place.clock.advance(at - passed - SECOND);
        for ((name, window), each) in horizons.iter().zip(&scopes) {
            let live = *window >= at;
            assert_eq!(each.contains("evt").unwrap(), live, "{name}, when {scope} is due");
            assert_eq!(each.contains("own").unwrap(), at < 5 * DAY, "a claim's own window");
        }
        place.clock.advance(SECOND);
        passed = at;
        for ((name, window), each) in horizons.iter().zip(&scopes) {
            assert_eq!(each.contains("evt").unwrap(), *window > at, "{name}, after {scope}");
        }
        store.maintain().unwrap();
        drop(scopes);
        door.close(&store).unwrap();
        (store, scopes) = open();
    }
}

fn window_is_fixed_when_the_key_is_claimed(door: Door) {
    let place = Place::new();
    let (store, scope) = place.stripe_with(place.options().window(DAY));
    new(door.claim(&scope, "evt_1"));
    door.close(&store).unwrap();

    let (store, scope) = place.stripe_with(place.options().window(HOUR));
    new(door.claim(&scope, "evt_2"));
    place.clock.advance(HOUR);
    assert_live(door, &scope, "evt_1");
    assert_expired(door, &scope, "evt_2");
    place.clock.advance(23 * HOUR);
    store.maintain().unwrap();
    assert_expired(door, &scope, "evt_1");
}
