//! What opening a damaged store leaves behind.

use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::SystemTime;

use crate::clock::{Time, WallMapping};
use crate::engine::salvage::Loss;
use crate::span::Span;
use crate::store::Store;

/// An open store, and what it lost. See [`Store::salvage`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Salvaged {
    /// The store, open.
    pub store: Store,
    /// The damaged files, with what of each is missing. Empty if nothing was damaged when this call
    /// began: what an earlier one found that was interrupted is in the reports in `damaged`.
    pub missing: Vec<Missing>,
}

/// A damaged file of a salvaged store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Missing {
    /// The file.
    pub path: PathBuf,
    /// Where a copy of it lies now, in the directory `damaged` of the store; `None` if it was not there.
    /// OnceDB neither reads nor removes it again.
    pub set_aside: Option<PathBuf>,
    /// Where the first damage was met, in bytes.
    pub offset: u64,
    /// What is wrong there.
    pub what: String,
    /// What was recorded in this time may be missing: claims completed, forgotten or given up, and marks.
    /// Outside of it nothing is. `None` if all of it could be kept.
    ///
    /// What is lost of the journal has been given a minute more at either end, since a thread reads the
    /// clock before its record is in the journal: one that stood still in between for longer than 60 s may
    /// have left its record outside. The time of a lost run is exact.
    ///
    /// A key that is missing is new again. An older state of a key may show again: an event whose
    /// forgetting is lost is a duplicate again, an entity may have an earlier mark.
    pub claims: Option<RangeInclusive<SystemTime>>,
    /// Responses to claims completed in this time may be missing. The claims are not, their response
    /// is [`Omitted`](crate::Response::Omitted).
    pub responses: Option<RangeInclusive<SystemTime>>,
}

impl Missing {
    pub(crate) fn of(loss: Loss, mapping: WallMapping) -> Self {
        let range = |span: Span| {
            let wall = |time: Time| mapping.wall_of(time.min(mapping.now));
            (!span.is_empty()).then(|| wall(span.first)..=wall(span.last))
        };
        Self {
            claims: range(loss.claims),
            responses: range(loss.responses),
            path: loss.problem.path,
            set_aside: loss.set_aside,
            offset: loss.problem.offset,
            what: loss.problem.what,
        }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}: {}", self.path.display(), self.offset, self.what)?;
        match (&self.claims, &self.responses) {
            (None, None) => write!(f, "; nothing is missing"),
            (Some(range), _) => {
                write!(f, "; claims completed from {:?} to {:?} may be missing", range.start(), range.end())
            }
            (None, Some(range)) => {
                write!(f, "; responses from {:?} to {:?} may be missing", range.start(), range.end())
            }
        }
    }
}
