//! Files are changed, cut, exchanged, emptied and deleted: the store says so and where, or answers as if
//! nothing had happened. What is sound can be had back.
//!
//! `ONCEDB_SEED` repeats a choice of damage, `ONCEDB_EXHAUSTIVE` tries every byte and every length.

#[path = "../common/mod.rs"]
mod common;

mod cases;
mod detect;
mod panics;
mod rescue;
mod sample;
mod verify;
