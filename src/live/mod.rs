//! The live states: what happened lately to a key, in memory, and who holds it.
//!
//! [`map`] is the sharded table, [`attempt`] the ownership of a claim in progress. Everything here
//! is decided under a shard's lock; nothing here waits or touches the disk.

pub(crate) mod attempt;
pub(crate) mod map;

pub(crate) use attempt::{Attempt, Phase, Standing, Waiter};
pub(crate) use map::{Entry, LiveMap, Owner, Shard, State};
