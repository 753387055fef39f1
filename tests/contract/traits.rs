//! What each type can do, what it can not, and what a caller may not ignore.
#![allow(dead_code, reason = "what is fixed here is that it compiles")]

use oncedb::{
    Advance, Busy, Cause, Clock, Downtime, Durability, Error, Guard, InProgress, Ledger, LedgerRequest,
    Maintenance, ManualClock, Mark, Options, Outcome, Pending, Previous, Record, Request, Response,
    Retention, Scope, ScopeOptions, Settled, Stats, Store, SystemClock, Ties, Timestamp, sqlite,
};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::SystemTime;

macro_rules! every {
    ($bounds:path: $($kind:ty),+ $(,)?) => {
        const _: () = {
            const fn is<T: $bounds>() {}
            $(is::<$kind>();)+
        };
    };
}

trait Portable: Send + Sync + Debug + 'static {}
impl<T: Send + Sync + Debug + 'static> Portable for T {}

trait Value: Copy + Debug + Eq {}
impl<T: Copy + Debug + Eq> Value for T {}

every! { Portable:
    Advance, Busy, Cause, Downtime, Durability, Error, Guard, InProgress, Ledger, LedgerRequest<'static>,
    Maintenance, ManualClock, Mark, Options, Outcome<Guard>, Outcome<Record>, Pending<()>,
    Pending<Outcome<Guard>>, Previous, Record, Request, Response<'static>, Retention, Scope,
    ScopeOptions, Settled, Stats, Store, SystemClock, Ties, Timestamp,
    sqlite::Ledger, sqlite::LedgerRequest<'static>,
}
every! { Clone:
    Store, Options, Stats, Maintenance, Scope, ScopeOptions, Record, InProgress, Settled, Mark,
    Previous, ManualClock, Ledger, sqlite::Ledger,
}
every! { Value:
    Durability, Downtime, Ties, Retention, Response<'static>, Busy, Timestamp, Cause,
}
every! { Default: ScopeOptions, SystemClock }
every! { Eq: ScopeOptions }
every! { Copy: SystemClock }
every! { std::hash::Hash: Timestamp }
every! { PartialOrd: Timestamp }
every! { std::error::Error: Error }
every! { Clock: SystemClock, ManualClock, Arc<SystemClock>, Arc<dyn Clock> }

const _: () = assert!(size_of::<Error>() <= 128);

fn a_pending_is_a_future_to_spawn<T: 'static>(
    pending: Pending<T>,
) -> impl Future<Output = oncedb::Result<T>> + Send + 'static {
    pending
}

fn a_result_may_have_another_error(result: oncedb::Result<u8, String>) -> Result<u8, String> {
    result
}

/// The answer of a method that a type is not to have: were there one, it would be called instead,
/// or the call would be ambiguous.
struct Absent;

trait NotNew {
    fn is_new(&self) -> Absent;
}
impl NotNew for Outcome<Guard> {
    fn is_new(&self) -> Absent {
        Absent
    }
}
fn a_guard_is_not_asked_whether_it_is_new(outcome: &Outcome<Guard>) -> Absent {
    outcome.is_new()
}

trait NotClone {
    fn clone(&self) -> Absent;
}
impl NotClone for Guard {
    fn clone(&self) -> Absent {
        Absent
    }
}
fn a_guard_has_no_twin(guard: &Guard) -> Absent {
    (*guard).clone()
}

trait NotOrd {
    fn cmp(&self, other: &Self) -> Absent;
}
impl NotOrd for Timestamp {
    fn cmp(&self, _: &Self) -> Absent {
        Absent
    }
}
fn times_and_numbers_have_no_total_order(one: Timestamp, other: Timestamp) -> Absent {
    (one).cmp(&other)
}

/// Each of these lines ignores something that must be used; one that may be ignored has nothing to
/// expect, which is an error here.
macro_rules! must_be_used {
    ($($($name:ident: $kind:ty),* => $ignored:expr;)+) => {$(
        const _: () = {
            #[expect(unused_must_use)]
            fn ignored($($name: $kind),*) {
                $ignored;
            }
        };
    )+};
}

fn made<T>() -> T {
    unreachable!("what is fixed here is that it compiles")
}

must_be_used! {
    => made::<Outcome<Record>>();
    => made::<Outcome<Guard>>();
    => made::<Guard>();
    => made::<Request>();
    => made::<Pending<()>>();
    => made::<Outcome<Record, std::convert::Infallible>>();
    => made::<LedgerRequest<'static>>();
    => made::<sqlite::LedgerRequest<'static>>();
    => made::<Settled>();
    => made::<Advance>();

    => Store::options();
    it: &Store => it.stats();
    it: Options => it.window(made());
    it: Options => it.durability(made());
    it: Options => it.memory_limit(0);
    it: Options => it.disk_limit(None);
    it: Options => it.max_key_len(0);
    it: Options => it.max_response_len(0);
    it: Options => it.max_note_len(0);
    it: Options => it.downtime(made());
    it: Options => it.clock(SystemClock::default());
    => ScopeOptions::new();
    it: ScopeOptions => it.window(made());
    it: ScopeOptions => it.lease(None);
    it: ScopeOptions => it.ties(made());
    it: ScopeOptions => it.mark_retention(made());
    it: ScopeOptions => it.max_ahead(None);
    => Ledger::new("s");
    it: Ledger => it.window(made());
    it: Ledger => it.ties(made());
    it: Ledger => it.mark_retention(made());
    it: Ledger => it.max_ahead(None);
    it: Ledger => it.clock(SystemClock::default());
    it: &Ledger => it.name();
    it: &Ledger => it.request("evt_1");
    => sqlite::Ledger::new("s");
    it: sqlite::Ledger => it.window(made());
    it: sqlite::Ledger => it.ties(made());
    it: sqlite::Ledger => it.mark_retention(made());
    it: sqlite::Ledger => it.max_ahead(None);
    it: sqlite::Ledger => it.clock(SystemClock::default());
    it: &sqlite::Ledger => it.name();
    it: &sqlite::Ledger => it.request("evt_1");
    it: &Scope => it.name();

    it: &Outcome<Record> => it.is_new();
    it: &Outcome<Guard> => it.is_duplicate();
    it: &Outcome<Guard> => it.is_in_progress();
    it: &Outcome<Guard> => it.is_mismatch();
    it: &Outcome<Guard> => it.is_stale();
    it: Outcome<Guard> => it.into_new();
    it: &Record => it.id();
    it: &Record => it.claimed_at();
    it: &Record => it.completed_at();
    it: &Record => it.expires_at();
    it: &Record => it.attempt();
    it: &Record => it.fingerprint();
    it: &Record => it.response();
    it: &Record => it.stored_response();
    it: &Record => it.is_refusal();
    it: &InProgress => it.since();
    it: &InProgress => it.attempt();
    it: &InProgress => it.retry_after();
    it: &InProgress => it.busy();
    it: &InProgress => it.token();
    it: &Mark => it.timestamp();
    it: &Mark => it.applied_at();
    it: &Mark => it.entity();
    it: &Guard => it.attempt();
    it: &Guard => it.previous();
    it: &Guard => it.id();
    it: &Guard => it.token();

    => Timestamp::from_secs(0);
    => Timestamp::from_millis(0);
    => Timestamp::from_micros(0);
    => Timestamp::sequence(0);
    it: Timestamp => it.as_micros();
    it: Timestamp => it.as_sequence();
    it: &Error => it.is_invalid_input();
    it: &Error => it.is_retryable();
    it: &Error => it.needs_reopen();
    it: &Error => it.is_corruption();
    it: &Error => it.is_outcome_unknown();
    => ManualClock::new(SystemTime::UNIX_EPOCH);
}
