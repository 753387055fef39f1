//! The whole store, under schedules that a test chooses: see `harness`.

#[cfg(not(shuttle))]
compile_error!("these tests want `--cfg shuttle`: run cargo from tests/races, whose configuration sets it");

#[path = "../harness.rs"]
mod harness;

mod claims;
mod common;
