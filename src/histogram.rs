//! A latency histogram of atomic counters.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::nanos;

/// Sub-buckets an octave: a value is known to within an eighth of itself.
const STEPS: u32 = 8;
const BUCKETS: usize = 64 * STEPS as usize;

/// Counts durations in buckets that grow with the duration.
#[derive(Debug)]
pub(crate) struct Histogram {
    counts: Box<[AtomicU64]>,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect() }
    }
}

fn bucket_of(value: u64) -> usize {
    let octave = value.max(1).ilog2();
    // The three bits after the highest one.
    let step = if octave < 3 { (value << (3 - octave)) & 7 } else { (value >> (octave - 3)) & 7 };
    (octave * STEPS) as usize + usize::try_from(step).unwrap_or(0)
}

/// The highest value that falls into a bucket.
fn bucket_end(bucket: usize) -> u64 {
    let octave = bucket / STEPS as usize;
    let step = (bucket % STEPS as usize) as u128;
    let end = ((8 + step + 1) << octave).div_ceil(8);
    u64::try_from(end.saturating_sub(1)).unwrap_or(u64::MAX)
}

impl Histogram {
    pub(crate) fn record(&self, duration: Duration) {
        if let Some(count) = self.counts.get(bucket_of(nanos(duration))) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The duration that `percent` of the recorded ones do not exceed, rounded up by at most an
    /// eighth; zero if nothing was recorded.
    pub(crate) fn percentile(&self, percent: f64) -> Duration {
        let counts: Vec<u64> = self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let total: u64 = counts.iter().sum();
        if total == 0 {
            return Duration::ZERO;
        }
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rank among counts, clamped right after"
        )]
        let rank = ((total as f64 * percent / 100.0).ceil() as u64).clamp(1, total);
        let mut seen = 0;
        for (bucket, count) in counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Duration::from_nanos(bucket_end(bucket));
            }
        }
        Duration::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_within_an_eighth() {
        let histogram = Histogram::default();
        assert_eq!(histogram.percentile(50.0), Duration::ZERO);
        for micros in 1..=1_000 {
            histogram.record(Duration::from_micros(micros));
        }
        for (percent, expected) in [(50.0, 500.0), (99.0, 990.0), (100.0, 1_000.0)] {
            let micros = histogram.percentile(percent).as_secs_f64() * 1e6;
            assert!(micros >= expected && micros <= expected * 1.126, "{percent} %: {micros}");
        }
    }

    #[test]
    fn every_value_has_a_bucket() {
        for value in [0, 1, 2, 7, 8, 9, u64::MAX] {
            let bucket = bucket_of(value);
            assert!(bucket < BUCKETS && bucket_end(bucket) >= value, "{value}");
        }
    }
}
