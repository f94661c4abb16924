"""What TensorBoard's own reader finds in the event files that `ebb train --log FOLDER/` writes, beside the JSON lines of
the same run; also where a run was killed behind its checkpoint and its last steps were done again. By hand, since the
tests fetch no TensorBoard:

    python3 tests/cli/read_events.py --ebb build/release/ebb
"""
import argparse
import json
import os
import subprocess
import tempfile

from tensorboard.backend.event_processing import event_accumulator

digits = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "samples", "digits")
DATA = os.path.join(digits, "digits.npz")


def train(ebb, folder, *words):
    subprocess.run([ebb, "train", os.path.join(digits, "cnn.onnx"), "--data", DATA, "--map", "label=target", "--loss",
                    "cross-entropy", "--threads", "1", "--eval-split", "0.1", "--eval-every", "20", *words], cwd=folder,
                   check=True, capture_output=True)


def read(folder):
    events = event_accumulator.EventAccumulator(folder, purge_orphaned_data=True)
    events.Reload()
    return {tag: {e.step: e.value for e in events.Scalars(tag)} for tag in events.Tags()["scalars"]}


def compare(found, lines):
    """How many numbers agree, in float32."""
    count = 0
    for line in lines:
        wanted = {"train/loss": line["loss"], "train/rate": line["rate"]}
        wanted.update({f"eval/{name}": value for name, value in line.get("eval", {}).items()})
        if "epoch_loss" in line:
            wanted["train/epoch_loss"] = line["epoch_loss"]
        for tag, value in wanted.items():
            there = found[tag][line["step"]]
            assert abs(there - value) <= 1e-6 * abs(value), (tag, line["step"], there, value)
            count += 1
    assert set(found["train/loss"]) == {line["step"] for line in lines}
    return count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ebb", required=True)
    ebb = os.path.abspath(parser.parse_args().ebb)
    with tempfile.TemporaryDirectory() as folder:
        logs = ["--log", "runs/", "--log", "l.jsonl"]
        train(ebb, folder, "--steps", "50", "--checkpoint", "c.st", *logs)
        train(ebb, folder, "--steps", "70", "--log", "runs/", "--log", "longer.jsonl", "--resume", "c.st")
        train(ebb, folder, "--steps", "90", "--resume", "c.st", *logs)
        with open(os.path.join(folder, "l.jsonl")) as file:
            lines = [json.loads(line) for line in file]
        found = read(os.path.join(folder, "runs"))
        print(f"{compare(found, lines)} numbers of {len(lines)} steps agree; tags: {', '.join(sorted(found))}")


if __name__ == "__main__":
    main()
