#!/usr/bin/env bash
# Builds the targets of libFuzzer with clang, and runs each over seeds from samples/, from the corpus
# of tests/hostile and from what was found before (tests/fuzz/found/TARGET).
#   tests/fuzz/fuzz.sh [SECONDS] [TARGET...]      60 seconds each; targets as in fuzz_TARGET.c
# What is found is kept in build/fuzz/found/TARGET: copy it to tests/fuzz/found when it is mended.
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=${1:-60}
shift || true
command -v clang >/dev/null || { echo "install clang and its libFuzzer: apt-get install clang libclang-rt-14-dev" >&2; exit 1; }
build=build/fuzz
CC=clang cmake -S . -B $build -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DEBB_FUZZ=ON \
    -DEBB_TESTS=OFF -DEBB_CUDA=OFF -DEBB_NATIVE=OFF >/dev/null
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
    for file in tests/fuzz/fuzz_*.c; do
        name=$(basename "$file" .c)
        targets+=("${name#fuzz_}")
    done
fi
cmake --build $build --target "${targets[@]/#/fuzz_}" write_corpus >/dev/null

seeds=$build/seeds
mkdir -p $seeds
$build/tests/fuzz/write_corpus $seeds
find samples -name '*.onnx' -size -64k -exec cp {} $seeds/ \;

status=0
for target in "${targets[@]}"; do
    corpus=$build/corpus/$target
    found=$build/found/$target
    mkdir -p "$corpus" "$found"
    before=(tests/fuzz/found/"$target")
    [ -d "${before[0]}" ] || before=()
    OMP_NUM_THREADS=1 ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1 \
        nice $build/tests/fuzz/fuzz_"$target" "$corpus" $seeds "${before[@]}" \
        -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=16384 \
        -print_final_stats=1 -artifact_prefix="$found/" >"$build/$target.log" 2>&1 || status=1
    printf '%s: %s executions, ' "$target" "$(sed -n 's/^stat::number_of_executed_units: *//p' "$build/$target.log")"
    grep -oE 'cov: [0-9]+ ft: [0-9]+ corp: [0-9]+' "$build/$target.log" | tail -n 1
    find "$found" -type f | sed 's/^/  found: /'
done
exit $status
