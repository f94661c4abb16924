#!/usr/bin/env bash
# For 64-bit ARM, from another machine: cross-compiles, and runs under qemu-user the tests of kernels, onnx and passes,
# whole models against PyTorch's numbers, README's commands and samples/five_verbs.c. Last, what the plain kernels
# compute there beside what they compute here. Some minutes to build, an hour or so to run: by hand.
#
#   tests/aarch64.sh BUILD [REGEX]      BUILD: a build for this machine, to compare with; REGEX: only these tests
#
# Exit code 77: a tool is missing and cannot be installed. What it builds is left in build/aarch64.
set -euo pipefail
cd "$(dirname "$0")/.."
. cmake/setup.sh
here=$1 suites=${2:-'^(kernels|onnx|passes)\.|^models\.recorded$'}
root=$PWD/build/aarch64-root build=$PWD/build/aarch64

install_packages mmdebstrap gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static ninja-build protobuf-c-compiler ||
    { say "SKIP: a tool is missing"; exit 77; }

# What is in the packages alone: nothing is installed, so nothing of another processor runs. coreutils: the library of stdbuf.
if [ ! -d "$root/usr" ]; then
    mkdir -p build
    # shellcheck disable=SC2086
    libraries=$(printf '%s\n' $packages $optional_packages libcmocka-dev libgomp1 | grep -E '^lib.*-dev$|^libgomp1$' | grep -v dnnl)
    mmdebstrap --quiet --variant=extract --architectures=arm64 --include="$(echo $libraries coreutils | tr ' ' ,)" bookworm "$root.new" ||
        { rm -rf --one-file-system "$root.new"; say "SKIP: Debian's packages for arm64 cannot be fetched"; exit 77; }
    mv "$root.new" "$root"
fi

cmake -S . -B "$build" -G Ninja --toolchain "$PWD/cmake/aarch64.cmake" -DEBB_SYSROOT="$root" -DCMAKE_BUILD_TYPE=Release \
    -DEBB_ONEDNN=OFF -DEBB_CUDA=OFF -DEBB_TESTS=ON >/dev/null
tests=$(cd "$build" && ctest --show-only=json-v1 -R "$suites" |
    python3 -c 'import json, sys; print(*{w.split("/")[-1] for t in json.load(sys.stdin)["tests"]
                                         for w in t.get("command", []) if "/test_" in w})')
# shellcheck disable=SC2086
ninja -C "$build" ebb_cli five_verbs $tests >"$build/log" || { tail -n 40 "$build/log"; exit 1; }

# One processor stands for all: threads that wait must not spin.
export OMP_WAIT_POLICY=passive EBB_EMULATED=1 # no limits of time
(cd "$build" && ctest --output-on-failure -j "$(nproc)" --timeout 3600 -R "$suites")
[ $# -eq 1 ] || exit 0

# The command, as something that starts by its name here.
mkdir -p "$build/qemu"
printf '#!/bin/sh\nexec qemu-aarch64-static -L "%s" "%s/ebb" "$@"\n' "$root" "$build" >"$build/qemu/ebb"
chmod +x "$build/qemu/ebb"
python3 tests/models/processors.py --ebb "$here/ebb" --other "$build/qemu/ebb"
python3 tests/cli/documents.py --ebb "$build/qemu/ebb" README.md
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
(cd "$work" && qemu-aarch64-static -L "$root" "$build/five_verbs" "$OLDPWD/samples/digits/cnn.onnx" "$OLDPWD/samples/digits/digits.npz")
