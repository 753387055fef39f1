//! A ledger is what a model of a few lines says, over commits, rollbacks and clock steps.
//!
//! The model knows every row, expired ones as well, so it also tells what is removed by which call.

use crate::common::{announce, fresh_seed, noon, number_from};
use crate::door::{Answer, Door, Settings, World, ask, through_both_doors};
use oncedb::{Error, Mark, Outcome, Record, Response, Retention, Ties, Timestamp};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

through_both_doors! { ledger_is_what_the_model_says }

/// Two ledgers of one database, with different options.
const LEDGERS: [(&str, Ties, Option<u64>, u64); 2] =
    [("stripe", Ties::Accept, Some(8), 10), ("Stripe", Ties::Reject, None, 4)];

#[derive(Clone, Debug)]
enum Op {
    Claim { id: u8, print: Option<u8>, order: Option<(u8, Stamp)>, window: Option<u64>, response: Option<u8> },
    Forget(u8),
    ForgetMark(u8),
    Expire(usize),
    Pass(u64),
    Step(i64),
    Commit,
    RollBack,
}

/// A timestamp: a time, or now and then a number.
type Stamp = (bool, u8);

fn timestamp((number, value): Stamp) -> Timestamp {
    if number { Timestamp::sequence(value.into()) } else { Timestamp::from_secs(value.into()) }
}

#[derive(Clone, Debug, PartialEq)]
struct Id {
    claimed: u64,
    expires: u64,
    print: Option<u8>,
    response: Option<u8>,
    forgotten: bool,
}

#[derive(Clone, Debug, PartialEq)]
struct Applied {
    at: Stamp,
    since: u64,
    expires: Option<u64>,
    setter: u8,
}

/// All rows of one ledger, and its time, in seconds since the start.
#[derive(Clone, Debug, Default, PartialEq)]
struct Rows {
    latest: u64,
    ids: BTreeMap<u8, Id>,
    marks: BTreeMap<u8, Applied>,
}

#[derive(Debug, PartialEq)]
enum Seen {
    New(Id),
    Duplicate(Id),
    Mismatch(Id),
    Stale(Applied),
    WrongKind,
}

impl Rows {
    fn now(&self, wall: u64) -> u64 {
        self.latest.max(wall)
    }

    fn id(&self, now: u64, id: u8) -> Option<&Id> {
        self.ids.get(&id).filter(|it| now < it.expires)
    }

    fn mark(&self, now: u64, entity: u8) -> Option<&Applied> {
        self.marks.get(&entity).filter(|it| it.expires.is_none_or(|expires| now < expires))
    }

    fn claim(&mut self, wall: u64, ledger: usize, op: &Op) -> Seen {
        let Op::Claim { id, print, order, window, response } = op else { unreachable!("a claim") };
        let (_, ties, retention, default_window) = LEDGERS[ledger];
        let now = self.now(wall);
        let mark = order.and_then(|(entity, _)| self.mark(now, entity));
        if let (Some((_, at)), Some(mark)) = (order, mark)
            && at.0 != mark.at.0
        {
            return Seen::WrongKind;
        }
        let known = self.id(now, *id);
        if let Some(known) = known.filter(|known| !known.forgotten) {
            let differs = matches!((print, known.print), (Some(one), Some(other)) if *one != other);
            return if differs { Seen::Mismatch(known.clone()) } else { Seen::Duplicate(known.clone()) };
        }
        if let (Some((_, at)), Some(mark)) = (order, mark) {
            let again = mark.setter == *id;
            let stale = if at.1 == mark.at.1 {
                if again { known.is_none() } else { ties == Ties::Reject }
            } else {
                at.1 < mark.at.1
            };
            if stale {
                return Seen::Stale(mark.clone());
            }
        }
        self.expire(now, 4);
        self.latest = now;
        let claimed = Id {
            claimed: now,
            expires: now + window.unwrap_or(default_window),
            print: *print,
            response: *response,
            forgotten: false,
        };
        self.ids.insert(*id, claimed.clone());
        if let Some((entity, at)) = order {
            let expires = retention.map(|retention| now + retention);
            self.marks.insert(*entity, Applied { at: *at, since: now, expires, setter: *id });
        }
        Seen::New(claimed)
    }

    fn expire(&mut self, now: u64, at_most: usize) -> usize {
        let ids = self.ids.iter().map(|(id, it)| (it.expires, false, *id));
        let marks = self.marks.iter().filter_map(|(entity, it)| Some((it.expires?, true, *entity)));
        let mut due: Vec<_> = ids.chain(marks).filter(|(expires, ..)| *expires <= now).collect();
        due.sort_unstable();
        due.truncate(at_most);
        for (_, is_mark, name) in &due {
            if *is_mark {
                self.marks.remove(name);
            } else {
                self.ids.remove(name);
            }
        }
        due.len()
    }

    fn forget(&mut self, wall: u64, id: u8) -> bool {
        let now = self.now(wall);
        let is_there = self.id(now, id).is_some_and(|it| !it.forgotten);
        if is_there {
            self.latest = now;
            self.ids.entry(id).and_modify(|it| it.forgotten = true);
        }
        is_there
    }

    fn forget_mark(&mut self, wall: u64, entity: u8) -> bool {
        let is_there = self.mark(self.now(wall), entity).is_some();
        if is_there {
            self.marks.remove(&entity);
        }
        is_there
    }
}

fn after_start(time: SystemTime) -> u64 {
    time.duration_since(noon()).expect("the clock is never before the start").as_secs()
}

fn id_seen(record: &Record) -> Id {
    Id {
        claimed: after_start(record.claimed_at()),
        expires: after_start(record.expires_at().expect("it is completed")),
        print: record.fingerprint().map(|bytes| bytes[0]),
        response: match record.response() {
            Response::None => None,
            Response::Stored(bytes) => Some(bytes[0]),
            Response::Omitted { .. } => panic!("none is long"),
        },
        forgotten: false,
    }
}

/// What a mark shows; its expiry and setter it keeps to itself.
fn mark_seen(mark: &Mark) -> (Timestamp, u64) {
    (mark.timestamp(), after_start(mark.applied_at()))
}

fn compare(answer: Answer, expected: &Seen) {
    match (answer, expected) {
        (Ok(Outcome::New(record)), Seen::New(id))
        | (Ok(Outcome::Duplicate(record)), Seen::Duplicate(id))
        | (Ok(Outcome::Mismatch(record)), Seen::Mismatch(id)) => assert_eq!(id_seen(&record), *id),
        (Ok(Outcome::Stale(mark)), Seen::Stale(applied)) => {
            assert_eq!(mark_seen(&mark), (timestamp(applied.at), applied.since));
        }
        (Err(Error::TimestampKind { .. }), Seen::WrongKind) => {}
        (answer, expected) => panic!("expected {expected:?}, got {answer:?}"),
    }
}

fn op() -> impl Strategy<Value = Op> {
    let stamp = (prop::bool::weighted(0.05), 0..5_u8);
    let claim = (
        0..4_u8,
        prop::option::of(0..2_u8),
        prop::option::weighted(0.6, (0..2_u8, stamp)),
        prop::option::weighted(0.3, prop_oneof![Just(1), Just(2), Just(30)]),
        prop::option::of(0..9_u8),
    );
    prop_oneof![
        8 => claim.prop_map(|(id, print, order, window, response)| Op::Claim { id, print, order, window, response }),
        1 => (0..4_u8).prop_map(Op::Forget),
        1 => (0..2_u8).prop_map(Op::ForgetMark),
        1 => prop_oneof![0..4_usize, Just(usize::MAX)].prop_map(Op::Expire),
        3 => (0..7_u64).prop_map(Op::Pass),
        1 => (-9..9_i64).prop_map(Op::Step),
        3 => Just(Op::Commit),
        1 => Just(Op::RollBack),
    ]
}

fn run<D: Door>(ops: &[(usize, Op)]) {
    let world = World::<D>::new();
    let ledgers = LEDGERS.map(|(name, ties, retention, window)| {
        let retention =
            retention.map_or(Retention::Forever, |secs| Retention::For(Duration::from_secs(secs)));
        let window = Duration::from_secs(window);
        let base = world.settings();
        D::ledger(&Settings { name: name.into(), window, ties, retention, ..base })
    });
    let mut wall = 0_u64;
    let mut committed = [Rows::default(), Rows::default()];
    let mut rows = committed.clone();
    let mut tx = D::begin(&world.db);
    for (which, op) in ops {
        let (ledger, model) = (&ledgers[*which], &mut rows[*which]);
        match op {
            Op::Claim { id, print, order, window, response } => {
                let mut claim = ask([*id]);
                claim.fingerprint = print.map(|print| vec![print]);
                claim.order = order.map(|(entity, at)| (vec![entity], timestamp(at)));
                claim.window = window.map(Duration::from_secs);
                claim.response = response.map(|response| vec![response]);
                compare(D::claim(ledger, &tx, &claim), &model.claim(wall, *which, op));
            }
            Op::Forget(id) => {
                assert_eq!(D::forget(ledger, &tx, &[*id]).unwrap(), model.forget(wall, *id));
            }
            Op::ForgetMark(entity) => {
                let forgotten = D::forget_mark(ledger, &tx, &[*entity]).unwrap();
                assert_eq!(forgotten, model.forget_mark(wall, *entity));
            }
            Op::Expire(at_most) => {
                let now = model.now(wall);
                let removed = model.expire(now, *at_most);
                model.latest = if removed > 0 { now } else { model.latest };
                assert_eq!(D::expire(ledger, &tx, *at_most).unwrap(), removed);
            }
            Op::Pass(secs) => {
                world.clock.advance(Duration::from_secs(*secs));
                wall += secs;
            }
            Op::Step(secs) => {
                let stepped = wall.saturating_add_signed(*secs);
                world.clock.step_wall(stepped.cast_signed() - wall.cast_signed());
                wall = stepped;
            }
            Op::Commit | Op::RollBack => {
                if matches!(op, Op::Commit) {
                    D::commit(tx);
                    committed.clone_from(&rows);
                } else {
                    D::roll_back(tx);
                    rows.clone_from(&committed);
                }
                look::<D>(&world, &ledgers, wall, &committed);
                tx = D::begin(&world.db);
            }
        }
    }
    D::commit(tx);
    look::<D>(&world, &ledgers, wall, &rows);
}

/// All that can be looked up, and how many rows there are.
fn look<D: Door>(world: &World<D>, ledgers: &[D::Ledger; 2], wall: u64, rows: &[Rows; 2]) {
    for ((ledger, model), (name, ..)) in ledgers.iter().zip(rows).zip(LEDGERS) {
        let now = model.now(wall);
        for id in 0..4 {
            let record = D::get(ledger, &world.db, &[id]).unwrap();
            let expected = model.id(now, id).filter(|it| !it.forgotten);
            assert_eq!(record.as_ref().map(id_seen).as_ref(), expected);
            assert_eq!(D::contains(ledger, &world.db, &[id]).unwrap(), expected.is_some());
        }
        for entity in 0..2 {
            let mark = D::last_applied(ledger, &world.db, &[entity]).unwrap();
            let expected = model.mark(now, entity).map(|it| (timestamp(it.at), it.since));
            assert_eq!(mark.as_ref().map(mark_seen), expected);
        }
        if *model == Rows::default() {
            continue; // there may be no table yet
        }
        let stored = D::rows(&world.db, name);
        assert_eq!(stored.len(), 1 + model.ids.len() + model.marks.len(), "{name}: {model:?}");
        let expiring = model.marks.values().filter(|it| it.expires.is_some()).count() + model.ids.len();
        assert_eq!(D::expiring(&world.db, name), expiring);
    }
}

fn ledger_is_what_the_model_says<D: Door>() {
    let seed = fresh_seed();
    announce(&format!("ledger model: ONCEDB_SEED={seed}"));
    let cases = number_from("ONCEDB_LEDGER_CASES").unwrap_or(100);
    let config = Config {
        cases: u32::try_from(cases).unwrap(),
        failure_persistence: None,
        max_shrink_iters: 2_000,
        ..Config::default()
    };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let ops = vec((0..2_usize, op()), 1..120);
    if let Err(error) = runner.run(&ops, |ops| {
        run::<D>(&ops);
        Ok(())
    }) {
        panic!("ONCEDB_SEED={seed}: {error}");
    }
}
