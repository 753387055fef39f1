//! What it costs to claim, to complete and to move a mark; and a bare write and sync beside it.

mod common;

use std::time::Duration;

use common::{BareFile, FRAME_LEN, Fixture, Ids, claim_at_once, relaxed, scaled};
use criterion::measurement::WallTime;
use criterion::{BatchSize, BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use oncedb::{Advance, Store, Timestamp};

/// The bare disk, and what waits for it: durable on return.
fn durable(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("durable");
    group.throughput(Throughput::Elements(1));
    for len in [64, FRAME_LEN] {
        let mut file = BareFile::new(len);
        group.bench_function(format!("bare write and sync of {len} bytes"), |bencher| {
            bencher.iter(|| file.write());
        });
    }
    for threads in [1, 8, 64] {
        let fixture = Fixture::new(Store::options());
        // A round is one claim of every thread.
        group.throughput(Throughput::Elements(threads as u64));
        group.bench_function(format!("claim on {threads} threads"), |bencher| {
            bencher.iter_custom(|rounds| claim_at_once(&fixture.scope, threads, rounds));
        });
    }
    claim_many(&mut group, &Fixture::new(Store::options()));
    group.throughput(Throughput::Elements(1));
    begin_and_complete(&mut group, &Fixture::new(Store::options()));
    advance(&mut group, &Fixture::new(Store::options()));
    group.finish();
}

/// The same without the wait: synced in the background.
fn relaxed_claims(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("interval");
    group.throughput(Throughput::Elements(1));
    let (fixture, mut ids) = (Fixture::new(relaxed()), Ids::new());
    group.bench_function("claim", |bencher| {
        bencher.iter(|| assert!(fixture.scope.claim(ids.fresh()).expect("the claim is granted").is_new()));
    });
    begin_and_complete(&mut group, &fixture);
    advance(&mut group, &fixture);
    claim_many(&mut group, &fixture);
    group.finish();
}

fn claim_many(group: &mut BenchmarkGroup<'_, WallTime>, fixture: &Fixture) {
    let (count, mut ids) = (scaled(1_000), Ids::new());
    group.throughput(Throughput::Elements(count as u64));
    group.bench_function(format!("claim_many of {count}"), |bencher| {
        bencher.iter_batched(
            || ids.many(count),
            |ids| fixture.scope.claim_many(ids).expect("the claims are granted"),
            BatchSize::LargeInput,
        );
    });
}

fn begin_and_complete(group: &mut BenchmarkGroup<'_, WallTime>, fixture: &Fixture) {
    let mut ids = Ids::new();
    group.bench_function("begin and complete", |bencher| {
        bencher.iter(|| {
            let begun = fixture.scope.begin(ids.fresh()).expect("the claim is granted");
            begun.into_new().expect("the id is new").complete().expect("the claim is completed");
        });
    });
}

fn advance(group: &mut BenchmarkGroup<'_, WallTime>, fixture: &Fixture) {
    let mut number = 0;
    group.bench_function("advance", |bencher| {
        bencher.iter(|| {
            number += 1;
            let advanced = fixture.scope.advance("sub_1", Timestamp::sequence(number));
            assert!(matches!(advanced, Ok(Advance::Applied)));
        });
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(4))
        .sample_size(30);
    targets = durable, relaxed_claims
}
criterion_main!(benches);
