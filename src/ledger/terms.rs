//! What a ledger was asked to be, and whether a claim is within its limits.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, SystemClock, Time};
use crate::error::{Error, Result};
use crate::ledger::draft::Wish;
use crate::ledger::sealed::Seal;
use crate::options::{DAY, MAX_FINGERPRINT, Retention, Ties, check_window};

/// The longest ledger name and id, or name and entity, in bytes together.
const MAX_KEY: usize = 1024;

/// The longest response that is kept.
pub(crate) const MAX_RESPONSE: usize = 256 << 10;

/// The options of a ledger. Nothing in it changes with a claim.
#[derive(Clone)]
pub(crate) struct Terms {
    pub(crate) seal: Seal,
    pub(crate) window: Duration,
    pub(crate) ties: Ties,
    pub(crate) mark_retention: Retention,
    pub(crate) max_ahead: Option<Duration>,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Terms {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            seal: Seal::new(name),
            window: DAY,
            ties: Ties::default(),
            mark_retention: Retention::default(),
            max_ahead: None,
            clock: Arc::new(SystemClock),
        }
    }

    pub(crate) fn name(&self) -> &str {
        self.seal.ledger()
    }

    pub(crate) fn wall(&self) -> Time {
        Time::from_wall(self.clock.wall())
    }

    pub(crate) fn check(&self) -> Result<()> {
        check_window("window", self.window)?;
        match self.mark_retention {
            Retention::For(length) => check_window("mark_retention", length),
            Retention::Forever => Ok(()),
        }
    }

    /// Whether the options are in range, and an id or entity is.
    pub(crate) fn check_name(&self, name: &[u8]) -> Result<()> {
        self.check()?;
        if name.is_empty() {
            return Err(Error::EmptyId);
        }
        let len = self.name().len() + name.len();
        if len > MAX_KEY { Err(Error::KeyTooLong { len, limit: MAX_KEY }) } else { Ok(()) }
    }

    pub(crate) fn check_wish(&self, wish: &Wish<'_>) -> Result<()> {
        self.check_name(wish.id)?;
        if let Some(fingerprint) = wish.fingerprint
            && fingerprint.len() > MAX_FINGERPRINT
        {
            return Err(Error::FingerprintTooLong { len: fingerprint.len(), limit: MAX_FINGERPRINT });
        }
        if let Some(window) = wish.window {
            check_window("window", window)?;
        }
        if let Some((entity, at)) = wish.order {
            self.check_name(entity)?;
            if let Some(limit) = self.max_ahead {
                let ahead = at.ahead_of(self.clock.wall());
                if ahead > limit {
                    return Err(Error::TooFarAhead { ahead, limit });
                }
            }
        }
        Ok(())
    }

    pub(crate) fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger")
            .field("name", &self.name())
            .field("window", &self.window)
            .field("ties", &self.ties)
            .field("mark_retention", &self.mark_retention)
            .field("max_ahead", &self.max_ahead)
            .finish_non_exhaustive()
    }
}

/// The methods by which both doors' ledgers are built.
macro_rules! ledger_builders {
    () => {
        /// How long a claimed id is kept: 1 second to 100 years, 24 hours by default. Out of that range
        /// every call is [`Error::InvalidOption`](crate::Error::InvalidOption).
        #[must_use]
        pub fn window(mut self, length: std::time::Duration) -> Self {
            self.terms.window = length;
            self
        }

        /// Whether an event as old as the last applied one is applied:
        /// [`Ties::Accept`](crate::Ties::Accept) by default.
        #[must_use]
        pub fn ties(mut self, ties: $crate::Ties) -> Self {
            self.terms.ties = ties;
            self
        }

        /// How long an entity's mark is kept after it last moved: 30 days by default, 1 second to 100
        /// years, or for ever.
        #[must_use]
        pub fn mark_retention(mut self, retention: $crate::Retention) -> Self {
            self.terms.mark_retention = retention;
            self
        }

        /// How far a time may lie ahead of the clock; `None`, the default, for any. Further ahead is
        /// [`Error::TooFarAhead`](crate::Error::TooFarAhead). It does not apply to sequence numbers.
        #[must_use]
        pub fn max_ahead(mut self, limit: impl Into<Option<std::time::Duration>>) -> Self {
            self.terms.max_ahead = limit.into();
            self
        }

        /// The clock, of which only the time of day is used: [`SystemClock`](crate::SystemClock) by
        /// default, [`ManualClock`](crate::ManualClock) in tests.
        #[must_use]
        pub fn clock(mut self, clock: impl $crate::Clock) -> Self {
            self.terms.clock = std::sync::Arc::new(clock);
            self
        }

        /// The name.
        #[must_use]
        pub fn name(&self) -> &str {
            self.terms.name()
        }
    };
}
pub(crate) use ledger_builders;
