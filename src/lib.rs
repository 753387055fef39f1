//! OnceDB: an embedded dedupe store.
//!
//! Senders of webhooks and queue messages deliver at least once, and out of order. OnceDB is the
//! store inside the receiver that lets it do each event's work exactly once: on disk, in one
//! process, with no server. It answers from memory or with one read when it has seen an id, makes a
//! new one durable in one shared disk sync, and forgets after a window, 24 hours by default.
//!
//! ```
//! # fn handle(_: &str) -> Result<Vec<u8>, oncedb::Error> { Ok(b"done".to_vec()) }
//! # let dir = tempfile::tempdir().unwrap();
//! use oncedb::{Outcome, Store};
//!
//! let store = Store::open(dir.path())?;
//! let stripe = store.scope("stripe")?;
//!
//! // The same event, delivered twice.
//! for delivery in ["evt_1", "evt_1"] {
//!     match stripe.begin(delivery)? {
//!         Outcome::New(guard) => {
//!             let reply = handle(delivery)?; // on an error the guard is dropped: the key is free again
//!             guard.complete_with(&reply)?; // durable on return
//!         }
//!         Outcome::Duplicate(record) => assert_eq!(record.stored_response().as_deref(), Some(&b"done"[..])),
//!         Outcome::InProgress(_) | Outcome::Mismatch(_) | Outcome::Stale(_) => unreachable!(),
//!     }
//! }
//! # Ok::<(), oncedb::Error>(())
//! ```
//!
//! Begin at [`Store::open`], then [`Scope::begin`] for work that must happen, [`Scope::claim`] to
//! claim before the work, and [`Request::order`] for events that may arrive out of order. Every
//! blocking call that may wait has an `_async` twin that runs on any executor. [`Ledger`] keeps ids in a
//! database of yours, in the transaction that does the work. With the feature `tower` the module `http`
//! has layers for webhooks and for the `Idempotency-Key` header.

#![deny(missing_docs, unreachable_pub)]
#![deny(clippy::unwrap_used, clippy::host_endian_bytes)]
#![cfg_attr(not(test), deny(clippy::big_endian_bytes))]

mod catalog;
mod clock;
mod codec;
#[cfg(feature = "conformance")]
pub mod conformance;
mod disk;
mod engine;
mod error;
#[cfg(all(fuzzing, feature = "simulation"))]
#[doc(hidden)]
pub mod fuzzing;
mod guard;
mod histogram;
#[cfg(feature = "tower")]
pub mod http;
mod identity;
mod journal;
mod key;
mod ledger;
mod lenient;
mod live;
mod options;
mod outcome;
mod pending;
mod record;
mod request;
mod run;
mod runs;
#[cfg(feature = "sabotage")]
#[doc(hidden)]
pub mod sabotage;
#[cfg(not(feature = "sabotage"))]
mod sabotage;
mod salvage;
mod scope;
#[cfg(feature = "simulation")]
pub mod simulation;
mod span;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod stamp;
mod stats;
mod store;
mod sync;
mod timestamp;
mod verification;

pub use clock::{Clock, ManualClock, SystemClock};
pub use error::{Error, Result};
pub use guard::{Cause, Guard, Previous};
pub use ledger::{Ledger, LedgerRequest};
pub use options::{Downtime, Durability, Options, Retention, ScopeOptions, Ties};
pub use outcome::{Advance, Busy, InProgress, Mark, Outcome, Record, Response, Settled};
pub use pending::Pending;
pub use redb;
pub use request::Request;
pub use run::Settle;
pub use salvage::{Missing, Salvaged};
pub use scope::Scope;
pub use stats::{Maintenance, Stats};
pub use store::Store;
pub use timestamp::Timestamp;
pub use verification::{Problem, Verification, VerifyProgress};

/// The README's examples are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
