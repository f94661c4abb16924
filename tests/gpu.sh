#!/usr/bin/env bash
# The first run on a machine with a GPU, one command, in pieces that go on where the last run ended.
#   tests/gpu.sh [RESULTS]      RESULTS: a folder (build/gpu-results); its report.txt is what to read
#
#     build        libebb_cuda.so and its tests for this device, with places in the sources
#     gpu.NAME     each test of the kernels against plain, a step, recorded models, exact passes
#     TOOL.NAME    compute-sanitizer's memcheck and racecheck over three suites
#     bench        bench/gpu.py --small
#
# EBB_GPU_LIMIT: seconds for all of it (480). A piece that is done is not done again, but for a build that
# failed: remove its RESULTS/NAME.done for that. What cannot be done is said with what it lacks. Exit code
# 77: no GPU; EBB_GPU_PLAYED=1 runs the pieces all the same, whose tests then skip.
set -u
cd "$(dirname "$0")/.."
results=$(mkdir -p "${1:-build/gpu-results}" && cd "${1:-build/gpu-results}" && pwd)
report=$results/report.txt
end=$((SECONDS + ${EBB_GPU_LIMIT:-480}))
export build=${EBB_GPU_BUILD:-build/gpu}
played=${EBB_GPU_PLAYED:-}
PATH=$PATH:/usr/local/cuda/bin
NO_TIME=124

say() { echo "$*" | tee -a "$report"; }

# lacks COMMAND WHAT: says that WHAT is left out where there is no such command
lacks() {
    command -v "$1" > /dev/null && return 1
    say "missing: $1, so no $2"
}

device="no GPU"
if lacks nvidia-smi "GPU" || ! device=$(nvidia-smi -L 2>&1 | head -n 1) || [[ $device != GPU* ]]; then
    say "SKIP: $device"
    [ -n "$played" ] || exit 77
fi

# piece NAME COMMAND...: once, within what is left of the time; its output is RESULTS/NAME.txt
piece() {
    local name=$1 left=$((end - SECONDS)) began=$SECONDS code
    shift
    [ -e "$results/$name.done" ] && { echo "$name: done before"; return 0; }
    [ "$left" -gt 5 ] || { say "$name: no time is left; run this again"; return $NO_TIME; }
    timeout "$left" bash -c "$*" > "$results/$name.txt" 2>&1
    code=$?
    if [ "$code" -eq $NO_TIME ]; then
        say "$name: not ended after $((SECONDS - began)) s; run this again"
        return $NO_TIME
    fi
    say "$name: exit code $code after $((SECONDS - began)) s"
    tail -n $((code == 0 ? 4 : 40)) "$results/$name.txt" | sed 's/^/    /' >> "$report"
    [ "$name" = build ] && [ "$code" -ne 0 ] || touch "$results/$name.done"
    return "$code"
}

configure_and_build() {
    local version
    version=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2> /dev/null | head -n 1 | tr -d .)
    cmake --preset release -B "$build" -DEBB_CUDA=ON -DCMAKE_CUDA_FLAGS=-lineinfo \
        ${version:+-DCMAKE_CUDA_ARCHITECTURES="$version"} || return 1
    grep -q '^build test_gpu_' "$build/build.ninja" || { echo "no nvcc, or no cmocka: nothing for a GPU is built"; return 1; }
    cmake --build "$build" --target ebb_cli $(awk '/^build test_gpu_[a-z_]*:|^build test_(cuda_step|models_recorded|models_exact):/ { sub(/:$/, "", $2); print $2 }' "$build/build.ninja")
}
export -f configure_and_build

tests_and_more() {
    local test tool
    for test in gpu.step $(ctest --test-dir "$build" -N -R '^gpu\.' | sed -n 's/.*: \(gpu\..*\)/\1/p' | grep -v '^gpu.step$'); do
        piece "$test" "set -o pipefail; ctest --test-dir $build -R '^${test//./\\.}\$' --output-on-failure --timeout 300 | grep -v '^\$'"
        [ $? -ne $NO_TIME ] || return
    done
    lacks compute-sanitizer "memcheck and racecheck" ||
        for tool in memcheck racecheck; do
            for test in norm attention reduce; do
                piece "$tool.$test" "EBB_CUDA_PLUGIN=$build/libebb_cuda.so compute-sanitizer --tool $tool --error-exitcode 3 $build/tests/test_gpu_$test"
                [ $? -ne $NO_TIME ] || return
            done
        done
    if python3 -c 'import torch' 2> /dev/null; then
        piece bench "python3 bench/gpu.py --models $results/models --work $results/steps --small --ebb $build/ebb \
            --limit $((end > SECONDS ? end - SECONDS : 1)) -o $results/bench ${played:+--dry-run}"
    else
        say "missing: torch of python3, so no bench/gpu.py"
    fi
}

say "$(date -u +%FT%TZ) $device $(git rev-parse --short HEAD)"
lacks cmake "build" || lacks ninja "build" || lacks nvcc "kernels" || { piece build configure_and_build && tests_and_more; }
echo "what was found: $report"
