//! What the fuzz targets share: the formats written down a second time, from `DESIGN.md` and not from
//! the store's code, and a watch over memory.

pub mod catalog;
pub mod frames;
pub mod memory;
pub mod records;
pub mod responses;
pub mod runs;
