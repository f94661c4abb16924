"""A budget is each process's: steps for four processes with weights and states in parts, or whole, never take more than it,
the planner is never slower than putting all weights together once, or all of them twice, where these fit, and a smaller
budget is never faster. What is trained under a budget has the bytes of what is trained without.

    python3 tests/models/ranks_budgets.py --ebb build/release/ebb --models 5 --budgets 8 --levels whole,states,fit

The test models.ranks_budgets is a small one. Prints a line a model; exits with 1 at the first that does not hold.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

here = os.path.dirname(os.path.abspath(__file__))
samples = os.path.join(here, "..", "..", "samples")
RANKS = 4
DIGITS = ["--data", "digits/digits.npz", "--map", "label=target", "--loss", "cross-entropy"]
MODELS = [  # model, batch of a run, words
    ("digits/transformer.onnx", 32, DIGITS),
    ("digits/cnn.onnx", 32, DIGITS + ["--batch-norm", "frozen"]),
    ("digits/mlp.onnx", 256, DIGITS + ["--dropout", "off"]),
    ("text/char.onnx", 16, ["--data", "text/text.npz", "--loss", "cross-entropy:axis=-1"]),
    ("digits/transformer.onnx", 128, DIGITS + ["--dropout", "off", "--clip-norm", "1"]),
]
LEVELS = {"whole": [], "states": ["--pass", "shard"], "fit": ["--pass", "shard:parameters,again=fit"],
          "always": ["--pass", "shard:parameters"]}
ALMOST = 1 + 1e-6  # planned times are sums of many


class Broken(Exception):
    pass


def tell(words, expect=(0,)):
    ended = subprocess.run(words, capture_output=True, text=True, timeout=600)
    if ended.returncode not in expect:
        raise Broken(f"{' '.join(words)}\nexit {ended.returncode}: {ended.stderr[-400:]}")
    return json.loads(ended.stdout) if ended.returncode == 0 else None


def kept_to(budget):
    return ["--budget", str(budget), "--plan-time", "0.05"] if budget else []


def train(ebb, number, level, checkpoint, budget=None):
    model, batch, words = MODELS[number]
    paths = [os.path.join(samples, w) if w.endswith(".npz") else w for w in words]
    return [ebb, "train", os.path.join(samples, model), *paths, "--batch", str(batch), "--steps", "2", "--seed", "4", "--threads", "1",
            "--optimizer", "adamw", "--checkpoint", checkpoint, "--json", *LEVELS[level],
            *kept_to(budget)]


def plan(ebb, number, level, budget=None):
    """Of one of the processes: bytes of its arena and planned time; None: no plan keeps to the budget."""
    model, batch, words = MODELS[number]
    said = [w for i, w in enumerate(words) if w not in ("--data", "--map") and words[i - 1] not in ("--data", "--map")]
    with tempfile.TemporaryDirectory(prefix="ebb-ranks-") as folder:
        step = os.path.join(folder, "step.onnx")
        made = tell([ebb, "grad", os.path.join(samples, model), *said, "--dim", f"batch={batch}", "--optimizer", "adamw", "--threads",
                     "1", "--json", "--pass", f"data-parallel:ranks={RANKS}", *LEVELS[level], *kept_to(budget), "-o", step], (0, 3))
        told = made and tell([ebb, "plan", step, "--threads", "1", "--json"])
    return told and (told["arena_bytes"], told["planned_ns"])


def check_run(ebb, number, level, budget):
    with tempfile.TemporaryDirectory(prefix="ebb-ranks-") as folder:
        bytes_of = []
        for name, given in (("free", None), ("kept", budget)):
            path = os.path.join(folder, name)
            told = tell([ebb, "launch", "-n", str(RANKS), "--", *train(ebb, number, level, path, given)])
            if told["arena_bytes"] != told["measured_arena_bytes"]:
                raise Broken(f"{told['arena_bytes']} bytes were planned, {told['measured_arena_bytes']} measured")
            if given and told["arena_bytes"] > given:
                raise Broken(f"{told['arena_bytes']} bytes, of {given}")
            bytes_of.append(open(path, "rb").read())
        if bytes_of[0] != bytes_of[1]:
            raise Broken(f"{level}: the states under a budget of {budget} are others")


def check(ebb, number, count, levels, pool):
    fixed = {level: plan(ebb, number, level) for level in LEVELS}  # without a budget `fit` keeps weights together
    for level in levels:
        whole = fixed[level][0]
        budgets = [whole * (100 - 60 * (i + 1) // count) // 100 for i in range(count)]
        found = list(pool.map(lambda b: plan(ebb, number, level, b), budgets))
        fastest = 0
        for budget, one in zip(budgets, found):
            if one is None:
                continue
            if one[0] > budget:
                raise Broken(f"{level}: {one[0]} bytes, of {budget}")
            if one[1] * ALMOST < fastest:
                raise Broken(f"{level}: {budget} bytes are faster than more: {one[1]} after {fastest}")
            fastest = one[1]
            for other in ("fit", "always") if level == "fit" else ():
                arena, ns = fixed[other]
                if arena <= budget and one[1] > ns * ALMOST:
                    raise Broken(f"{budget} bytes: {one[1]} ns, and {ns} with '{other}', which takes {arena}")
        kept = [b for b, one in zip(budgets, found) if one]
        if not kept:
            raise Broken(f"{level}: no plan keeps to any of {budgets}")
        check_run(ebb, number, level, kept[-1])
        print(f"{MODELS[number][0]}: {level}: {len(kept)} of {len(budgets)} budgets can be kept, {kept[-1]} of {whole} bytes the least")


def main():
    words = argparse.ArgumentParser()
    words.add_argument("--ebb", default="build/release/ebb")
    words.add_argument("--models", type=int, default=1)
    words.add_argument("--budgets", type=int, default=2)
    words.add_argument("--levels", default="fit")
    given = words.parse_args()
    try:
        with ThreadPoolExecutor(2) as pool:
            for number in range(given.models):
                check(os.path.abspath(given.ebb), number, given.budgets, given.levels.split(","), pool)
    except Broken as broken:
        sys.exit(str(broken))


if __name__ == "__main__":
    main()
