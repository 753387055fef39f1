//! The limits of a scope are those of a ledger, and what is over one is an error that writes nothing.

use crate::common::{DAY, SECOND, assert_error};
use crate::door::{Answer, Door, Settings, World, ask, duplicate, new, through_both_doors};
use oncedb::{Error, Retention, Timestamp};
use std::time::Duration;

through_both_doors! {
    empty_ids_and_entities_are_refused,
    name_and_id_are_at_most_1024_bytes_together,
    fingerprint_is_at_most_64_bytes,
    option_out_of_range_is_an_error_of_every_call,
    window_of_a_claim_is_checked,
    input_errors_come_first_and_write_nothing,
}

fn empty_ids_and_entities_are_refused<D: Door>() {
    let world = World::<D>::new();
    let ledger = world.ledger();
    let at = Timestamp::from_secs(1);
    assert_error!(world.claim(&ledger, &ask("")), EmptyId);
    assert_error!(world.claim(&ledger, &ask("evt_1").order("", at)), EmptyId);
    assert_error!(D::contains(&ledger, &world.db, b""), EmptyId);
    assert_error!(D::get(&ledger, &world.db, b""), EmptyId);
    assert_error!(D::last_applied(&ledger, &world.db, b""), EmptyId);
    assert_error!(world.write(|tx| D::forget(&ledger, tx, b"")), EmptyId);
    assert_error!(world.write(|tx| D::forget_mark(&ledger, tx, b"")), EmptyId);
}

fn name_and_id_are_at_most_1024_bytes_together<D: Door>() {
    for name in ["", "stripe"] {
        let world = World::<D>::new();
        let ledger = world.with(|it| it.name = name.into());
        let longest = vec![0xff; 1024 - name.len()];
        new(world.claim(&ledger, &ask(&longest).order(&longest, Timestamp::from_secs(1))));
        duplicate(world.claim(&ledger, &ask(&longest)));
        let longer = [&longest[..], b"x"].concat();
        match world.claim(&ledger, &ask(&longer)) {
            Err(Error::KeyTooLong { len, limit, .. }) => assert_eq!((len, limit), (1025, 1024)),
            other => panic!("expected KeyTooLong, got {other:?}"),
        }
        let at = Timestamp::from_secs(1);
        assert_error!(world.claim(&ledger, &ask("evt_1").order(&longer, at)), KeyTooLong);
        assert_error!(D::contains(&ledger, &world.db, &longer), KeyTooLong);
        assert_error!(D::last_applied(&ledger, &world.db, &longer), KeyTooLong);
        assert_error!(world.write(|tx| D::forget(&ledger, tx, &longer)), KeyTooLong);
        assert_error!(world.write(|tx| D::forget_mark(&ledger, tx, &longer)), KeyTooLong);
    }
}

fn fingerprint_is_at_most_64_bytes<D: Door>() {
    let world = World::<D>::new();
    let ledger = world.ledger();
    new(world.claim(&ledger, &ask("evt_1").fingerprint([7; 64])));
    match world.claim(&ledger, &ask("evt_2").fingerprint([7; 65])) {
        Err(Error::FingerprintTooLong { len, limit, .. }) => assert_eq!((len, limit), (65, 64)),
        other => panic!("expected FingerprintTooLong, got {other:?}"),
    }
}

/// How a test sets one option.
type Change = fn(&mut Settings, Duration);

fn option_out_of_range_is_an_error_of_every_call<D: Door>() {
    fn refused<T: std::fmt::Debug>(answer: oncedb::Result<T>, name: &str) {
        match answer {
            Err(ref error @ Error::InvalidOption { option, .. }) => {
                assert_eq!(option, name);
                assert!(error.is_invalid_input());
            }
            other => panic!("expected InvalidOption, got {other:?}"),
        }
    }
    let world = World::<D>::new();
    let short = Duration::from_nanos(999_999_999);
    let long = 100 * 366 * DAY + Duration::from_nanos(1);
    let changes: [(&str, Change); 2] = [
        ("window", |it, length| it.window = length),
        ("mark_retention", |it, length| it.retention = Retention::For(length)),
    ];
    for (name, change) in changes {
        for length in [Duration::ZERO, short, long, Duration::MAX] {
            let ledger = world.with(|it| change(it, length));
            refused(world.claim(&ledger, &ask("evt_1")), name);
            refused(D::contains(&ledger, &world.db, b"evt_1"), name);
            refused(D::get(&ledger, &world.db, b"evt_1"), name);
            refused(D::last_applied(&ledger, &world.db, b"acct_7"), name);
            refused(world.write(|tx| D::forget(&ledger, tx, b"evt_1")), name);
            refused(world.write(|tx| D::forget_mark(&ledger, tx, b"acct_7")), name);
            refused(world.write(|tx| D::expire(&ledger, tx, 1)), name);
        }
        for length in [SECOND, 100 * 366 * DAY] {
            let ledger = world.with(|it| change(it, length));
            assert_eq!(world.write(|tx| D::expire(&ledger, tx, 1)).unwrap(), 0);
        }
    }
}

fn window_of_a_claim_is_checked<D: Door>() {
    let world = World::<D>::new();
    let ledger = world.ledger();
    for length in [Duration::ZERO, SECOND / 2, Duration::MAX] {
        assert_error!(world.claim(&ledger, &ask("evt_1").window(length)), InvalidOption);
    }
    new(world.claim(&ledger, &ask("evt_1").window(SECOND)));
}

fn input_errors_come_first_and_write_nothing<D: Door>() {
    let world = World::<D>::new();
    let ledger = world.with(|it| it.max_ahead = Some(SECOND));
    let tables = D::tables(&world.db);
    let far = Timestamp::from_secs(i64::MAX);
    let refused = |id: &str| -> Vec<Answer> {
        vec![
            world.claim(&ledger, &ask(id).fingerprint([0; 65])),
            world.claim(&ledger, &ask(id).window(Duration::ZERO)),
            world.claim(&ledger, &ask(id).order("", far)),
            world.claim(&ledger, &ask(id).order("acct_7", far)),
        ]
    };
    assert!(refused("evt_1").iter().all(|answer| answer.as_ref().is_err_and(Error::is_invalid_input)));
    assert_eq!(D::tables(&world.db), tables, "not even a table");
    new(world.claim(&ledger, &ask("evt_1")));
    assert!(refused("evt_1").iter().all(|answer| answer.as_ref().is_err_and(Error::is_invalid_input)));
}
