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

/// A bucket whose files go over into another one, which ends later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fold {
    pub(crate) from: u64,
    pub(crate) into: u64,
    pub(crate) end: Time,
}

/// Chooses a bucket for each record of a flush.
#[derive(Debug)]
pub(crate) struct Placement {
    by_end: BTreeMap<Time, u64>,
    next_id: u64,
    now: Time,
    folds: Vec<Fold>,
}

impl Placement {
    pub(crate) fn new(buckets: &[Bucket], next_id: u64, now: Time) -> Self {
        let by_end = buckets.iter().map(|bucket| (bucket.end, bucket.id)).collect();
        Self { by_end, next_id, now, folds: Vec::new() }
    }

    /// The bucket for a record. Beyond [`MAX_BUCKETS`] the two that lie closest together, for the
    /// time that is left to them, become one: nothing is kept much longer than it must be.
    pub(crate) fn place(&mut self, purge_at: Time) -> u64 {
        let end = end_for(purge_at, self.now);
        if let Some(&id) = self.by_end.get(&end) {
            return id;
        }
        if self.by_end.len() < MAX_BUCKETS || end == Time::NEVER {
            return self.add(end);
        }
        let (earlier, later) = self.closest(end);
        let earlier_id = self.by_end.get(&earlier).copied();
        let later_id = self.by_end.get(&later).copied();
        match (earlier_id, later_id) {
            (None, Some(into)) => into,
            (Some(from), into) => {
                self.by_end.remove(&earlier);
                let id = self.add(end);
                let into = into.unwrap_or(id);
                self.folds.push(Fold { from, into, end: later });
                id
            }
            (None, None) => self.add(end),
        }
    }

    fn add(&mut self, end: Time) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.by_end.insert(end, id);
        id
    }

    /// The two neighbouring ends, with a new one among them, of which waiting for the later adds
    /// least to what is left until the earlier.
    fn closest(&self, new: Time) -> (Time, Time) {
        let mut ends: Vec<Time> = self.by_end.range(..Time::NEVER).map(|(&end, _)| end).collect();
        ends.insert(ends.partition_point(|end| *end < new), new);
        let left = |end: Time| u128::from(end.0.saturating_sub(self.now.0));
        let mut closest = (Time(0), Time::NEVER);
        for pair in ends.windows(2) {
            let pair = (pair[0], pair[1]);
            if left(pair.1) * left(closest.0) < left(closest.1) * left(pair.0) || closest.0 == Time(0) {
                closest = pair;
            }
        }
        closest
    }

    /// The bucket that a place became by what was folded after it.
    pub(crate) fn resolve(&self, id: u64) -> u64 {
        self.folds.iter().fold(id, |id, fold| if fold.from == id { fold.into } else { id })
    }

    /// The end of each bucket, what is folded, in order, and the next free id.
    pub(crate) fn finish(self) -> (BTreeMap<u64, Time>, Vec<Fold>, u64) {
        (self.by_end.into_iter().map(|(end, id)| (id, end)).collect(), self.folds, self.next_id)
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
            let placed: Vec<_> = placed.into_iter().map(|(at, id)| (at, placement.resolve(id))).collect();
            let (ends, folds, _) = placement.finish();
            prop_assert!(ends.len() <= MAX_BUCKETS);
            prop_assert!(folds.iter().all(|fold| !ends.contains_key(&fold.from)));
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
    fn short_lives_are_not_put_to_the_long_ones_when_there_are_too_many() {
        let mut placement = Placement::new(&[], 1, Time(0));
        let places: Vec<_> =
            (0..2_000).map(|day| placement.place(Time((40 + day) * 86_400 * SECOND))).collect();
        for minutes in [1, 2, 4, 60] {
            let life = Time(minutes * NARROWEST);
            let short = placement.place(life);
            assert!(places.iter().all(|&long| placement.resolve(long) != short));
            assert_eq!(placement.by_end.first_key_value(), Some((&end_for(life, Time(0)), &short)));
            placement.by_end.pop_first();
        }
        let ends: Vec<_> = placement.by_end.keys().collect();
        assert!(ends.windows(2).all(|pair| pair[1].0 < pair[0].0 / 2 * 3), "evenly, for the time left");
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
