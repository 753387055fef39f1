//! Every verdict of a ledger, and what it shows.

use crate::common::{DAY, HOUR, SECOND, noon};
use crate::door::{Door, World, ask, duplicate, mismatch, new, through_both_doors};
use oncedb::{Response, Timestamp};
use std::time::Duration;

/// The least time there is.
const NANOSECOND: Duration = Duration::from_nanos(1);

through_both_doors! {
    claim_is_new_once_and_a_duplicate_until_it_expires,
    reply_is_stored_with_the_work,
    reply_that_is_known_after_the_work_is_stored_with_it,
    other_fingerprint_is_a_mismatch,
    window_of_the_claim_counts_from_the_claim,
    looking_never_extends_a_window,
    forgotten_id_is_new_again,
    nothing_is_there_before_the_first_claim,
    everything_but_new_writes_nothing,
    debug_output_shortens_ids,
}

fn claim_is_new_once_and_a_duplicate_until_it_expires<D: Door>() {
    let world = World::<D>::new();
    let ledger = world.ledger();
    let first = new(world.claim(&ledger, &ask("evt_1")));
    assert_eq!((first.id(), first.attempt()), (&b"evt_1"[..], 1));
    assert_eq!(first.claimed_at(), noon());
    assert_eq!(first.completed_at(), Some(noon()));
    assert_eq!(first.expires_at(), Some(noon() + DAY));
    assert!(!first.is_refusal());

    world.clock.advance(DAY.checked_sub(NANOSECOND).unwrap());
    let record = duplicate(world.claim(&ledger, &ask("evt_1")));
    assert_eq!(record.claimed_at(), noon(), "what is shown is the first claim");
    assert!(world.contains(&ledger, "evt_1"));
    world.clock.advance(NANOSECOND);
    assert!(!world.contains(&ledger, "evt_1"), "at its end the window is over, to the nanosecond");
    assert!(D::get(&ledger, &world.db, b"evt_1").unwrap().is_none());
    let again = new(world.claim(&ledger, &ask("evt_1")));
    assert_eq!(again.claimed_at(), noon() + DAY);
    assert!(world.contains(&ledger, "evt_1"));
}

fn reply_is_stored_with_the_work<D: Door>() {
    let world = World::<D>::new();
    let ledger = world.ledger();
    new(world.claim(&ledger, &ask("short").response("reply")));
    new(world.claim(&ledger, &ask("empty").response("")));
    new(world.claim(&ledger, &ask("none")));
    let longest = vec![b'r'; 256 << 10];
    new(world.claim(&ledger, &ask("longest").response(&longest)));
    new(world.claim(&ledger, &ask("longer").response([&longest[..], b"r"].concat())));
    for (id, response) in [
        ("short", Response::Stored(b"reply")),
        ("empty", Response::Stored(b"")),
        ("none", Response::None),
        ("longest", Response::Stored(&longest)),
        ("longer", Response::Omitted { len: (256 << 10) + 1 }),
    ] {
        let record = duplicate(world.claim(&ledger, &ask(id).response("another one")));
        assert_eq!(record.response(), response, "{id}");
        let record = D::get(&ledger, &world.db, id.as_bytes()).unwrap().expect("it was claimed");
        assert_eq!(record.response(), response, "{id}");
    }
}

fn reply_that_is_known_after_the_work_is_stored_with_it<D: Door>() {
    let world = World::<D>::new();
    let ledger = world.ledger();
    let respond = |id: &str, response: &[u8]| {
        world.write(|tx| D::respond(&ledger, tx, id.as_bytes(), response).unwrap())
    };
    let ordered = |id: &str, at| ask(id).fingerprint("f").order("acct_7", Timestamp::from_secs(at));
    assert!(!respond("evt_1", b"before there is a table"));
    world.write(|tx| {
        new(D::claim(&ledger, tx, &ordered("evt_1", 100)));
        world.clock.advance(HOUR);
        assert!(D::respond(&ledger, tx, b"evt_1", b"the first").unwrap());
        assert!(D::respond(&ledger, tx, b"evt_1", b"reply").unwrap());
    });
    let record = duplicate(world.claim(&ledger, &ordered("evt_1", 100)));
    assert_eq!(record.response(), Response::Stored(b"reply"));
    assert_eq!(record.fingerprint(), Some(&b"f"[..]));
    assert_eq!(record.expires_at(), Some(noon() + DAY), "it lives no longer for it");
    assert_eq!(D::expiring(&world.db, "stripe"), 2, "the id and the mark");

    assert!(!respond("evt_2", b"of an id that was never claimed"));
    new(world.claim(&ledger, &ask("evt_2")));
    assert!(respond("evt_2", &vec![b'r'; (256 << 10) + 1]));
    let record = duplicate(world.claim(&ledger, &ask("evt_2")));
    assert_eq!(record.response(), Response::Omitted { len: (256 << 10) + 1 });
    assert!(world.forget(&ledger, "evt_2"));
    assert!(!respond("evt_2", b"of a forgotten id"));
    world.clock.advance(DAY);
    assert!(!respond("evt_1", b"of an expired id"));
    assert!(D::get(&ledger, &world.db, b"evt_1").unwrap().is_none());

    let tx = D::begin(&world.db);
    new(D::claim(&ledger, &tx, &ask("evt_3")));
    assert!(D::respond(&ledger, &tx, b"evt_3", b"reply").unwrap());
    D::roll_back(tx);
    assert!(!world.contains(&ledger, "evt_3"), "it is gone with its transaction");
    assert!(D::respond(&ledger, &D::begin(&world.db), b"", b"reply").is_err(), "an empty id");
}

fn other_fingerprint_is_a_mismatch<D: Door>() {
    let world = World::<D>::new();
    let ledger = world.ledger();
    new(world.claim(&ledger, &ask("evt_1").fingerprint("one").response("reply")));
    let record = mismatch(world.claim(&ledger, &ask("evt_1").fingerprint("two")));
    assert_eq!(record.fingerprint(), Some(&b"one"[..]));
    assert_eq!(record.response(), Response::Stored(b"reply"));
    duplicate(world.claim(&ledger, &ask("evt_1").fingerprint("one")));
    duplicate(world.claim(&ledger, &ask("evt_1")));
    new(world.claim(&ledger, &ask("evt_2")));
    duplicate(world.claim(&ledger, &ask("evt_2").fingerprint("two")));
    mismatch(world.claim(&ledger, &ask("evt_1").fingerprint("")));
}

fn window_of_the_claim_counts_from_the_claim<D: Door>() {
    let world = World::<D>::new();
    let ledger = world.ledger();
    new(world.claim(&ledger, &ask("short").window(SECOND)));
    let long = new(world.claim(&ledger, &ask("long").window(36_500 * DAY)));
    assert_eq!(long.expires_at(), Some(noon() + 36_500 * DAY));
    world.clock.advance(SECOND);
    new(world.claim(&ledger, &ask("short").window(HOUR)));
    world.clock.advance(36_499 * DAY);
    new(world.claim(&ledger, &ask("short")));
    duplicate(world.claim(&ledger, &ask("long")));
    let other_deploy = world.with(|it| it.window = SECOND);
    duplicate(world.claim(&other_deploy, &ask("long")));
    new(world.claim(&other_deploy, &ask("brief")));
    world.clock.advance(SECOND);
    new(world.claim(&other_deploy, &ask("brief")));
}

fn looking_never_extends_a_window<D: Door>() {
    let world = World::<D>::new();
    let ledger = world.ledger();
    new(world.claim(&ledger, &ask("evt_1")));
    for _ in 0..23 {
        world.clock.advance(HOUR);
        duplicate(world.claim(&ledger, &ask("evt_1").window(30 * DAY)));
    }
    world.clock.advance(HOUR);
    new(world.claim(&ledger, &ask("evt_1")));
}

fn forgotten_id_is_new_again<D: Door>() {
    let world = World::<D>::new();
    let ledger = world.ledger();
    assert!(!world.forget(&ledger, "evt_1"), "it was never there");
    new(world.claim(&ledger, &ask("evt_1").fingerprint("one")));
    assert!(world.forget(&ledger, "evt_1"));
    assert!(!world.forget(&ledger, "evt_1"), "it is forgotten already");
    assert!(!world.contains(&ledger, "evt_1"));
    let again = new(world.claim(&ledger, &ask("evt_1").fingerprint("two")));
    assert_eq!(again.attempt(), 1);
    duplicate(world.claim(&ledger, &ask("evt_1")));
    world.clock.advance(DAY);
    assert!(!world.forget(&ledger, "evt_1"), "it has expired");
}

fn nothing_is_there_before_the_first_claim<D: Door>() {
    let world = World::<D>::new();
    let ledger = world.ledger();
    let tables = D::tables(&world.db);
    assert!(!world.contains(&ledger, "evt_1"), "no table yet is no");
    assert!(D::get(&ledger, &world.db, b"evt_1").unwrap().is_none());
    assert!(D::last_applied(&ledger, &world.db, b"acct_7").unwrap().is_none());
    assert!(!world.forget(&ledger, "evt_1"));
    assert!(!world.forget_mark(&ledger, "acct_7"));
    assert_eq!(world.expire(&ledger, usize::MAX), 0);
    assert_eq!(D::tables(&world.db), tables, "a no leaves no table behind");
    new(world.claim(&ledger, &ask("evt_1")));
    assert_ne!(D::tables(&world.db), tables);
}

fn everything_but_new_writes_nothing<D: Door>() {
    let world = World::<D>::new();
    let ledger = world.ledger();
    new(world.claim(&ledger, &ask("expired").window(SECOND)));
    let ordered = |id: &str, secs| ask(id).order("acct_7", Timestamp::from_secs(secs));
    new(world.claim(&ledger, &ordered("evt_1", 20).fingerprint("one")));
    world.clock.advance(HOUR);
    let before = D::rows(&world.db, "stripe");
    duplicate(world.claim(&ledger, &ask("evt_1").response("reply")));
    mismatch(world.claim(&ledger, &ask("evt_1").fingerprint("two")));
    crate::door::stale(world.claim(&ledger, &ordered("older", 10)));
    let wrong_kind = ask("evt_2").order("acct_7", Timestamp::sequence(1));
    assert!(world.claim(&ledger, &wrong_kind).is_err());
    assert!(!world.forget(&ledger, "unknown"));
    assert_eq!(D::rows(&world.db, "stripe"), before, "not the time, and the expired id is there still");
}

fn debug_output_shortens_ids<D: Door>() {
    let (ledger, request) = D::shown(&World::<D>::new().ledger(), &[b'i'; 1000]);
    assert!(ledger.contains("stripe") && ledger.len() < 300, "{ledger}");
    assert!(request.contains("stripe") && request.len() < 400, "{request}");
}
