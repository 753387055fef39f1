//! What the child processes of the scenarios do before they are killed.

use crate::common::child::{role, say, wait_for_the_kill};
use crate::common::{block_on, new};
use crate::doors::Door;
use oncedb::{Durability, Error, Store};

pub const TEST: &str = "child::role_of_this_process";

/// Not a promise of its own: without a role in the environment there is nothing to do.
#[test]
fn role_of_this_process() {
    let Some((role, dir)) = role() else { return };
    let (role, door) = role.split_once('/').expect("a role and its door");
    let door = Door::named(door);
    match role {
        "begin" => begin(door, &Store::open(dir).unwrap()),
        "begin and note" => begin_and_note(door, &Store::open(dir).unwrap()),
        "claim" => claim(door, &Store::open(dir).unwrap(), "ack"),
        "claim more" => claim(door, &Store::open(dir).unwrap(), "more"),
        "reply" => reply(door, &Store::open(dir).unwrap()),
        "hold" => hold(&Store::open(dir).unwrap()),
        "try" => try_to_open(Store::open(dir)),
        unknown => panic!("no role is called {unknown}"),
    }
}

fn begin(door: Door, store: &Store) {
    let scope = store.scope("stripe").unwrap();
    let request = scope.request("evt_1").durability(Durability::Sync);
    let _held = new(door.begin_request(request));
    say("begun");
    wait_for_the_kill();
}

fn begin_and_note(door: Door, store: &Store) {
    let scope = store.scope("stripe").unwrap();
    let guard = new(door.begin(&scope, "evt_1"));
    door.note(&guard, "about to charge").unwrap();
    door.note(&guard, "charged: ch_42").unwrap();
    say("noted");
    wait_for_the_kill();
}

fn claim(door: Door, store: &Store, prefix: &str) {
    let scope = store.scope("stripe").unwrap();
    for number in 0..50 {
        let id = format!("{prefix}_{number}");
        new(door.claim(&scope, &id));
        say(&id);
    }
    let batch: Vec<_> = (50..80).map(|number| format!("{prefix}_{number}")).collect();
    for outcome in door.claim_many(&scope, &batch).unwrap() {
        new(Ok(outcome));
    }
    for id in &batch {
        say(id);
    }
    say("claimed");
    wait_for_the_kill();
}

fn reply(door: Door, store: &Store) {
    let scope = store.scope("stripe").unwrap();
    door.complete_with(new(door.begin(&scope, "taken")), "reply").unwrap();
    door.refuse(new(door.begin(&scope, "refused")), "sold out").unwrap();
    let newer = scope.request("newer").order("acct_7", oncedb::Timestamp::from_secs(20));
    new(door.claim_request(newer));
    say("replied");
    wait_for_the_kill();
}

fn hold(store: &Store) {
    block_on(store.sync_async()).unwrap();
    say("open");
    wait_for_the_kill();
}

fn try_to_open(opened: oncedb::Result<Store>) {
    match opened {
        Ok(store) => {
            store.close().unwrap();
            say("opened");
        }
        Err(Error::Locked { .. }) => say("locked"),
        Err(other) => say(&format!("failed: {other}")),
    }
}
