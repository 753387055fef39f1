//! A store without threads of its own, for tests that are to run the same way every time: the calling
//! thread does what they would do.

use super::Engine;
use crate::journal::Lead;

impl Engine {
    /// Who makes frames durable that background work waits for.
    pub(super) fn background_lead(&self) -> Lead {
        if self.options.threads { Lead::Never } else { Lead::Always }
    }

    /// Who makes frames durable that a blocked caller waits for: one who came before may have been a
    /// future, which leaves it to the sync thread.
    pub(super) fn caller_lead(&self) -> Lead {
        if self.options.threads { Lead::IfFirst } else { Lead::Always }
    }

    /// Blocks until a round of background work is over.
    pub(super) fn wait_round(&self, round: u64) {
        if self.options.threads {
            self.work.wait(round);
        } else {
            self.work.run_one(|| self.background_round());
        }
    }

    /// A round of each thread.
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) fn tick(&self) {
        if !self.options.threads {
            self.journal.tick();
            self.on_tick();
            self.work.run_one(|| self.background_round());
            self.merges.run_one(|| self.merge_round());
        }
    }
}
