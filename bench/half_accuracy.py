"""Losses and gradients in bfloat16 beside PyTorch's autocast, both against float64; and curves over seeds.

    python bench/half_accuracy.py [--ebb build/release/ebb] [--curves] [-o bench/results/half_accuracy.md]

Small models with random weights are exported as README says. float64 is PyTorch's; PyTorch's own error is that of
autocast to bfloat16 on the CPU, ebb's that of `--precision bf16`, on the same weights and rows, over several draws of
rows. Errors are relative, in length: of a gradient, all parameters' behind each other. Wanted: ebb's at most 1.2 times
autocast's, in the mean over the draws. --curves: the samples trained with and without `--precision bf16` by three
seeds each; the means may differ by as much as the seeds do. Needs torch, numpy, safetensors.
"""
import argparse
import pathlib
import statistics
import subprocess
import sys
import tempfile

import numpy
import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import convergence

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORDS, DRAWS, MOST = 50, 100, 1.2  # a loss is one number: fewer draws tell nothing of its error


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.words = nn.Embedding(WORDS, 32)
        self.cells = kind(32, 64, num_layers=2, batch_first=True)
        self.head = nn.Linear(64, WORDS)

    def forward(self, ids):
        return self.head(self.cells(self.words(ids))[0])


class Transformer(nn.Module):
    def __init__(self, norm_first):
        super().__init__()
        self.words = nn.Embedding(WORDS, 64)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(64, 4, 128, 0.0, "gelu", batch_first=True,
                                                               norm_first=norm_first) for _ in range(2))
        self.head = nn.Linear(64, WORDS)

    def forward(self, ids):
        x = self.words(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def block(channels, out, stride):
    return nn.Sequential(nn.Conv2d(channels, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU())


def convolutional():
    return nn.Sequential(block(3, 16, 1), nn.MaxPool2d(3, 2, 1), block(16, 32, 1), block(32, 32, 2), nn.AdaptiveAvgPool2d(1),
                         nn.Flatten(), nn.Linear(32, 10))


def perceptron():
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 10))


# name: (model, does it read words?)
MODELS = {
    "perceptron": (perceptron, False),
    "convolutional": (convolutional, False),
    "transformer": (lambda: Transformer(False), True),
    "transformer, norms first": (lambda: Transformer(True), True),
    "lstm": (lambda: Recurrent(nn.LSTM), True),
    "gru": (lambda: Recurrent(nn.GRU), True),
    "rnn": (lambda: Recurrent(nn.RNN), True),
}


def rows(words, draw):
    rng = numpy.random.default_rng(draw)
    if words:
        return rng.integers(0, WORDS, (8, 24)), rng.integers(0, WORDS, (8, 24))
    return rng.standard_normal((8, 3, 16, 16)).astype(numpy.float32), rng.integers(0, 10, 8)


def by_torch(model, x, target, dtype, autocast):
    """(loss, {name: gradient}) as float64."""
    model = model.to(dtype)
    model.zero_grad()
    x = torch.from_numpy(x)
    x = x.to(dtype) if x.is_floating_point() else x
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        logits = model(x)
    logits = logits if dtype == torch.float64 else logits.float()
    loss = nn.functional.cross_entropy(logits.flatten(0, -2), torch.from_numpy(target).flatten())
    loss.backward()
    return float(loss), {n: p.grad.double().numpy().copy() for n, p in model.named_parameters()}


def by_ebb(ebb, folder, x, target, words):
    from safetensors.numpy import load_file

    numpy.savez(folder / "data.npz", input=x, target=target)
    step, found = folder / "step.onnx", folder / "found.safetensors"
    for command in ([ebb, "grad", folder / "model.onnx", "--loss", f"cross-entropy:axis={-1 if words else 1}", "--optimizer", "none",
                     "--precision", "bf16", "-o", step],
                    [ebb, "run", step, "--data", folder / "data.npz", "--save", found]):
        made = subprocess.run([str(c) for c in command], capture_output=True, text=True)
        if made.returncode != 0:
            sys.exit(f"{' '.join(map(str, command))}\n{made.stderr}")
    values = load_file(found)
    return float(values["loss"]), {n.removesuffix("_grad"): v.astype(numpy.float64) for n, v in values.items() if n.endswith("_grad")}


def distance(found, true):
    missing = sorted(set(true) - set(found))
    if missing:
        sys.exit(f"no gradient of {missing}")
    apart = sum(((found[n].reshape(true[n].shape) - true[n]) ** 2).sum() for n in true)
    return float(numpy.sqrt(apart / sum((true[n] ** 2).sum() for n in true)))


def errors(ebb, name):
    """Means over the draws: of the loss and of the gradient, PyTorch's and ebb's."""
    make, words = MODELS[name]
    torch.manual_seed(0)
    model = make().train()
    start = {n: v.clone() for n, v in model.state_dict().items()}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        torch.onnx.export(model, (torch.from_numpy(rows(words, 0)[0]),), str(folder / "model.onnx"), optimize=False,
                          input_names=["input"], output_names=["logits"], verbose=False)
        all_errors = []
        for draw in range(DRAWS):
            x, target = rows(words, draw)
            sides = []
            for dtype, autocast in ((torch.float64, False), (torch.float32, True)):
                model.load_state_dict(start)
                sides.append(by_torch(model, x, target, dtype, autocast))
                model.float()
            sides.append(by_ebb(ebb, folder, x, target, words))
            (true, grads), others = sides[0], sides[1:]
            all_errors.append([abs(loss - true) / true for loss, _ in others] + [distance(g, grads) for _, g in others])
    return [statistics.mean(column) for column in zip(*all_errors)]


def curves(ebb, say):
    ebb = str(pathlib.Path(ebb).resolve())
    say("| sample | float32: loss of the evaluation, mean and spread | bfloat16 | difference in spreads |")
    say("|---|---|---|---|")
    for task in convergence.TASKS:
        ends = [[convergence.train(ebb, task, passes, seed)["test_loss"] for seed in convergence.SEEDS]
                for passes in ("", "precision:bf16")]
        (a, b), spread = (statistics.mean(e) for e in ends), max(statistics.stdev(e) for e in ends)
        say(f"| {task} | {a:.4f}, {statistics.stdev(ends[0]):.4f} | {b:.4f}, {statistics.stdev(ends[1]):.4f} | {(b - a) / spread:+.1f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ebb", default=str(ROOT / "build/release/ebb"))
    parser.add_argument("--only", default=";".join(MODELS), help="names, with semicolons")
    parser.add_argument("--curves", action="store_true")
    parser.add_argument("-o", dest="output")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    lines, worse = [], []

    def say(line):
        lines.append(line)
        print(line, flush=True)

    say("| model | loss: autocast's error | ebb's | ratio | gradient: autocast's error | ebb's | ratio |")
    say("|---|---|---|---|---|---|---|")
    for name in arguments.only.split(";"):
        loss, own_loss, grad, own_grad = errors(arguments.ebb, name)
        say(f"| {name} | {loss:.2e} | {own_loss:.2e} | {own_loss / loss:.2f} | {grad:.2e} | {own_grad:.2e} | {own_grad / grad:.2f} |")
        if own_loss > MOST * loss or own_grad > MOST * grad:
            worse.append(name)
    if arguments.curves:
        curves(arguments.ebb, say)
    if arguments.output:
        pathlib.Path(arguments.output).write_text("\n".join(lines) + "\n")
    if worse:
        sys.exit(f"more than {MOST} times autocast's error: {', '.join(worse)}")


if __name__ == "__main__":
    main()
