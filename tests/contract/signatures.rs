//! Every function, by the type it has.
#![allow(dead_code, clippy::extra_unused_type_parameters, reason = "what is fixed here is that it compiles")]

use oncedb::{
    Advance, Busy, Clock, Downtime, Durability, Error, Guard, InProgress, Ledger, LedgerRequest, Maintenance,
    ManualClock, Mark, Options, Outcome, Pending, Previous, Record, Request, Response, Result, Retention,
    Scope, ScopeOptions, Settled, Stats, Store, SystemClock, Ties, Timestamp, redb, sqlite, sqlite::rusqlite,
};
use std::cmp::Ordering;
use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// A verdict that is never `InProgress`.
type Final = Outcome<Record, Infallible>;
type Many<T> = Vec<Result<T>>;

/// Holds each function to exactly this type, for every kind of argument that it is to take.
macro_rules! fixed {
    ($($group:ident { $($function:expr => $kind:ty;)+ })+) => {$(
        fn $group<B, S, P, T, L, N, C, I, G, W, R>()
        where
            B: AsRef<[u8]>,
            S: AsRef<str>,
            P: AsRef<Path>,
            T: Into<Timestamp>,
            L: Into<Option<Duration>>,
            N: Into<Option<u64>>,
            C: Clock,
            I: IntoIterator,
            I::Item: AsRef<[u8]>,
            G: IntoIterator<Item = Guard>,
            W: IntoIterator<Item = (Guard, B)>,
            R: IntoIterator<Item = Request>,
        {
            $(let _: $kind = $function;)+
        }
    )+};
}

fixed! {
    store {
        Store::open => fn(P) -> Result<Store>;
        Store::options => fn() -> Options;
        Store::scope => fn(&Store, S) -> Result<Scope>;
        Store::scope_with => fn(&Store, S, ScopeOptions) -> Result<Scope>;
        Store::close => fn(&Store) -> Result<()>;
        Store::close_async => fn(&Store) -> Pending<()>;
        Store::reopen => fn(&Store) -> Result<()>;
        Store::reopen_async => fn(&Store) -> Pending<()>;
        Store::sync => fn(&Store) -> Result<()>;
        Store::sync_async => fn(&Store) -> Pending<()>;
        Store::maintain => fn(&Store) -> Result<Maintenance>;
        Store::stats => fn(&Store) -> Stats;
        Store::complete_all => fn(&Store, G) -> Result<Many<()>>;
        Store::complete_all_async => fn(&Store, G) -> Pending<Many<()>>;
        Store::complete_all_with::<B> => fn(&Store, W) -> Result<Many<()>>;
        Store::complete_all_with_async::<B> => fn(&Store, W) -> Pending<Many<()>>;
        Store::claim_requests => fn(&Store, R) -> Result<Many<Outcome<Record>>>;
        Store::claim_requests_async => fn(&Store, R) -> Pending<Many<Outcome<Record>>>;
        Store::begin_requests => fn(&Store, R) -> Result<Many<Outcome<Guard>>>;
        Store::begin_requests_async => fn(&Store, R) -> Pending<Many<Outcome<Guard>>>;
    }
    options {
        Options::window => fn(Options, Duration) -> Options;
        Options::durability => fn(Options, Durability) -> Options;
        Options::memory_limit => fn(Options, usize) -> Options;
        Options::disk_limit => fn(Options, N) -> Options;
        Options::max_key_len => fn(Options, usize) -> Options;
        Options::max_response_len => fn(Options, usize) -> Options;
        Options::max_note_len => fn(Options, usize) -> Options;
        Options::downtime => fn(Options, Downtime) -> Options;
        Options::clock => fn(Options, C) -> Options;
        Options::open => fn(Options, P) -> Result<Store>;
    }
    scope_options {
        ScopeOptions::new => fn() -> ScopeOptions;
        ScopeOptions::window => fn(ScopeOptions, Duration) -> ScopeOptions;
        ScopeOptions::lease => fn(ScopeOptions, L) -> ScopeOptions;
        ScopeOptions::ties => fn(ScopeOptions, Ties) -> ScopeOptions;
        ScopeOptions::mark_retention => fn(ScopeOptions, Retention) -> ScopeOptions;
        ScopeOptions::max_ahead => fn(ScopeOptions, L) -> ScopeOptions;
    }
    scope {
        Scope::name => fn(&Scope) -> &str;
        Scope::claim => fn(&Scope, B) -> Result<Outcome<Record>>;
        Scope::claim_async => fn(&Scope, B) -> Pending<Outcome<Record>>;
        Scope::begin => fn(&Scope, B) -> Result<Outcome<Guard>>;
        Scope::begin_async => fn(&Scope, B) -> Pending<Outcome<Guard>>;
        Scope::request => fn(&Scope, B) -> Request;
        Scope::claim_many::<I> => fn(&Scope, I) -> Result<Vec<Outcome<Record>>>;
        Scope::claim_many_async::<I> => fn(&Scope, I) -> Pending<Vec<Outcome<Record>>>;
        Scope::contains => fn(&Scope, B) -> Result<bool>;
        Scope::get => fn(&Scope, B) -> Result<Option<Record>>;
        Scope::get_async => fn(&Scope, B) -> Pending<Option<Record>>;
        Scope::forget => fn(&Scope, B) -> Result<bool>;
        Scope::forget_async => fn(&Scope, B) -> Pending<bool>;
        Scope::forget_mark => fn(&Scope, B) -> Result<bool>;
        Scope::last_applied => fn(&Scope, B) -> Result<Option<Mark>>;
        Scope::advance => fn(&Scope, B, T) -> Result<Advance>;
        Scope::advance_async => fn(&Scope, B, T) -> Pending<Advance>;
    }
    request {
        Request::fingerprint => fn(Request, B) -> Request;
        Request::order => fn(Request, B, T) -> Request;
        Request::window => fn(Request, Duration) -> Request;
        Request::lease => fn(Request, L) -> Request;
        Request::durability => fn(Request, Durability) -> Request;
        Request::claim => fn(Request) -> Result<Outcome<Record>>;
        Request::claim_async => fn(Request) -> Pending<Outcome<Record>>;
        Request::claim_with => fn(Request, B) -> Result<Outcome<Record>>;
        Request::claim_with_async => fn(Request, B) -> Pending<Outcome<Record>>;
        Request::begin => fn(Request) -> Result<Outcome<Guard>>;
        Request::begin_async => fn(Request) -> Pending<Outcome<Guard>>;
    }
    guard {
        Guard::complete => fn(Guard) -> Result<()>;
        Guard::complete_async => fn(Guard) -> Pending<()>;
        Guard::complete_with => fn(Guard, B) -> Result<()>;
        Guard::complete_with_async => fn(Guard, B) -> Pending<()>;
        Guard::refuse => fn(Guard, B) -> Result<()>;
        Guard::refuse_async => fn(Guard, B) -> Pending<()>;
        Guard::abort => fn(Guard) -> Result<()>;
        Guard::abort_async => fn(Guard) -> Pending<()>;
        Guard::renew => fn(&Guard) -> Result<()>;
        Guard::note => fn(&Guard, B) -> Result<()>;
        Guard::note_async => fn(&Guard, B) -> Pending<()>;
        Guard::attempt => fn(&Guard) -> u32;
        Guard::previous => fn(&Guard) -> Option<&Previous>;
        Guard::id => fn(&Guard) -> &[u8];
        Guard::token => fn(&Guard) -> u64;
    }
    outcome {
        Outcome::<Record, InProgress>::is_new => fn(&Outcome<Record>) -> bool;
        Outcome::<Record, u8>::is_new => fn(&Outcome<Record, u8>) -> bool;
        Outcome::<Guard, InProgress>::is_duplicate => fn(&Outcome<Guard>) -> bool;
        Outcome::<Guard, InProgress>::is_in_progress => fn(&Outcome<Guard>) -> bool;
        Outcome::<Guard, InProgress>::is_mismatch => fn(&Outcome<Guard>) -> bool;
        Outcome::<Guard, InProgress>::is_stale => fn(&Outcome<Guard>) -> bool;
        Outcome::<Guard, InProgress>::into_new => fn(Outcome<Guard>) -> Option<Guard>;
        Outcome::<u8, u16>::into_new => fn(Outcome<u8, u16>) -> Option<u8>;
    }
    record {
        Record::id => fn(&Record) -> &[u8];
        Record::claimed_at => fn(&Record) -> SystemTime;
        Record::completed_at => fn(&Record) -> Option<SystemTime>;
        Record::expires_at => fn(&Record) -> Option<SystemTime>;
        Record::attempt => fn(&Record) -> u32;
        Record::fingerprint => fn(&Record) -> Option<&[u8]>;
        Record::response => fn(&Record) -> Response<'_>;
        Record::stored_response => fn(&Record) -> Option<Arc<[u8]>>;
        Record::is_refusal => fn(&Record) -> bool;
    }
    in_progress {
        InProgress::since => fn(&InProgress) -> SystemTime;
        InProgress::attempt => fn(&InProgress) -> u32;
        InProgress::retry_after => fn(&InProgress) -> Duration;
        InProgress::busy => fn(&InProgress) -> Busy;
        InProgress::token => fn(&InProgress) -> u64;
        InProgress::wait => fn(&InProgress, Duration) -> Result<Settled>;
        InProgress::wait_async => fn(&InProgress) -> Pending<Settled>;
    }
    mark {
        Mark::timestamp => fn(&Mark) -> Timestamp;
        Mark::applied_at => fn(&Mark) -> SystemTime;
        Mark::entity => fn(&Mark) -> &[u8];
    }
    timestamp {
        Timestamp::from_secs => fn(i64) -> Timestamp;
        Timestamp::from_millis => fn(i64) -> Timestamp;
        Timestamp::from_micros => fn(i64) -> Timestamp;
        Timestamp::sequence => fn(u64) -> Timestamp;
        Timestamp::as_micros => fn(Timestamp) -> Option<i64>;
        Timestamp::as_sequence => fn(Timestamp) -> Option<u64>;
        <Timestamp as From<SystemTime>>::from => fn(SystemTime) -> Timestamp;
        <Timestamp as PartialOrd>::partial_cmp => fn(&Timestamp, &Timestamp) -> Option<Ordering>;
    }
    ledger {
        Ledger::new => fn(S) -> Ledger;
        Ledger::window => fn(Ledger, Duration) -> Ledger;
        Ledger::ties => fn(Ledger, Ties) -> Ledger;
        Ledger::mark_retention => fn(Ledger, Retention) -> Ledger;
        Ledger::max_ahead => fn(Ledger, L) -> Ledger;
        Ledger::clock => fn(Ledger, C) -> Ledger;
        Ledger::name => fn(&Ledger) -> &str;
        Ledger::claim => fn(&Ledger, &redb::WriteTransaction, B) -> Result<Final>;
        Ledger::claim_with => fn(&Ledger, &redb::WriteTransaction, B, B) -> Result<Final>;
        Ledger::request => fn(&Ledger, B) -> LedgerRequest<'_>;
        Ledger::contains => fn(&Ledger, &redb::ReadTransaction, B) -> Result<bool>;
        Ledger::get => fn(&Ledger, &redb::ReadTransaction, B) -> Result<Option<Record>>;
        Ledger::last_applied => fn(&Ledger, &redb::ReadTransaction, B) -> Result<Option<Mark>>;
        Ledger::forget => fn(&Ledger, &redb::WriteTransaction, B) -> Result<bool>;
        Ledger::forget_mark => fn(&Ledger, &redb::WriteTransaction, B) -> Result<bool>;
        Ledger::expire => fn(&Ledger, &redb::WriteTransaction, usize) -> Result<usize>;
        LedgerRequest::fingerprint => fn(LedgerRequest<'static>, B) -> LedgerRequest<'static>;
        LedgerRequest::order => fn(LedgerRequest<'static>, B, T) -> LedgerRequest<'static>;
        LedgerRequest::window => fn(LedgerRequest<'static>, Duration) -> LedgerRequest<'static>;
        LedgerRequest::claim => fn(LedgerRequest<'static>, &redb::WriteTransaction) -> Result<Final>;
        LedgerRequest::claim_with => fn(LedgerRequest<'static>, &redb::WriteTransaction, B) -> Result<Final>;
    }
    sqlite_ledger {
        sqlite::Ledger::new => fn(S) -> sqlite::Ledger;
        sqlite::Ledger::window => fn(sqlite::Ledger, Duration) -> sqlite::Ledger;
        sqlite::Ledger::ties => fn(sqlite::Ledger, Ties) -> sqlite::Ledger;
        sqlite::Ledger::mark_retention => fn(sqlite::Ledger, Retention) -> sqlite::Ledger;
        sqlite::Ledger::max_ahead => fn(sqlite::Ledger, L) -> sqlite::Ledger;
        sqlite::Ledger::clock => fn(sqlite::Ledger, C) -> sqlite::Ledger;
        sqlite::Ledger::name => fn(&sqlite::Ledger) -> &str;
        sqlite::Ledger::claim => fn(&sqlite::Ledger, &rusqlite::Transaction<'_>, B) -> Result<Final>;
        sqlite::Ledger::claim_with => fn(&sqlite::Ledger, &rusqlite::Transaction<'_>, B, B) -> Result<Final>;
        sqlite::Ledger::request => fn(&sqlite::Ledger, B) -> sqlite::LedgerRequest<'_>;
        sqlite::Ledger::contains => fn(&sqlite::Ledger, &rusqlite::Connection, B) -> Result<bool>;
        sqlite::Ledger::get => fn(&sqlite::Ledger, &rusqlite::Connection, B) -> Result<Option<Record>>;
        sqlite::Ledger::last_applied => fn(&sqlite::Ledger, &rusqlite::Connection, B) -> Result<Option<Mark>>;
        sqlite::Ledger::forget => fn(&sqlite::Ledger, &rusqlite::Transaction<'_>, B) -> Result<bool>;
        sqlite::Ledger::forget_mark => fn(&sqlite::Ledger, &rusqlite::Transaction<'_>, B) -> Result<bool>;
        sqlite::Ledger::expire => fn(&sqlite::Ledger, &rusqlite::Transaction<'_>, usize) -> Result<usize>;
        sqlite::LedgerRequest::fingerprint => fn(sqlite::LedgerRequest<'static>, B) -> sqlite::LedgerRequest<'static>;
        sqlite::LedgerRequest::order => fn(sqlite::LedgerRequest<'static>, B, T) -> sqlite::LedgerRequest<'static>;
        sqlite::LedgerRequest::window => fn(sqlite::LedgerRequest<'static>, Duration) -> sqlite::LedgerRequest<'static>;
        sqlite::LedgerRequest::claim => fn(sqlite::LedgerRequest<'static>, &rusqlite::Transaction<'_>) -> Result<Final>;
        sqlite::LedgerRequest::claim_with => fn(sqlite::LedgerRequest<'static>, &rusqlite::Transaction<'_>, B) -> Result<Final>;
    }
    error {
        Error::is_invalid_input => fn(&Error) -> bool;
        Error::is_retryable => fn(&Error) -> bool;
        Error::needs_reopen => fn(&Error) -> bool;
        Error::is_corruption => fn(&Error) -> bool;
        Error::is_outcome_unknown => fn(&Error) -> bool;
    }
    clock {
        <SystemClock as Clock>::wall => fn(&SystemClock) -> SystemTime;
        <SystemClock as Clock>::elapsed => fn(&SystemClock) -> Duration;
        ManualClock::new => fn(SystemTime) -> ManualClock;
        ManualClock::advance => fn(&ManualClock, Duration);
        ManualClock::step_wall => fn(&ManualClock, i64);
        <ManualClock as Clock>::wall => fn(&ManualClock) -> SystemTime;
        <ManualClock as Clock>::elapsed => fn(&ManualClock) -> Duration;
        <Arc<dyn Clock> as Clock>::wall => fn(&Arc<dyn Clock>) -> SystemTime;
    }
}

const _: [Option<i64>; 3] = [
    Timestamp::from_secs(1).as_micros(),
    Timestamp::from_millis(1).as_micros(),
    Timestamp::from_micros(1).as_micros(),
];
const _: Option<u64> = Timestamp::sequence(1).as_sequence();
