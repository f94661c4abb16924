"""One training step: PyTorch at its best beside ebb at its best, in turns on this machine.

    python bench/against_pytorch.py [--only resnet18:16,gpt2] [--rounds 3] [--threads 2] [-o FILE]

Exports each model as README says, so both train the same weights. PyTorch's forms: eager, channels last
(images), torch.compile; each in float32 and under autocast to bfloat16; attention by its fused function.
ebb's: as exported, `layout:auto` with turned weights (images), `attention` (transformers); each in float32 and with
`--precision bf16`.
A round runs a few steps of every form, one form after the other; a form's time is its median over all
rounds; the best of each side is compared. Threads of both sides wait as they do by default.
Needs torch, torchvision, transformers, numpy, and a C++ compiler for torch.compile.
"""
import argparse
import contextlib
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy
import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent
CLASSES, WORDS = 1000, 20000


def vision(name):
    import torchvision

    return getattr(torchvision.models, name)()


def bert():
    from transformers import BertConfig, BertForSequenceClassification

    return BertForSequenceClassification(BertConfig(num_labels=2))


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(use_cache=False))


class Lstm(torch.nn.Module):
    """A character model: 64 steps of two layers of 512."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(WORDS, 128)
        self.lstm = torch.nn.LSTM(128, 512, num_layers=2, batch_first=True)
        self.head = torch.nn.Linear(512, 256)

    def forward(self, input_ids):
        return self.head(self.lstm(self.embedding(input_ids))[0])


# name: (model, optimizer, length of a row or None for images, classes, are there labels for each token?)
MODELS = {
    "resnet18": (lambda: vision("resnet18"), "momentum", None, CLASSES, False),
    "resnet50": (lambda: vision("resnet50"), "momentum", None, CLASSES, False),
    "mobilenet_v2": (lambda: vision("mobilenet_v2"), "momentum", None, CLASSES, False),
    "vit_b16": (lambda: vision("vit_b_16"), "adamw", None, CLASSES, False),
    "bert_base": (bert, "adamw", 512, 2, False),
    "gpt2": (gpt2, "adamw", 1024, WORDS, True),
    "lstm": (Lstm, "adamw", 64, 256, True),
}
CASES = ("resnet18:16,resnet50:8,mobilenet_v2:16,vit_b16:4,bert_base:1,gpt2:1,lstm:16,"
         "resnet50:1,resnet50:32,vit_b16:1,vit_b16:8,vit_b16:32")


class Logits(torch.nn.Module):
    """The model with its logits as the one output, and its inputs by place."""

    def __init__(self, model, names):
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs):
        if self.names == ["input"] or self.names == ["input_ids"]:
            out = self.model(*inputs)
        else:
            out = self.model(**dict(zip(self.names, inputs)))
        return getattr(out, "logits", out)


def make_data(name, batch):
    _, _, length, classes, by_token = MODELS[name]
    rng = numpy.random.default_rng(0)
    if length is None:
        arrays = {"input": rng.standard_normal((batch, 3, 224, 224), dtype=numpy.float32)}
    else:
        arrays = {"input_ids": rng.integers(0, WORDS, (batch, length))}
        if name != "lstm":
            arrays["attention_mask"] = numpy.ones((batch, length), numpy.int64)
    target = rng.integers(0, classes, (batch, length) if by_token else batch)
    return arrays, target


class PyTorch:
    """One form: a callable model, its optimizer, and autocast or not."""

    def __init__(self, model, inputs, target, optimizer, bf16, compiled):
        self.model = torch.compile(model) if compiled else model
        self.inputs, self.target, self.bf16 = inputs, target, bf16
        parameters = list(model.parameters())
        self.optimizer = (torch.optim.SGD(parameters, 1e-5, momentum=0.9, fused=True) if optimizer == "momentum"
                          else torch.optim.AdamW(parameters, 1e-5, fused=True))

    def steps(self, count):
        times = []
        for _ in range(count):
            start = time.perf_counter()
            with torch.autocast("cpu", torch.bfloat16) if self.bf16 else contextlib.nullcontext():
                logits = self.model(*self.inputs)
            loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, -2), self.target.flatten())
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            times.append(time.perf_counter() - start)
        return times


class Ebb:
    """One form: a command line."""

    def __init__(self, binary, model, data, batch, optimizer, threads, words):
        self.command = [
            binary, "train", model, "--data", data, "--batch", batch, "--repeat-batch", "--json", "--loss",
            "cross-entropy:axis=-1", "--optimizer", f"{optimizer}:lr=0.00001", "--threads", threads, *words]
        self.arena = 0

    def steps(self, count):
        done = subprocess.run([str(c) for c in self.command + ["--steps", count + 1]], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(str(c) for c in self.command)}\n{done.stderr}")
        facts = json.loads(done.stdout.splitlines()[0])
        self.arena = facts["arena_bytes"]
        return [t / 1e9 for t in facts["step_ns"]][1:]


def export(name, batch, folder):
    """(file, its data, the model, its inputs and target)"""
    arrays, target = make_data(name, batch)
    data = pathlib.Path(folder) / "data.npz"
    numpy.savez(data, **arrays, target=target)
    torch.manual_seed(0)
    model = Logits(MODELS[name][0]().train(), list(arrays))
    inputs = tuple(torch.from_numpy(a) for a in arrays.values())
    path = pathlib.Path(folder) / "model.onnx"
    torch.onnx.export(model, inputs, str(path), optimize=False, input_names=list(arrays), output_names=["logits"],
                      verbose=False)
    return path, data, model, inputs, torch.from_numpy(target)


def forms_of(name, batch, folder, arguments):
    """{(side, precision, form): what has steps()}"""
    make, optimizer, length, _, _ = MODELS[name]
    path, data, model, inputs, target = export(name, batch, folder)
    forms = {}
    for precision in arguments.precisions.split(","):
        bf16 = precision == "bf16"
        words = ["--precision", "bf16"] if bf16 else []
        for form in ["eager", "compile"] if arguments.compile else ["eager"]:
            forms["PyTorch", precision, form] = PyTorch(model, inputs, target, optimizer, bf16, form == "compile")
        if length is None:
            last = Logits(make().train(), model.names).to(memory_format=torch.channels_last)
            images = tuple(i.to(memory_format=torch.channels_last) for i in inputs)
            forms["PyTorch", precision, "channels last"] = PyTorch(last, images, target, optimizer, bf16, False)
        choices = {"as exported": []}
        if name in ("vit_b16", "bert_base", "gpt2"):
            choices["attention"] = ["--pass", "attention"]
        elif length is None:
            choices["layout"] = ["--pass", "layout:auto,weights=stored"]
        for form, passes in choices.items():
            forms["ebb", precision, form] = Ebb(arguments.ebb, path, data, batch, optimizer, arguments.threads,
                                                words + passes)
    return forms


def best(times, side, precision):
    """(seconds, form) of a side's fastest form."""
    return min((statistics.median(t), form) for (s, p, form), t in times.items() if (s, p) == (side, precision))


def processor():
    facts = dict(line.split(":", 1) for line in subprocess.run(["lscpu"], capture_output=True, text=True,
                                                               env={"LC_ALL": "C"}).stdout.splitlines() if ":" in line)
    flags = [f for f in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if f in facts.get("Flags", "").split()]
    return f"{facts.get('Model name', 'unknown').strip()} ({', '.join(flags)})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=CASES, help="NAME or NAME:BATCH, with commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3, help="of each form in a round")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--precisions", default="float32,bf16")
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    parser.add_argument("--ebb", default=str(ROOT / "build/release/ebb"))
    parser.add_argument("-o", dest="output", help="the table goes to this file, too")
    arguments = parser.parse_args()
    if "OMP_WAIT_POLICY" in os.environ:
        parser.error("OMP_WAIT_POLICY is set: unset it. By `active` PyTorch's threads would compute on nothing while ebb has its "
                     "turn, and by `passive` those of both would sleep in each step of time of a recurrence")
    torch.set_num_threads(arguments.threads)
    wanted = [c for c in CASES.split(",") if c in arguments.only.split(",") or c.split(":")[0] in arguments.only.split(",")]
    lines = [f"{datetime.date.today()}, {processor()}, {arguments.threads} threads, torch {torch.__version__}", ""]

    def say(line):
        lines.append(line)
        print(line, flush=True)
        if arguments.output:
            pathlib.Path(arguments.output).write_text("\n".join(lines) + "\n")

    print(lines[0], end="\n\n")
    say("| step | precision | PyTorch eager s | PyTorch's best s | its form | ebb's best s | its form | ebb / best | ebb / eager "
        "float32 | arena MiB |")
    say("|---|---|---|---|---|---|---|---|---|---|")
    for case in wanted:
        name, batch = case.split(":")
        with tempfile.TemporaryDirectory() as folder:
            forms = forms_of(name, int(batch), folder, arguments)
            for form in forms.values():
                form.steps(1)
            times = {key: [] for key in forms}
            for _ in range(arguments.rounds):
                for key, form in forms.items():
                    times[key] += form.steps(arguments.steps)
        eager = {p: statistics.median(times["PyTorch", p, "eager"]) for p in arguments.precisions.split(",")}
        base = next(iter(eager.values()))
        for precision in eager:
            theirs, their_form = best(times, "PyTorch", precision)
            ours, our_form = best(times, "ebb", precision)
            say(f"| {name} b{batch} | {precision} | {eager[precision]:.3f} | {theirs:.3f} | {their_form} | {ours:.3f} | "
                f"{our_form} | {ours / theirs:.2f} | {ours / base:.2f} | {forms['ebb', precision, our_form].arena / 2**20:.0f} |")


if __name__ == "__main__":
    main()
