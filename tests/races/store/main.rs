//! The whole store, under schedules that a test chooses: see `harness`.

#[cfg(not(shuttle))]
compile_error!("these tests want `--cfg shuttle`: run cargo from tests/races, whose configuration sets it");

mod background;
mod claims;
mod common;
#[path = "../harness.rs"]
mod harness;
mod lifecycle;
mod waiting;
