#!/usr/bin/env python3
"""A file of data that is larger than the memory that training may take: resident memory, and throughput
beside rows in memory.

  bench/large_data.py --ebb build/release/ebb [--gigabytes 4] [--folder /tmp] [--model M.onnx --input x --row 3,224,224]

Writes an .npz as numpy.savez does (not compressed, so its rows are read where they lie) and a small one as
numpy.savez_compressed does (which is unpacked into memory), trains on both in turns, and prints for each the
most memory that the process held (VmHWM, mapped pages included) and the time of a step, as the difference of
a long and a short run, so that opening does not count. --cold drops the file from the page cache first.
Exit 1 where 400 MB or 3 % are exceeded.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import zipfile

import numpy


def write_large(path, rows, shape, dtype, classes):
    """numpy.savez of rows that never are in memory together."""
    random = numpy.random.default_rng(0)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        with archive.open("image.npy", "w", force_zip64=True) as out:
            numpy.lib.format.write_array_header_1_0(
                out, {"descr": numpy.lib.format.dtype_to_descr(numpy.dtype(dtype)), "fortran_order": False,
                      "shape": (rows, *shape)})
            step = max(1, (64 << 20) // (int(numpy.prod(shape)) * numpy.dtype(dtype).itemsize))
            for at in range(0, rows, step):
                out.write(draw(random, min(step, rows - at), shape, dtype).tobytes())
        with archive.open("label.npy", "w", force_zip64=True) as out:
            numpy.lib.format.write_array(out, random.integers(0, classes, rows).astype(numpy.int64))
    with open(path, "rb") as file:  # what is still on its way to the disk would be measured, too
        os.fsync(file.fileno())


def draw(random, rows, shape, dtype):
    bits = random.integers(0, 256, (rows, *shape), dtype=numpy.uint8)
    return bits if dtype == "uint8" else (bits / 256).astype(dtype)


def train(arguments, data, steps):
    command = [arguments.ebb, "train", arguments.model, "--data", data, "--map", "label=target", "--map",
               f"image={arguments.input}", "--loss", "cross-entropy", "--batch", str(arguments.batch), "--steps",
               str(steps), "--optimizer", "sgd:lr=0.001", "--json"]
    if arguments.dtype == "uint8":
        command += ["--scale", "1/255"]
    began = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    said = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        sys.exit(f"{' '.join(command)}\n{said.decode()}")
    # not ru_maxrss, which begins with what this program held when it was forked
    return (numpy.array([time.monotonic() - began, usage.ru_utime + usage.ru_stime]),
            json.loads(said)["resident_bytes"] / 1e6)


def main():
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ebb", default=os.path.join(root, "build/release/ebb"))
    parser.add_argument("--model", default=os.path.join(root, "samples/digits/cnn.onnx"))
    parser.add_argument("--input", default="image", help="of the model")
    parser.add_argument("--row", default="1,8,8")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--gigabytes", type=float, default=4)
    parser.add_argument("--folder", default=tempfile.gettempdir())
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--cold", action="store_true")
    arguments = parser.parse_args()
    shape = tuple(int(n) for n in arguments.row.split(","))
    row_bytes = int(numpy.prod(shape)) * numpy.dtype(arguments.dtype).itemsize
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        large, small = os.path.join(folder, "large.npz"), os.path.join(folder, "small.npz")
        rows = int(arguments.gigabytes * 1e9) // row_bytes
        write_large(large, rows, shape, arguments.dtype, arguments.classes)
        few = min(rows, max(arguments.batch * 4, (64 << 20) // row_bytes))
        random = numpy.random.default_rng(0)
        numpy.savez_compressed(small, image=draw(random, few, shape, arguments.dtype),
                               label=random.integers(0, arguments.classes, few).astype(numpy.int64))
        times, most = {large: [], small: []}, {large: 0.0, small: 0.0}
        for _ in range(arguments.turns):
            for path in (large, small):
                if arguments.cold:
                    with open(path, "rb") as file:
                        os.fsync(file.fileno())
                        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                short, _ = train(arguments, path, 10)
                long, memory = train(arguments, path, 10 + arguments.steps)
                times[path].append((long - short) / arguments.steps)
                most[path] = max(most[path], memory)
        (a, cpu_a), (b, cpu_b) = (numpy.median(times[path], axis=0) for path in (large, small))
        print(f"{os.path.getsize(large) / 1e9:.2f} GB, {rows} rows of {row_bytes} bytes, batch {arguments.batch}: "
              f"at most {most[large]:.0f} MB resident, {a * 1e3:.3f} ms a step ({arguments.batch / a:.0f} rows/s)")
        print(f"in memory: {b * 1e3:.3f} ms a step ({arguments.batch / b:.0f} rows/s), so {100 * (a / b - 1):+.1f} %; "
              f"processor time {cpu_a * 1e3:.3f} and {cpu_b * 1e3:.3f} ms a step")
        return 0 if most[large] < 400 and a < 1.03 * b else 1


if __name__ == "__main__":
    sys.exit(main())
