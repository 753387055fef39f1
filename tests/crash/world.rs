//! One store on a simulated disk, the calls made to it, and the oracle that hears of each.

use crate::common::Dice;
use crate::oracle::{Oracle, Seen, Step};
use crate::states::{At, Done, Entity, Key, Mark, NEVER, SECOND, State};
use oncedb::simulation::MemoryDisk;
use oncedb::{Durability, Error, Guard, ManualClock, Options, Retention, Scope, ScopeOptions, Store};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

pub const DIR: &str = "store";
pub const SCOPES: usize = 2;
pub const IDS: usize = 14;
pub const ENTITIES: usize = 3;

/// Longer responses are recorded as omitted.
pub const MAX_RESPONSE: usize = 3000;

/// The windows of completed keys, by scope, and how long marks are kept.
pub const WINDOWS: [At; SCOPES] = [100 * SECOND, 2000 * SECOND];
pub const RETENTIONS: [At; SCOPES] = [150 * SECOND, NEVER];

/// What they may be lowered to at an open.
pub const LOWER_RETENTIONS: [At; SCOPES] = [40 * SECOND, 60 * SECOND];

/// How a store is opened.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub durability: Durability,
    pub threads: bool,
}

pub struct World {
    pub disk: MemoryDisk,
    pub dice: Dice,
    pub oracle: Oracle,
    pub setup: Setup,
    /// How long marks are kept, by scope; a session may have another retention than the one before.
    pub retentions: [At; SCOPES],
    pub now: At,
    /// One in so many of the keys that are not done is begun after a recovery, to see what was before;
    /// 0 for none but those in doubt.
    pub probes: u64,
    /// Whether calls may fail for other reasons than a power cut.
    pub lenient: bool,
    /// The store has said that it must be reopened.
    pub poisoned: bool,
    clock: ManualClock,
    epoch: SystemTime,
    open: Option<Open>,
    /// When the last session ended, in which calls were made.
    ended: At,
    pub in_session: bool,
    token: u64,
    next_number: u64,
}

struct Open {
    store: Store,
    scopes: Vec<Scope>,
    guards: BTreeMap<Key, Guard>,
    /// Guards whose keys somebody else has taken over.
    fenced: Vec<Guard>,
    boot: u64,
}

/// What became of a call.
pub enum Got<T> {
    Done(T),
    /// It failed and changed nothing.
    Refused,
    /// It failed and may have had its effect.
    Unknown,
}

impl World {
    pub fn new(seed: u64, setup: Setup) -> Self {
        let epoch = crate::common::noon();
        Self {
            disk: MemoryDisk::new(seed),
            dice: Dice::new(seed),
            oracle: Oracle::default(),
            setup,
            retentions: RETENTIONS,
            now: 0,
            probes: 8,
            lenient: false,
            poisoned: false,
            clock: ManualClock::new(epoch),
            epoch,
            open: None,
            ended: 0,
            in_session: false,
            token: 0,
            next_number: 100,
        }
    }

    fn options(&self) -> Options {
        Store::options()
            .window(Duration::from_nanos(WINDOWS[0]))
            .durability(self.setup.durability)
            .memory_limit(1 << 20)
            .max_key_len(64)
            .max_response_len(MAX_RESPONSE)
            .max_note_len(64)
            .clock(self.clock.clone())
            .disk(&self.disk)
            .threads(self.setup.threads)
            .segment_size(8 << 10)
    }

    /// Opens the store; `false` if the power went meanwhile, or a fault that was injected hit it.
    pub fn try_open(&mut self) -> bool {
        let (boot, faults) = (self.disk.crashes(), self.disk.injected());
        match self.open_damaged() {
            Ok(()) => true,
            Err(error) => {
                let excused = self.disk.crashes() > boot || self.disk.injected() > faults;
                assert!(excused, "the store does not open: {error}");
                assert!(!error.is_corruption(), "a crash or a failing call is taken for damage: {error}");
                false
            }
        }
    }

    /// Opens the store, whatever comes of it.
    pub fn open_damaged(&mut self) -> oncedb::Result<()> {
        let boot = self.disk.crashes();
        let store = self.options().open(DIR)?;
        let scopes = (0..SCOPES)
            .map(|scope| open_scope(&store, scope, self.retentions[scope]))
            .collect::<Result<_, _>>()?;
        self.open = Some(Open { store, scopes, guards: BTreeMap::new(), fenced: Vec::new(), boot });
        self.poisoned = false;
        Ok(())
    }

    fn opened(&self) -> &Open {
        self.open.as_ref().expect("the store is open")
    }

    pub fn store(&self) -> &Store {
        &self.opened().store
    }

    pub fn scope(&self, number: usize) -> &Scope {
        &self.opened().scopes[number]
    }

    /// Whether the machine that the store was opened on still runs.
    pub fn has_power(&self) -> bool {
        self.opened().boot == self.disk.crashes()
    }

    pub fn advance_clock(&mut self, by: At) {
        self.clock.advance(Duration::from_nanos(by));
        self.now += by;
    }

    /// Lets go of the store, whatever state it is in.
    pub fn forget_store(&mut self) {
        self.end_session();
        self.open = None;
    }

    /// Claims in progress became orphans now, unless they are from an earlier session.
    fn end_session(&mut self) {
        if std::mem::take(&mut self.in_session) {
            self.ended = self.now;
        }
    }

    pub fn cut_power(&mut self) {
        self.disk.crash();
        self.forget_store();
    }

    /// Closes the store; whether it said that all is well.
    pub fn close(&mut self) {
        let result = self.store().close();
        if let Got::Done(()) = self.got(result) {
            self.oracle.promise_all();
        }
        self.forget_store();
    }

    /// Recovers the store in place, if nothing prevents it.
    pub fn reopen(&mut self) -> bool {
        self.end_session();
        let reopened = self.store().reopen();
        match reopened {
            Ok(()) => {
                let open = self.open.as_mut().expect("the store is open");
                for (_, guard) in std::mem::take(&mut open.guards) {
                    assert!(
                        matches!(guard.renew(), Err(Error::Fenced { .. })),
                        "a guard from before is fenced"
                    );
                }
                self.poisoned = false;
                true
            }
            Err(error) => {
                assert!(self.lenient || !self.has_power(), "the store does not reopen: {error}");
                assert!(!error.is_corruption(), "a failing call is taken for damage: {error}");
                false
            }
        }
    }

    /// Everything the store shows of what the oracle knows.
    pub fn look(&self) -> Seen {
        self.try_look().expect("a recovered store answers")
    }

    /// What the store shows is right, as far as it can be seen without changing it.
    pub fn check_damaged(&self, seen: &Seen) {
        self.oracle.recovered_from_damage(seen, self.ended, self.now);
    }

    pub fn try_look(&self) -> oncedb::Result<Seen> {
        let mut seen = Seen::default();
        for number in 0..SCOPES {
            let scope = self.scope(number);
            for id in 0..IDS {
                let record = scope.get(id_name(id))?;
                let contained = scope.contains(id_name(id))?;
                assert_eq!(record.is_some(), contained, "get and contains agree");
                seen.done.insert((number, id), record.map(|record| Done::seen(&record, self.epoch)));
            }
            for entity in 0..ENTITIES {
                let mark = scope.last_applied(entity_name(entity))?;
                seen.marks.insert((number, entity), mark.map(|mark| self.mark_seen(&mark)));
            }
        }
        Ok(seen)
    }

    pub fn mark_seen(&self, mark: &oncedb::Mark) -> (u64, At) {
        let applied = mark.applied_at().duration_since(self.epoch).expect("not before the beginning");
        let applied = At::try_from(applied.as_nanos()).expect("in range");
        (mark.timestamp().as_sequence().expect("a sequence number"), applied)
    }

    pub fn done_seen(&self, record: &oncedb::Record) -> Done {
        Done::seen(record, self.epoch)
    }

    /// Recovery has ended: what the store shows is right, and says which of the states that were
    /// possible it is in.
    pub fn check_recovered(&mut self, again: bool) {
        let seen = self.look();
        let mut known = self.oracle.recovered(&seen, self.ended, self.now);
        if again {
            if self.dice.below(2) == 0 {
                self.cut_power();
            } else {
                self.store().close().expect("a recovered store closes");
                self.forget_store();
            }
            assert!(self.try_open());
            let seen = self.look();
            self.oracle.still_shows(&seen, &known, self.now);
            known = self.oracle.recovered(&seen, self.ended, self.now);
        }
        // What is not shown is found by beginning: which attempt it is, and what came before.
        let mut probed = Vec::new();
        for key in keys().filter(|key| !self.oracle.hazy.contains(key)) {
            let first = known[0].key(key, self.now);
            let open_question = known.iter().any(|other| other.key(key, self.now) != first);
            if open_question
                || (first.done().is_none() && self.probes > 0 && self.dice.below(self.probes) == 0)
            {
                probed.push(key);
            }
        }
        let mut begun = Vec::new();
        for key in probed {
            let guard = crate::common::new(self.scope(key.0).begin(id_name(key.1)));
            let states: Vec<_> = known.iter().map(|known| known.key(key, self.now)).collect();
            known.retain(|known| crate::calls::follows(&known.key(key, self.now), &guard, self.now));
            let previous = guard.previous();
            assert!(
                !known.is_empty(),
                "{key:?} is begun anew by {guard:?} after {previous:?}, which none of {states:?} explains at {}",
                self.now
            );
            begun.push((key, guard));
        }
        self.oracle.settle(known.swap_remove(0));
        self.in_session = true;
        for (key, guard) in begun {
            self.begun(key, &guard, None, WINDOWS[key.0], NEVER, None);
            self.keep(key, guard);
        }
    }

    pub fn see_token(&mut self, token: u64) {
        assert!(token > self.token, "token {token} after {}", self.token);
        self.token = token;
    }

    pub fn keep(&mut self, key: Key, guard: Guard) {
        let open = self.open.as_mut().expect("the store is open");
        if let Some(before) = open.guards.insert(key, guard) {
            open.fenced.push(before);
        }
    }

    pub fn guard(&self, key: Key) -> Option<&Guard> {
        self.opened().guards.get(&key)
    }

    pub fn take_guard(&mut self, key: Key) -> Option<Guard> {
        self.open.as_mut()?.guards.remove(&key)
    }

    pub fn fence_guard(&mut self, key: Key) {
        if let Some(guard) = self.take_guard(key) {
            self.open.as_mut().expect("the store is open").fenced.push(guard);
        }
    }

    pub fn take_fenced(&mut self) -> Option<Guard> {
        self.open.as_mut()?.fenced.pop()
    }

    pub fn held_keys(&self) -> Vec<Key> {
        self.opened().guards.keys().copied().collect()
    }

    /// A number that no event has had.
    pub fn fresh_number(&mut self) -> u64 {
        self.next_number += 1 + self.dice.below(3);
        self.next_number
    }

    /// Sorts a result: fails the test if the error is none that may happen here.
    pub fn got<T>(&mut self, result: oncedb::Result<T>) -> Got<T> {
        let error = match result {
            Ok(value) => return Got::Done(value),
            Err(error) => error,
        };
        if !self.has_power() {
            assert!(!error.is_corruption(), "a power cut is taken for damage: {error}");
            return Got::Unknown;
        }
        assert!(self.lenient, "a call failed on a sound disk: {error}");
        match error {
            Error::OutcomeUnknown { .. } => {
                self.poisoned = true;
                Got::Unknown
            }
            Error::Poisoned { .. } => {
                self.poisoned = true;
                Got::Refused
            }
            Error::Full { .. } | Error::Io { .. } => Got::Refused,
            other => panic!("a failing disk is answered with: {other}"),
        }
    }

    /// The same for a settlement, which never fails for lack of room.
    pub fn got_settled<T>(&mut self, result: oncedb::Result<T>) -> Got<T> {
        if let Err(error @ (Error::Full { .. } | Error::Io { .. })) = &result {
            assert!(!self.has_power(), "a settlement is refused: {error}");
        }
        self.got(result)
    }

    /// A frame that changes one key.
    pub fn step(&mut self, key: Key, state: State) {
        self.oracle.step(Step { key: Some((key, state)), mark: None });
    }

    pub fn state(&self, key: Key) -> State {
        self.oracle.tip().key(key, self.now)
    }

    pub fn mark(&self, entity: Entity) -> Option<Mark> {
        self.oracle.tip().mark(entity, self.now)
    }

    pub fn shown_mark(&self, entity: Entity) -> Option<(u64, At)> {
        self.oracle.tip().shown_mark(entity, self.now)
    }

    pub fn is_durable(&self) -> bool {
        self.setup.durability == Durability::Sync
    }
}

fn open_scope(store: &Store, number: usize, retention: At) -> oncedb::Result<Scope> {
    let retention = match retention {
        NEVER => Retention::Forever,
        nanos => Retention::For(Duration::from_nanos(nanos)),
    };
    let options = ScopeOptions::new().window(Duration::from_nanos(WINDOWS[number])).mark_retention(retention);
    store.scope_with(["alpha", "beta"][number], options)
}

pub fn keys() -> impl Iterator<Item = Key> {
    (0..SCOPES).flat_map(|scope| (0..IDS).map(move |id| (scope, id)))
}

pub fn id_name(id: usize) -> String {
    format!("evt_{id}")
}

pub fn entity_name(entity: usize) -> String {
    format!("acct_{entity}")
}
