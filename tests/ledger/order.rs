//! An event that is older than what was last applied to its entity is never applied after it.

use crate::common::{DAY, HOUR, SECOND, assert_error, noon};
use crate::door::{Ask, Door, World, ask, duplicate, new, stale, through_both_doors};
use oncedb::{Error, Retention, Ties, Timestamp};

through_both_doors! {
    older_event_is_stale,
    equal_timestamps_are_accepted_by_default,
    equal_timestamps_are_rejected_where_asked,
    repeat_after_forget_passes_whatever_the_ties,
    forgetting_counts_only_until_the_window_of_the_id_is_over,
    mark_lasts_as_long_as_it_was_asked_to,
    date_too_far_ahead_is_refused,
    way_out_after_a_wrong_date,
    the_two_kinds_of_timestamp_do_not_mix,
    duplicate_comes_before_stale,
}

fn event(id: &str, secs: i64) -> Ask {
    ask(id).order("acct_7", Timestamp::from_secs(secs))
}

#[track_caller]
fn assert_mark<D: Door>(world: &World<D>, ledger: &D::Ledger, secs: Option<i64>) {
    let mark = D::last_applied(ledger, &world.db, b"acct_7").unwrap();
    assert_eq!(mark.map(|mark| mark.timestamp()), secs.map(Timestamp::from_secs), "what was last applied");
}

fn older_event_is_stale<D: Door>() {
    let world = World::<D>::new();
    let ledger = world.with(|it| it.window = HOUR);
    assert_mark(&world, &ledger, None);
    new(world.claim(&ledger, &event("first", 10)));
    new(world.claim(&ledger, &event("newer", 30)));
    let mark = stale(world.claim(&ledger, &event("older", 20)));
    assert_eq!((mark.entity(), mark.timestamp()), (&b"acct_7"[..], Timestamp::from_secs(30)));
    assert_eq!(mark.applied_at(), noon());
    assert!(!world.contains(&ledger, "older"), "a stale event is not recorded");
    new(world.claim(&ledger, &ask("older").order("acct_8", Timestamp::from_secs(20))));

    world.clock.advance(DAY);
    stale(world.claim(&ledger, &event("older still", 29)));
    stale(world.claim(&ledger, &event("newer", 30)));
    assert_mark(&world, &ledger, Some(30));
    new(world.claim(&ledger, &event("newest", 31)));
    assert_mark(&world, &ledger, Some(31));
}

fn equal_timestamps_are_accepted_by_default<D: Door>() {
    let world = World::<D>::new();
    let ledger = world.with(|it| it.window = HOUR);
    new(world.claim(&ledger, &event("one", 30)));
    duplicate(world.claim(&ledger, &event("one", 30)));
    new(world.claim(&ledger, &event("two", 30)));
    duplicate(world.claim(&ledger, &event("two", 30)));
    world.clock.advance(HOUR);
    stale(world.claim(&ledger, &event("two", 30)));
    new(world.claim(&ledger, &event("three", 30)));
}

fn equal_timestamps_are_rejected_where_asked<D: Door>() {
    let world = World::<D>::new();
    let ledger = world.with(|it| {
        it.window = HOUR;
        it.ties = Ties::Reject;
    });
    new(world.claim(&ledger, &event("one", 30)));
    duplicate(world.claim(&ledger, &event("one", 30)));
    stale(world.claim(&ledger, &event("two", 30)));
    world.clock.advance(HOUR);
    stale(world.claim(&ledger, &event("one", 30)));
    new(world.claim(&ledger, &event("two", 31)));
}

fn repeat_after_forget_passes_whatever_the_ties<D: Door>() {
    for ties in [Ties::Accept, Ties::Reject] {
        let world = World::<D>::new();
        let ledger = world.with(|it| it.ties = ties);
        new(world.claim(&ledger, &event("evt_1", 30)));
        assert!(world.forget(&ledger, "evt_1"));
        assert_mark(&world, &ledger, Some(30));
        stale(world.claim(&ledger, &event("evt_1", 29)));
        new(world.claim(&ledger, &event("evt_1", 30)));
        duplicate(world.claim(&ledger, &event("evt_1", 30)));
        stale(world.claim(&ledger, &event("older", 29)));
    }
}

fn forgetting_counts_only_until_the_window_of_the_id_is_over<D: Door>() {
    let world = World::<D>::new();
    let ledger = world.with(|it| it.window = HOUR);
    new(world.claim(&ledger, &event("evt_1", 30)));
    world.clock.advance(HOUR / 2);
    assert!(world.forget(&ledger, "evt_1"));
    world.clock.advance(HOUR / 2);
    stale(world.claim(&ledger, &event("evt_1", 30)));
    assert_eq!(world.expire(&ledger, 10), 1, "the forgotten id leaves as an expired one does");
    stale(world.claim(&ledger, &event("evt_1", 30)));
}

fn mark_lasts_as_long_as_it_was_asked_to<D: Door>() {
    let after = |retention: Retention, days: u32| {
        let world = World::<D>::new();
        let ledger = world.with(|it| it.retention = retention);
        new(world.claim(&ledger, &event("newer", 30)));
        world.clock.advance(days * DAY);
        let kept = D::last_applied(&ledger, &world.db, b"acct_7").unwrap().is_some();
        let refused = world.claim(&ledger, &event("older", 20)).unwrap().is_stale();
        assert_eq!(kept, refused, "the mark and the verdict agree");
        kept
    };
    assert!(after(Retention::default(), 29), "thirty days by default");
    assert!(!after(Retention::default(), 30));
    assert!(after(Retention::For(90 * DAY), 89));
    assert!(!after(Retention::For(90 * DAY), 90));
    assert!(after(Retention::Forever, 36_500));
}

fn date_too_far_ahead_is_refused<D: Door>() {
    let world = World::<D>::new();
    let ledger = world.with(|it| it.max_ahead = Some(HOUR));
    let at = |id: &str, time: std::time::SystemTime| ask(id).order("acct_7", time);
    new(world.claim(&ledger, &at("a little ahead", noon() + HOUR)));
    match world.claim(&ledger, &at("wrong", noon() + HOUR + SECOND)) {
        Err(ref error @ Error::TooFarAhead { ahead, limit, .. }) => {
            assert_eq!((ahead, limit), (HOUR + SECOND, HOUR));
            assert!(error.is_invalid_input(), "the sender's mistake");
        }
        other => panic!("expected TooFarAhead, got {other:?}"),
    }
    assert!(!world.contains(&ledger, "wrong"), "nothing is recorded");
    new(world.claim(&ledger, &ask("number").order("acct_8", Timestamp::sequence(u64::MAX))));
    new(world.claim(&world.ledger(), &at("no limit", noon() + 36_500 * DAY)));
}

fn way_out_after_a_wrong_date<D: Door>() {
    let world = World::<D>::new();
    let ledger = world.ledger();
    new(world.claim(&ledger, &event("wrong", 4_083_912_000)));
    stale(world.claim(&ledger, &event("right", 20)));
    assert!(world.forget_mark(&ledger, "acct_7"));
    assert!(!world.forget_mark(&ledger, "acct_7"), "there is none any more");
    assert_mark(&world, &ledger, None);
    new(world.claim(&ledger, &event("right", 20)));
    assert_mark(&world, &ledger, Some(20));
    world.clock.advance(30 * DAY);
    assert!(!world.forget_mark(&ledger, "acct_7"), "it has expired");
}

fn the_two_kinds_of_timestamp_do_not_mix<D: Door>() {
    let world = World::<D>::new();
    let ledger = world.ledger();
    let number = |id: &str, number| ask(id).order("acct_7", Timestamp::sequence(number));
    new(world.claim(&ledger, &number("five", 5)));
    stale(world.claim(&ledger, &number("four", 4)));
    assert_error!(world.claim(&ledger, &event("time", 6)), TimestampKind);
    assert_error!(world.claim(&ledger, &event("five", 6)), TimestampKind);
    assert!(!world.contains(&ledger, "time"), "nothing is recorded");
    new(world.claim(&ledger, &number("max", u64::MAX)));
    world.clock.advance(30 * DAY);
    new(world.claim(&ledger, &event("time", 6)));
}

fn duplicate_comes_before_stale<D: Door>() {
    let world = World::<D>::new();
    let ledger = world.ledger();
    new(world.claim(&ledger, &event("first", 10).fingerprint("one")));
    new(world.claim(&ledger, &event("newer", 30)));
    duplicate(world.claim(&ledger, &event("first", 10)));
    crate::door::mismatch(world.claim(&ledger, &event("first", 10).fingerprint("two")));
}
