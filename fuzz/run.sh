#!/usr/bin/env bash
# Fuzzes each target for so many seconds: fuzz/run.sh [seconds [target...]]; all targets if none is named.
# ONCEDB_SEED repeats the choices of a run that found something; FUZZ_SANITIZER=address adds a sanitizer.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-60}
targets=("${@:2}")
if [ ${#targets[@]} -eq 0 ]; then
    targets=(frames run responses record reply catalog operations)
fi

# What libFuzzer is to see: edges, and both sides of comparisons; each once, so in one unit a crate.
flags="--cfg fuzzing -Ccodegen-units=1 -Cdebug-assertions -Cpasses=sancov-module -Cllvm-args=-simplifycfg-branch-fold-threshold=0"
for part in level=4 inline-8bit-counters pc-table trace-compares; do
    flags+=" -Cllvm-args=-sanitizer-coverage-$part"
done
if [ -n "${FUZZ_SANITIZER:-}" ]; then
    flags+=" -Zsanitizer=$FUZZ_SANITIZER"
fi
# With a target named, build scripts and macros are not instrumented.
host=$(rustc +nightly -vV | sed -n 's/^host: //p')
RUSTFLAGS=$flags cargo +nightly build --locked --release --manifest-path fuzz/Cargo.toml \
    --target "$host" --target-dir target/fuzz "${targets[@]/#/--bin=}"
binaries=target/fuzz/$host/release

# libFuzzer takes 32 bits, and 0 for a seed of its own.
seed=${ONCEDB_SEED:-$((RANDOM * 32768 + RANDOM + 1))}
echo "ONCEDB_SEED=$seed"

for target in "${targets[@]}"; do
    # Short inputs first, but where a short one does not say much.
    lengths=(-max_len=4096)
    case $target in
        operations) lengths=(-max_len=1024 -len_control=0) ;;
        catalog) lengths=(-max_len=1024 -len_control=0) ;;
        frames | run) lengths=(-max_len=16384) ;;
    esac
    found=fuzz/artifacts/$target
    mkdir -p "fuzz/corpus/$target" "$found"
    log=$found/log
    if "$binaries/$target" "fuzz/corpus/$target" "fuzz/seeds/$target" \
        -seed="$seed" -max_total_time="$seconds" "${lengths[@]}" -timeout=60 \
        -rss_limit_mb=1024 -malloc_limit_mb=64 -artifact_prefix="$found/" -print_final_stats=1 >"$log" 2>&1; then
        executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
        coverage=$(grep -o 'cov: [0-9]* ft: [0-9]*' "$log" | tail -1)
        echo "$target: $executions executions in $seconds s, ${coverage:-no coverage told}, nothing found"
    else
        tail -60 "$log"
        echo "$target: found something; again: $binaries/$target $found/<file>" >&2
        exit 1
    fi
done
