//! What ledgers in any database have in common.

use std::convert::Infallible;

use oncedb::conformance::{Ability, Answer};
use oncedb::{Outcome, Record};

/// A transaction in progress keeps every other one out, and leaves nothing when it dies; a ledger goes by
/// the wall clock, and how large it is, who opens it and what its disk does is the database's.
pub fn can(ability: Ability) -> bool {
    !matches!(
        ability,
        Ability::InProgress
            | Ability::Attempts
            | Ability::Notes
            | Ability::Leases
            | Ability::Refusals
            | Ability::SteadyTime
            | Ability::DowntimePauses
            | Ability::Size
            | Ability::Exclusive
            | Ability::FailingDisk
            | Ability::FullDisk
    )
}

/// A ledger as the suite wants it.
macro_rules! ledger {
    ($kind:ty, $source:expr, $setup:expr, $clock:expr) => {
        <$kind>::new($source)
            .window($setup.window)
            .ties($setup.ties)
            .max_ahead($setup.max_ahead)
            .clock($clock.clone())
    };
}
pub(crate) use ledger;

/// The request of an event.
macro_rules! request {
    ($ledger:expr, $event:expr) => {{
        let mut request = $ledger.request(&$event.id);
        if let Some(fingerprint) = &$event.fingerprint {
            request = request.fingerprint(fingerprint);
        }
        if let Some((entity, at)) = &$event.order {
            request = request.order(entity, *at);
        }
        if let Some(window) = $event.window {
            request = request.window(window);
        }
        request
    }};
}
pub(crate) use request;

pub fn told(outcome: oncedb::Result<Outcome<Record, Infallible>>) -> Answer<Record> {
    match outcome {
        Ok(outcome) => crate::scope::answer(outcome),
        Err(error) => Answer::Error(error.to_string()),
    }
}
