//! A damaged value is an error that names its row: never a verdict, never a panic.

use crate::common::{DAY, HOUR, SECOND};
use crate::door::{Ask, Door, HEAD, ID, MARK, World, ask, new, through_both_doors};
use crate::sqlite_door::Sqlite;
use oncedb::{Error, Timestamp};
use std::fmt::Debug;

through_both_doors! {
    changed_value_is_an_error_that_names_its_row,
    value_of_another_row_is_an_error,
    missing_head_is_an_error_and_an_empty_table_is_a_new_ledger,
    row_that_expires_at_another_time_than_it_says_is_not_removed,
    row_that_is_cut_is_not_removed_but_by_hand,
    newer_format_is_an_error,
}

#[track_caller]
fn damaged<T: Debug>(answer: oncedb::Result<T>, named: &str) {
    match answer {
        Err(ref error @ Error::Damaged { .. }) => {
            let text = error.to_string();
            assert!(text.contains(named) && text.contains("\"stripe\""), "{text}");
            assert!(error.is_corruption() && !error.is_invalid_input());
        }
        other => panic!("expected an error that names {named}, got {other:?}"),
    }
}

fn ordered(id: &str) -> Ask {
    ask(id).order("acct_7", Timestamp::from_secs(30)).fingerprint("print").response("reply")
}

/// A world with one id and one mark.
fn sample<D: Door>() -> (World<D>, D::Ledger) {
    let world = World::new();
    let ledger = world.ledger();
    new(world.claim(&ledger, &ordered("evt_1")));
    (world, ledger)
}

fn value<D: Door>(world: &World<D>, kind: u8) -> (Vec<u8>, Vec<u8>) {
    let rows = D::rows(&world.db, "stripe").into_iter();
    rows.filter(|row| row.0 == kind).map(|row| (row.1, row.2)).next().expect("the row is there")
}

fn changed_value_is_an_error_that_names_its_row<D: Door>() {
    let (world, ledger) = sample::<D>();
    for (kind, named) in [(ID, "the id b\"evt_1\""), (MARK, "the mark of b\"acct_7\""), (HEAD, "the head")] {
        let (name, sound) = value(&world, kind);
        let cuts = (0..sound.len()).map(|len| sound[..len].to_vec());
        let flips = (0..sound.len() * 8).map(|bit| {
            let mut bytes = sound.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            bytes
        });
        for broken in cuts.chain(flips).chain([vec![], [&sound[..], b"x"].concat()]) {
            D::set_value(&world.db, "stripe", (kind, &name), Some(&broken));
            damaged(world.claim(&ledger, &ordered("evt_1")), named);
            if kind != MARK {
                damaged(D::contains(&ledger, &world.db, b"evt_1"), named);
                damaged(D::get(&ledger, &world.db, b"evt_1"), named);
                damaged(world.write(|tx| D::forget(&ledger, tx, b"evt_1")), named);
            }
            if kind != ID {
                damaged(D::last_applied(&ledger, &world.db, b"acct_7"), named);
                damaged(world.write(|tx| D::forget_mark(&ledger, tx, b"acct_7")), named);
                damaged(world.claim(&ledger, &ordered("evt_2")), named);
            }
            if kind == HEAD {
                damaged(world.claim(&ledger, &ask("evt_2")), named);
                damaged(world.write(|tx| D::expire(&ledger, tx, 1)), named);
            }
        }
        D::set_value(&world.db, "stripe", (kind, &name), Some(&sound));
        assert!(world.claim(&ledger, &ordered("evt_1")).unwrap().is_duplicate());
    }
}

fn value_of_another_row_is_an_error<D: Door>() {
    let (world, ledger) = sample::<D>();
    new(world.claim(&ledger, &ask("evt_2")));
    let other_ledger = world.with(|it| it.name = "other".into());
    new(world.claim(&other_ledger, &ask("evt_2")));
    let (_, first) = value(&world, ID);
    D::set_value(&world.db, "stripe", (ID, b"evt_2"), Some(&first));
    damaged(world.claim(&ledger, &ask("evt_2")), "evt_2");
    let others = D::rows(&world.db, "other").into_iter().find(|row| row.0 == ID).expect("it is there");
    D::set_value(&world.db, "stripe", (ID, b"evt_2"), Some(&others.2));
    damaged(world.claim(&ledger, &ask("evt_2")), "evt_2");
}

fn missing_head_is_an_error_and_an_empty_table_is_a_new_ledger<D: Door>() {
    let (world, ledger) = sample::<D>();
    D::set_value(&world.db, "stripe", (HEAD, b""), None);
    damaged(world.claim(&ledger, &ask("evt_2")), "the head");
    damaged(D::contains(&ledger, &world.db, b"evt_2"), "the head");

    let world = World::<D>::new();
    let ledger = world.ledger();
    new(world.claim(&ledger, &ask("evt_1").window(SECOND)));
    world.clock.advance(HOUR);
    assert_eq!(world.expire(&ledger, 1), 1);
    D::set_value(&world.db, "stripe", (HEAD, b""), None);
    assert!(!world.contains(&ledger, "evt_1"));
    new(world.claim(&ledger, &ask("evt_1")));
}

fn row_that_expires_at_another_time_than_it_says_is_not_removed<D: Door>() {
    for kind in [ID, MARK] {
        let (world, ledger) = sample::<D>();
        let (name, _) = value(&world, kind);
        D::set_expiry(&world.db, "stripe", (kind, &name), 1);
        let named = std::str::from_utf8(&name).unwrap();
        damaged(world.claim(&ledger, &ask("evt_2")), named);
        damaged(world.write(|tx| D::expire(&ledger, tx, 10)), named);
        assert!(world.contains(&ledger, "evt_1") && !world.contains(&ledger, "evt_2"));
        assert_eq!(world.rows(), 2);
    }
}

fn row_that_is_cut_is_not_removed_but_by_hand<D: Door>() {
    let (world, ledger) = sample::<D>();
    D::set_value(&world.db, "stripe", (ID, b"evt_1"), Some(b"short"));
    world.clock.advance(DAY);
    damaged(world.claim(&ledger, &ask("evt_2")), "evt_1");
    damaged(world.write(|tx| D::expire(&ledger, tx, 10)), "evt_1");
    // The way out that the message names: the row is removed by hand.
    D::set_value(&world.db, "stripe", (ID, b"evt_1"), None);
    new(world.claim(&ledger, &ask("evt_2")));
    assert_eq!(D::expiring(&world.db, "stripe"), 2, "the mark and the new id");
}

fn newer_format_is_an_error<D: Door>() {
    let (world, ledger) = sample::<D>();
    let mut head = 2_u32.to_le_bytes().to_vec();
    head.extend_from_slice(b"what a later version keeps here");
    // The sum that every version has: over the ledger's name, the row's kind and name, and the value.
    let summed = [b"stripe", &[HEAD][..], &head].concat();
    head.extend_from_slice(&crc32fast::hash(&summed).to_le_bytes());
    D::set_value(&world.db, "stripe", (HEAD, b""), Some(&head));
    let before = D::rows(&world.db, "stripe");
    let refusals = [
        world.claim(&ledger, &ask("evt_1")).map(drop),
        world.claim(&ledger, &ask("evt_2")).map(drop),
        D::contains(&ledger, &world.db, b"evt_1").map(drop),
        D::last_applied(&ledger, &world.db, b"acct_7").map(drop),
        world.write(|tx| D::forget(&ledger, tx, b"evt_1")).map(drop),
        world.write(|tx| D::forget_mark(&ledger, tx, b"acct_7")).map(drop),
        world.write(|tx| D::expire(&ledger, tx, 1)).map(drop),
    ];
    for refused in refusals {
        match refused {
            Err(Error::Version { found, supported, .. }) => assert_eq!((found, supported), (2, 1)),
            other => panic!("expected Version, got {other:?}"),
        }
    }
    assert_eq!(D::rows(&world.db, "stripe"), before, "nothing was changed");
}

/// SQLite takes a value of any type in a column of any other.
#[test]
fn a_value_of_another_type_is_an_error() {
    let (world, ledger) = sample::<Sqlite>();
    for (kind, named) in [(ID, "evt_1"), (MARK, "acct_7"), (HEAD, "the head")] {
        for other in ["'text'", "17", "1.5"] {
            let tx = world.db.unchecked_transaction().unwrap();
            let text = format!("UPDATE oncedb_ledger_stripe SET value = {other} WHERE kind = {kind}");
            tx.execute(&text, []).unwrap();
            damaged(Sqlite::claim(&ledger, &tx, &ordered("evt_1")), named);
            damaged(
                ledger.expire(&tx, 1).and(ledger.last_applied(&tx, "acct_7")).and(ledger.get(&tx, "evt_1")),
                named,
            );
        }
    }
    for change in ["kind = 7", "kind = 'id'", "name = 'evt_1'", "expires_at = -5", "value = 'text'"] {
        let tx = world.db.unchecked_transaction().unwrap();
        let text = format!("UPDATE oncedb_ledger_stripe SET expires_at = 5, {change} WHERE kind = 1");
        let text = text.replace("expires_at = 5, expires_at", "expires_at");
        tx.execute(&text, []).unwrap();
        damaged(ledger.expire(&tx, 1), "a row with a time of expiry");
    }
}
