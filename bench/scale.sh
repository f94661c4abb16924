#!/usr/bin/env bash
# Processor seconds and MB that check, grad and plan take for models of many nodes, form by form.
#
#     bench/scale.sh [BUILD] [NODES]        BUILD has ebb and bench_scale; build/release, 100000
set -eu
build=$(realpath "${1:-build/release}")
nodes=${2:-100000}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

row() { # NAME COMMAND...: "| NAME | 1.23 s | 45 MB |"
    local name=$1
    shift
    /usr/bin/time -f "%U %S %M" -o time "$@" >/dev/null 2>error || { tail -3 error; return; }
    awk -v name="$name" '{ printf "| %s | %.2f s | %.0f MB |\n", name, $1 + $2, $3 / 1024 }' time
}

for form in chain residual wide fan unet transformer shapes calls; do
    "$build/bench_scale" $form "$nodes" model.onnx
    row "$form check" "$build/ebb" check model.onnx
    row "$form grad" "$build/ebb" grad model.onnx --loss mse -o step.onnx
    row "$form plan" "$build/ebb" plan step.onnx
    "$build/bench_scale" $form $((nodes / 4)) quarter.onnx
    "$build/ebb" grad quarter.onnx --loss mse -o step.onnx >/dev/null 2>&1
    row "$form plan, step of a quarter" "$build/ebb" plan step.onnx
done
