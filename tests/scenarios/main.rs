//! The ways deduplication is known to fail in practice, each under its own name, and that none of
//! them happens here, whichever door a caller comes through.
#![allow(clippy::unchecked_time_subtraction, reason = "the times of a scenario are known")]

#[path = "../common/mod.rs"]
mod common;

mod child;
mod collection;
mod disk;
mod doors;
mod dropped;
mod fenced;
mod input;
mod keys;
mod kills;
mod marks;
mod order;
mod ownership;
mod rulings;
mod run;
mod time;
mod verdicts;
mod waiting;
