"""Two processes of one thread each beside one process of two threads: the time of a step of the same batch.

    python3 bench/processes.py --ebb build/release/ebb --turns 5

In turns: one process, several, several with gradients together (pass bucket). Prints a line a model, medians over the turns;
a share below 1 is that several are faster.
"""
import argparse
import json
import os
import statistics
import subprocess

here = os.path.dirname(os.path.abspath(__file__))
samples = os.path.join(here, "..", "samples")
DIGITS = ["--data", "digits/digits.npz", "--map", "label=target", "--loss", "cross-entropy"]
CASES = [  # model, batch, words
    ("digits/mlp.onnx", 512, DIGITS),
    ("digits/cnn.onnx", 256, DIGITS + ["--batch-norm", "frozen"]),
    ("digits/transformer.onnx", 256, DIGITS),
    ("text/char.onnx", 64, ["--data", "text/text.npz", "--loss", "cross-entropy:axis=-1"]),
]


def step_ns(given, model, batch, words, launch, passes):
    paths = [os.path.join(samples, w) if w.endswith(".npz") else w for w in words]
    ended = subprocess.run([given.ebb, *launch, "train", os.path.join(samples, model), *paths, "--batch", str(batch), "--steps",
                            str(given.steps), "--seed", "4", "--optimizer", "adamw", "--json", "--threads",
                            str(1 if launch else given.ranks), *passes], capture_output=True, text=True, timeout=600)
    if ended.returncode != 0:
        raise SystemExit(f"{model}: exit {ended.returncode}: {ended.stderr[-400:]}")
    return json.loads(ended.stdout)["median_step_ns"]


def main():
    words = argparse.ArgumentParser()
    words.add_argument("--ebb", default="build/release/ebb")
    words.add_argument("--ranks", type=int, default=2)
    words.add_argument("--turns", type=int, default=5)
    words.add_argument("--steps", type=int, default=40)
    given = words.parse_args()
    given.ebb = os.path.abspath(given.ebb)
    together = ["launch", "-n", str(given.ranks), "--", given.ebb]
    ways = [([], []), (together, []), (together, ["--pass", "bucket"])]
    for model, batch, words in CASES:
        turns = [[step_ns(given, model, batch, words, *way) for way in ways] for _ in range(given.turns)]
        one, several, bucket = (statistics.median(t[k] for t in turns) for k in range(3))
        print(f"{model} batch {batch}: 1 process of {given.ranks} threads {one / 1e6:.2f} ms; {given.ranks} of 1 thread {several / 1e6:.2f} ms, "
              f"share {several / one:.3f}; with bucket {bucket / one:.3f}", flush=True)


if __name__ == "__main__":
    main()
