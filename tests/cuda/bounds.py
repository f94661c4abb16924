#!/usr/bin/env python3
"""How near the kernels of the GPU come to the bounds of bounds.def, and which kernels no suite compares.

    bounds.py --build build/release                      as gcc compiles them
    bounds.py --build build/release --ptx FOLDER         what nvcc emits, from FOLDER or made there ($EBB_PTX_TARGET)

A line a kernel that has a bound: in how many comparisons, the largest error, the share of its bound that this is.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
parser = argparse.ArgumentParser()
parser.add_argument("--build", required=True, type=lambda p: pathlib.Path(p).resolve())
parser.add_argument("--ptx", type=lambda p: pathlib.Path(p).resolve())
options = parser.parse_args()

suites = sorted("cuda_" + p.stem.removeprefix("test_")
                for p in HERE.glob("**/test_*.c") if p.parent.name in ("cuda", "fuse") and p.stem not in ("test_libraries", "test_step"))
with tempfile.NamedTemporaryFile() as file:
    environment = dict(os.environ, EBB_TEST_SEEN=file.name, OMP_NUM_THREADS="1")
    if options.ptx:
        environment.update(EBB_CUDA_PLAYER=str(options.build / "tests/libebb_ptx.so"), EBB_CUDA_PTX=str(options.ptx),
                           EBB_PTX_MAKE=str(HERE / "ptx/make.sh"), EBB_PTX_BUILD=str(options.build))
    failed = [s for s in suites if subprocess.run([options.build / f"tests/test_{s}"], env=environment, capture_output=True).returncode]
    seen = {}
    for line in open(file.name):
        kernel, dtype, error, stated = line.rsplit(maxsplit=3)
        seen.setdefault(kernel, []).append((float(error), float(stated)))

for kernel in sorted(seen):
    shares = [(error / stated, error) for error, stated in seen[kernel] if stated]
    if shares:
        print(f"{kernel:40} {len(shares):5} {max(e for _, e in shares):9.2g} {max(s for s, _ in shares):8.3f}")
kernels = set(re.findall(rb"\0(cuda\.[a-z0-9_]+)(?=\0)", (options.build / "tests/test_cuda_norm").read_bytes()))
unseen = sorted({k.decode() for k in kernels} - set(seen))
tests = "".join(p.read_text() for p in HERE.glob("**/*.c"))
print("compared otherwise:", *(k for k in unseen if f'"{k}"' in tests))
print("compared by no suite:", *(k for k in unseen if f'"{k}"' not in tests))
print("failed:", *failed)
sys.exit(bool(failed))
