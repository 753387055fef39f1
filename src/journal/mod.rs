//! The journal: where a claim becomes durable.
//!
//! [`frame`] is the unit, [`segment`] the file, [`commit`] the pipeline that many callers share one
//! sync of, [`replay`] what reads it all back, [`check`] what does so while it is in use.

pub(crate) mod batch;
pub(crate) mod check;
pub(crate) mod commit;
pub(crate) mod frame;
mod image;
#[cfg(all(test, shuttle))]
mod races;
pub(crate) mod replay;
pub(crate) mod rescue;
pub(crate) mod segment;
#[cfg(test)]
mod tests;
pub(crate) mod ticker;

pub(crate) use commit::{AppendError, End, Haste, Journal, Lead, Room};
