"""optimizers.py: training by ebb beside the same loop in PyTorch, loss by loss.

    python3 tests/models/optimizers.py build/release [WORDS]     needs torch, numpy and onnx

Three samples (the digits CNN with batch norm, an LSTM over characters, the character transformer) are
exported as newcomers do. For each optimizer with a warm-up, a cosine, clipping and a group without decay and
with a rate of its own, and for each schedule with AdamW, `ebb train` and PyTorch take 50 steps on the same rows,
with an evaluation on others every 10 steps; ebb writes a log and keeps the best model. Compared: the loss and
the rate of each step, the loss of each evaluation, and the weights that are kept. Printed: the largest relative
difference of a loss. More than 1e-5 is a failure (exit 1), and so are other rates (1e-6) or weights (2e-3 in
length: where a gradient is rounding alone, as of a key's bias, Lion goes a whole step this way or that).

An activation on a bend of ReLU is on one side of it or the other by rounding, and by which kernels a processor has:
where one is, no two float32 programs need agree, PyTorch's on two processors included. So each run starts from the
first of the seeds 0, 1, ... from which PyTorch's loops in float32 and in float64, and four more in float64 from weights
that are moved by up to 2^-21 of themselves, agree with each other; ebb is not asked before that, and is then held to
the float32 loop. A seed above 0 is printed. WORDS: only runs whose names contain them all, e.g. "lstm muon".

PyTorch's side is its own: torch.optim's classes, torch.optim.lr_scheduler's, clip_grad_norm_. Lion, which it
does not have, stands below as in its paper; of its Muon the iteration is done in float32, not bfloat16.
"""
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import types
import warnings

os.environ["OMP_NUM_THREADS"] = "1"  # small models: threads would only wait for each other
import numpy as np
import onnx
import torch
from torch import nn
from torch.optim import lr_scheduler

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
STEPS, BATCH, EVERY, SEEDS = 50, 8, 10, 100
HELD_OUT = slice(STEPS * BATCH, STEPS * BATCH + 40)
MOST, MOST_RATE, MOST_WEIGHT = 1e-5, 1e-6, 2e-3
sys.dont_write_bytecode = True

# ---- models ----


def sample(name):
    """The module that made a sample; what only makes its data is not needed here."""
    absent = {n: types.ModuleType(n) for n in ("sklearn", "sklearn.datasets") if n not in sys.modules}
    for module in absent.values():
        module.load_digits = None
    sys.modules.update(absent)
    path = os.path.join(SOURCE, "samples", name, "export.py")
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for n in absent:
        del sys.modules[n]
    return module


class Lstm(nn.Module):
    def __init__(self, letters):
        super().__init__()
        self.letters = nn.Embedding(letters, 32)
        # An exporter joins the two biases of a layer: for Adafactor that is another parameter.
        self.lstm = nn.LSTM(32, 48, bias=False, batch_first=True)
        self.head = nn.Linear(48, letters)

    def forward(self, ids):
        return self.head(self.lstm(self.letters(ids))[0])


def without_dropout(model):
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model


def samples():
    """name -> (a function that makes the model, inputs, targets, the loss, names of hidden matrices)"""
    digits = np.load(os.path.join(SOURCE, "samples", "digits", "digits.npz"))
    text = np.load(os.path.join(SOURCE, "samples", "text", "text.npz"))
    letters = int(max(text["ids"].max(), text["target"].max())) + 1
    transformer = sample("text")
    transformer.DROPOUT = 0.0
    cnn = sample("digits").network
    return {
        "cnn": (lambda: without_dropout(cnn()), digits["image"], digits["label"],
                "cross-entropy", ()),
        "lstm": (lambda: Lstm(letters), text["ids"][:, :24], text["target"][:, :24],
                 "cross-entropy:axis=-1", ()),
        "transformer": (lambda: transformer.Characters(letters), text["ids"], text["target"],
                        "cross-entropy:axis=-1", ("qkv", "out", "up", "down")),
    }


# ---- PyTorch's side ----


class Lion(torch.optim.Optimizer):
    """Chen et al., 2023, algorithm 2."""

    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            first, second = group["betas"]
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                update = (first * m + (1 - first) * p.grad).sign()
                p.sub_(group["lr"] * (update + group["weight_decay"] * p))
                m.mul_(second).add_(p.grad, alpha=1 - second)


class Both:
    """Muon for some parameters, AdamW for the others, each with its groups."""

    def __init__(self, *optimizers):
        self.optimizers = [o for o in optimizers if o is not None]

    def rate(self):
        """Of the group that is not the biases'."""
        return self.optimizers[-1].param_groups[0]["lr"]

    def zero_grad(self):
        for o in self.optimizers:
            o.zero_grad()

    def step(self):
        for o in self.optimizers:
            o.step()


def orthogonal(grad, coefficients, steps, eps):
    a, b, c = coefficients
    x = grad.T if grad.size(0) > grad.size(1) else grad
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if grad.size(0) > grad.size(1) else x


# name -> (--optimizer, what makes PyTorch's from its groups)
OPTIMIZERS = {
    "sgd": ("sgd:lr=0.05,weight-decay=0.01", lambda g: torch.optim.SGD(g, 0.05, weight_decay=0.01)),
    "momentum": ("momentum:lr=0.02,weight-decay=0.01",
                 lambda g: torch.optim.SGD(g, 0.02, momentum=0.9, weight_decay=0.01)),
    "nesterov": ("nesterov:lr=0.02,weight-decay=0.01",
                 lambda g: torch.optim.SGD(g, 0.02, momentum=0.9, weight_decay=0.01, nesterov=True)),
    "adamw": ("adamw", lambda g: torch.optim.AdamW(g)),
    "adam": ("adam:weight-decay=0.01", lambda g: torch.optim.Adam(g, weight_decay=0.01)),
    "rmsprop": ("rmsprop:lr=0.0005", lambda g: torch.optim.RMSprop(g, 0.0005)),
    "rmsprop-centered": ("rmsprop:lr=0.0002,momentum=0.9,centered=1,epsilon=1e-4,alpha=0.95,weight-decay=0.01",
                         lambda g: torch.optim.RMSprop(g, 0.0002, momentum=0.9, centered=True, eps=1e-4,
                                                       alpha=0.95, weight_decay=0.01)),
    "adagrad": ("adagrad:lr-decay=0.01,weight-decay=0.01",
                lambda g: torch.optim.Adagrad(g, lr_decay=0.01, weight_decay=0.01)),
    "lion": ("lion:lr=0.0002,weight-decay=0.1", lambda g: Lion(g, 0.0002, weight_decay=0.1)),
    # its first epsilon is otherwise that of the type of the weights
    "adafactor": ("adafactor:weight-decay=0.01",
                  lambda g: torch.optim.Adafactor(g, weight_decay=0.01, eps=(2.0**-23, 1e-3))),
    "muon": ("muon:lr=0.002", None),
}


def warmed(warmup, after):
    """PyTorch's LinearLR from 1 / (warmup + 1), and what comes behind it."""
    def make(o):
        first = lr_scheduler.LinearLR(o, 1 / (warmup + 1), 1.0, warmup)
        return lr_scheduler.SequentialLR(o, [first, after(o)], [warmup])
    return make


def cosine(steps, floor):
    def factor(t):
        return floor + (1 - floor) * (1 + np.cos(np.pi * min(t / steps, 1))) / 2
    return lambda o: lr_scheduler.LambdaLR(o, factor)


def one_cycle(o):
    return lr_scheduler.OneCycleLR(o, [g["lr"] for g in o.param_groups], STEPS, cycle_momentum=False)


# name -> (--lr-schedule, PyTorch's)
SCHEDULES = {
    "constant": ("constant:warmup=10", warmed(10, lambda o: lr_scheduler.ConstantLR(o, 1.0, 1))),
    "linear": ("linear:warmup=10,steps=45,floor=0.1",
               warmed(10, lambda o: lr_scheduler.LinearLR(o, 1.0, 0.1, 35))),
    "cosine": ("cosine:warmup=10,steps=50,floor=0.1", warmed(10, cosine(40, 0.1))),
    "cosine-of-torch": ("cosine:steps=50", lambda o: lr_scheduler.CosineAnnealingLR(o, 50)),
    "step": ("step:warmup=5,every=15,gamma=0.5",
             warmed(5, lambda o: lr_scheduler.StepLR(o, 15, 0.5))),
    "one-cycle": (f"one-cycle:steps={STEPS}", one_cycle),
}


def groups_of(named):
    """Biases apart: no decay, and three quarters of the rate."""
    rest = [p for name, p in named if not name.endswith("bias")]
    bias = [p for name, p in named if name.endswith("bias")]
    return rest, bias


def in_groups(make, named, lr):
    rest, bias = groups_of(named)
    groups = ([{"params": rest}] if rest else []) + (
        [{"params": bias, "weight_decay": 0.0, "lr": 0.75 * lr}] if bias else [])
    return make(groups) if groups else None


def rate_of(words):
    known = {"adamw": 1e-3, "adam": 1e-3, "adagrad": 1e-2, "adafactor": 1e-2}
    kind, _, options = words.partition(":")
    given = dict(o.split("=") for o in options.split(",") if o)
    return float(given.get("lr", known.get(kind, 0)))


def by_torch(model, inputs, targets, kind, schedule, hidden):
    words, make = OPTIMIZERS[kind]
    lr, named = rate_of(words), list(model.named_parameters())
    if make is not None:
        optimizer = Both(in_groups(make, named, lr))
    else:
        def within(name):
            return name.endswith("weight") and name.split(".")[-2] in hidden

        def muon(g):
            return torch.optim.Muon(g, lr)

        def adamw(g):
            return torch.optim.AdamW(g, lr, weight_decay=0.1)

        optimizer = Both(in_groups(muon, [n for n in named if within(n[0])], lr),
                         in_groups(adamw, [n for n in named if not within(n[0])], lr))
    schedules = [SCHEDULES[schedule][1](o) for o in optimizer.optimizers]
    losses, rates, evaluations, best = [], [], [], None

    def loss_of(rows):
        x, y = (torch.from_numpy(a[rows]) for a in (inputs, targets))
        x = x.to(named[0][1].dtype) if x.is_floating_point() else x
        return nn.functional.cross_entropy(model(x).flatten(0, -2), y.flatten())

    for t in range(STEPS):
        rates.append(optimizer.rate())
        loss = loss_of(slice(t * BATCH, (t + 1) * BATCH))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        for s in schedules:
            s.step()
        losses.append(loss.item())
        if (t + 1) % EVERY == 0:
            with torch.no_grad():
                evaluations.append(loss_of_rest(model, loss_of))
            if evaluations[-1] == min(evaluations):
                best = {k: v.clone().numpy() for k, v in model.state_dict().items()}
    return np.array(losses), np.array(rates), np.array(evaluations), best


def loss_of_rest(model, loss_of):
    model.eval()
    loss = loss_of(HELD_OUT).item()
    model.train()
    return loss


# ---- ebb's side ----


def by_ebb(build, model, folder, inputs, targets, words):
    """(losses, rates, losses of evaluations, the model of the best one)"""
    log, best = os.path.join(folder, "run.jsonl"), os.path.join(folder, "best.onnx")
    files = []
    for name, rows in (("train", slice(0, STEPS * BATCH)), ("eval", HELD_OUT)):
        files.append(os.path.join(folder, name + ".npz"))
        np.savez(files[-1], input=inputs[rows], target=targets[rows])
    subprocess.run(
        [os.path.join(build, "ebb"), "train", model, "--data", files[0], "--eval", files[1], "--eval-every",
         str(EVERY), "--keep", "best", "--save-model", best, "--log", log, "--batch", str(BATCH), "--steps",
         str(STEPS), "--no-shuffle", "--dropout", "off", "--threads", "1", *words],
        check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open(log) as file:
        records = [json.loads(line) for line in file]
    steps = [r for r in records if "rate" in r]
    return (np.array([r["loss"] for r in steps]), np.array([r["rate"] for r in steps]),
            np.array([r["eval"]["loss"] for r in records if "eval" in r]), best)


# ---- both ----


def started(make, seed):
    torch.manual_seed(seed)
    return {k: v.clone() for k, v in make().train().state_dict().items()}


def export(make, path, inputs, name, start):
    model = make().train()
    model.load_state_dict(start)
    with torch.no_grad():
        torch.onnx.export(
            model, (torch.from_numpy(inputs[:4]),), path, dynamo=False, opset_version=17,
            training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False,
            input_names=[name], output_names=["logits"], dynamic_axes={name: {0: "batch"}})
    exported = onnx.load(path)  # the trace steps running statistics: put the initial ones back
    for tensor in exported.graph.initializer:
        if tensor.name in start:
            tensor.CopyFrom(onnx.numpy_helper.from_array(start[tensor.name].numpy(), tensor.name))
    onnx.save(exported, path)


def settled(make, train):
    """(seed, weights at the start, what PyTorch's float32 loop gives): see above."""
    for seed in range(SEEDS):
        start = started(make, seed)
        runs = []
        for dtype, moved, way in ((torch.float32, 0, 0), (torch.float64, 0, 0),
                                  *((torch.float64, 2.0**-21, way) for way in range(4))):
            model = make().train().to(dtype)
            noise = torch.Generator().manual_seed(way)
            model.load_state_dict({
                k: v * (1 + moved * (2 * torch.rand(v.shape, generator=noise, dtype=torch.float64) - 1))
                if v.is_floating_point() else v for k, v in start.items()})
            runs.append(train(model))
            if any(furthest(runs[-1][i], runs[0][i]) > MOST / 2 for i in (0, 2)):
                break
        else:
            return seed, start, runs[0]
    sys.exit("from no seed do PyTorch's own loops agree")


def furthest(got, wanted):
    return float(np.max(np.abs(got - wanted) / np.abs(wanted))) if got.shape == wanted.shape else np.inf


def far_in_weights(path, wanted):
    """By their length, of all that kept their names: a single one with a gradient of rounding alone moves freely."""
    kept = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}
    common = [n for n in wanted if n in kept and wanted[n].dtype.kind == "f"]
    off = sum(float(np.sum((kept[n] - wanted[n]) ** 2.0)) for n in common)
    return (off / sum(float(np.sum(wanted[n] ** 2.0)) for n in common)) ** 0.5 if common else np.inf


def main():
    warnings.simplefilter("ignore")  # of the exporter
    build, words = os.path.abspath(sys.argv[1]), sys.argv[2:]
    torch.set_num_threads(1)
    torch.optim._muon._zeropower_via_newtonschulz = orthogonal
    worst, runs, failed = 0.0, 0, 0
    pairs = [(kind, "cosine") for kind in OPTIMIZERS] + [
        ("adamw", s) for s in SCHEDULES if s != "cosine"]
    with tempfile.TemporaryDirectory() as folder:
        for name, (make, inputs, targets, loss, hidden) in samples().items():
            path = os.path.join(folder, name + ".onnx")
            for kind, schedule in pairs:
                title = f"{name:12} {kind:18} {schedule:16}"
                if not all(w in title for w in words):
                    continue
                seed, start, wanted = settled(
                    make, lambda model: by_torch(model, inputs, targets, kind, schedule, hidden))
                export(make, path, inputs, "input", start)
                optimizer = OPTIMIZERS[kind][0]
                got = by_ebb(build, path, folder, inputs, targets, [
                    "--loss", loss, "--optimizer", optimizer, "--lr-schedule", SCHEDULES[schedule][0], "--clip-norm", "1",
                    "--group", f"*bias:weight-decay=0,lr={0.75 * rate_of(optimizer):.9g}"])
                error = max(furthest(got[0], wanted[0]), furthest(got[2], wanted[2]))
                rate, weight = furthest(got[1], wanted[1]), far_in_weights(got[3], wanted[3])
                wrong = not (error <= MOST and rate <= MOST_RATE and weight <= MOST_WEIGHT)
                said = (f"  from seed {seed}" if seed > 0 else "") + ("  FAILED" if wrong else "")
                worst, runs, failed = max(worst, error), runs + 1, failed + wrong
                print(f"{title} loss {wanted[0][0]:.4f} -> {wanted[0][-1]:.4f}  held out {wanted[2][-1]:.4f}  largest "
                      f"difference {error:.1e}, rates {rate:.0e}, weights {weight:.0e}{said}", flush=True)
    print(f"{runs} runs of {STEPS} steps, {failed} failed: largest relative difference of a loss {worst:.1e}")
    return 0 if runs > 0 and failed == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
