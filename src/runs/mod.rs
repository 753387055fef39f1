//! Runs: immutable sorted files of records, written in the background.
//!
//! [`layout`] has the formats; [`writer`] and [`merge`] make files, [`run`] reads them. [`bucket`]
//! decides which records live together, [`set`] is the list that counts, [`store`] changes it.

mod block;
mod bucket;
mod files;
mod filter;
mod index;
mod layout;
mod merge;
mod output;
mod rescue;
mod responses;
mod run;
mod scan;
mod set;
mod sound;
mod store;
mod writer;

pub(crate) use bucket::Bucket;
pub(crate) use rescue::{LostFile, Rescue};
pub(crate) use run::{Found, Run, summary_of};
pub(crate) use scan::Item;
pub(crate) use set::RunSet;
pub(crate) use store::{FlushError, Flushed, RunStore};

/// For [`crate::fuzzing`].
#[cfg(all(fuzzing, feature = "simulation"))]
pub(crate) mod fuzzing {
    pub(crate) use super::files::FileCache;
    pub(crate) use super::responses::ResponseFile;
    pub(crate) use super::run::Run;
}
