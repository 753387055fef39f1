//! Ids in the caller's own database transaction: the rules once, the databases behind a small trait.

pub(crate) mod claim;
mod door;
pub(crate) mod draft;
pub(crate) mod rows;
pub(crate) mod sealed;
mod tables;
pub(crate) mod terms;

pub use door::{Ledger, LedgerRequest};
