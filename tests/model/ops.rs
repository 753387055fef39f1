//! Histories: what is done to a store, and how they are drawn.

use crate::names::When;
use proptest::collection::vec;
use proptest::option::{of, weighted};
use proptest::prelude::*;
use proptest::sample::select;
use std::fmt;

/// How a call is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    Blocking,
    Async,
    /// The future is dropped after its first poll, unless it is ready.
    PolledOnce,
    /// The future is dropped before that.
    NeverPolled,
}

#[derive(Clone)]
pub struct Ask {
    pub scope: u8,
    pub id: u8,
    pub print: Option<u8>,
    pub order: Option<(u8, When)>,
    /// In seconds.
    pub window: Option<u16>,
    /// In milliseconds.
    pub lease: Option<Option<u16>>,
    /// `Sync`, or else an interval that no history lives to see the end of.
    pub sync: Option<bool>,
    pub response: Option<u16>,
}

#[derive(Clone, Debug)]
pub enum Ending {
    Complete(Option<u16>),
    Refuse(u16),
    Abort,
    Drop,
}

#[derive(Clone, Copy, Debug)]
pub enum Pass {
    Millis(u32),
    /// To a moment that something depends on, or a nanosecond before or after it.
    Exactly(u8, i8),
}

/// How an open store ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shut {
    Close,
    CloseAsync,
    /// Every handle is dropped.
    Dropped,
    PowerCut,
    /// With another one right after the recovery.
    TwoPowerCuts,
}

/// What was wrong with a caller's input.
#[derive(Clone, Copy, Debug)]
pub enum Wrong {
    EmptyId,
    EmptyEntity,
    LongId,
    LongPrint,
    NoWindow,
    NoLease,
    NoInterval,
    EmptyInBatch,
    OtherOptions,
}

#[derive(Clone, Debug)]
pub enum Op {
    Claim(Door, Ask),
    Begin(Door, Ask),
    ClaimMany(Door, u8, Vec<u8>),
    ClaimRequests(Door, Vec<Ask>),
    BeginRequests(Door, Vec<Ask>),
    /// Guards are named by their place among those that are held, around and around.
    Settle(Door, u8, Ending),
    SettleAll(Door, Vec<u8>, Option<u16>),
    Renew(u8),
    Note(Door, u8, u8),
    LongNote(u8),
    Get(Door, u8, u8),
    Contains(u8, u8),
    Forget(Door, u8, u8),
    Advance(Door, u8, u8, When),
    LastApplied(u8, u8),
    ForgetMark(u8, u8),
    Wait(Door, u8),
    Fill(u8),
    Elapse(Pass),
    StepWall(i16),
    Maintain,
    Sync(Door),
    Reopen(Door),
    /// The store is shut, and opened after a time in seconds, during which the wall clock may step, by a
    /// deploy with other options perhaps.
    Restart {
        shut: Shut,
        away: u16,
        step: i16,
        deploy: u8,
    },
    Invalid(Wrong, u8),
}

#[derive(Clone)]
pub struct History {
    /// Decides what the disk keeps in a power cut.
    pub disk: u64,
    pub synced: bool,
    /// The most seconds for which the store may have been closed.
    pub pauses: Option<u16>,
    pub ops: Vec<Op>,
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { disk, synced, pauses, ops } = self;
        writeln!(f, "disk {disk}, synced: {synced}, pauses: {pauses:?}")?;
        ops.iter().enumerate().try_for_each(|(step, op)| writeln!(f, "{step:4}  {op:?}"))
    }
}

impl fmt::Debug for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.scope, self.id)?;
        let mut option = |name: &str, value: Option<&dyn fmt::Debug>| match value {
            Some(value) => write!(f, " {name} {value:?}"),
            None => Ok(()),
        };
        option("print", self.print.as_ref().map(|value| value as &dyn fmt::Debug))?;
        option("order", self.order.as_ref().map(|value| value as &dyn fmt::Debug))?;
        option("window", self.window.as_ref().map(|value| value as &dyn fmt::Debug))?;
        option("lease", self.lease.as_ref().map(|value| value as &dyn fmt::Debug))?;
        option("sync", self.sync.as_ref().map(|value| value as &dyn fmt::Debug))?;
        option("response", self.response.as_ref().map(|value| value as &dyn fmt::Debug))
    }
}

impl Ask {
    pub fn plain(scope: u8, id: u8) -> Self {
        let (print, order, window, lease, sync, response) = (None, None, None, None, None, None);
        Self { scope, id, print, order, window, lease, sync, response }
    }
}

fn door() -> impl Strategy<Value = Door> {
    prop_oneof![
        5 => Just(Door::Blocking),
        4 => Just(Door::Async),
        3 => Just(Door::PolledOnce),
        1 => Just(Door::NeverPolled),
    ]
}

fn when() -> impl Strategy<Value = When> {
    prop_oneof![8 => (0..7_i8).prop_map(When::Step), 1 => (0..3_u8).prop_map(When::Number)]
}

fn response() -> impl Strategy<Value = u16> {
    prop_oneof![4 => select(vec![0, 9]), 2 => select(vec![1024, 1025, 3000, 3001]), 1 => Just(40_000)]
}

fn ask() -> impl Strategy<Value = Ask> {
    let plain = (0..3_u8, 0..4_u8, weighted(0.25, 0..2_u8), weighted(0.5, (0..2_u8, when())));
    let more = (
        weighted(0.25, select(vec![3, 40, 500])),
        weighted(0.3, of(select(vec![1, 2_000, 20_000]))),
        weighted(0.2, any::<bool>()),
        weighted(0.4, response()),
    );
    (plain, more).prop_map(|((scope, id, print, order), (window, lease, sync, response))| Ask {
        scope,
        id,
        print,
        order,
        window,
        lease,
        sync,
        response,
    })
}

fn ending() -> impl Strategy<Value = Ending> {
    prop_oneof![
        4 => of(response()).prop_map(Ending::Complete),
        1 => response().prop_map(Ending::Refuse),
        1 => Just(Ending::Abort),
        1 => Just(Ending::Drop),
    ]
}

fn pass() -> impl Strategy<Value = Pass> {
    prop_oneof![
        2 => select(vec![1, 999, 1_000, 5_000, 30_000, 70_000, 1_000_000]).prop_map(Pass::Millis),
        3 => (0..6_u8, -1..2_i8).prop_map(|(pick, nudge)| Pass::Exactly(pick, nudge)),
    ]
}

fn shut() -> impl Strategy<Value = Shut> {
    select(vec![
        Shut::Close,
        Shut::CloseAsync,
        Shut::Dropped,
        Shut::PowerCut,
        Shut::PowerCut,
        Shut::TwoPowerCuts,
    ])
}

fn restart(shut: impl Strategy<Value = Shut>) -> impl Strategy<Value = Op> {
    let (away, step) = (select(vec![0, 0, 0, 1, 9, 150]), select(vec![0, 0, 0, 7, -7, -3_600]));
    (shut, away, step, 0..3_u8).prop_map(|(shut, away, step, deploy)| Op::Restart {
        shut,
        away,
        step,
        deploy,
    })
}

fn wrong() -> impl Strategy<Value = Wrong> {
    select(vec![
        Wrong::EmptyId,
        Wrong::EmptyEntity,
        Wrong::LongId,
        Wrong::LongPrint,
        Wrong::NoWindow,
        Wrong::NoLease,
        Wrong::NoInterval,
        Wrong::EmptyInBatch,
        Wrong::OtherOptions,
    ])
}

fn claims() -> BoxedStrategy<Op> {
    let place = || (0..3_u8, 0..4_u8);
    prop_oneof![
        7 => (door(), ask()).prop_map(|(door, ask)| Op::Claim(door, ask)),
        11 => (door(), ask()).prop_map(|(door, ask)| Op::Begin(door, ask)),
        1 => (door(), 0..3_u8, vec(0..4_u8, 0..5)).prop_map(|(door, scope, ids)| Op::ClaimMany(door, scope, ids)),
        2 => (door(), vec(ask(), 0..5)).prop_map(|(door, asks)| Op::ClaimRequests(door, asks)),
        2 => (door(), vec(ask(), 0..5)).prop_map(|(door, asks)| Op::BeginRequests(door, asks)),
        10 => (door(), any::<u8>(), ending()).prop_map(|(door, guard, ending)| Op::Settle(door, guard, ending)),
        3 => (door(), any::<u8>(), 0..3_u8).prop_map(|(door, guard, note)| Op::Note(door, guard, note)),
        3 => (door(), place()).prop_map(|(door, (scope, id))| Op::Forget(door, scope, id)),
        3 => (door(), 0..3_u8, 0..2_u8, when()).prop_map(|(door, scope, id, when)| Op::Advance(door, scope, id, when)),
    ]
    .boxed()
}

fn anything() -> BoxedStrategy<Op> {
    let place = || (0..3_u8, 0..4_u8);
    let entity = || (0..3_u8, 0..2_u8);
    let guards = || vec(any::<u8>(), 0..4);
    prop_oneof![
        42 => claims(),
        2 => (door(), guards(), of(response())).prop_map(|(door, guards, all)| Op::SettleAll(door, guards, all)),
        2 => any::<u8>().prop_map(Op::Renew),
        1 => any::<u8>().prop_map(Op::LongNote),
        3 => (door(), place()).prop_map(|(door, (scope, id))| Op::Get(door, scope, id)),
        1 => place().prop_map(|(scope, id)| Op::Contains(scope, id)),
        2 => entity().prop_map(|(scope, id)| Op::LastApplied(scope, id)),
        2 => entity().prop_map(|(scope, id)| Op::ForgetMark(scope, id)),
        3 => (door(), any::<u8>()).prop_map(|(door, wait)| Op::Wait(door, wait)),
        1 => (1..16_u8).prop_map(Op::Fill),
        10 => pass().prop_map(Op::Elapse),
        2 => select(vec![-3_600, -20, -1, 1, 20, 3_600]).prop_map(Op::StepWall),
        4 => Just(Op::Maintain),
        1 => door().prop_map(Op::Sync),
        1 => door().prop_map(Op::Reopen),
        2 => restart(shut()),
        1 => (wrong(), 0..3_u8).prop_map(|(wrong, scope)| Op::Invalid(wrong, scope)),
    ]
    .boxed()
}

fn with_power_cuts() -> BoxedStrategy<Op> {
    prop_oneof![
        12 => claims(),
        2 => pass().prop_map(Op::Elapse),
        2 => Just(Op::Maintain),
        1 => (1..16_u8).prop_map(Op::Fill),
        1 => door().prop_map(Op::Sync),
        1 => door().prop_map(Op::Reopen),
        4 => restart(select(vec![Shut::PowerCut, Shut::TwoPowerCuts, Shut::PowerCut, Shut::Close])),
    ]
    .boxed()
}

fn of_ops(op: BoxedStrategy<Op>, len: usize) -> impl Strategy<Value = History> {
    let pauses = weighted(0.2, select(vec![0, 5, 300]));
    (any::<u64>(), weighted(0.8, Just(())), pauses, vec(op, 1..len))
        .prop_map(|(disk, synced, pauses, ops)| History { disk, synced: synced.is_some(), pauses, ops })
}

/// Every operation there is.
pub fn histories() -> impl Strategy<Value = History> {
    of_ops(anything(), 100)
}

/// Claims and what ends them, with the power cut again and again.
pub fn histories_with_power_cuts() -> impl Strategy<Value = History> {
    of_ops(with_power_cuts(), 50)
}
