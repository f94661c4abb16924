#!/usr/bin/env bash
# Builds the targets of libFuzzer with clang, and runs each over seeds from samples/, from the corpus
# of tests/hostile, from the ONNX tests where they have been fetched, and from what was found before (tests/fuzz/found/TARGET).
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
cmake --build $build --target "${targets[@]/#/fuzz_}" write_seeds >/dev/null

mkdir -p $build/seeds/files $build/seeds/text
$build/tests/fuzz/write_seeds $build/seeds/files $build/seeds/text
find samples .oracles/onnx-*/onnx/backend/test/data/node -name '*.onnx' -size -8k 2>/dev/null |
    while read -r model; do cp "$model" "$build/seeds/files/$(echo "$model" | tr / _)"; done

status=0
for target in "${targets[@]}"; do
    corpus=$build/corpus/$target
    found=$build/found/$target
    mkdir -p "$corpus" "$found"
    seeds=$build/seeds/files
    [ "$target" = text ] && seeds=$build/seeds/text
    [ "$target" = grad ] && seeds=  # its bytes are draws, no file
    before=(tests/fuzz/found/"$target")
    [ -d "${before[0]}" ] || before=()
    OMP_NUM_THREADS=1 ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1 \
        nice $build/tests/fuzz/fuzz_"$target" "$corpus" ${seeds:+"$seeds"} "${before[@]}" \
        -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=16384 \
        -print_final_stats=1 -artifact_prefix="$found/" >"$build/$target.log" 2>&1 || status=1
    printf '%s: %s executions, ' "$target" "$(sed -n 's/^stat::number_of_executed_units: *//p' "$build/$target.log")"
    grep -oE 'cov: [0-9]+ ft: [0-9]+ corp: [0-9]+' "$build/$target.log" | tail -n 1
    find "$found" -type f | sed 's/^/  found: /'
done
exit $status
