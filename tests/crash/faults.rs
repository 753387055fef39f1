//! Histories in which the disk fails or is full, and the store says so and goes on.

use crate::calls::one_in;
use crate::history::{Tally, finish, setup};
use crate::world::World;
use oncedb::simulation::{Call, Fault, FaultKind};

/// Calls of a workload.
const CALLS: u64 = 60;

/// Calls that a poisoned store is asked to refuse.
const REFUSED: u64 = 3;

/// A fixed workload with one fault at a given call, or at every call from there on; `None` once the
/// workload has fewer calls.
pub fn fault_at(seed: u64, kind: FaultKind, lasting: bool, number: u64) -> Option<Tally> {
    let fault = Fault::new(kind).after(number);
    with_fault(seed, kind, if lasting { fault.lasting() } else { fault })
}

/// The same with calls of one kind that fail from a given one on, while all others go on.
pub fn kind_of_call_fails(seed: u64, call: Call, number: u64) -> Option<Tally> {
    with_fault(seed, FaultKind::Io, Fault::new(FaultKind::Io).on(call).after(number).lasting())
}

/// One sync that fails, whichever file it is of, and none after it.
pub fn sync_fails(seed: u64, number: u64) -> Option<Tally> {
    with_fault(seed, FaultKind::Io, Fault::new(FaultKind::Io).on(Call::Sync).after(number))
}

fn with_fault(seed: u64, kind: FaultKind, fault: Fault) -> Option<Tally> {
    let mut world = World::new(seed, setup(seed, false));
    // Short and interrupted calls are nothing that anybody notices.
    world.lenient = !matches!(kind, FaultKind::Short | FaultKind::Interrupted);
    world.disk.inject(fault);
    if !world.try_open() {
        assert!(world.lenient, "a store does not open through a {kind:?} call");
        world.disk.heal();
        assert!(world.try_open());
    }
    world.in_session = true;
    for _ in 0..CALLS {
        world.call();
        if world.poisoned {
            recover(&mut world);
        }
    }
    let hit = world.disk.injected() > 0;
    world.disk.heal();
    // What a failed sync lost shows only once nothing but the disk is left to ask.
    if one_in(&mut world.dice, 2) {
        world.cut_power();
    } else {
        world.close();
    }
    world.lenient = false;
    finish(&mut world);
    hit.then(|| Tally::of(&world))
}

/// A poisoned store answers nothing, and is reopened in place once the disk works again.
fn recover(world: &mut World) {
    for _ in 0..REFUSED {
        world.call();
    }
    // While the disk still fails, so does this, and nothing is lost by it.
    let reopened = world.reopen();
    world.disk.heal();
    assert!(reopened || world.reopen(), "the store does not reopen on a disk that works");
    let again = one_in(&mut world.dice, 2);
    world.check_recovered(again);
    world.in_session = true;
}

/// A disk that is full for a while: claims are refused, settlements are not, nothing poisons, and with
/// room everything goes on.
pub fn full_disk(seed: u64) -> Tally {
    let mut world = World::new(seed, setup(seed, false));
    assert!(world.try_open());
    world.in_session = true;
    for _ in 0..world.dice.below(CALLS) {
        world.call();
    }
    world.lenient = true;
    for _ in 0..3 {
        let room = world.dice.below(64 << 10);
        world.disk.set_capacity(Some(world.disk.used() + room));
        for _ in 0..CALLS {
            world.call();
            assert!(!world.poisoned, "a lack of room poisons");
        }
        world.disk.set_capacity(None);
        world.store().maintain().expect("there is room again");
        world.oracle.promise_all();
    }
    world.lenient = false;
    for _ in 0..10 {
        world.call();
    }
    if world.dice.below(2) == 0 {
        world.cut_power();
    } else {
        world.close();
    }
    finish(&mut world);
    Tally::of(&world)
}
