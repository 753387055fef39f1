//! What was acknowledged is still there when the process was killed right after, and one process at
//! a time has the store.

use crate::child;
use crate::common::child::Child;
use crate::common::{Place, assert_error, duplicate, new, stale};
use crate::doors::{Door, through_every_door};
use oncedb::{Error, Response, Store, Timestamp};

through_every_door! {
    power_loss_after_the_effect,
    replies_and_marks_survive_a_kill,
    torn_tail_hides_nothing_that_came_later,
    two_processes_open_one_store,
    two_stores_of_one_process,
}

fn power_loss_after_the_effect(door: Door) {
    for kill_after in [1, 30, 80] {
        let place = Place::new();
        let ids = acknowledged_before_the_kill("claim", door, &place, kill_after);
        assert!(ids.len() >= kill_after, "the child claimed until it was killed");
        for _ in 0..2 {
            let store = Store::open(place.path()).unwrap();
            let scope = store.scope("stripe").unwrap();
            for id in &ids {
                assert!(scope.contains(id).unwrap(), "{id} was acknowledged");
                duplicate(door.claim(&scope, id));
            }
            door.close(&store).unwrap();
        }
    }
}

fn replies_and_marks_survive_a_kill(door: Door) {
    let place = Place::new();
    let mut child = start("reply", door, &place);
    child.expect("replied");
    child.kill();
    child.bury();

    let store = Store::open(place.path()).unwrap();
    let scope = store.scope("stripe").unwrap();
    assert_eq!(duplicate(door.begin(&scope, "taken")).response(), Response::Stored(b"reply"));
    let refused = duplicate(door.begin(&scope, "refused"));
    assert_eq!((refused.response(), refused.is_refusal()), (Response::Stored(b"sold out"), true));
    let older = scope.request("older").order("acct_7", Timestamp::from_secs(19));
    assert_eq!(stale(door.claim_request(older)).timestamp(), Timestamp::from_secs(20));
}

fn torn_tail_hides_nothing_that_came_later(door: Door) {
    let place = Place::new();
    let mut ids = acknowledged_before_the_kill("claim", door, &place, 20);
    for round in 0..3 {
        let store = Store::open(place.path()).unwrap();
        let scope = store.scope("stripe").unwrap();
        for id in &ids {
            duplicate(door.claim(&scope, id));
        }
        let written_between = format!("between_{round}");
        new(door.claim(&scope, &written_between));
        ids.push(written_between);
        door.close(&store).unwrap();
        drop((scope, store));

        let mut child = start("begin", door, &place);
        child.expect("begun");
        child.kill();
        child.bury();
    }
    ids.extend(acknowledged_before_the_kill("claim more", door, &place, 20));
    let store = Store::open(place.path()).unwrap();
    let scope = store.scope("stripe").unwrap();
    for id in &ids {
        duplicate(door.claim(&scope, id));
    }
}

fn two_processes_open_one_store(door: Door) {
    let place = Place::new();
    let mut holder = start("hold", door, &place);
    holder.expect("open");
    assert_locked(Store::open(place.path()));
    start("try", door, &place).expect("locked");
    holder.kill();
    holder.bury();

    let store = Store::open(place.path()).expect("a killed process locks nothing");
    start("try", door, &place).expect("locked");
    door.close(&store).unwrap();
    start("try", door, &place).expect("opened");
}

fn two_stores_of_one_process(door: Door) {
    let place = Place::new();
    let store = place.open();
    let clone = store.clone();
    assert_locked(place.options().open(place.path()));
    door.close(&store).unwrap();
    let again = place.open();
    assert_error!(clone.scope("stripe"), Closed);
    drop((store, clone));
    assert_locked(place.options().open(place.path()));

    let scope = again.scope("stripe").unwrap();
    let guard = new(door.begin(&scope, "evt_1"));
    drop((again, scope));
    assert_locked(place.options().open(place.path()));
    drop(guard);
    place.open();
}

fn start(role: &str, door: Door, place: &Place) -> Child {
    Child::start(child::TEST, &format!("{role}/{}", door.name()), place.path())
}

/// Every id the child was told is its own, up to the moment it was killed.
fn acknowledged_before_the_kill(role: &str, door: Door, place: &Place, kill_after: usize) -> Vec<String> {
    let mut child = start(role, door, place);
    let mut acknowledged = Vec::new();
    while let Some(id) = child.hear() {
        if id == "claimed" {
            break;
        }
        acknowledged.push(id);
        if acknowledged.len() == kill_after {
            break;
        }
    }
    child.kill();
    acknowledged.extend(std::iter::from_fn(|| child.hear()).filter(|said| said != "claimed"));
    child.bury();
    acknowledged
}

#[track_caller]
fn assert_locked(opened: oncedb::Result<Store>) {
    match opened {
        Err(ref error @ Error::Locked { .. }) => assert!(error.is_retryable()),
        other => panic!("expected Locked, got {other:?}"),
    }
}
