"""One training step, ebb beside PyTorch eager, in turns on this machine.

    python bench/against_pytorch.py --models DIR [--only resnet18,gpt2] [--rounds 3] [--threads 2]

DIR holds NAME/ts.onnx, exports of the models below with a symbolic batch axis (weights may be missing:
they are drawn). Needs torch, torchvision, transformers and numpy. Prints a table: median step time of
each, their ratio, and ebb's arena. Peak memory of PyTorch is to be had from its own tracker.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy
import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent


def vision(name):
    import torchvision

    return getattr(torchvision.models, name)()


def bert():
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(num_labels=2, attn_implementation="eager")
    return BertForSequenceClassification(config)


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(attn_implementation="eager", use_cache=False))


# name: (model, optimizer, batch, sequence or None)
CASES = {
    "resnet18": (lambda: vision("resnet18"), "momentum", 16, None),
    "resnet50": (lambda: vision("resnet50"), "momentum", 8, None),
    "mobilenet_v2": (lambda: vision("mobilenet_v2"), "momentum", 16, None),
    "bert_base": (bert, "adamw", 1, 512),
    "gpt2": (gpt2, "adamw", 1, 1024),
}


def make_data(name, batch, sequence, folder):
    rng = numpy.random.default_rng(0)
    if sequence is None:
        arrays = {
            "input": rng.standard_normal((batch, 3, 224, 224), dtype=numpy.float32),
            "target": rng.integers(0, 1000, batch),
        }
    else:
        arrays = {
            "input_ids": rng.integers(0, 20000, (batch, sequence)),
            "attention_mask": numpy.ones((batch, sequence), numpy.int64),
            "target": rng.integers(0, 2, batch) if name == "bert_base"
            else rng.integers(0, 20000, (batch, sequence)),
        }
    path = pathlib.Path(folder) / f"{name}.npz"
    numpy.savez(path, **arrays)
    return path, {k: torch.from_numpy(v) for k, v in arrays.items()}


class Eager:
    def __init__(self, name, make, optimizer, tensors):
        self.model = make().train()
        self.target = tensors["target"]
        self.inputs = {k: v for k, v in tensors.items() if k != "target"}
        parameters = self.model.parameters()
        self.optimizer = (torch.optim.SGD(parameters, 0.01, momentum=0.9) if optimizer == "momentum"
                          else torch.optim.AdamW(parameters, 1e-5))

    def step(self):
        start = time.perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        if "input" in self.inputs:
            logits = self.model(self.inputs["input"])
        else:
            logits = self.model(**self.inputs).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, -2), self.target.flatten())
        loss.backward()
        self.optimizer.step()
        return time.perf_counter() - start


def ebb_steps(binary, model, data, batch, optimizer, axis, threads, steps, profile):
    command = [
        binary, "train", model, "--init", "--data", data, "--batch", batch, "--steps", steps,
        "--repeat-batch", "--json", "--loss", f"cross-entropy:axis={axis}", "--optimizer",
        f"{optimizer}:lr=0.00001", "--threads", threads,
    ]
    if profile:
        command.append("--profile")
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(str(c) for c in command)}\n{done.stderr}")
    facts = json.loads(done.stdout.splitlines()[0])
    times = [t / 1e9 for t in facts["step_ns"]]
    return times[1:], facts["arena_bytes"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", required=True)
    parser.add_argument("--only", default=",".join(CASES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--ebb", default=str(ROOT / "build/release/ebb"))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print("| model | PyTorch eager s | ebb s | ratio | ebb arena MiB |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.only.split(","):
            make, optimizer, batch, sequence = CASES[name]
            data, tensors = make_data(name, batch, sequence, folder)
            eager = Eager(name, make, optimizer, tensors)
            eager.step()
            theirs, ours, arena = [], [], 0
            for _ in range(arguments.rounds):
                theirs += [eager.step() for _ in range(3)]
                model = pathlib.Path(arguments.models) / name / "ts.onnx"
                axis = -1 if name == "gpt2" else 1
                times, arena = ebb_steps(arguments.ebb, model, data, batch, optimizer, axis,
                                         arguments.threads, 4, False)
                ours += times
            a, b = statistics.median(theirs), statistics.median(ours)
            print(f"| {name} b{batch}{f' s{sequence}' if sequence else ''} | {a:.3f} | {b:.3f} "
                  f"| {b / a:.2f} | {arena / 2**20:.0f} |", flush=True)


if __name__ == "__main__":
    main()
