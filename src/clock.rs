//! Clocks, and the timeline a store derives from them.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

use crate::stamp::{Stamp, Stamps};

/// Where a store reads the time.
///
/// A store takes the wall clock once, when it opens, and then goes forward with
/// [`elapsed`](Clock::elapsed), so a step of the wall clock neither expires nor revives a key.
pub trait Clock: Send + Sync + 'static {
    /// The time of day. It may be stepped in either direction at any moment.
    fn wall(&self) -> SystemTime;

    /// The time since some fixed moment. It counts through suspend, never goes back and is never
    /// stepped.
    fn elapsed(&self) -> Duration;
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn wall(&self) -> SystemTime {
        (**self).wall()
    }

    fn elapsed(&self) -> Duration {
        (**self).elapsed()
    }
}

/// The machine's clock: the time of day, and the time since boot (suspended time included where
/// the system offers such a clock).
///
/// ```
/// use oncedb::{Clock, SystemClock};
///
/// let clock = SystemClock::default();
/// assert!(clock.elapsed() <= clock.elapsed());
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct SystemClock;

impl Clock for SystemClock {
    fn wall(&self) -> SystemTime {
        SystemTime::now()
    }

    fn elapsed(&self) -> Duration {
        #[cfg(target_os = "linux")]
        const BOOT_TIME: rustix::time::ClockId = rustix::time::ClockId::Boottime;
        #[cfg(not(target_os = "linux"))]
        const BOOT_TIME: rustix::time::ClockId = rustix::time::ClockId::Monotonic;
        let time = rustix::time::clock_gettime(BOOT_TIME);
        let (secs, nanos) = (time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0));
        Duration::new(secs, nanos)
    }
}

/// A clock that stands still until it is told to move, for tests. Clones share one time.
///
/// ```
/// use oncedb::{Clock, ManualClock};
/// use std::time::{Duration, SystemTime};
///
/// let clock = ManualClock::new(SystemTime::UNIX_EPOCH);
/// clock.advance(Duration::from_secs(60));
/// assert_eq!(clock.elapsed(), Duration::from_secs(60));
/// clock.step_wall(-3_600);
/// assert_eq!(clock.elapsed(), Duration::from_secs(60));
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock {
    time: Arc<Mutex<Manual>>,
}

#[derive(Debug)]
struct Manual {
    wall: SystemTime,
    elapsed: Duration,
}

impl ManualClock {
    /// A clock that shows `at`.
    #[must_use]
    pub fn new(at: SystemTime) -> Self {
        Self { time: Arc::new(Mutex::new(Manual { wall: at, elapsed: Duration::ZERO })) }
    }

    /// Lets time pass: moves both the wall clock and the elapsed time. Saturates at the last
    /// representable moment.
    pub fn advance(&self, by: Duration) {
        let mut time = self.time.lock();
        time.elapsed = time.elapsed.saturating_add(by);
        time.wall = time.wall.checked_add(by).unwrap_or(time.wall);
    }

    /// Steps only the wall clock, as an operator or a time server would. A step past what can be
    /// represented is ignored.
    pub fn step_wall(&self, seconds: i64) {
        let by = Duration::from_secs(seconds.unsigned_abs());
        let mut time = self.time.lock();
        let stepped = if seconds < 0 { time.wall.checked_sub(by) } else { time.wall.checked_add(by) };
        time.wall = stepped.unwrap_or(time.wall);
    }
}

impl Clock for ManualClock {
    fn wall(&self) -> SystemTime {
        self.time.lock().wall
    }

    fn elapsed(&self) -> Duration {
        self.time.lock().elapsed
    }
}

/// A moment on a store's own timeline, in nanoseconds. It begins at the wall time of the store's
/// creation and only ever goes forward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Time(pub(crate) u64);

impl Time {
    /// Later than every moment a store lives to see.
    pub(crate) const NEVER: Self = Self(u64::MAX);

    /// The wall clock's reading as the first moment of a store; the first or middle one of all
    /// where it is before or after, so that there is time to come whatever the clock says.
    pub(crate) fn from_wall(wall: SystemTime) -> Self {
        match wall.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(since) => Self(nanos(since).min(u64::MAX / 2)),
            Err(_) => Self(0),
        }
    }

    /// `self + by`, at most the moment before [`NEVER`](Self::NEVER).
    pub(crate) fn after(self, by: Duration) -> Self {
        Self(self.0.saturating_add(nanos(by)).min(u64::MAX - 1))
    }

    /// `self - by`, at least the first moment.
    pub(crate) fn before(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(by)))
    }

    /// How long it is from `earlier` to here; zero if that is later.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// A duration in nanoseconds, saturating.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The running time of one open store.
pub(crate) struct Timeline {
    clock: Arc<dyn Clock>,
    start: Time,
    start_elapsed: Duration,
    opened: Stamps,
}

impl fmt::Debug for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timeline").field("now", &self.now()).finish_non_exhaustive()
    }
}

impl Timeline {
    /// A timeline that goes on from `before` and stands at `start` now.
    pub(crate) fn starting_at(start: Time, before: Stamps, clock: Arc<dyn Clock>) -> Self {
        let start_elapsed = clock.elapsed();
        let opened = before.then(Stamp::new(start, clock.wall()));
        Self { clock, start, start_elapsed, opened }
    }

    /// What the next open is to go on from.
    pub(crate) fn stamps(&self) -> Stamps {
        self.opened.later(Stamp::new(self.now(), self.clock.wall()))
    }

    /// The present moment.
    pub(crate) fn now(&self) -> Time {
        self.start.after(self.clock.elapsed().saturating_sub(self.start_elapsed))
    }

    /// The wall clock's reading.
    pub(crate) fn wall(&self) -> SystemTime {
        self.clock.wall()
    }

    /// What maps moments to the wall clock as it is set now.
    pub(crate) fn mapping(&self) -> WallMapping {
        WallMapping { now: self.now(), wall: self.clock.wall() }
    }
}

/// One moment and the wall time that went with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WallMapping {
    pub(crate) now: Time,
    pub(crate) wall: SystemTime,
}

impl WallMapping {
    /// The wall time of a moment; the present reading where it cannot be represented.
    pub(crate) fn wall_of(self, time: Time) -> SystemTime {
        let mapped = if time >= self.now {
            self.wall.checked_add(time.since(self.now))
        } else {
            self.wall.checked_sub(self.now.since(time))
        };
        mapped.unwrap_or(self.wall)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wall_step_does_not_move_the_timeline() {
        let clock = ManualClock::new(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000));
        let start = Time::from_wall(clock.wall());
        let stamps = Stamps { last: Stamp::new(start, clock.wall()), above: None };
        let line = Timeline::starting_at(start, stamps, Arc::new(clock.clone()));
        let before = line.now();
        clock.step_wall(-500);
        assert_eq!(line.now(), before);
        clock.step_wall(i64::MAX);
        clock.advance(Duration::from_secs(1));
        assert_eq!(line.now(), before.after(Duration::from_secs(1)));
    }

    #[test]
    fn times_saturate() {
        let last = Time::NEVER.after(Duration::MAX);
        assert!(last < Time::NEVER);
        assert_eq!(Time(5).since(Time(9)), Duration::ZERO);
        assert_eq!(Time::from_wall(SystemTime::UNIX_EPOCH - Duration::from_secs(1)), Time(0));
        let mapping = WallMapping { now: Time(10), wall: SystemTime::UNIX_EPOCH };
        assert_eq!(mapping.wall_of(Time(10)), SystemTime::UNIX_EPOCH);
        assert_eq!(mapping.wall_of(Time(4)), SystemTime::UNIX_EPOCH - Duration::from_nanos(6));
    }
}
