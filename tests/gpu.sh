#!/usr/bin/env bash
# The first run on a machine with a GPU, one command, in pieces that go on where the last run ended.
#   tests/gpu.sh [RESULTS]      RESULTS: a folder (build/gpu-results); its report.txt is what to read
#
#     build        libebb_cuda.so and its tests for this device, with places in the sources
#     test_NAME    each test of the kernels against plain, a step, recorded models, exact passes
#     TOOL.NAME    compute-sanitizer's memcheck and racecheck over three suites
#     bench        bench/gpu.py --small
#
# EBB_GPU_LIMIT: seconds for all of it (480). A piece that is done is not done again, but for a build that
# failed: remove its RESULTS/NAME.done for that. What cannot be done is said with what it lacks. Exit code
# 77: no GPU.
#
# EBB_GPU_PLAYED=1 tries all that without one: nvcc's kernels are compiled, but not optimised; the tests run on
# the device that libebb_cuda_host_plugin.so plays; compute-sanitizer is left out, and the bench has no measuring.
set -u
cd "$(dirname "$0")/.."
played=${EBB_GPU_PLAYED:-}
export played build=${EBB_GPU_BUILD:-build/gpu${played:+-played}}
results=${1:-$build-results}
results=$(mkdir -p "$results" && cd "$results" && pwd)
report=$results/report.txt
end=$((SECONDS + ${EBB_GPU_LIMIT:-480}))
PATH=$PATH:/usr/local/cuda/bin
NO_TIME=124
MOST=300 # seconds of one test
[ -z "$played" ] || MOST=900 # of which the host computes each
child=

say() { echo "$*" | tee -a "$report"; }

# lacks COMMAND WHAT: says that WHAT is left out where there is no such command
lacks() {
    command -v "$1" > /dev/null && return 1
    say "missing: $1, so no $2"
}

# What a run that was killed has left at work holds the lock, too.
exec 9> "$results/lock"
flock -w 5 9 || { echo "another run is at work in $results: wait for its end, or end it"; exit 1; }
trap 'kill "$child" 2> /dev/null; wait; say "ended from outside; run this again"; exit 130' INT TERM

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
    timeout "$left" bash -c "$*" > "$results/$name.txt" 2>&1 &
    child=$!
    wait "$child"
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

# The programs of the tests: a step first.
programs() {
    awk '/^build test_(gpu_[a-z_]*|cuda_step|models_recorded|models_exact):/ { sub(/:$/, "", $2); later = $2 !~ /step/; print later $2 }' \
        "$build/build.ninja" | sort | cut -c 2-
}

configure_and_build() {
    local version how=(-DEBB_CUDA_OPTIMIZE=OFF)
    version=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2> /dev/null | head -n 1 | tr -d .)
    [ -n "$played" ] || how=(-DEBB_CUDA_OPTIMIZE=ON -DCMAKE_CUDA_FLAGS=-lineinfo ${version:+-DCMAKE_CUDA_ARCHITECTURES="$version"})
    cmake --preset release -B "$build" -DEBB_CUDA=ON "${how[@]}" || return 1
    grep -q '^build test_gpu_' "$build/build.ninja" || { echo "no nvcc, or no cmocka: nothing for a GPU is built"; return 1; }
    cmake --build "$build" --target ebb_cli ${played:+ebb_cuda_host_plugin} $(programs)
}
export -f configure_and_build programs

tests_and_more() {
    local test tool
    export EBB_TEST_BACKEND=cuda CUDA_LAUNCH_BLOCKING=1 EBB_CUDA_PLUGIN=$PWD/$build/libebb_cuda.so
    [ -z "$played" ] || EBB_CUDA_PLUGIN=$PWD/$build/kernels/cuda/libebb_cuda_host_plugin.so
    for test in $(programs); do
        piece "$test" "timeout -s KILL $MOST $build/tests/$test"
        [ $? -ne $NO_TIME ] || return
    done
    [ -n "$played" ] || lacks compute-sanitizer "memcheck and racecheck" ||
        for tool in memcheck racecheck; do
            for test in norm attention reduce; do
                piece "$tool.$test" "compute-sanitizer --tool $tool --error-exitcode 3 $build/tests/test_gpu_$test"
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
