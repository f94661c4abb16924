"""More bytes, in memory or on disk, never make a planned step slower, and a disk never does: `fit` over a grid of budgets
and rooms.

    python3 tests/models/monotone.py --ebb build/release/ebb --rows 16 --columns 8 --models 5

The test models.monotone is a small one. Prints a line a model, and each pair that is not in order; exits with 1 if there is
one. The first column is without a disk.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

here = os.path.dirname(os.path.abspath(__file__))
samples = os.path.join(here, "..", "..", "samples")
MODELS = [
    ("digits/mlp.onnx", ["--dim", "batch=256", "--loss", "cross-entropy", "--optimizer", "momentum"]),
    ("digits/cnn.onnx", ["--dim", "batch=32", "--loss", "cross-entropy", "--optimizer", "sgd"]),
    ("digits/transformer.onnx", ["--dim", "batch=32", "--loss", "cross-entropy", "--optimizer", "sgd"]),
    ("digits/cnn.onnx", ["--dim", "batch=512", "--loss", "cross-entropy", "--optimizer", "adamw"]),
    ("digits/transformer.onnx", ["--dim", "batch=128", "--loss", "cross-entropy", "--optimizer", "adamw"]),
]


def plan(ebb, model, words, budget, room):
    """Planned time as a share of the step as it is, or None: no plan keeps to the budget."""
    text = f"{budget}" + (f",disk={room}" if room else "")
    ended = subprocess.run([ebb, "grad", os.path.join(samples, model), *words, "--budget", text, "--plan-time", "0.05",
                            "--threads", "2", "--dry-run"], capture_output=True, text=True, timeout=600)
    if ended.returncode == 3:
        return None
    if ended.returncode != 0:
        sys.exit(f"{model}, {text}: exit {ended.returncode}: {ended.stderr[-400:]}")
    found = re.search(r"estimated time ([0-9.]+) times", ended.stdout)
    return float(found.group(1)) if found else 1.0


def arena(ebb, model, words):
    with tempfile.TemporaryDirectory(prefix="ebb-monotone-") as folder:
        step = os.path.join(folder, "step.onnx")
        subprocess.run([ebb, "grad", os.path.join(samples, model), *words, "--budget", "none", "--threads", "2", "-o", step],
                       check=True, capture_output=True)
        text = subprocess.run([ebb, "plan", step, "--threads", "2", "--json"], check=True, capture_output=True,
                              text=True).stdout
    return int(re.search(r'"arena_bytes": ?([0-9]+)', text).group(1))


def worse(smaller, larger):
    """Of two plans, the second of which has more bytes."""
    return smaller is not None and (larger is None or larger > smaller + 0.0015)  # three places are printed


def check(ebb, number, rows, columns, pool):
    model, words = MODELS[number]
    whole = arena(ebb, model, words)
    budgets = [whole * (25 + 75 * i // rows) // 100 for i in range(rows)]
    rooms = [0] + [whole * 2 * (j + 1) // columns for j in range(columns - 1)]
    jobs = {(i, j): pool.submit(plan, ebb, model, words, budgets[i], rooms[j])
            for i in range(rows) for j in range(columns)}
    grid = {at: job.result() for at, job in jobs.items()}
    wrong = 0
    for (i, j), ns in sorted(grid.items()):
        for other in ((i + 1, j), (i, j + 1)):
            if other in grid and worse(ns, grid[other]):
                wrong += 1
                print(f"  {ns} with {budgets[i]} and {rooms[j]} on disk, {grid[other]} with {budgets[other[0]]} and "
                      f"{rooms[other[1]]}")
    fits = [sum(grid[i, j] is not None for i in range(rows)) for j in range(columns)]
    faster = sum(grid[i, columns - 1] is not None and (grid[i, 0] is None or grid[i, columns - 1] < grid[i, 0] - 0.0015)
                 for i in range(rows))
    print(f"{model} {' '.join(words[:2])}: {whole} bytes, {rows} budgets x {columns} rooms; met without a disk: {fits[0]}, "
          f"with the largest: {fits[-1]}; faster or met by it: {faster}; not in order: {wrong}")
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ebb", required=True)
    parser.add_argument("--rows", type=int, default=13)
    parser.add_argument("--columns", type=int, default=8)
    parser.add_argument("--models", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    with ThreadPoolExecutor(options.workers) as pool:
        wrong = sum(check(os.path.abspath(options.ebb), n, options.rows, options.columns, pool)
                    for n in range(options.models))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
