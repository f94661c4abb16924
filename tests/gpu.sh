#!/usr/bin/env bash
# The first run on a machine with a GPU, one command, in pieces that go on where the last run ended.
#   tests/gpu.sh [RESULTS]      RESULTS: a folder (build/gpu-results); its report.txt is what to read
#
#     build      libebb_cuda.so and its tests for this device, with places in the sources
#     tests      gpu.*: every kernel against plain, a step, recorded models, exact passes
#     sanitizer  compute-sanitizer's memcheck and racecheck over three suites, where it is there
#     bench      bench/gpu.py --small, where there is a Python with torch
#
# EBB_GPU_LIMIT: seconds for all of it (480). A piece that is done is not done again: remove its
# RESULTS/NAME.done for that. Exit code 77: no GPU; EBB_GPU_PLAYED=1 runs the pieces all the same, whose
# tests then skip.
set -u
cd "$(dirname "$0")/.."
results=$(mkdir -p "${1:-build/gpu-results}" && cd "${1:-build/gpu-results}" && pwd)
report=$results/report.txt
end=$((SECONDS + ${EBB_GPU_LIMIT:-480}))
build=${EBB_GPU_BUILD:-build/gpu}
played=${EBB_GPU_PLAYED:-}

if ! nvidia-smi -L > "$results/device.txt" 2>&1 && [ -z "$played" ]; then
    echo "SKIP: no GPU: $(head -n 1 "$results/device.txt")"
    exit 77
fi

say() { echo "$*" | tee -a "$report"; }

# piece NAME COMMAND...: once, within what is left of the time; its output is RESULTS/NAME.txt
piece() {
    local name=$1 left=$((end - SECONDS)) began=$SECONDS code
    shift
    [ -e "$results/$name.done" ] && { echo "$name: done before"; return 0; }
    [ "$left" -gt 5 ] || { say "$name: no time is left; run this again"; return 1; }
    export -f configure_and_build sanitize
    export build
    timeout "$left" bash -c "$*" > "$results/$name.txt" 2>&1
    code=$?
    if [ "$code" -eq 124 ]; then
        say "$name: not ended after $((SECONDS - began)) s; run this again"
        return 1
    fi
    say "$name: exit code $code after $((SECONDS - began)) s"
    tail -n 12 "$results/$name.txt" | sed 's/^/    /' >> "$report"
    touch "$results/$name.done"
    return "$code"
}

configure_and_build() {
    cmake --preset release -B "$build" -DEBB_CUDA=ON -DCMAKE_CUDA_FLAGS=-lineinfo &&
        cmake --build "$build" --target ebb_cli $(awk '/^build test_gpu_[a-z_]*:|^build test_(cuda_step|models_recorded|models_exact):/ { sub(/:$/, "", $2); print $2 }' "$build/build.ninja")
}

sanitize() {
    local tool test
    for tool in memcheck racecheck; do
        for test in norm attention reduce; do
            echo "== $tool $test"
            EBB_CUDA_PLUGIN="$build/libebb_cuda.so" compute-sanitizer --tool "$tool" --error-exitcode 3 \
                "$build/tests/test_gpu_$test" || return 1
        done
    done
}

say "$(date -u +%FT%TZ) $(head -n 1 "$results/device.txt") $(git rev-parse --short HEAD)"
if piece build configure_and_build; then
    piece tests "ctest --test-dir $build -R '^gpu\\.' --output-on-failure --timeout 120 -j 1"
    if command -v compute-sanitizer > /dev/null; then
        piece sanitizer sanitize
    else
        say "sanitizer: there is no compute-sanitizer"
    fi
    if python3 -c 'import torch' 2> /dev/null; then
        piece bench "python3 bench/gpu.py --models $results/models --work $results/steps --small --ebb $build/ebb \
            --limit $((end > SECONDS ? end - SECONDS : 1)) -o $results/bench ${played:+--dry-run}"
    else
        say "bench: python3 has no torch"
    fi
fi
echo "what was found: $report"
