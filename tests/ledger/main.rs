//! Ids in the caller's own transaction: what holds for a ledger in redb holds for one in SQLite, so
//! one suite runs on both.

#[path = "../common/mod.rs"]
mod common;

mod callers;
mod damage;
mod disk;
mod door;
mod expiry;
mod kills;
mod limits;
mod model;
mod order;
mod payments;
mod redb_door;
mod sqlite_door;
mod tables;
mod transactions;
mod verdicts;
