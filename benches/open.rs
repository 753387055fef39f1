//! How long it takes to open a store again whose process was killed.

mod common;

use std::time::Duration;

use common::{Remains, be_killed_if_asked, scaled};
use criterion::{BatchSize, Criterion};
use oncedb::Store;

fn reopen(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("open after a kill");
    let keys = scaled(1_000_000);
    // By default most keys are in runs by then; with enough memory all are still in the journal.
    for (place, memory_limit) in [("most in runs", 64 << 20), ("all in the journal", 1 << 30)] {
        let remains = Remains::of(keys, memory_limit);
        group.bench_function(format!("{keys} keys, {place}"), |bencher| {
            bencher.iter_batched(
                || remains.copy(),
                |dir| {
                    let store = Store::options().memory_limit(memory_limit).open(dir.path());
                    // Both are dropped outside of the measurement.
                    (store.expect("the store opens"), dir)
                },
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

fn main() {
    be_killed_if_asked();
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(1))
        .measurement_time(Duration::from_secs(5))
        .sample_size(10)
        .configure_from_args();
    reopen(&mut criterion);
    criterion.final_summary();
}
