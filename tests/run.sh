#!/usr/bin/env bash
# Sets up what is missing, builds, and runs every test; then the same under ASan and UBSan.
# Oracles by package, pinned by hash, go to .oracles (ignored by git); a test without its oracle skips.
#   tests/run.sh [--quick]      --quick: no sanitizer build
set -euo pipefail
cd "$(dirname "$0")/.."
. cmake/setup.sh
# shellcheck disable=SC2086
install_packages $packages $optional_packages libcmocka-dev
install_packages clang-format-14 python3 python3-pip || say "no clang-format or pip: what needs them is skipped"

# The ONNX backend tests, from the wheel.
fetch_onnx() {
    local folder=.oracles/onnx-1.22.0
    [ -d "$folder/onnx/backend/test/data" ] && return 0
    mkdir -p .oracles/wheels
    python3 -m pip download -q --no-deps --only-binary :all: --python-version 3.11 --abi cp311 \
        --platform manylinux_2_27_x86_64 --platform manylinux_2_28_x86_64 --require-hashes \
        -r tests/oracles.txt -d .oracles/wheels || return 1
    mkdir -p "$folder"
    python3 -m zipfile -e .oracles/wheels/onnx-1.22.0-*.whl "$folder"
}
fetch_onnx || say "SKIP: the onnx wheel could not be fetched; the backend tests will skip"

run() {
    local preset=$1
    build "$preset"
    (cd "build/$preset" && ctest --output-on-failure -j 2 --timeout 900)
}
# cuDNN plans one layer in twelve on each described device: all of them compile thousands of kernels, for
# half an hour the first time. EBB_CUDNN_SHARE=1 asks for all.
export EBB_CUDNN_SHARE=${EBB_CUDNN_SHARE:-12}
run dev
if [ "${1:-}" != --quick ]; then
    export ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1 OMP_NUM_THREADS=2
    run asan
fi
