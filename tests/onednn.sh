#!/usr/bin/env bash
# Builds with oneDNN 3 (preset onednn3) and without oneDNN (no-onednn), and runs the suites that this decides: each kernel
# against the plain one, whole steps against PyTorch's numbers. tests/run.sh calls it; by hand, with other suites:
#   tests/onednn.sh [SUITE...]      kernels.attention models.deterministic
# oneDNN 3 is wheels, pinned by hash, that go to .oracles; where they cannot be fetched it is skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
. cmake/setup.sh
wheels=.oracles/onednn-3
cmake_options=(-DEBB_TESTS=ON)
usual=(kernels.conv_tiles kernels.pick kernels.widen models.layout models.recorded)
of_onednn=(kernels.conv_nhwc kernels.conv_pool kernels.conv_pooled kernels.dnnl kernels.dnnl_half kernels.linear_loss)

fetch() {
    [ -d "$wheels" ] && return 0
    rm -rf "$wheels.new" && mkdir -p "$wheels.new"
    python3 -m pip download -q --no-deps --only-binary :all: --require-hashes -r tests/onednn3.txt -d "$wheels.new" || return 1
    for wheel in "$wheels.new"/*.whl; do python3 -m zipfile -e "$wheel" "$wheels.new"; done
    rm "$wheels.new"/*.whl && mv "$wheels.new" "$wheels"
}

# suites PRESET NAME...: kernels.dnnl is built as test_kernels_dnnl
suites() {
    local preset=$1 names
    shift
    names=$(printf '|%s' "$@")
    set -- "${@/#/test_}"
    build "$preset" "${@//./_}"
    (cd "build/$preset" && ctest --output-on-failure -j 2 --timeout 900 -R "^(${names:1})\$")
}

if [ $# -gt 0 ]; then
    usual=("$@") of_onednn=()
fi
if fetch; then
    suites onednn3 "${usual[@]}" "${of_onednn[@]}"
else
    say "SKIP: oneDNN 3 could not be fetched"
fi
suites no-onednn "${usual[@]}"
