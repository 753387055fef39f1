//! Expired rows leave by themselves, a few with each new claim, and none before its time.

use crate::common::{DAY, HOUR, SECOND};
use crate::door::{Door, World, ask, duplicate, new, stale, through_both_doors};
use oncedb::{Retention, Timestamp};
use std::time::Duration;

through_both_doors! {
    table_stays_bounded_with_nobody_sweeping_it,
    claim_removes_at_most_four_rows_however_many_have_expired,
    only_new_claims_remove_anything,
    expire_removes_what_it_is_told_to_in_the_order_of_expiry,
    row_is_removed_at_its_time_and_not_a_nanosecond_before,
    what_never_expires_is_never_removed,
    row_that_was_written_again_leaves_at_its_new_time,
    clock_that_is_set_back_revives_nothing,
    clock_that_is_set_back_revives_nothing_that_was_removed,
    clock_at_the_ends_of_time_does_no_harm,
}

fn table_stays_bounded_with_nobody_sweeping_it<D: Door>() {
    let world = World::<D>::new();
    let ledger = world.with(|it| {
        it.window = HOUR;
        it.retention = Retention::For(2 * HOUR);
    });
    // A claim a minute: 60 ids and 120 marks are alive at a time.
    for minute in 0..1_000 {
        let entity = format!("acct_{minute}");
        let event = ask(format!("evt_{minute}")).order(entity, Timestamp::from_secs(minute));
        new(world.claim(&ledger, &event));
        world.clock.advance(60 * SECOND);
        assert!(world.rows() <= 60 + 120 + 2, "{} rows after {minute} minutes", world.rows());
        assert_eq!(D::expiring(&world.db, "stripe"), world.rows(), "each row has one place in the order");
    }
    assert!(world.rows() > 60 + 120 - 2);
}

fn claim_removes_at_most_four_rows_however_many_have_expired<D: Door>() {
    let world = World::<D>::new();
    let ledger = world.ledger();
    world.write(|tx| {
        for number in 0..400 {
            new(D::claim(&ledger, tx, &ask(format!("old_{number}"))));
        }
    });
    world.clock.advance(DAY);
    let mut rows = 400;
    for number in 0..100 {
        new(world.claim(&ledger, &ask(format!("evt_{number}"))));
        let left = world.rows();
        assert_eq!(rows + 1 - left, 4, "claim {number} removes four and adds one");
        rows = left;
    }
    assert_eq!(rows, 100, "what is left is what is alive");
    new(world.claim(&ledger, &ask("last")));
    assert_eq!(world.rows(), 101);
}

fn only_new_claims_remove_anything<D: Door>() {
    let world = World::<D>::new();
    let ledger = world.ledger();
    new(world.claim(&ledger, &ask("short").window(SECOND)));
    new(world.claim(&ledger, &ask("long").order("acct_7", Timestamp::from_secs(9))));
    world.clock.advance(HOUR);
    duplicate(world.claim(&ledger, &ask("long")));
    stale(world.claim(&ledger, &ask("older").order("acct_7", Timestamp::from_secs(8))));
    assert_eq!(world.rows(), 3);
    new(world.claim(&ledger, &ask("new")));
    assert_eq!(world.rows(), 3, "one has left, one has come");
}

fn expire_removes_what_it_is_told_to_in_the_order_of_expiry<D: Door>() {
    let world = World::<D>::new();
    let ledger = world.with(|it| it.retention = Retention::For(SECOND));
    world.write(|tx| {
        for number in 1..=600_u32 {
            new(D::claim(&ledger, tx, &ask(format!("evt_{number}")).window(number * SECOND)));
        }
        new(D::claim(&ledger, tx, &ask("marked").order("acct_7", Timestamp::from_secs(9))));
    });
    assert_eq!(world.expire(&ledger, usize::MAX), 0, "nothing has expired");
    world.clock.advance(550 * SECOND);
    assert_eq!(world.expire(&ledger, 0), 0);
    assert_eq!(world.expire(&ledger, 3), 3);
    let left = D::rows(&world.db, "stripe");
    let has = |kind, name: &str| left.iter().any(|row| row.0 == kind && row.1 == name.as_bytes());
    let first = [(crate::door::ID, "evt_1"), (crate::door::MARK, "acct_7"), (crate::door::ID, "evt_2")];
    assert!(first.iter().all(|(kind, name)| !has(*kind, name)), "the first to expire are gone");
    assert!(has(crate::door::ID, "evt_3"));
    assert_eq!(world.expire(&ledger, 300), 300);
    assert_eq!(world.expire(&ledger, usize::MAX), 551 - 303);
    assert_eq!(world.expire(&ledger, usize::MAX), 0);
    assert_eq!(world.rows(), 51, "50 ids and one more that lasts a day");
    assert_eq!(D::expiring(&world.db, "stripe"), 51);
    duplicate(world.claim(&ledger, &ask("evt_551")));
}

fn row_is_removed_at_its_time_and_not_a_nanosecond_before<D: Door>() {
    let world = World::<D>::new();
    let ledger = world.ledger();
    new(world.claim(&ledger, &ask("evt_1").window(SECOND)));
    world.clock.advance(Duration::from_nanos(999_999_999));
    assert_eq!(world.expire(&ledger, usize::MAX), 0);
    duplicate(world.claim(&ledger, &ask("evt_1")));
    world.clock.advance(Duration::from_nanos(1));
    assert_eq!(world.expire(&ledger, usize::MAX), 1);
}

fn what_never_expires_is_never_removed<D: Door>() {
    let world = World::<D>::new();
    let ledger = world.with(|it| it.retention = Retention::Forever);
    new(world.claim(&ledger, &ask("evt_1").order("acct_7", Timestamp::from_secs(9))));
    world.clock.advance(36_500 * DAY);
    assert_eq!(world.expire(&ledger, usize::MAX), 1);
    assert_eq!((world.rows(), D::expiring(&world.db, "stripe")), (1, 0));
    stale(world.claim(&ledger, &ask("evt_0").order("acct_7", Timestamp::from_secs(8))));
}

fn row_that_was_written_again_leaves_at_its_new_time<D: Door>() {
    let world = World::<D>::new();
    let ledger = world.with(|it| it.retention = Retention::For(HOUR));
    let event = |id: &str, secs| ask(id).order("acct_7", Timestamp::from_secs(secs)).window(HOUR);
    new(world.claim(&ledger, &event("evt_1", 1)));
    world.clock.advance(HOUR / 2);
    new(world.claim(&ledger, &event("evt_2", 2)));
    assert!(world.forget(&ledger, "evt_1"));
    new(world.claim(&ledger, &ask("evt_1").window(HOUR)));
    assert_eq!(D::expiring(&world.db, "stripe"), 3, "two ids and a mark, each once");
    world.clock.advance(HOUR / 2);
    assert_eq!(world.expire(&ledger, usize::MAX), 0);
    world.clock.advance(HOUR / 2);
    // The id is claimed anew in the same call in which its old row is to leave.
    new(world.claim(&ledger, &event("evt_1", 0)));
    assert_eq!((world.rows(), D::expiring(&world.db, "stripe")), (2, 2));
    duplicate(world.claim(&ledger, &event("evt_1", 0)));
}

fn clock_that_is_set_back_revives_nothing<D: Door>() {
    let world = World::<D>::new();
    let ledger = world.ledger();
    new(world.claim(&ledger, &ask("evt_1")));
    world.clock.advance(DAY);
    new(world.claim(&ledger, &ask("evt_2")));
    world.clock.step_wall(-48 * 3600);
    assert!(!world.contains(&ledger, "evt_1"), "it had expired at the last claim");
    let record = new(world.claim(&ledger, &ask("evt_3")));
    assert_eq!(record.claimed_at(), crate::common::noon() + DAY, "the ledger's time stands still");
    world.clock.advance(25 * HOUR);
    new(world.claim(&ledger, &ask("evt_1")));
    duplicate(world.claim(&ledger, &ask("evt_2")));
    // A handle of its own knows no more and no less: all of it is in the table.
    duplicate(world.claim(&world.ledger(), &ask("evt_3")));
}

fn clock_that_is_set_back_revives_nothing_that_was_removed<D: Door>() {
    let world = World::<D>::new();
    let ledger = world.ledger();
    new(world.claim(&ledger, &ask("kept").window(2 * DAY)));
    new(world.claim(&ledger, &ask("evt_1").order("acct_7", Timestamp::from_secs(9))));
    world.clock.advance(DAY);
    assert_eq!(world.expire(&ledger, 10), 1);
    world.clock.step_wall(-3600);
    assert!(!world.contains(&ledger, "evt_1"));
    let again = stale(world.claim(&ledger, &ask("evt_1").order("acct_7", Timestamp::from_secs(9))));
    assert_eq!(again.applied_at(), crate::common::noon());
    let record = new(world.claim(&ledger, &ask("evt_2")));
    assert_eq!(record.claimed_at(), crate::common::noon() + DAY, "what was removed stays expired");

    assert!(world.forget(&ledger, "kept"));
    world.clock.step_wall(-30 * 24 * 3600);
    assert!(!world.contains(&ledger, "kept"));
}

fn clock_at_the_ends_of_time_does_no_harm<D: Door>() {
    let world = World::<D>::new();
    let ledger = world.with(|it| it.retention = Retention::For(DAY));
    world.clock.step_wall(-100 * 366 * 24 * 3600);
    let event = |id: &str, secs| ask(id).order("acct_7", Timestamp::from_secs(secs));
    let record = new(world.claim(&ledger, &event("before 1970", 1)));
    assert_eq!(record.claimed_at(), std::time::SystemTime::UNIX_EPOCH);
    duplicate(world.claim(&ledger, &event("before 1970", 1)));
    world.clock.step_wall(500 * 366 * 24 * 3600);
    new(world.claim(&ledger, &event("after 2262", 0)));
    duplicate(world.claim(&ledger, &event("after 2262", 0)));
    stale(world.claim(&ledger, &event("older", -1)));
    new(world.claim(&ledger, &event("long", 2).window(36_500 * DAY)));
    assert_eq!(world.expire(&ledger, usize::MAX), 0, "time stands still there");
    duplicate(world.claim(&ledger, &ask("long")));
    assert_eq!(world.rows(), 3);
}
