//! Time that passes only when the scheduler says so.
//!
//! A wait with a deadline sets an alarm. While there are alarms, a thread of their own, the hand of the
//! clock, sets one off now and then: a few per execution at any point whatever, and otherwise only when
//! no other thread can run. Whichever it picks, the time jumps to its deadline. So a timed wait may end
//! too late or just as it is woken, but rounds that only time drives cannot keep the others from going
//! on. After [`MOST`] alarms in a row the hand stops for good, and shuttle reports the threads that are
//! left as a deadlock.

use std::cell::RefCell;
use std::ops::Add;
use std::sync::Arc;
use std::time::Duration;

use shuttle::current::context_switches;
use shuttle::future::batch_semaphore::BatchSemaphore;
use shuttle::rand::{Rng, thread_rng};

/// Alarms of one execution that go off although others can run.
const EAGER: u32 = 6;

/// One in how many turns of the hand sets off an eager one.
const RARELY: u32 = 16;

/// Turns in a row after which nobody else can run.
const QUIET: u32 = 12;

/// Alarms after which nothing but time moves.
const MOST: u32 = 400;

thread_local! {
    // All executions of a test run on one thread, one after the other.
    static TIME: RefCell<Time> = const { RefCell::new(Time::new()) };
}

struct Time {
    now: Duration,
    alarms: Vec<(u64, Instant, Arc<BatchSemaphore>)>,
    next: u64,
    running: bool,
}

impl Time {
    const fn new() -> Self {
        Self { now: Duration::ZERO, alarms: Vec::new(), next: 0, running: false }
    }
}

/// A moment of the modelled time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Instant(Duration);

impl Instant {
    pub(crate) fn now() -> Self {
        Self(TIME.with_borrow(|time| time.now))
    }

    pub(crate) fn elapsed(self) -> Duration {
        Self::now().saturating_duration_since(self)
    }

    pub(crate) fn saturating_duration_since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    pub(crate) fn checked_add(self, by: Duration) -> Option<Self> {
        self.0.checked_add(by).map(Self)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, by: Duration) -> Self {
        Self(self.0 + by)
    }
}

/// Opens a gate once when its time has come, unless it is dropped first.
pub(super) struct Alarm(u64);

impl Alarm {
    pub(super) fn set(at: Instant, gate: Arc<BatchSemaphore>) -> Self {
        let (number, idle) = TIME.with_borrow_mut(|time| {
            time.next += 1;
            time.alarms.push((time.next, at, gate));
            (time.next, !std::mem::replace(&mut time.running, true))
        });
        if idle {
            shuttle::thread::Builder::new().name("clock".into()).spawn(turn).expect("a modelled thread");
        }
        Self(number)
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        TIME.with_borrow_mut(|time| time.alarms.retain(|(number, ..)| *number != self.0));
    }
}

/// The hand of the clock.
fn turn() {
    let (mut eager, mut rung, mut alone) = (EAGER, 0, 0);
    loop {
        let before = context_switches();
        shuttle::thread::yield_now();
        if TIME.with_borrow(|time| time.alarms.is_empty()) || rung == MOST {
            TIME.with_borrow_mut(|time| time.running = rung == MOST);
            return;
        }
        alone = if context_switches() == before + 1 { alone + 1 } else { 0 };
        let forced = alone == QUIET;
        if forced {
            rung += 1;
        } else if eager > 0 && thread_rng().gen_ratio(1, RARELY) {
            eager -= 1;
        } else {
            continue;
        }
        alone = 0;
        let gate = TIME.with_borrow_mut(|time| {
            let chosen = thread_rng().gen_range(0..time.alarms.len());
            let (_, at, gate) = time.alarms.swap_remove(chosen);
            time.now = time.now.max(at.0);
            gate
        });
        gate.release_no_scheduling_point(1);
    }
}
