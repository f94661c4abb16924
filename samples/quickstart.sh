#!/usr/bin/env bash
# Sets up what is missing, builds, trains an exported model on real data on the CPU, and shows what the
# memory passes saved. Everything it needs is in this repository. Results go to out/.
set -euo pipefail
cd "$(dirname "$0")/.."
. cmake/setup.sh
# shellcheck disable=SC2086
install_packages $packages
cmake_options=(-DEBB_TESTS=OFF)
build release ebb_cli
ebb=build/release/ebb
model=samples/digits/cnn.onnx data=samples/digits/digits.npz
mkdir -p out

say "--- the training step of $model, as it comes and with memory passes"
step="--dim batch=64 --loss cross-entropy --optimizer adamw:lr=0.003"
# shellcheck disable=SC2086
$ebb grad $model -o out/before.onnx $step >/dev/null
# shellcheck disable=SC2086
$ebb grad $model -o out/after.onnx $step --pass sign-mask --pass dropout-seed

say "--- training on 1,437 handwritten digits"
$ebb train out/after.onnx --data $data --map image=image --map label=target --batch 64 --epochs 8 \
    --seed 1 --checkpoint out/digits.safetensors

say "--- before and after, counted byte by byte and run side by side"
$ebb diff out/before.onnx out/after.onnx --run
