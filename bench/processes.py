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

samples = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "samples")
DIGITS = ["--data", "digits/digits.npz", "--map", "label=target", "--loss", "cross-entropy"]
CASES = [  # model, batch, words
    ("digits/mlp.onnx", 512, DIGITS),
    ("digits/cnn.onnx", 256, DIGITS + ["--batch-norm", "frozen"]),
    ("digits/transformer.onnx", 256, DIGITS),
    ("text/char.onnx", 64, ["--data", "text/text.npz", "--loss", "cross-entropy:axis=-1"]),
]


def tell(words):
    ended = subprocess.run(words, capture_output=True, text=True, timeout=600)
    if ended.returncode != 0:
        raise SystemExit(f"{' '.join(words)}\nexit {ended.returncode}: {ended.stderr[-400:]}")
    return json.loads(ended.stdout)


def step_ns(given, model, batch, words, launch, threads=1):
    """Of a training; launch: [], or the words that start it several times."""
    words = [os.path.join(samples, w) if w.endswith(".npz") else w for w in words]
    return tell([given.ebb, *launch, "train", os.path.join(samples, model), *words, "--batch", str(batch), "--steps", str(given.steps),
                 "--seed", "4", "--optimizer", "adamw", "--json", "--threads", str(threads)])["median_step_ns"]


def launched(given, *link):
    return ["launch", "-n", str(given.ranks), *link, "--", given.ebb]


def medians(given, *ways):
    """Of each way's times, the ways in turns."""
    turns = [[way() for way in ways] for _ in range(given.turns)]
    return [statistics.median(times) for times in zip(*turns)]


def read_words(ranks, steps):
    words = argparse.ArgumentParser()
    words.add_argument("--ebb", default="build/release/ebb")
    words.add_argument("--ranks", type=int, default=ranks)
    words.add_argument("--turns", type=int, default=5)
    words.add_argument("--steps", type=int, default=steps)
    given = words.parse_args()
    given.ebb = os.path.abspath(given.ebb)
    return given


def main():
    given = read_words(ranks=2, steps=40)
    for model, batch, words in CASES:
        one, several, bucket = medians(given, lambda: step_ns(given, model, batch, words, [], given.ranks),
                                       lambda: step_ns(given, model, batch, words, launched(given)),
                                       lambda: step_ns(given, model, batch, words + ["--pass", "bucket"], launched(given)))
        print(f"{model} batch {batch}: 1 process of {given.ranks} threads {one / 1e6:.2f} ms; {given.ranks} of 1 thread {several / 1e6:.2f} ms, "
              f"share {several / one:.3f}; with bucket {bucket / one:.3f}", flush=True)


if __name__ == "__main__":
    main()
