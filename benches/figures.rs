//! The figures that the design promises, in one table, each beside its aim.

mod common;

use std::time::{Duration, Instant};

use common::{
    BareFile, FRAME_LEN, Fixture, Ids, Remains, be_killed_if_asked, claim_at_once, fill, relaxed, scaled,
};
use oncedb::Store;

/// A figure is the median of so many rounds.
const ROUNDS: usize = 9;

/// Times of single calls.
#[derive(Default)]
struct Times(Vec<Duration>);

impl Times {
    fn take<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let value = call();
        self.0.push(started.elapsed());
        value
    }

    fn percentile(&mut self, percent: usize) -> Duration {
        self.0.sort_unstable();
        self.0[(self.0.len() - 1) * percent / 100]
    }

    /// The median and the 99th percentile.
    fn summary(&mut self) -> String {
        format!("p50 {:.1?}, p99 {:.1?}", self.percentile(50), self.percentile(99))
    }
}

fn row(figure: &str, value: &str, aim: &str, detail: &str) {
    println!("{figure:<38} {value:>16} {aim:>12}   {detail}");
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
fn per_second(count: usize, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64()
}

fn durable_on_one_thread() {
    let (mut bare_file, fixture, mut ids) =
        (BareFile::new(FRAME_LEN), Fixture::new(Store::options()), Ids::new());
    let (mut bare, mut claims, mut ratios) = (Times::default(), Times::default(), Vec::new());
    // In turns, so that both meet the disk in the same moods.
    for _ in 0..ROUNDS {
        let (mut bare_round, mut claims_round) = (Times::default(), Times::default());
        for _ in 0..scaled(1_000) {
            bare_round.take(|| bare_file.write());
            let outcome = claims_round.take(|| fixture.scope.claim(ids.fresh()));
            assert!(outcome.expect("the claim is granted").is_new());
        }
        ratios.push(claims_round.percentile(50).as_secs_f64() / bare_round.percentile(50).as_secs_f64());
        bare.0.append(&mut bare_round.0);
        claims.0.append(&mut claims_round.0);
    }
    row(&format!("bare write and sync of {FRAME_LEN} bytes"), "", "", &bare.summary());
    let ratio = format!("{:.2} x bare", median(ratios));
    row("durable claim, 1 thread", &ratio, "<= 1.25", &claims.summary());
}

fn durable_on_many_threads(threads: usize, aim: &str) {
    let fixture = Fixture::new(Store::options());
    let rounds = scaled(1_000);
    let rates = (0..ROUNDS).map(|_| {
        let time = claim_at_once(&fixture.scope, threads, rounds as u64);
        per_second(threads * rounds, time)
    });
    let rate = median(rates.collect());
    let stats = fixture.store.stats();
    let detail = format!(
        "{:.0} claims a sync; sync p50 {:.0?}, p99 {:.0?}",
        stats.claims_per_sync, stats.sync_latency_p50, stats.sync_latency_p99
    );
    row(&format!("durable claim, {threads} threads"), &format!("{rate:.0} /s"), aim, &detail);
}

fn claim_many() {
    let (fixture, mut ids, count) = (Fixture::new(Store::options()), Ids::new(), scaled(1_000));
    let mut times = Times::default();
    for _ in 0..scaled(500) {
        let batch = ids.many(count);
        let outcomes = times.take(|| fixture.scope.claim_many(batch)).expect("the claims are granted");
        assert!(outcomes.iter().all(oncedb::Outcome::is_new));
    }
    let rate = format!("{:.0} /s", per_second(count, times.percentile(50)));
    row(&format!("claim_many of {count}"), &rate, "> 500000 /s", &times.summary());
    let overall = per_second(times.0.len() * count, times.0.iter().sum());
    row("  flushes and merges included", &format!("{overall:.0} /s"), "", "");
}

fn duplicate_in_memory() {
    let (fixture, mut ids, count) = (Fixture::new(Store::options()), Ids::new(), scaled(1_000));
    fill(&fixture.scope, &mut ids, count);
    let mut times = Times::default();
    for _ in 0..scaled(1_000) {
        times.take(|| {
            for number in 1..=count as u64 {
                assert!(fixture.scope.claim(ids.nth(number)).expect("a verdict").is_duplicate());
            }
        });
    }
    let one = times.percentile(50) / u32::try_from(count).expect("a small number");
    row("duplicate in memory", &format!("{one:.0?}"), "< 500 ns", "");
}

fn claim_without_waiting() {
    let (fixture, mut ids) = (Fixture::new(relaxed()), Ids::new());
    let mut times = Times::default();
    for _ in 0..scaled(100_000) {
        let outcome = times.take(|| fixture.scope.claim(ids.fresh()));
        assert!(outcome.expect("the claim is granted").is_new());
    }
    row("claim without waiting for the sync", &format!("{:.0?}", times.percentile(50)), "", &times.summary());
}

fn reopen() {
    let keys = scaled(1_000_000);
    for (place, memory_limit, aim) in
        [("most in runs", 64 << 20, "< 500 ms"), ("all in the journal", 1 << 30, "")]
    {
        let remains = Remains::of(keys, memory_limit);
        let mut times = Times::default();
        for _ in 0..scaled(ROUNDS).min(5) {
            let dir = remains.copy();
            let options = Store::options().memory_limit(memory_limit);
            let store = times.take(|| options.open(dir.path())).expect("the store opens");
            drop(store);
        }
        let detail = format!("{keys} keys, {place}");
        row("open after a kill", &format!("{:.0?}", times.percentile(50)), aim, &detail);
    }
}

fn main() {
    be_killed_if_asked();
    row("figure", "measured", "aim", "");
    durable_on_one_thread();
    durable_on_many_threads(8, "");
    durable_on_many_threads(64, "> 50000 /s");
    claim_many();
    claim_without_waiting();
    duplicate_in_memory();
    reopen();
}
