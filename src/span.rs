//! The stretch of time that some records were written in.

use crate::clock::Time;

/// From the first to the last of some moments, or nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) first: Time,
    pub(crate) last: Time,
}

impl Span {
    /// On disk, too, nothing is a first moment behind the last one.
    pub(crate) const EMPTY: Self = Self { first: Time::NEVER, last: Time(0) };

    pub(crate) fn is_empty(self) -> bool {
        self.first > self.last
    }

    pub(crate) fn add(&mut self, moment: Time) {
        self.first = self.first.min(moment);
        self.last = self.last.max(moment);
    }
}

impl Default for Span {
    fn default() -> Self {
        Self::EMPTY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_holds_all_it_was_given() {
        let mut span = Span::EMPTY;
        assert!(span.is_empty());
        span.add(Time(7));
        assert_eq!((span.is_empty(), span), (false, Span { first: Time(7), last: Time(7) }));
        span.add(Time(3));
        assert_eq!(span, Span { first: Time(3), last: Time(7) });
    }
}
