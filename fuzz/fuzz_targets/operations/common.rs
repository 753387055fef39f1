//! What the crash tests need of their surroundings: here the fuzzer makes every choice.

use std::cell::RefCell;
use std::fmt::Debug;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};

use oncedb::Outcome;

thread_local! {
    static INPUT: RefCell<Dice> = const { RefCell::new(Dice { bytes: Vec::new(), used: 0, spare: 0 }) };
}

/// The choices of one history: the fuzzer's bytes, and behind them some that never end, so that every
/// loop that waits for a lucky one does.
#[derive(Clone, Debug)]
pub struct Dice {
    bytes: Vec<u8>,
    used: usize,
    spare: u64,
}

/// The bytes that the next [`Dice`] draws from.
pub fn set_input(bytes: &[u8]) {
    INPUT.set(Dice { bytes: bytes.to_vec(), used: 0, spare: 0 });
}

impl Dice {
    /// The seed has been used by whoever set the input.
    pub fn new(_: u64) -> Self {
        INPUT.with_borrow(Clone::clone)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        let len = match limit {
            0..=0x100 => 1,
            0x101..=0x1_0000 => 2,
            _ => 8,
        };
        self.number(len) % limit
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        // What is in them does not matter to anyone; that they differ does.
        let first = self.number(1);
        (first..).take(len).map(|byte| byte.to_le_bytes()[0]).collect()
    }

    fn number(&mut self, len: usize) -> u64 {
        let Some(bytes) = self.bytes.get(self.used..self.used + len) else {
            self.spare =
                self.spare.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            return self.spare >> 33;
        };
        self.used += len;
        bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }
}

pub fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

pub fn noon() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_hours(490_908)
}

#[track_caller]
pub fn new<N: Debug>(answer: oncedb::Result<Outcome<N>>) -> N {
    match answer {
        Ok(Outcome::New(new)) => new,
        other => panic!("expected New, got {other:?}"),
    }
}
