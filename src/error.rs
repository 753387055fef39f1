//! The one error type.

use std::error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call could not be answered. No error is ever turned into a verdict.
///
/// The message says what failed, where, and what to do. Sort errors by the predicates where you
/// can: [`is_invalid_input`](Self::is_invalid_input), [`is_retryable`](Self::is_retryable),
/// [`needs_reopen`](Self::needs_reopen).
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Another process, or another `Store` of this one, has the directory open.
    #[non_exhaustive]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// There is no room for a new claim. Nothing was recorded; claims in progress can still be
    /// completed. Room comes back when keys expire, when claims in progress settle, or when the
    /// disk is given more.
    #[non_exhaustive]
    Full {
        /// The limit that was reached, in bytes; `None` if it is the disk itself.
        limit: Option<u64>,
        /// What is full.
        what: &'static str,
    },
    /// An id or entity was empty.
    #[non_exhaustive]
    EmptyId,
    /// A scope name and id, or scope name and entity, were longer than `max_key_len`; or the name of a
    /// [`Ledger`](crate::Ledger) and id or entity longer than 1,024 bytes.
    #[non_exhaustive]
    KeyTooLong {
        /// Their length together, in bytes.
        len: usize,
        /// The limit, in bytes.
        limit: usize,
    },
    /// A fingerprint was longer than 64 bytes. Use a hash of the request.
    #[non_exhaustive]
    FingerprintTooLong {
        /// Its length, in bytes.
        len: usize,
        /// The limit, in bytes.
        limit: usize,
    },
    /// A note was longer than `max_note_len`. The note before it is kept.
    #[non_exhaustive]
    NoteTooLong {
        /// Its length, in bytes.
        len: usize,
        /// The limit, in bytes.
        limit: usize,
    },
    /// An option is out of its range.
    #[non_exhaustive]
    InvalidOption {
        /// The option's name.
        option: &'static str,
        /// The range it must be in.
        reason: &'static str,
    },
    /// The scope is in use with other options.
    #[non_exhaustive]
    ScopeOptions {
        /// The scope's name.
        scope: Box<str>,
    },
    /// The key is held by a live guard and was not forgotten.
    #[non_exhaustive]
    InProgress,
    /// The guard no longer owns its claim: its lease lapsed and another attempt took over, or the
    /// store was reopened. Nothing was changed.
    #[non_exhaustive]
    Fenced,
    /// The entity's mark is of the other kind (a time, or a sequence number).
    #[non_exhaustive]
    TimestampKind,
    /// The timestamp lies further ahead of the clock than the scope's `max_ahead`.
    #[non_exhaustive]
    TooFarAhead {
        /// How far ahead it lies.
        ahead: Duration,
        /// The limit.
        limit: Duration,
    },
    /// The write or sync that should have made this durable failed: it may or may not be there
    /// after reopening. The store is poisoned.
    #[non_exhaustive]
    OutcomeUnknown {
        /// What the operating system said.
        source: Arc<io::Error>,
    },
    /// An earlier write or sync failed, so what the disk holds is not known until it is read again.
    /// Call [`Store::reopen`](crate::Store::reopen).
    #[non_exhaustive]
    Poisoned {
        /// What the operating system said then.
        source: Arc<io::Error>,
    },
    /// A file is damaged. Nothing was changed.
    #[non_exhaustive]
    Corrupt {
        /// The damaged file.
        path: PathBuf,
        /// Where in it, in bytes.
        offset: u64,
        /// What is wrong there.
        what: &'static str,
    },
    /// A value in the tables of a [`Ledger`](crate::Ledger) is damaged. Nothing was changed.
    #[non_exhaustive]
    Damaged {
        /// The ledger's name.
        ledger: Box<str>,
        /// Which row: an id, an entity's mark, or the head.
        row: Box<str>,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The store or ledger was written by another version of the format. Nothing was changed.
    #[non_exhaustive]
    Version {
        /// The version in the file.
        found: u32,
        /// The version this crate reads and writes.
        supported: u32,
    },
    /// The store has been closed.
    #[non_exhaustive]
    Closed,
    /// The caller's own redb transaction failed. Roll it back.
    #[non_exhaustive]
    Transaction {
        /// What redb said.
        source: Box<redb::Error>,
    },
    /// The caller's own SQLite transaction failed. Roll it back.
    #[cfg(feature = "sqlite")]
    #[non_exhaustive]
    Sqlite {
        /// What SQLite said.
        source: Box<rusqlite::Error>,
    },
    /// An operating-system call failed and nothing was changed by it.
    #[non_exhaustive]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the operating system said.
        source: Arc<io::Error>,
    },
}

impl Error {
    /// Whether the caller's data is at fault: an empty or over-long id, fingerprint or note, an
    /// option out of range, a timestamp too far ahead or of the wrong kind. Answer 400.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = oncedb::Store::open(dir.path())?;
    /// let error = store.scope("stripe")?.claim("").unwrap_err();
    /// assert!(error.is_invalid_input());
    /// # Ok::<(), oncedb::Error>(())
    /// ```
    #[must_use]
    pub fn is_invalid_input(&self) -> bool {
        matches!(
            self,
            Self::EmptyId
                | Self::KeyTooLong { .. }
                | Self::FingerprintTooLong { .. }
                | Self::NoteTooLong { .. }
                | Self::InvalidOption { .. }
                | Self::TimestampKind
                | Self::TooFarAhead { .. }
        )
    }

    /// Whether the same call may succeed later with nothing else done: `Full`, `InProgress`,
    /// `Locked`. Answer 503 or 409.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Full { .. } | Self::InProgress | Self::Locked { .. })
    }

    /// Whether the store answers nothing more until [`Store::reopen`](crate::Store::reopen).
    #[must_use]
    pub fn needs_reopen(&self) -> bool {
        matches!(self, Self::OutcomeUnknown { .. } | Self::Poisoned { .. })
    }

    /// Whether a file, or a value in a ledger's tables, is damaged.
    #[must_use]
    pub fn is_corruption(&self) -> bool {
        matches!(self, Self::Corrupt { .. } | Self::Damaged { .. })
    }

    /// Whether what was asked for may or may not have become durable.
    #[must_use]
    pub fn is_outcome_unknown(&self) -> bool {
        matches!(self, Self::OutcomeUnknown { .. })
    }

    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        Self::Io { path: path.to_path_buf(), source: Arc::new(source) }
    }

    pub(crate) fn corrupt(path: &Path, offset: u64, what: &'static str) -> Self {
        Self::Corrupt { path: path.to_path_buf(), offset, what }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Locked { path } => write!(
                f,
                "the store at {} is open already, in this process or another; close it there or use another directory",
                path.display()
            ),
            Self::Full { limit: Some(limit), what } => write!(
                f,
                "{what} is full: its limit of {limit} bytes is reached; nothing was recorded, try again when keys \
                 have expired or claims in progress have settled, or raise the limit"
            ),
            Self::Full { limit: None, what } => {
                write!(f, "{what} is full; nothing was recorded, make room and try again")
            }
            Self::EmptyId => f.write_str("an id or entity is empty; give it at least one byte"),
            Self::KeyTooLong { len, limit } => write!(
                f,
                "a scope's or ledger's name and an id or entity are {len} bytes long together, over the limit of \
                 {limit} bytes; shorten them or raise the store's max_key_len"
            ),
            Self::FingerprintTooLong { len, limit } => write!(
                f,
                "a fingerprint is {len} bytes long, over the limit of {limit} bytes; use a hash of the request"
            ),
            Self::NoteTooLong { len, limit } => write!(
                f,
                "a note is {len} bytes long, over the limit of {limit} bytes; shorten it or raise max_note_len"
            ),
            Self::InvalidOption { option, reason } => write!(f, "the option {option} is out of range: {reason}"),
            Self::ScopeOptions { scope } => write!(
                f,
                "the scope {scope:?} is in use with other options; set a scope's options once, before its first use"
            ),
            Self::InProgress => {
                f.write_str("the key is held by a claim in progress; settle that first, then forget the key")
            }
            Self::Fenced => f.write_str(
                "this guard lost its claim (its lease lapsed and another attempt took over, or the store was \
                 reopened); nothing was changed, stop this attempt",
            ),
            Self::TimestampKind => f.write_str(
                "the entity's mark is of the other kind of timestamp (a time, or a sequence number); use one kind \
                 for an entity, or forget its mark",
            ),
            Self::TooFarAhead { ahead, limit } => write!(
                f,
                "the timestamp lies {ahead:?} ahead of the clock, over the limit of {limit:?}; check the sender's \
                 clock or raise max_ahead"
            ),
            Self::OutcomeUnknown { source } => write!(
                f,
                "writing to the journal failed, so this may or may not be recorded ({source}); reopen the store \
                 and ask again"
            ),
            Self::Poisoned { source } => write!(
                f,
                "an earlier write to the store failed ({source}); reopen it to read what the disk holds"
            ),
            Self::Corrupt { path, offset, what } => write!(
                f,
                "{} is damaged at byte {offset}: {what}; nothing was changed, restore the file or the directory \
                 from a copy",
                path.display()
            ),
            Self::Damaged { ledger, row, what } => write!(
                f,
                "{row} in the ledger {ledger:?} is damaged: {what}; nothing was changed, restore the database from \
                 a copy or remove the row"
            ),
            Self::Version { found, supported } => write!(
                f,
                "the store or ledger has format version {found}, this version of OnceDB reads {supported}; open it \
                 with the version that wrote it"
            ),
            Self::Closed => f.write_str("the store is closed; open it again"),
            Self::Transaction { source } => {
                write!(f, "the database transaction failed ({source}); roll it back and try again")
            }
            #[cfg(feature = "sqlite")]
            Self::Sqlite { source } => {
                write!(f, "the SQLite transaction failed ({source}); roll it back and try again")
            }
            Self::Io { path, source } => write!(
                f,
                "an operation on {} failed ({source}); check the disk and the permissions and try again",
                path.display()
            ),
        }
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::OutcomeUnknown { source } | Self::Poisoned { source } | Self::Io { source, .. } => {
                Some(&**source)
            }
            Self::Transaction { source } => Some(&**source),
            #[cfg(feature = "sqlite")]
            Self::Sqlite { source } => Some(&**source),
            _ => None,
        }
    }
}

const _: () = assert!(size_of::<Error>() <= 128, "errors stay cheap to return");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predicates_sort_every_error_into_at_most_one_class() {
        let io = || Arc::new(io::Error::other("boom"));
        let errors = [
            Error::Locked { path: "d".into() },
            Error::Full { limit: None, what: "the disk" },
            Error::EmptyId,
            Error::InProgress,
            Error::Fenced,
            Error::OutcomeUnknown { source: io() },
            Error::Poisoned { source: io() },
            Error::corrupt(Path::new("f"), 3, "bad checksum"),
            Error::Closed,
            Error::Damaged { ledger: "l".into(), row: "the head".into(), what: "bad checksum" },
            Error::io(Path::new("f"), io::Error::other("boom")),
        ];
        for error in &errors {
            let classes =
                [error.is_invalid_input(), error.is_retryable(), error.needs_reopen(), error.is_corruption()];
            assert!(classes.iter().filter(|&&class| class).count() <= 1, "{error:?}");
            assert!(error.to_string().len() > 20, "a sentence: {error}");
        }
        assert!(error::Error::source(&errors[10]).is_some());
    }
}
