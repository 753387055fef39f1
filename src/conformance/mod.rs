//! What a dedupe store must do, as a suite that runs against any of them.
//!
//! Implement [`Subject`] for the store, and hand it to [`run`]: every scenario opens a store of its
//! own, and those that need an [`Ability`] that the store does not have are passed over by name.
//!
//! ```
//! use oncedb::conformance::{self, Ability, Answer, End, Event, Setup, Subject};
//! use std::collections::HashSet;
//! use std::sync::Mutex;
//! use std::time::Duration;
//!
//! /// Ids in memory: nothing expires, and a crash forgets everything.
//! struct Seen(Mutex<HashSet<(String, Vec<u8>)>>);
//!
//! impl Subject for Seen {
//!     type Running = Event;
//!
//!     fn open(_: &Setup) -> Self {
//!         Self(Mutex::default())
//!     }
//!     fn can(_: Ability) -> bool {
//!         false
//!     }
//!     fn begin(&self, event: &Event) -> Answer<Event> {
//!         let seen = self.0.lock().unwrap();
//!         match seen.contains(&(event.source.clone(), event.id.clone())) {
//!             true => Answer::Duplicate(Default::default()),
//!             false => Answer::New(event.clone()),
//!         }
//!     }
//!     fn end(&self, event: Event, end: End) -> Result<(), String> {
//!         if let End::Complete(_) = end {
//!             self.0.lock().unwrap().insert((event.source, event.id));
//!         }
//!         Ok(())
//!     }
//!     fn advance(&self, _: Duration) {}
//!     fn crash(&mut self, _: Vec<Event>) {
//!         self.0.lock().unwrap().clear();
//!     }
//! }
//!
//! let report = conformance::run::<Seen>();
//! println!("{report}");
//! assert_ne!(report.broken(), 0, "it takes an empty id, for one");
//! ```

mod disk;
mod expect;
mod order;
mod ownership;
mod report;
mod subject;
mod time;
mod verdicts;

use std::panic::{AssertUnwindSafe, catch_unwind};

pub use report::{Finding, Report};
pub use subject::{Ability, Answer, Attempt, Done, End, Event, Reply, Setup, Subject};

/// One scenario, ready to run.
struct Case {
    name: &'static str,
    needs: &'static [Ability],
    run: fn(),
}

/// Lists the scenarios of a module, each with the abilities that it needs.
macro_rules! cases {
    ($($name:ident $([$($need:ident),*])?;)*) => {
        pub(super) fn cases<S: $crate::conformance::Subject>() -> Vec<$crate::conformance::Case> {
            vec![$($crate::conformance::Case {
                name: stringify!($name),
                needs: &[$($($crate::conformance::Ability::$need),*)?],
                run: $name::<S>,
            }),*]
        }
    };
}
use cases;

/// Runs every scenario that the store has the abilities for, one after the other.
///
/// It does not panic: a scenario that does has failed, and the report says how. The panic's own
/// message goes to standard error.
pub fn run<S: Subject>() -> Report {
    let mut report = Report::default();
    let cases = [
        verdicts::cases::<S>(),
        ownership::cases::<S>(),
        time::cases::<S>(),
        order::cases::<S>(),
        disk::cases::<S>(),
    ];
    for case in cases.into_iter().flatten() {
        let lacking = case.needs.iter().copied().find(|need| !S::can(*need));
        let finding = match lacking {
            Some(ability) => Finding::PassedOver(ability),
            None => match catch_unwind(AssertUnwindSafe(case.run)) {
                Ok(()) => Finding::Held,
                Err(panic) => Finding::Broken(message(&*panic)),
            },
        };
        report.add(case.name, finding);
    }
    report
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("it panicked without a message").to_owned()
}
