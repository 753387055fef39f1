//! One history: a store that is used, loses power, recovers and is used again, several times.

use crate::calls::one_in;
use crate::world::{IDS, LOWER_RETENTIONS, RETENTIONS, SCOPES, Setup, World};
use oncedb::Durability;
use oncedb::simulation::{Call, Fault, FaultKind};
use std::fmt;
use std::time::Duration;

/// Calls of a store in one session, at most.
const CALLS: u64 = 60;

/// What a history went through.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub histories: u64,
    pub crashes: u64,
    pub faults: u64,
    pub disk_calls: u64,
    pub violations: u64,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} histories, {} crashes, {} faults injected in {} disk calls, {} violations",
            self.histories, self.crashes, self.faults, self.disk_calls, self.violations
        )
    }
}

impl Tally {
    pub const NONE: Self = Self { histories: 0, crashes: 0, faults: 0, disk_calls: 0, violations: 0 };

    pub fn of(world: &World) -> Self {
        Self {
            histories: 1,
            crashes: world.disk.crashes(),
            faults: world.disk.injected(),
            disk_calls: world.disk.calls(),
            violations: 0,
        }
    }

    pub fn add(&mut self, other: Self) {
        self.histories += other.histories;
        self.crashes += other.crashes;
        self.faults += other.faults;
        self.disk_calls += other.disk_calls;
        self.violations += other.violations;
    }
}

/// A setup that the seed decides.
pub fn setup(seed: u64, threads: bool) -> Setup {
    let interval = Durability::Interval(Duration::from_millis(5));
    Setup { durability: if seed % 4 == 3 { interval } else { Durability::Sync }, threads }
}

/// Power cuts at random calls, while the store is used, while it recovers and while it closes.
pub fn random(seed: u64, threads: bool) -> Tally {
    let mut world = World::new(seed, setup(seed, threads));
    for _ in 0..2 + world.dice.below(4) {
        for scope in 0..SCOPES {
            let lowered = one_in(&mut world.dice, 3);
            world.retentions[scope] = if lowered { LOWER_RETENTIONS } else { RETENTIONS }[scope];
        }
        open(&mut world);
        let again = one_in(&mut world.dice, 3);
        world.check_recovered(again);
        if !one_in(&mut world.dice, 4) {
            let mut cut = Fault::new(FaultKind::PowerCut);
            if one_in(&mut world.dice, 2) {
                let any = Call::ALL[usize::try_from(world.dice.below(Call::ALL.len() as u64)).unwrap_or(0)];
                let call = if one_in(&mut world.dice, 2) { Call::Sync } else { any };
                cut = cut.on(call).after(world.dice.below(12));
            } else {
                cut = cut.after(world.dice.below(250));
            }
            world.disk.inject(cut);
        }
        use_store(&mut world, CALLS);
        end(&mut world);
        if one_in(&mut world.dice, 4) {
            world.advance_clock(50_000_000_000);
        }
    }
    finish(&mut world);
    Tally::of(&world)
}

/// A fixed workload with one power cut at a given call of one kind, or of any; `None` once the workload
/// has fewer such calls.
pub fn cut_at(seed: u64, call: Option<Call>, number: u64) -> Option<Tally> {
    let mut world = World::new(seed, setup(seed, false));
    let cut = Fault::new(FaultKind::PowerCut).after(number);
    world.disk.inject(call.map_or(cut, |call| cut.on(call)));
    if world.try_open() {
        use_store(&mut world, 4 * CALLS);
        if world.has_power() {
            world.close();
        } else {
            world.forget_store();
        }
    }
    let hit = world.disk.crashes() > 0;
    world.disk.heal();
    finish(&mut world);
    hit.then(|| Tally::of(&world))
}

/// The same workload, cut short by a first power cut; then one at a given call of the recovery;
/// `None` once the recovery has fewer.
pub fn cut_in_recovery(seed: u64, number: u64) -> Option<Tally> {
    let mut world = World::new(seed, setup(seed, false));
    assert!(world.try_open());
    use_store(&mut world, CALLS);
    world.cut_power();
    world.disk.inject(Fault::new(FaultKind::PowerCut).after(number));
    let opened = world.try_open();
    let hit = !opened || !world.has_power();
    if opened {
        world.forget_store();
    }
    world.disk.heal();
    finish(&mut world);
    hit.then(|| Tally::of(&world))
}

/// Batches of frames of one length that a crash tears, so that whole frames are left behind the end of
/// the log, each where a later one would be written; and a second crash soon after the recovery.
pub fn torn_tail(seed: u64) -> Tally {
    let setup = Setup { durability: Durability::Sync, threads: false };
    let mut world = World::new(seed, setup);
    world.probes = 0;
    for _ in 0..4 {
        assert!(world.try_open());
        world.check_recovered(false);
        let absent = (0..IDS).filter(|id| world.state((1, *id)).done().is_none()).collect::<Vec<_>>();
        if one_in(&mut world.dice, 2) {
            world.disk.inject(Fault::new(FaultKind::PowerCut).on(Call::Sync));
            if let Some(last) = absent.last().filter(|_| one_in(&mut world.dice, 3)) {
                // Its completion and its mark stand or fall together.
                world.begin_in_order((1, *last));
                world.settle();
            } else {
                world.claim_these(1, &absent);
            }
        } else {
            let some = usize::try_from(world.dice.below(7)).unwrap_or(0).min(absent.len());
            world.claim_these(1, &absent[..some]);
        }
        world.disk.heal();
        if world.has_power() {
            world.cut_power();
        } else {
            world.forget_store();
        }
    }
    finish(&mut world);
    Tally::of(&world)
}

/// Two callers: one of them frees a key and does not wait to be told, the other one asks for that key at
/// once, or after a third one that had it for a moment; then the power goes.
pub fn two_callers(seed: u64) -> Tally {
    let mut world = World::new(seed, Setup { durability: Durability::Sync, threads: false });
    for _ in 0..3 {
        open(&mut world);
        world.check_recovered(false);
        use_store(&mut world, 20);
        for _ in 0..4 {
            // Nobody waits for a frame before these, and there is room: a future would wait for that.
            world.sync();
            world.store().tick();
            let asked = if one_in(&mut world.dice, 2) { world.forget_and_go() } else { world.claim_and_go() };
            if asked && one_in(&mut world.dice, 2) {
                break;
            }
        }
        world.cut_power();
    }
    finish(&mut world);
    Tally::of(&world)
}

/// Opens the store, through power cuts in the middle of it.
fn open(world: &mut World) {
    while one_in(&mut world.dice, 3) {
        let after = world.dice.below(80);
        world.disk.inject(Fault::new(FaultKind::PowerCut).after(after));
        if world.try_open() {
            world.disk.heal();
            if world.has_power() {
                return;
            }
            world.forget_store();
        }
    }
    assert!(world.try_open());
}

/// Calls until there were enough or the power has gone.
pub fn use_store(world: &mut World, most: u64) {
    world.in_session = true;
    for _ in 0..=world.dice.below(most) {
        world.call();
        if !world.has_power() {
            return;
        }
    }
}

/// Ends a session in one of the ways that sessions end.
fn end(world: &mut World) {
    if !world.has_power() {
        return world.forget_store();
    }
    match world.dice.below(3) {
        0 => world.cut_power(),
        1 => world.close(),
        _ => {
            // Nothing is written any more: it ends as it would if the process had died.
            world.cut_power();
            assert!(world.try_open());
            world.cut_power();
        }
    }
    world.disk.heal();
}

/// The last recovery: what is there is right, stays so, and the store can be used.
pub fn finish(world: &mut World) {
    assert!(world.try_open());
    world.check_recovered(true);
    for _ in 0..10 {
        world.call();
    }
    world.close();
    assert!(world.try_open());
    world.check_recovered(false);
    world.close();
}
