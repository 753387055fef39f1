//! Every door keeps the same promises: one suite, run through each of them.

#[path = "../common/mod.rs"]
mod common;

mod scope;

use oncedb::conformance::{self, Finding, Subject};

/// Runs the suite; `passed_over` are the only scenarios that the door need not hold.
#[track_caller]
fn holds<S: Subject>(door: &str, passed_over: &[&str]) {
    let report = conformance::run::<S>();
    common::announce(&format!("{door}:\n{report}"));
    assert!(report.is_clean(), "{door}:\n{report}");
    let lacking = report.findings().iter().filter(|(_, finding)| matches!(finding, Finding::PassedOver(_)));
    let lacking: Vec<&str> = lacking.map(|(name, _)| *name).collect();
    assert_eq!(lacking, passed_over, "what {door} cannot do");
}

#[test]
fn blocking_calls() {
    holds::<scope::Scoped<scope::Blocking>>("blocking calls", &[]);
}

#[test]
fn futures() {
    holds::<scope::Scoped<scope::Futures>>(
        "futures",
        &["expired_keys_leave_nothing_behind", "a_hot_key_leaves_nothing_behind"],
    );
}
