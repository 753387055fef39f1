//! Whether what callers were told of one key can be put into one order.
//!
//! Calls overlap, so several orders may be right; one is looked for in which every answer follows from
//! the state before it, and no call comes before another one that had returned before it began. (Wing
//! and Gong's search, with the states seen kept.)

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;

/// One call on one key.
#[derive(Clone, Debug)]
pub struct Call<A> {
    pub answer: A,
    /// When it began and returned, by one clock for all.
    pub began: u64,
    pub returned: u64,
    /// It failed in a way that leaves open whether it had its effect.
    pub unknown: bool,
}

/// What calls do to a key.
pub trait Rules: Clone + Debug + Eq + Hash {
    type Answer: Clone + Debug;

    /// The state after a call with this answer; `None` if the answer does not follow from this state.
    fn after(&self, answer: &Self::Answer) -> Option<Self>;
}

/// The last states of every right order; none if there is no right order.
pub fn ends<S: Rules>(start: &S, calls: &[Call<S::Answer>]) -> HashSet<S> {
    assert!(calls.len() <= 64, "one bit a call");
    let mut search = Search { calls, seen: HashSet::new(), ends: HashSet::new() };
    search.go_on(start, 0);
    search.ends
}

struct Search<'a, S: Rules> {
    calls: &'a [Call<S::Answer>],
    seen: HashSet<(u64, S)>,
    ends: HashSet<S>,
}

impl<S: Rules> Search<'_, S> {
    fn go_on(&mut self, state: &S, taken: u64) {
        if !self.seen.insert((taken, state.clone())) {
            return;
        }
        let calls = self.calls;
        let left = || calls.iter().enumerate().filter(|(index, _)| taken & (1 << index) == 0);
        if left().all(|(_, call)| call.unknown) {
            self.ends.insert(state.clone());
        }
        // Whoever returned first has begun before everyone who may come next.
        let first_return = left().filter(|(_, call)| !call.unknown).map(|(_, call)| call.returned).min();
        let first_return = first_return.unwrap_or(u64::MAX);
        for (index, call) in left().filter(|(_, call)| call.began <= first_return) {
            if let Some(next) = state.after(&call.answer) {
                self.go_on(&next, taken | (1 << index));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A register that is written and read.
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct Register(u8);

    #[derive(Clone, Debug)]
    enum Access {
        Write(u8),
        Read(u8),
    }

    impl Rules for Register {
        type Answer = Access;

        fn after(&self, answer: &Access) -> Option<Self> {
            match answer {
                Access::Write(value) => Some(Self(*value)),
                Access::Read(value) => (self.0 == *value).then(|| self.clone()),
            }
        }
    }

    fn call(answer: Access, began: u64, returned: u64, unknown: bool) -> Call<Access> {
        Call { answer, began, returned, unknown }
    }

    #[test]
    fn overlapping_calls_may_swap_and_others_may_not() {
        let overlapping = [call(Access::Write(1), 0, 5, false), call(Access::Read(0), 1, 2, false)];
        assert_eq!(ends(&Register(0), &overlapping).len(), 1);
        let after = [call(Access::Write(1), 0, 1, false), call(Access::Read(0), 2, 3, false)];
        assert!(ends(&Register(0), &after).is_empty());
        let unknown = [call(Access::Write(1), 0, u64::MAX, true), call(Access::Read(0), 2, 3, false)];
        assert_eq!(ends(&Register(0), &unknown).len(), 2, "it may never happen, or later");
    }
}
