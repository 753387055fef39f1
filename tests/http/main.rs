//! The layers over HTTP: what they promise, each promise by its name.

#[path = "../common/mod.rs"]
mod common;

mod client;
mod conventions;
mod dialects;
mod ends;
mod fit;
mod kept;
mod keys;
mod kills;
mod raw;
mod server;
mod streaming;
mod waits;
mod webhooks;
