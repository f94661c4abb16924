#!/usr/bin/env bash
# A test on what nvcc emits, when it is its turn: one in twelve each day, for sm_90 and sm_80 by turns.
#   turn.sh BUILD NUMBER COMMAND...      exit code 77: another day's, or there is no nvcc
# EBB_TEST_ALL=1 runs all, for both. EBB_PTX_TARGET: 90, or 80, alone.
build=$1 turn=$2
shift 2
here=$(cd "$(dirname "$0")" && pwd)
day=$((10#$(date +%j))) targets=${EBB_PTX_TARGET:-}
grep -q 'nvcc.*\.cu' "$build/compile_commands.json" || { echo "SKIP: no nvcc, so there is no PTX to execute"; exit 77; }
if [ "${EBB_TEST_ALL:-}" = 1 ]; then
    targets=${targets:-90 80}
    unset EBB_TEST_MODELS
elif (((turn + day) % 12 != 0)); then
    echo "SKIP: another day's turn; EBB_TEST_ALL=1 asks for all"
    exit 77
fi
[ -n "$targets" ] || targets=$(((turn + day) / 12 % 2 ? 80 : 90))
export EBB_PTX_MAKE=$here/make.sh EBB_PTX_BUILD=$build
export OMP_NUM_THREADS=1 # of the plain kernels beside it: their threads would only wait
given=${EBB_CUDA_PTX:-} # else of these sources, or made anew
sources=$(cat "$here"/../../../kernels/{cuda,math}/*.* "$here"/../../../kernels/cuda/*/*.cu | cksum | tr ' ' -)
for EBB_PTX_TARGET in $targets; do
    EBB_CUDA_PTX=${given:-$build/ptx/$sources-$EBB_PTX_TARGET}
    export EBB_PTX_TARGET EBB_CUDA_PTX
    "$@" || exit
done
