//! Work and its ids, one transaction a payment, and whether they agree afterwards.

use crate::common::SECOND;
use crate::door::{Ask, Door, ID, World, ask, new};
use oncedb::Timestamp;
use std::collections::BTreeSet;

/// The event of the `number`th payment. All are about one account, in order.
pub fn payment(number: i64) -> Ask {
    ask(name(number)).order("acct_7", Timestamp::from_secs(number)).response("paid")
}

/// What the work leaves in place of the first response.
const RECEIPT: &[u8] = b"receipt";

pub fn name(number: i64) -> String {
    format!("evt_{number:06}")
}

/// The calls of one transaction, from its beginning to its commit. Beside the payment it claims an id
/// that has expired at the next one, and is removed there.
pub fn pay<D: Door>(ledger: &D::Ledger, db: &D::Db, number: i64) {
    pay_in_steps::<D>(ledger, db, number, || ());
}

/// The same, with `step` before each call and after the last.
pub fn pay_in_steps<D: Door>(ledger: &D::Ledger, db: &D::Db, number: i64, mut step: impl FnMut()) {
    step();
    let tx = D::begin(db);
    step();
    new(D::claim(ledger, &tx, &payment(number)));
    step();
    D::work(&tx, &name(number));
    step();
    assert!(D::respond(ledger, &tx, name(number).as_bytes(), RECEIPT).unwrap());
    step();
    new(D::claim(ledger, &tx, &ask(format!("short_{number}")).window(SECOND)));
    step();
    D::commit(tx);
    step();
}

/// Ids and work agree, nothing that was acknowledged is missing, and at most one payment is there that
/// was not: the one that was being made.
#[track_caller]
pub fn assert_agree<D: Door>(world: &World<D>, ledger: &D::Ledger, acknowledged: &[i64], at: &str) -> i64 {
    let works: BTreeSet<String> = D::works(&world.db).into_iter().collect();
    let count = i64::try_from(works.len()).unwrap();
    for number in 0..=count + 1 {
        let claimed = D::contains(ledger, &world.db, name(number).as_bytes()).unwrap();
        assert_eq!(claimed, works.contains(&name(number)), "{at}: the id and the work of {number}");
        let record = D::get(ledger, &world.db, name(number).as_bytes()).unwrap();
        let response = record.and_then(|record| record.stored_response());
        assert_eq!(response.as_deref(), claimed.then_some(RECEIPT), "{at}: the response of {number}");
    }
    assert!(acknowledged.iter().all(|number| works.contains(&name(*number))), "{at}: {works:?}");
    let acknowledged = i64::try_from(acknowledged.len()).unwrap();
    assert!((acknowledged..=acknowledged + 1).contains(&count), "{at}: {count} of {acknowledged}");
    let mark = D::last_applied(ledger, &world.db, b"acct_7").unwrap();
    let applied = (count > 0).then(|| Timestamp::from_secs(count - 1));
    assert_eq!(mark.map(|mark| mark.timestamp()), applied, "{at}: the mark and the work");
    if count > 0 {
        let rows = D::rows(&world.db, "stripe");
        let short = rows.iter().filter(|(kind, name, _)| *kind == ID && name.starts_with(b"short_")).count();
        assert_eq!(short, 1, "{at}: every payment removes what expired before it");
    }
    // What the sender does next: it delivers everything again.
    for number in 0..=count {
        let tx = D::begin(&world.db);
        let outcome = D::claim(ledger, &tx, &payment(number)).unwrap();
        assert_eq!(outcome.is_duplicate(), number < count, "{at}: {number} again, {outcome:?}");
        D::roll_back(tx);
    }
    count
}
