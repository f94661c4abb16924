#!/usr/bin/env bash
# A test on what nvcc emits, when it is its turn: one in twelve each day.
#   turn.sh BUILD NUMBER COMMAND...      exit code 77: another day's, or there is no nvcc
# EBB_TEST_ALL=1 runs all. EBB_PTX_TARGET: 90, or 80.
build=$1 turn=$2
shift 2
here=$(cd "$(dirname "$0")" && pwd)
grep -q 'nvcc.*\.cu' "$build/compile_commands.json" || { echo "SKIP: no nvcc, so there is no PTX to execute"; exit 77; }
[ "${EBB_TEST_ALL:-}" = 1 ] || (((turn + 10#$(date +%j)) % 12 == 0)) || { echo "SKIP: another day's turn; EBB_TEST_ALL=1 asks for all"; exit 77; }
if [ -z "${EBB_CUDA_PTX:-}" ]; then # of these sources, or made anew
    sources=$(cat "$here"/../../../kernels/{cuda,math}/*.* "$here"/../../../kernels/cuda/*/*.cu | cksum | tr ' ' -)
    export EBB_CUDA_PTX=$build/ptx/$sources-${EBB_PTX_TARGET:-90}
fi
export EBB_PTX_MAKE=$here/make.sh EBB_PTX_BUILD=$build
export OMP_NUM_THREADS=1 # of the plain kernels beside it: their threads would only wait
exec "$@"
