//! A disk in memory, for tests of what is built on a store.

pub use crate::disk::memory::{Call, Fault, FaultKind, MemoryDisk};
