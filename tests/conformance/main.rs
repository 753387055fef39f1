//! Every door keeps the same promises: one suite, run through each of them.

#[path = "../common/mod.rs"]
mod common;

mod http;
mod ledger;
mod life;
mod redb;
mod scope;
mod sqlite;

use oncedb::conformance::{self, Subject};

/// Runs the suite, of which so many scenarios need what the door does not have.
#[track_caller]
fn holds<S: Subject>(door: &str, passed_over: usize) {
    let report = conformance::run::<S>();
    common::announce(&format!("{door}:\n{report}"));
    assert!(report.is_clean(), "{door}:\n{report}");
    assert_eq!(report.passed_over(), passed_over, "scenarios that {door} is not held to:\n{report}");
}

#[test]
fn blocking_calls() {
    holds::<scope::Scoped<scope::Blocking>>("blocking calls", 0);
}

#[test]
fn futures() {
    holds::<scope::Scoped<scope::Futures>>("futures", 2);
}

#[test]
fn ledger_in_redb() {
    holds::<redb::InRedb>("a ledger in redb", 25);
}

#[test]
fn ledger_in_sqlite() {
    holds::<sqlite::InSqlite>("a ledger in SQLite", 25);
}

#[test]
fn webhooks_over_http() {
    holds::<http::Served<http::Webhooks>>("webhooks over HTTP", 7);
}

#[test]
fn idempotency_keys_over_http() {
    holds::<http::Served<http::Keys>>("Idempotency-Key over HTTP", 20);
}
