//! Settlements whose futures were dropped while they waited for room.

use std::collections::VecDeque;
use std::fmt;

use super::Engine;
use super::drive::Patience;
use crate::sync::Mutex;

/// One more try; whether it has to wait on.
type Try = Box<dyn FnMut(&mut Patience) -> bool + Send>;

/// Work that the flush thread finishes.
#[derive(Default)]
pub(crate) struct Handover {
    waiting: Mutex<VecDeque<(Try, Patience)>>,
}

impl fmt::Debug for Handover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handover").field("waiting", &self.waiting.lock().len()).finish()
    }
}

impl Engine {
    /// Has the flush thread finish something that waits for room.
    pub(crate) fn hand_over(&self, work: impl FnMut(&mut Patience) -> bool + Send + 'static) {
        self.handover.waiting.lock().push_back((Box::new(work), Patience::default()));
        self.work.request();
    }

    /// Tries again what was handed over. Called with nothing held: what is finished may have been
    /// the last to keep the store open.
    pub(super) fn finish_handed_over(&self) {
        // One at a time: whoever closes the store finishes what is still waiting.
        let count = self.handover.waiting.lock().len();
        for _ in 0..count {
            let Some((mut work, mut patience)) = self.handover.waiting.lock().pop_front() else { return };
            patience.rounds += 1;
            if work(&mut patience) {
                self.handover.waiting.lock().push_back((work, patience));
            }
        }
    }

    /// The end: what is left does without room.
    pub(super) fn end_handover(&self) {
        let waiting = std::mem::take(&mut *self.handover.waiting.lock());
        for (mut work, _) in waiting {
            work(&mut Patience::exhausted());
        }
    }
}
