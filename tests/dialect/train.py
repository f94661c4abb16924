"""train.py: `--dialect ort` by ONNX Runtime's training, and its checkpoints by ebb. Run by hand.

    pip install onnxruntime-training-cpu==1.19.2          # the last release of it, for Python 3.8 to 3.11
    python3 tests/dialect/train.py --ebb build/release/ebb

Each sample is trained for some steps on one batch by `ebb train` and by ONNX Runtime from the same artifacts,
whose bodies it passes over for its own kernels; losses and weights are compared. Then each goes on from the
checkpoint that the other wrote. ONNX Runtime takes the rate from no file: it is told.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
from onnxruntime.training.api import CheckpointState, Module, Optimizer

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
STEPS, BATCH, RATE = 4, 8, 0.003
CASES = [("digits/mlp.onnx", "cross-entropy", "adamw"), ("digits/mlp.onnx", "cross-entropy", "sgd"),
         ("digits/cnn.onnx", "cross-entropy", "adamw:order=transformers,weight-decay=0.1"),
         ("digits/cnn.onnx", "cross-entropy", "sgd"), ("digits/transformer.onnx", "cross-entropy", "adamw"),
         ("text/char.onnx", "cross-entropy:axis=-1", "adamw:order=transformers,correct-bias=0,epsilon=0.01")]


def ask(ebb, *words):
    done = subprocess.run([ebb, *words], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"ebb {' '.join(words)}\n{done.stderr}")
    return [float(line.split("loss")[1]) for line in done.stderr.splitlines() if line.startswith("step ")]


def by_onnxruntime(folder, checkpoint, batch, out):
    state = CheckpointState.load_checkpoint(checkpoint)
    module = Module(os.path.join(folder, "training_model.onnx"), state, os.path.join(folder, "eval_model.onnx"))
    optimizer = Optimizer(os.path.join(folder, "optimizer_model.onnx"), module)
    optimizer.set_learning_rate(RATE)
    module.train()
    losses = []
    for _ in range(STEPS):
        losses.append(float(module(*[batch[name] for name in module.input_names()])))
        optimizer.step()
        module.lazy_reset_grad()
    CheckpointState.save_checkpoint(state, out, True)
    return losses


def by_ebb(ebb, folder, checkpoint, batch, out):
    whole = os.path.join(folder, "checkpoint")
    if checkpoint != whole:
        os.replace(checkpoint, whole)
    data = os.path.join(folder, "batch.npz")
    np.savez(data, **batch)
    return ask(ebb, "train", folder, "--data", data, "--batch", str(BATCH), "--steps", str(STEPS), "--repeat-batch",
               "--no-shuffle", "--save-checkpoint", out)


def apart(a, b):
    """The largest difference of a weight, by the largest weight of its tensor."""
    p, q = (CheckpointState.load_checkpoint(path).parameters for path in (a, b))
    names = [name for name, _ in p]
    return max(float(np.abs(p[n].data - q[n].data).max() / max(np.abs(q[n].data).max(), 1e-3)) for n in names)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ebb", required=True)
    ebb, worst = os.path.abspath(parser.parse_args().ebb), 0
    for file, loss, optimizer in CASES:
        with tempfile.TemporaryDirectory() as folder:
            at = lambda name: os.path.join(folder, name)
            ask(ebb, "grad", os.path.join(SOURCE, "samples", file), "--dim", f"batch={BATCH}", "--loss", loss,
                "--dropout", "off", "--optimizer", f"{optimizer}{',' if ':' in optimizer else ':'}lr={RATE}",
                "--dialect", "ort", "-o", folder)
            state = CheckpointState.load_checkpoint(at("checkpoint"))
            module = Module(at("training_model.onnx"), state, at("eval_model.onnx"))
            rng = np.random.default_rng(0)
            inspected = json.loads(subprocess.run([ebb, "inspect", folder, "--json"], capture_output=True).stdout)
            batch = {}
            for t in inspected["inputs"]:
                if t["name"] in module.input_names():
                    whole = "int" in str(t.get("dtype", t))
                    dims = t.get("shape", t.get("dims"))
                    batch[t["name"]] = (rng.integers(0, 2, dims) if whole
                                        else rng.standard_normal(dims).astype(np.float32))
            first = (by_onnxruntime(folder, at("checkpoint"), batch, at("theirs")),
                     by_ebb(ebb, folder, at("checkpoint"), batch, at("ours")))
            weights = apart(at("theirs"), at("ours"))
            then = (by_onnxruntime(folder, at("ours"), batch, at("after_ours")),
                    by_ebb(ebb, folder, at("theirs"), batch, at("after_theirs")))
            losses = max(abs(a - b) / abs(b) for pair in (first, then) for a, b in zip(*pair))
            worst = max(worst, losses)
            print(f"{file:24} {optimizer:56} losses {losses:.1e} weights {weights:.1e} "
                  f"{first[1][0]:.4f} -> {then[1][-1]:.4f}")
    return 1 if worst > 1e-4 else 0


if __name__ == "__main__":
    sys.exit(main())
