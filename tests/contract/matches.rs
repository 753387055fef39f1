//! The verdicts are exhaustive, so that a new one breaks every match; everything else that may grow
//! is not, and its matches need a wildcard, which would not compile here if it caught nothing.
#![allow(dead_code, clippy::needless_pass_by_value, reason = "what is fixed here is that it compiles")]

use oncedb::{
    Advance, Busy, Cause, Downtime, Durability, Error, Guard, InProgress, Maintenance, Mark, Outcome,
    Previous, Record, Response, Retention, Settled, Stats, Ties, redb, sqlite::rusqlite,
};
use std::convert::Infallible;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

fn is<T>(_: &T) {}

fn outcome(outcome: Outcome<Guard>) {
    match outcome {
        Outcome::New(guard) => is::<Guard>(&guard),
        Outcome::Duplicate(record) | Outcome::Mismatch(record) => is::<Record>(&record),
        Outcome::InProgress(running) => is::<InProgress>(&running),
        Outcome::Stale(mark) => is::<Mark>(&mark),
    }
}

fn outcome_that_is_never_in_progress(outcome: Outcome<Record, Infallible>) -> bool {
    match outcome {
        Outcome::New(_) => true,
        Outcome::Duplicate(_) | Outcome::Mismatch(_) | Outcome::Stale(_) => false,
    }
}

fn advance(advance: Advance) {
    match advance {
        Advance::Applied => {}
        Advance::Stale(mark) => is::<Mark>(&mark),
        Advance::InProgress(running) => is::<InProgress>(&running),
    }
}

fn settled(settled: Settled) {
    match settled {
        Settled::Completed(record) => is::<Record>(&record),
        Settled::Released | Settled::Running => {}
    }
}

fn busy(busy: Busy) {
    match busy {
        Busy::Id | Busy::Entity => {}
    }
}

fn ties(ties: Ties) {
    match ties {
        Ties::Accept | Ties::Reject => {}
    }
}

fn response(response: Response<'_>) {
    match response {
        Response::None => {}
        Response::Stored(bytes) => is::<&[u8]>(&bytes),
        Response::Omitted { len } => is::<u64>(&len),
    }
}

fn cause(cause: Cause) {
    match cause {
        Cause::Orphaned | Cause::Aborted | Cause::LeaseExpired => {}
        _ => unreachable!("a cause of a later version"),
    }
}

fn durability(durability: Durability) {
    match durability {
        Durability::Sync => {}
        Durability::Interval(at_most) => is::<Duration>(&at_most),
        _ => unreachable!("a durability of a later version"),
    }
}

fn downtime(downtime: Downtime) {
    match downtime {
        Downtime::Counts => {}
        Downtime::Pauses { at_most } => is::<Duration>(&at_most),
        _ => unreachable!("a downtime of a later version"),
    }
}

fn retention(retention: Retention) {
    match retention {
        Retention::Forever => {}
        Retention::For(length) => is::<Duration>(&length),
        _ => unreachable!("a retention of a later version"),
    }
}

fn structs(stats: Stats, maintenance: Maintenance, previous: Previous) {
    let Stats { live_keys, .. } = stats;
    is::<u64>(&live_keys);
    let Maintenance { flushed, .. } = maintenance;
    is::<u64>(&flushed);
    let Previous { cause, attempt, note, .. } = previous;
    is::<Cause>(&cause);
    is::<u32>(&attempt);
    is::<Option<Vec<u8>>>(&note);
}

fn error(error: Error) {
    match error {
        Error::Locked { path, .. } => is::<PathBuf>(&path),
        Error::Full { limit, .. } => is::<Option<u64>>(&limit),
        Error::KeyTooLong { len, limit, .. }
        | Error::FingerprintTooLong { len, limit, .. }
        | Error::NoteTooLong { len, limit, .. } => is::<(usize, usize)>(&(len, limit)),
        Error::InvalidOption { option, reason, .. } => {
            is::<(&'static str, &'static str)>(&(option, reason));
        }
        Error::ScopeOptions { scope, .. } => is::<Box<str>>(&scope),
        Error::TooFarAhead { ahead, limit, .. } => is::<(Duration, Duration)>(&(ahead, limit)),
        Error::OutcomeUnknown { source, .. } | Error::Poisoned { source, .. } => {
            is::<Arc<io::Error>>(&source);
        }
        Error::Corrupt { path, offset, .. } => is::<(PathBuf, u64)>(&(path, offset)),
        Error::Damaged { ledger, row, what, .. } => {
            is::<(Box<str>, Box<str>, &'static str)>(&(ledger, row, what));
        }
        Error::Version { found, supported, .. } => is::<(u32, u32)>(&(found, supported)),
        Error::Transaction { source, .. } => is::<Box<redb::Error>>(&source),
        Error::Sqlite { source, .. } => is::<Box<rusqlite::Error>>(&source),
        Error::Io { path, source, .. } => is::<(PathBuf, Arc<io::Error>)>(&(path, source)),
        Error::EmptyId { .. }
        | Error::InProgress { .. }
        | Error::Fenced { .. }
        | Error::TimestampKind { .. }
        | Error::Closed { .. } => {}
        _ => unreachable!("an error of a later version"),
    }
}
