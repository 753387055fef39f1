//! What it costs to find an id again, in memory and in runs, and to find that it is nowhere.

mod common;

use std::hint::black_box;
use std::time::{Duration, SystemTime};

use common::{Fixture, Ids, fill, relaxed, scaled};
use criterion::{Criterion, criterion_group, criterion_main};
use oncedb::ManualClock;

const KEYS: usize = 100_000;
const BUCKETS: usize = 25;

/// Visits numbers below `count` in an order that no cache foresees.
fn scattered(number: &mut u64, count: usize) -> u64 {
    *number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    1 + (*number >> 33) % count as u64
}

fn duplicates(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("duplicate");
    let (fixture, mut ids, keys) = (Fixture::new(relaxed()), Ids::new(), scaled(KEYS));
    let mut number = 0;
    fill(&fixture.scope, &mut ids, keys);
    fixture.store.sync().expect("the claims are durable");
    group.bench_function("in memory, claim", |bencher| {
        bencher.iter(|| {
            let id = ids.nth(scattered(&mut number, keys));
            assert!(fixture.scope.claim(id).expect("a verdict").is_duplicate());
        });
    });
    group.bench_function("in memory, contains", |bencher| {
        bencher.iter(|| {
            let id = ids.nth(scattered(&mut number, keys));
            assert!(fixture.scope.contains(id).expect("an answer"));
        });
    });
    let done = fixture.store.maintain().expect("the states are flushed");
    assert_eq!(done.flushed, keys as u64);
    group.bench_function("in a run, claim", |bencher| {
        bencher.iter(|| {
            let id = ids.nth(scattered(&mut number, keys));
            assert!(fixture.scope.claim(id).expect("a verdict").is_duplicate());
        });
    });
    group.finish();
}

fn absences(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("absent");
    // A bucket is about 68 minutes wide for this window, so that every fill gets its own.
    let clock = ManualClock::new(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000));
    let window = Duration::from_secs(30 * 3600);
    let fixture = Fixture::new(relaxed().window(window).clock(clock.clone()));
    let mut ids = Ids::new();
    for bucket in 0..BUCKETS {
        if bucket > 0 {
            clock.advance(Duration::from_secs(70 * 60));
        }
        fill(&fixture.scope, &mut ids, scaled(1_000_000) / BUCKETS);
        fixture.store.maintain().expect("the states are flushed");
    }
    assert!(fixture.store.stats().runs >= BUCKETS as u64);
    let mut others = Ids::new();
    group.bench_function(format!("contains over {BUCKETS} buckets"), |bencher| {
        bencher.iter(|| {
            // A filter may claim one of several thousand.
            black_box(fixture.scope.contains(others.fresh()).expect("an answer"))
        });
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(3))
        .sample_size(30);
    targets = duplicates, absences
}
criterion_main!(benches);
