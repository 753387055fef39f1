//! Buckets: records that expire together live together, so that expiry is removing files.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::responses::ResponseFile;
use super::run::Run;
use crate::clock::{Time, nanos};

/// The most buckets there are; more would make every lookup slower.
pub(crate) const MAX_BUCKETS: usize = 64;

/// Runs of about one size that are merged into one; also the factor between sizes.
const FAN_IN: usize = 8;

const NARROWEST: u64 = 60 * 1_000_000_000;

/// Runs and response files whose last record has expired at `end`.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    pub(crate) id: u64,
    /// No record in it outlives this.
    pub(crate) end: Time,
    pub(crate) runs: Vec<Arc<Run>>,
    pub(crate) responses: Vec<Arc<ResponseFile>>,
}

impl Bucket {
    /// Whether every record has expired, which may be before the bucket's end.
    pub(crate) fn is_over(&self, now: Time) -> bool {
        self.runs.iter().all(|run| run.summary().last_purge <= now)
    }

    /// The runs to merge next, if any: too many of about one size, or all that are left once the
    /// bucket gets no more (`idle_since` is newer than all it holds).
    pub(crate) fn to_merge(&self, idle_since: u64) -> Option<Vec<Arc<Run>>> {
        let mut tiers: BTreeMap<u32, Vec<Arc<Run>>> = BTreeMap::new();
        for run in &self.runs {
            let tier = run.summary().records.max(1).ilog2() / FAN_IN.ilog2();
            tiers.entry(tier).or_default().push(Arc::clone(run));
        }
        if let Some(crowded) = tiers.into_values().find(|runs| runs.len() >= FAN_IN) {
            return Some(crowded);
        }
        let idle = self.runs.iter().all(|run| run.summary().max_seq < idle_since);
        (idle && self.runs.len() > 1).then(|| self.runs.clone())
    }
}

/// How wide the bucket of a record is that has `left` to live: a power of two of seconds, about a
/// 24th of it, at least a minute.
fn width(left: Duration) -> u64 {
    const SECOND: u64 = 1_000_000_000;
    let seconds = left.as_secs().max(1).checked_next_power_of_two().unwrap_or(1 << 62);
    (seconds / 32).saturating_mul(SECOND).max(NARROWEST)
}

/// The end of the bucket that a record belongs into.
fn end_for(purge_at: Time, now: Time) -> Time {
    if purge_at == Time::NEVER {
        return Time::NEVER;
    }
    let width = width(purge_at.since(now));
    Time(purge_at.0.checked_next_multiple_of(width).unwrap_or(u64::MAX - 1).min(u64::MAX - 1))
}

/// Chooses a bucket for each record of a flush.
#[derive(Debug)]
pub(crate) struct Placement {
    by_end: BTreeMap<Time, u64>,
    next_id: u64,
    now: Time,
}

impl Placement {
    pub(crate) fn new(buckets: &[Bucket], next_id: u64, now: Time) -> Self {
        let by_end = buckets.iter().map(|bucket| (bucket.end, bucket.id)).collect();
        Self { by_end, next_id, now }
    }

    /// The bucket for a record; beyond [`MAX_BUCKETS`] the next later one there is, or the last one,
    /// which then ends later.
    pub(crate) fn place(&mut self, purge_at: Time) -> u64 {
        let end = end_for(purge_at, self.now);
        if let Some(&id) = self.by_end.get(&end) {
            return id;
        }
        if self.by_end.len() >= MAX_BUCKETS && end != Time::NEVER {
            if let Some((_, &id)) = self.by_end.range(end..Time::NEVER).next() {
                return id;
            }
            if let Some((&last, &id)) = self.by_end.range(..Time::NEVER).next_back() {
                self.by_end.remove(&last);
                self.by_end.insert(end, id);
                return id;
            }
        }
        let id = self.next_id;
        self.next_id += 1;
        self.by_end.insert(end, id);
        id
    }

    /// The end of each bucket, and the next free id.
    pub(crate) fn finish(self) -> (BTreeMap<u64, Time>, u64) {
        (self.by_end.into_iter().map(|(end, id)| (id, end)).collect(), self.next_id)
    }
}

/// How many of `done` records whose expiries lie evenly between `first` and `last` are alive.
pub(crate) fn alive(done: u64, first: Time, last: Time, now: Time) -> u64 {
    if last <= now {
        return 0;
    }
    if first > now {
        return done;
    }
    let (left, whole) = (nanos(last.since(now)), nanos(last.since(first)).max(1));
    u64::try_from(u128::from(done) * u128::from(left) / u128::from(whole)).unwrap_or(done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    proptest! {
        #[test]
        fn a_record_never_outlives_its_bucket(lives in vec(1..u64::MAX / 2, 1..300), now in 0..u64::MAX / 2) {
            let mut placement = Placement::new(&[], 1, Time(now));
            let placed: Vec<_> =
                lives.iter().map(|left| (now + left, placement.place(Time(now + left)))).collect();
            let (ends, _) = placement.finish();
            prop_assert!(ends.len() <= MAX_BUCKETS);
            for (purge_at, id) in placed {
                prop_assert!(ends[&id] >= Time(purge_at));
            }
        }
    }

    #[test]
    fn a_day_has_about_24_buckets() {
        let day = 24 * 3600 * SECOND;
        let mut placement = Placement::new(&[], 1, Time(0));
        for second in 0..24 * 3600 {
            placement.now = Time(second * SECOND);
            placement.place(Time(second * SECOND + day));
        }
        let count = placement.finish().0.len();
        assert!((20..=26).contains(&count), "{count}");
    }

    #[test]
    fn what_never_expires_lives_apart() {
        let mut placement = Placement::new(&[], 1, Time(0));
        let never = placement.place(Time::NEVER);
        assert_ne!(never, placement.place(Time(SECOND)));
        assert_eq!(never, placement.place(Time::NEVER));
    }

    #[test]
    fn the_living_are_estimated_between_exact_ends() {
        assert_eq!(alive(100, Time(10), Time(20), Time(9)), 100);
        assert_eq!(alive(100, Time(10), Time(20), Time(15)), 50);
        assert_eq!(alive(100, Time(10), Time(20), Time(20)), 0);
    }
}
