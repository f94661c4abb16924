#!/usr/bin/env bash
# Sets up what is missing, builds, runs the quick start and every test; then the tests under ASan and UBSan,
# which keep assertions, and under TSan two programs in two threads.
# Oracles by package, pinned by hash, go to .oracles (ignored by git); a test without its oracle skips.
# Between them some suites with oneDNN 3, and without oneDNN (tests/onednn.sh).
#   tests/run.sh [--quick]      --quick: no sanitizer build
# What takes long is tried in part (tests/share.h); EBB_TEST_ALL=1 tests/run.sh tries all, for hours.
set -euo pipefail
cd "$(dirname "$0")/.."
. cmake/setup.sh
# shellcheck disable=SC2086
install_packages $packages $optional_packages libcmocka-dev
install_packages clang-format-14 python3 python3-pip abigail-tools || say "no clang-format, pip or abidiff: what needs them is skipped"
install_packages ccache || say "no ccache: what several builds have in common is compiled for each"
install_packages openmpi-bin libopenmpi-dev mpich libmpich-dev || say "no MPI: its transport is skipped"

# The ONNX backend tests, from the wheel; what ONNX Runtime needs, for Python 3.11 on x86-64; and what
# reads compiled kernels.
fetch_oracles() {
    local onnx=.oracles/onnx-1.22.0 runtime=.oracles/onnxruntime-1.31.1 wheel
    local cuobjdump=.oracles/cuobjdump-13.5.37
    [ -d "$onnx/onnx/backend/test/data" ] && [ -d "$runtime/onnxruntime" ] && [ -d "$cuobjdump/nvidia" ] && return 0
    mkdir -p .oracles/wheels "$onnx" "$runtime" "$cuobjdump"
    python3 -m pip download -q --no-deps --only-binary :all: --implementation cp --python-version 3.11 \
        --abi cp311 --abi abi3 --abi none --platform manylinux2014_x86_64 --platform manylinux_2_27_x86_64 \
        --platform manylinux_2_28_x86_64 --platform any --require-hashes \
        -r tests/oracles.txt -d .oracles/wheels || return 1
    for wheel in $(cut -d '=' -f 1 tests/oracles.txt); do
        case $wheel in
        onnx) python3 -m zipfile -e .oracles/wheels/onnx-1.22.0-*.whl "$onnx" ;;
        nvidia-cuda-cuobjdump)
            python3 -m zipfile -e .oracles/wheels/nvidia_cuda_cuobjdump-*.whl "$cuobjdump"
            chmod +x "$cuobjdump"/nvidia/cu13/bin/cuobjdump
            ;;
        *) python3 -m zipfile -e .oracles/wheels/"$wheel"-*.whl "$runtime" ;;
        esac
    done
}
# One header of 300 MB, where CUDA came without it.
fetch_nccl() {
    local nccl=.oracles/nccl-2.32.3
    [ -f /usr/local/cuda/include/nccl.h ] || [ -f "$nccl/nvidia/nccl/include/nccl.h" ] && return 0
    mkdir -p .oracles/wheels "$nccl"
    python3 -m pip download -q --no-deps --only-binary :all: --platform manylinux_2_27_x86_64 --require-hashes \
        -r tests/oracle_nccl.txt -d .oracles/wheels || return 1
    python3 -m zipfile -e .oracles/wheels/nvidia_nccl_cu13-*.whl "$nccl" && rm -r "$nccl"/nvidia/nccl/lib
}
command -v nvcc >/dev/null && { fetch_nccl || say "SKIP: NCCL's header could not be fetched"; }
fetch_oracles || say "SKIP: the wheels of onnx and onnxruntime could not be fetched; what needs them will skip"

limit=900 # s a suite; all of what is else tried in part takes an hour under sanitizers
if [ "${EBB_TEST_ALL:-}" = 1 ]; then limit=14400; fi
run() {
    local preset=$1
    build "$preset"
    (cd "build/$preset" && ctest --output-on-failure -j 2 --timeout "$limit")
}
# Without a GPU its kernels are only compiled.
cmake_options=(-DEBB_TESTS=ON)
[ "${EBB_TEST_ALL:-}" = 1 ] && cmake_options+=(-DEBB_CHECK_ALL=ON)
nvidia-smi -L >/dev/null 2>&1 || cmake_options+=(-DEBB_CUDA_OPTIMIZE=OFF)
samples/quickstart.sh
export OMP_WAIT_POLICY=passive # two tests run side by side: threads that wait must not spin
run release
tests/onednn.sh
if [ "${1:-}" != --quick ]; then
    # What was freed is held back for 16 MB of frees: more costs page faults, a tenth of the time.
    export ASAN_OPTIONS=detect_leaks=1:quarantine_size_mb=16 UBSAN_OPTIONS=print_stacktrace=1 OMP_NUM_THREADS=2
    export CCACHE_DEPEND=1 # what no other build has in common need not be preprocessed first
    run asan
    export TSAN_OPTIONS=halt_on_error=1 OMP_NUM_THREADS=1
    build tsan test_api_threads test_exec_feed
    build/tsan/tests/test_api_threads
    build/tsan/tests/test_exec_feed
fi
