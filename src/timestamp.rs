//! Timestamps of events: the sender's, not the store's.

use std::cmp::Ordering;
use std::time::{Duration, SystemTime};

/// When an event happened, by its sender: a time, or a number that grows with each change.
///
/// The two kinds do not compare: an entity keeps to the kind of its mark, and the other kind is
/// [`Error::TimestampKind`](crate::Error::TimestampKind).
///
/// ```
/// use oncedb::Timestamp;
///
/// assert_eq!(Timestamp::from_secs(2), Timestamp::from_millis(2_000));
/// assert!(Timestamp::sequence(7) < Timestamp::sequence(8));
/// assert_eq!(Timestamp::from_secs(1).partial_cmp(&Timestamp::sequence(1)), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timestamp(Value);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Value {
    /// Microseconds since 1970.
    Micros(i64),
    Sequence(u64),
}

impl Timestamp {
    /// Seconds since 1970, saturating at what microseconds in an `i64` hold (about 292,000 years
    /// either way).
    #[must_use]
    pub const fn from_secs(secs: i64) -> Self {
        Self(Value::Micros(secs.saturating_mul(1_000_000)))
    }

    /// Milliseconds since 1970, saturating as [`from_secs`](Self::from_secs) does.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Self {
        Self(Value::Micros(millis.saturating_mul(1_000)))
    }

    /// Microseconds since 1970.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Self {
        Self(Value::Micros(micros))
    }

    /// A version or sequence number. `max_ahead` does not apply to it.
    #[must_use]
    pub const fn sequence(number: u64) -> Self {
        Self(Value::Sequence(number))
    }

    /// Microseconds since 1970, if this is a time.
    #[must_use]
    pub const fn as_micros(self) -> Option<i64> {
        match self.0 {
            Value::Micros(micros) => Some(micros),
            Value::Sequence(_) => None,
        }
    }

    /// The number, if this is a sequence number.
    #[must_use]
    pub const fn as_sequence(self) -> Option<u64> {
        match self.0 {
            Value::Sequence(number) => Some(number),
            Value::Micros(_) => None,
        }
    }

    /// How far this lies ahead of a wall clock; zero for the past and for sequence numbers.
    pub(crate) fn ahead_of(self, wall: SystemTime) -> Duration {
        match (self.0, Self::from(wall).0) {
            (Value::Micros(at), Value::Micros(now)) if at > now => Duration::from_micros(at.abs_diff(now)),
            _ => Duration::ZERO,
        }
    }
}

impl From<SystemTime> for Timestamp {
    /// Whole microseconds, rounded towards the past; saturating.
    fn from(time: SystemTime) -> Self {
        let micros = match time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_micros()).unwrap_or(i64::MAX),
            Err(before) => {
                let micros = before.duration().as_nanos().div_ceil(1_000);
                i64::try_from(micros).map_or(i64::MIN, |micros| -micros)
            }
        };
        Self::from_micros(micros)
    }
}

/// `None` between a time and a sequence number. There is no `Ord`: a total order would invent an
/// answer.
impl PartialOrd for Timestamp {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        match (self.0, other.0) {
            (Value::Micros(a), Value::Micros(b)) => Some(a.cmp(&b)),
            (Value::Sequence(a), Value::Sequence(b)) => Some(a.cmp(&b)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversions_saturate_and_agree() {
        assert_eq!(Timestamp::from_secs(i64::MAX).as_micros(), Some(i64::MAX));
        assert_eq!(Timestamp::from_millis(i64::MIN).as_micros(), Some(i64::MIN));
        let time = SystemTime::UNIX_EPOCH + Duration::from_nanos(1_999);
        assert_eq!(Timestamp::from(time), Timestamp::from_micros(1));
        let time = SystemTime::UNIX_EPOCH - Duration::from_nanos(1);
        assert_eq!(Timestamp::from(time), Timestamp::from_micros(-1));
    }

    #[test]
    fn only_times_are_ahead() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(10);
        assert_eq!(Timestamp::from_secs(15).ahead_of(now), Duration::from_secs(5));
        assert_eq!(Timestamp::from_secs(5).ahead_of(now), Duration::ZERO);
        assert_eq!(Timestamp::sequence(u64::MAX).ahead_of(now), Duration::ZERO);
        assert!(Timestamp::from_secs(i64::MAX).ahead_of(SystemTime::UNIX_EPOCH) > Duration::ZERO);
    }
}
