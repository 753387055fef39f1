//! How histories are drawn.

use crate::names::When;
use crate::ops::{Ask, Door, Ending, History, Op, Pass, Shut, Wrong};
use proptest::collection::vec;
use proptest::option::{of, weighted};
use proptest::prelude::*;
use proptest::sample::select;

fn door() -> impl Strategy<Value = Door> {
    prop_oneof![
        5 => Just(Door::Blocking),
        4 => Just(Door::Async),
        3 => Just(Door::PolledOnce),
        1 => Just(Door::NeverPolled),
    ]
}

/// Some scopes and ids more often than others, so that histories come back to them.
fn scope() -> impl Strategy<Value = u8> {
    prop_oneof![1 => Just(0), 3 => Just(1), 2 => Just(2)]
}

fn id() -> impl Strategy<Value = u8> {
    prop_oneof![4 => Just(0), 2 => Just(1), 1 => 2..4_u8]
}

fn when() -> impl Strategy<Value = When> {
    prop_oneof![8 => (0..7_i8).prop_map(When::Step), 1 => (0..3_u8).prop_map(When::Number)]
}

fn response() -> impl Strategy<Value = u16> {
    prop_oneof![4 => select(vec![0, 9]), 2 => select(vec![1024, 1025, 3000, 3001]), 1 => Just(40_000)]
}

fn ask() -> impl Strategy<Value = Ask> {
    let plain = (scope(), id(), weighted(0.25, 0..2_u8), weighted(0.5, (0..2_u8, when())));
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
        2 => Just(Ending::Abort),
        2 => Just(Ending::Drop),
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
    let place = || (scope(), id());
    prop_oneof![
        5 => (door(), ask()).prop_map(|(door, ask)| Op::Claim(door, ask)),
        13 => (door(), ask()).prop_map(|(door, ask)| Op::Begin(door, ask)),
        1 => (door(), scope(), vec(id(), 0..5)).prop_map(|(door, scope, ids)| Op::ClaimMany(door, scope, ids)),
        2 => (door(), vec(ask(), 0..5)).prop_map(|(door, asks)| Op::ClaimRequests(door, asks)),
        2 => (door(), vec(ask(), 0..5)).prop_map(|(door, asks)| Op::BeginRequests(door, asks)),
        10 => (door(), any::<u8>(), ending()).prop_map(|(door, guard, ending)| Op::Settle(door, guard, ending)),
        5 => (door(), any::<u8>(), 0..3_u8).prop_map(|(door, guard, note)| Op::Note(door, guard, note)),
        3 => (door(), place()).prop_map(|(door, (scope, id))| Op::Forget(door, scope, id)),
        3 => (door(), scope(), 0..2_u8, when()).prop_map(|(door, scope, id, when)| Op::Advance(door, scope, id, when)),
    ]
    .boxed()
}

fn anything() -> BoxedStrategy<Op> {
    let place = || (scope(), id());
    let entity = || (scope(), 0..2_u8);
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

/// What single operations would hardly come to by chance.
fn phrases() -> impl Strategy<Value = Vec<Op>> {
    let cut = |away| Op::Restart { shut: Shut::PowerCut, away, step: 0, deploy: 0 };
    let second_thoughts = move |ask: Ask| {
        vec![Op::Claim(Door::PolledOnce, ask.clone()), Op::Begin(Door::Blocking, ask), cut(0)]
    };
    let short_after_long = move |ask: Ask| {
        let claim = |window| Op::Claim(Door::Blocking, Ask { window: Some(window), ..ask.clone() });
        let forget = Op::Forget(Door::Blocking, ask.scope, ask.id);
        let (pass, maintain) = (Op::Elapse(Pass::Millis(5_000)), Op::Maintain);
        vec![claim(500), maintain.clone(), forget, claim(3), maintain.clone(), pass, maintain]
    };
    let lapsed = |(ask, note): (Ask, u8)| {
        let begin = Op::Begin(Door::Blocking, Ask { lease: Some(Some(2_000)), ..ask });
        let (note, pass) = (Op::Note(Door::Blocking, u8::MAX, note), Op::Elapse(Pass::Millis(2_000)));
        vec![begin.clone(), note, pass, begin]
    };
    prop_oneof![
        ask().prop_map(second_thoughts),
        ask().prop_map(short_after_long),
        (ask(), 0..3_u8).prop_map(lapsed),
    ]
}

fn of_ops(op: BoxedStrategy<Op>, len: usize) -> impl Strategy<Value = History> {
    let pauses = weighted(0.2, select(vec![0, 5, 300]));
    let phrase = prop_oneof![30 => op.prop_map(|op| vec![op]), 1 => phrases()];
    let parts = (any::<u64>(), weighted(0.8, Just(())), pauses, vec(phrase, 1..len));
    parts.prop_map(|(disk, synced, pauses, ops)| History {
        disk,
        synced: synced.is_some(),
        pauses,
        ops: ops.concat(),
    })
}

/// Every operation there is.
pub fn histories() -> impl Strategy<Value = History> {
    of_ops(anything(), 100)
}

/// Claims and what ends them, with the power cut again and again.
pub fn histories_with_power_cuts() -> impl Strategy<Value = History> {
    of_ops(with_power_cuts(), 50)
}
