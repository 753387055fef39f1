//! What a check of all files says.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::error::Error;

/// What [`Store::verify`](crate::Store::verify) read and found.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let store = oncedb::Store::open(dir.path())?;
/// assert!(store.scope("stripe")?.claim("evt_1")?.is_new());
/// let verification = store.verify()?;
/// for problem in &verification.problems {
///     eprintln!("{problem}");
/// }
/// assert!(verification.is_sound());
/// # Ok::<(), oncedb::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Verification {
    /// Everything that is wrong, in the order in which it was met.
    pub problems: Vec<Problem>,
    /// Files that were read.
    pub files: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// Records that were read and decoded.
    pub records: u64,
    /// Responses in files of their own that were read.
    pub responses: u64,
}

impl Verification {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }
}

/// One thing that is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// The file.
    pub path: PathBuf,
    /// Where in it, in bytes.
    pub offset: u64,
    /// What is wrong there.
    pub what: String,
}

impl Problem {
    pub(crate) fn new(path: &Path, offset: u64, what: &str) -> Self {
        Self { path: path.to_path_buf(), offset, what: what.to_owned() }
    }

    /// The same as an error says.
    pub(crate) fn of(path: &Path, error: &Error) -> Self {
        match error {
            Error::Corrupt { path, offset, what } => {
                Self { path: path.clone(), offset: *offset, what: (*what).to_owned() }
            }
            Error::Io { source, .. } => {
                Self { path: path.to_path_buf(), offset: 0, what: format!("reading it failed: {source}") }
            }
            other => Self { path: path.to_path_buf(), offset: 0, what: other.to_string() },
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}: {}", self.path.display(), self.offset, self.what)
    }
}

/// How far a check has come. See [`Store::verify_with`](crate::Store::verify_with).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct VerifyProgress<'a> {
    /// The file at hand.
    pub path: &'a Path,
    /// Bytes that are done with.
    pub bytes_done: u64,
    /// Bytes there are in all.
    pub bytes_total: u64,
}
