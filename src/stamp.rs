//! How a store's time goes on over a restart: by stamps of store time and wall time.

use std::time::{Duration, SystemTime};

use crate::clock::Time;

/// Store time and wall time, as they were together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) time: Time,
    /// Nanoseconds since 1970, saturating.
    pub(crate) wall: i64,
}

/// What the next open goes on from.
///
/// A wall clock that is behind at one open and right at the next must not make the time between
/// count that never was. So the stamp from before it went back is kept: once the wall clock has
/// come past that again, it is the one to go on from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamps {
    pub(crate) last: Stamp,
    /// One of a later wall time than the last one's, if the clock went back.
    pub(crate) above: Option<Stamp>,
}

impl Stamp {
    pub(crate) fn new(time: Time, wall: SystemTime) -> Self {
        Self { time, wall: wall_nanos(wall) }
    }

    /// What this stamp became by the time `now`, had nobody touched the wall clock.
    fn untouched(self, now: Time) -> Self {
        let passed = i64::try_from(now.0.saturating_sub(self.time.0)).unwrap_or(i64::MAX);
        // A clock before all that can be told is still there later.
        let wall = if self.wall == i64::MIN { i64::MIN } else { self.wall.saturating_add(passed) };
        Self { time: now, wall }
    }

    /// How far a wall clock has moved forward since.
    fn moved(self, wall: i64) -> Duration {
        let moved = i128::from(wall) - i128::from(self.wall);
        Duration::from_nanos(u64::try_from(moved).unwrap_or(0))
    }
}

impl Stamps {
    pub(crate) fn new(last: Stamp, above: Stamp) -> Self {
        Self { last, above: Some(above).filter(|above| above.wall > last.wall) }
    }

    /// Where the time goes on at this wall time, if at most `most` counts; never before the last
    /// stamp.
    pub(crate) fn resume(self, wall: i64, most: Duration) -> Time {
        let from = self.above.filter(|above| above.wall <= wall).unwrap_or(self.last);
        // However often a wild clock does this, most of the time to come is left.
        let most = most.min(Time::NEVER.since(from.time) / 4);
        from.time.after(from.moved(wall).min(most)).max(self.last.time)
    }

    /// The stamps after this one.
    pub(crate) fn then(self, next: Stamp) -> Self {
        let passed = [Some(self.last), self.above].into_iter().flatten();
        let above = passed.filter(|stamp| stamp.wall > next.wall).min_by_key(|stamp| stamp.wall);
        Self { last: next, above }
    }

    /// The stamps after this one, taken in the same opening as the last.
    pub(crate) fn later(self, next: Stamp) -> Self {
        Self { last: self.last.untouched(next.time), ..self }.then(next)
    }
}

fn wall_nanos(wall: SystemTime) -> i64 {
    match wall.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_nanos()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |nanos| -nanos),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time: u64, wall: i64) -> Stamp {
        Stamp { time: Time(time), wall }
    }

    fn stamps(time: u64, wall: i64) -> Stamps {
        Stamps { last: at(time, wall), above: None }
    }

    #[test]
    fn time_goes_on_by_what_the_wall_moved() {
        let stamps = stamps(100, 1_000);
        assert_eq!(stamps.resume(1_070, Duration::MAX), Time(170));
        assert_eq!(stamps.resume(1_070, Duration::from_nanos(20)), Time(120));
        assert_eq!(stamps.resume(-5, Duration::MAX), Time(100));
        assert_eq!(stamps.resume(i64::MAX, Duration::MAX), Time(100 + (u64::MAX - 100) / 4));
    }

    #[test]
    fn a_clock_that_went_back_and_is_right_again_counts_once() {
        let back = stamps(100, 1_000).then(at(100, 10)).later(at(130, 40));
        assert_eq!(back.above, Some(at(100, 1_000)));
        assert_eq!(back.resume(1_050, Duration::MAX), Time(150));
        assert_eq!(back.resume(1_020, Duration::MAX), Time(130), "not before the last stamp");
        assert_eq!(back.resume(60, Duration::MAX), Time(150), "still wrong");
        assert_eq!(back.then(at(150, 1_050)).above, None);
    }

    #[test]
    fn a_step_back_while_open_counts_from_where_the_clock_would_be() {
        let back = stamps(100, 1_000).later(at(150, 20));
        assert_eq!(back, Stamps { last: at(150, 20), above: Some(at(150, 1_050)) });
        assert_eq!(back.resume(1_060, Duration::MAX), Time(160));
        let corrected = stamps(100, 1_000).later(at(150, 3_000));
        assert_eq!(corrected, stamps(150, 3_000));
    }

    #[test]
    fn the_nearest_later_stamp_is_kept() {
        let ahead = stamps(100, 9_000).then(at(100, 1_000));
        assert_eq!(ahead.resume(1_100, Duration::MAX), Time(200), "the clock was ahead before");
        let back = ahead.then(at(100, 10));
        assert_eq!(back.above, Some(at(100, 1_000)));
        assert_eq!(back.resume(1_005, Duration::MAX), Time(105));
    }

    #[test]
    fn walls_saturate() {
        let second = Duration::from_secs(1);
        assert_eq!(wall_nanos(SystemTime::UNIX_EPOCH - second), -1_000_000_000);
        let far = Duration::from_secs(1_000 * 365 * 24 * 3600);
        assert_eq!(wall_nanos(SystemTime::UNIX_EPOCH + far), i64::MAX);
        assert_eq!(wall_nanos(SystemTime::UNIX_EPOCH - far), i64::MIN);
        let wild = Stamps::new(at(u64::MAX - 1, i64::MIN), at(0, i64::MAX));
        assert_eq!(wild.resume(i64::MAX, Duration::MAX), Time(u64::MAX - 1));
        assert!(wild.later(at(u64::MAX - 1, i64::MIN)).above.is_some());
        assert_eq!(stamps(100, i64::MIN).later(at(200, i64::MIN)).above, None);
    }
}
