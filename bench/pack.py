#!/usr/bin/env python3
"""Packing: the public instances at their capacity, beside MiniMalloc; random instances by size.

    bench/pack.py [--ebb build/release/ebb] [--instances FOLDER] [--minimalloc BINARY] [--rounds 3]
                  [--count 50000]

Instances are files NAME.CAPACITY.csv with the columns id,lower,upper,size. Both programs take turns
on each file; the best of the rounds counts, by processor time of the whole process. The random ones
are made here, with short, long and any lifetimes; their offsets are checked.
"""
import argparse
import glob
import os
import random
import resource
import subprocess
import sys
import tempfile
import time


def run(command):
    """Exit code, seconds of processor, seconds passed."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    code = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return code, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, \
        time.monotonic() - begin


def check(path, capacity=None):
    """Height; stops where two alive together overlap."""
    rows = [tuple(map(int, line.split(",")[1:])) for line in open(path).read().split()[1:]]
    events = sorted((t, birth, r) for r in rows for t, birth in ((r[0], 1), (r[1], 0)) if r[2])
    alive, starts = {}, []
    import bisect
    for _, birth, r in events:
        if birth:
            at = bisect.bisect(starts, r[3])
            below = alive[starts[at - 1]] if at else 0
            if below > r[3] or (at < len(starts) and starts[at] < r[3] + r[2]):
                sys.exit(f"{path}: overlap at {r}")
            starts.insert(at, r[3])
            alive[r[3]] = r[3] + r[2]
        else:
            starts.pop(bisect.bisect_left(starts, r[3]))
            del alive[r[3]]
    height = max(r[3] + r[2] for r in rows)
    if capacity is not None and height > capacity:
        sys.exit(f"{path}: height {height} above {capacity}")
    return height


def bound(path):
    rows = [tuple(map(int, line.split(",")[1:])) for line in open(path).read().split()[1:]]
    alive = most = 0
    for _, change in sorted([(r[0], r[2]) for r in rows] + [(r[1], -r[2]) for r in rows]):
        alive += change
        most = max(most, alive)
    return most


def public(options, folder):
    print("| instance | intervals | ebb s | MiniMalloc s |\n|---|---|---|---|")
    sums = [0.0, 0.0]
    for path in sorted(glob.glob(os.path.join(options.instances, "*.csv"))):
        name, capacity = os.path.basename(path).split(".")[:2]
        out = os.path.join(folder, "out.csv")
        programs = [[options.ebb, "pack", path, "-o", out, "--capacity", capacity, "--time", "60"]]
        if options.minimalloc:
            programs.append([options.minimalloc, f"--capacity={capacity}", f"--input={path}",
                             f"--output={out}"])
        best = [float("inf"), float("inf")]
        for _ in range(options.rounds):
            for k, command in enumerate(programs):
                code, seconds, _ = run(command)
                if code == 0:
                    best[k] = min(best[k], seconds)
                    check(out, int(capacity))
        count = sum(1 for _ in open(path)) - 1
        print(f"| {name} | {count} | {best[0]:.2f} | {best[1]:.2f} |", flush=True)
        sums = [a + b for a, b in zip(sums, best)]
    print(f"| sum | | {sums[0]:.2f} | {sums[1]:.2f} |\n")


def at_random(options, folder):
    print("| lifetimes | passed s | processor s | height / bound |\n|---|---|---|---|")
    draw, n = random.Random(1), options.count
    for label, longest in (("short", 200), ("long", n // 10), ("any", 2 * n)):
        path, out = os.path.join(folder, "in.csv"), os.path.join(folder, "out.csv")
        with open(path, "w") as f:
            f.write("id,lower,upper,size\n")
            for i in range(n):
                lower = draw.randrange(2 * n)
                upper = min(lower + draw.randint(1, longest), 2 * n)
                f.write(f"{i},{lower},{upper},{draw.randint(1, 1 << 20)}\n")
        code, seconds, passed = run([options.ebb, "pack", path, "-o", out])
        if code != 0:
            sys.exit(f"{label}: exit {code}")
        print(f"| {label} | {passed:.1f} | {seconds:.1f} | {check(out) / bound(path):.4f} |",
              flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ebb", default="build/release/ebb")
    parser.add_argument("--instances")
    parser.add_argument("--minimalloc")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, default=50000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.instances:
            public(options, folder)
        at_random(options, folder)


main()
