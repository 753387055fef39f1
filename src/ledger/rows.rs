//! What a ledger needs of a database.

use crate::clock::Time;
use crate::error::Result;
use crate::key::Kind;

/// The rows of one ledger, as one transaction sees them. Values are opaque here.
pub(crate) trait Rows {
    /// The head of the ledger: its format and time.
    fn head(&self) -> Result<Option<Vec<u8>>>;

    /// Whether there is no row at all, the head included.
    fn is_empty(&self) -> Result<bool>;

    fn row(&self, kind: Kind, name: &[u8]) -> Result<Option<Vec<u8>>>;

    /// The first rows in the order of expiry that expire at `now` or before.
    fn due(&self, now: Time, at_most: usize) -> Result<Vec<Due>>;
}

/// The same, to be written to.
pub(crate) trait RowsMut: Rows {
    fn set_head(&mut self, value: &[u8]) -> Result<()>;

    /// Writes all of these rows or, where the transaction survives the error, none.
    fn put(&mut self, rows: &[NewRow<'_>]) -> Result<()>;

    /// Removes a row and its place in the order of expiry.
    fn remove(&mut self, kind: Kind, name: &[u8], expires_at: Time) -> Result<()>;
}

/// A row to be written, with its place in the order of expiry.
pub(crate) struct NewRow<'a> {
    pub(crate) kind: Kind,
    pub(crate) name: &'a [u8],
    pub(crate) value: &'a [u8],
    /// [`Time::NEVER`] has no place in that order.
    pub(crate) expires_at: Time,
    /// When the row that it replaces was to expire.
    pub(crate) replaced: Option<Time>,
}

/// A row whose turn it is to be removed.
pub(crate) struct Due {
    pub(crate) kind: Kind,
    pub(crate) name: Vec<u8>,
    pub(crate) expires_at: Time,
    /// When it expires by its own value; `None` if that says nothing.
    pub(crate) stored: Option<Time>,
}
