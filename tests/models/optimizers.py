"""optimizers.py: training by ebb beside the same loop in PyTorch, loss by loss.

    python3 tests/models/optimizers.py build/release [WORDS]     needs torch, numpy and onnx

Three samples (the digits CNN with batch norm, an LSTM over characters, the character transformer) are
exported as newcomers do. For each optimizer with a warm-up, a cosine, clipping and a group without decay and
with a rate of its own, and for each schedule with AdamW, `ebb grad` makes the step, and both take 50 steps on
the same rows. Printed: the largest relative difference of a loss. More than 1e-5 is a failure (exit 1).
WORDS: only runs whose names contain them all, e.g. "lstm muon".

PyTorch's side is its own: torch.optim's classes, torch.optim.lr_scheduler's, clip_grad_norm_. Lion, which it
does not have, stands below as in its paper; of its Muon the iteration is done in float32, not bfloat16.
"""
import ctypes
import importlib.util
import os
import subprocess
import sys
import tempfile
import types
import warnings

os.environ["OMP_NUM_THREADS"] = "1"  # small models: threads would only wait for each other
import numpy as np
import torch
from torch import nn
from torch.optim import lr_scheduler

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
STEPS, BATCH, LEAST = 50, 8, 1e-5
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
    "adafactor": ("adafactor:weight-decay=0.01", lambda g: torch.optim.Adafactor(g, weight_decay=0.01)),
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
    losses = []
    for t in range(STEPS):
        x, y = (torch.from_numpy(a[t * BATCH:(t + 1) * BATCH]) for a in (inputs, targets))
        logits = model(x)
        loss = nn.functional.cross_entropy(logits.flatten(0, -2), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        for s in schedules:
            s.step()
        losses.append(loss.item())
    return np.array(losses)


# ---- ebb's side ----


class Named(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("dtype", ctypes.c_int), ("rank", ctypes.c_int),
                ("dims", ctypes.POINTER(ctypes.c_int64)), ("data", ctypes.c_void_p)]


class Batch(ctypes.Structure):
    _fields_ = [("tensors", ctypes.POINTER(Named)), ("count", ctypes.c_size_t)]


def library(build):
    lib = ctypes.CDLL(os.path.join(build, "libebb.so"))
    for name in ("ebb_open", "ebb_program_compile", "ebb_program_step", "ebb_program_get"):
        getattr(lib, name).restype = ctypes.c_void_p
    lib.ebb_status_text.restype = ctypes.c_char_p
    lib.ebb_status_text.argtypes = [ctypes.c_void_p]
    lib.ebb_program_free.argtypes = lib.ebb_close.argtypes = [ctypes.c_void_p]
    return lib


def by_ebb(lib, step, arrays):
    def good(status):
        if status:
            raise RuntimeError(lib.ebb_status_text(status).decode())

    model, program, losses = ctypes.c_void_p(), ctypes.c_void_p(), []
    good(lib.ebb_open(ctypes.byref(model), step.encode()))
    good(lib.ebb_program_compile(ctypes.byref(program), model, None))
    for t in range(STEPS):
        rows = [np.ascontiguousarray(a[t * BATCH:(t + 1) * BATCH]) for _, a in arrays]
        tensors = (Named * len(rows))()
        for tensor, (name, _), a in zip(tensors, arrays, rows):
            dims = (ctypes.c_int64 * a.ndim)(*a.shape)
            tensor.name, tensor.rank, tensor.dims = name.encode(), a.ndim, dims
            tensor.dtype = 1 if a.dtype == np.float32 else 7
            tensor.data = a.ctypes.data
        good(lib.ebb_program_step(program, ctypes.byref(Batch(tensors, len(rows)))))
        loss = Named()
        good(lib.ebb_program_get(program, b"loss", ctypes.byref(loss)))
        losses.append(ctypes.cast(loss.data, ctypes.POINTER(ctypes.c_float))[0])
    lib.ebb_program_free(program)
    lib.ebb_close(model)
    return np.array(losses)


# ---- both ----


def export(make, path, inputs, name):
    torch.manual_seed(0)
    model = make().train()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    with torch.no_grad():
        torch.onnx.export(
            model, (torch.from_numpy(inputs[:4]),), path, dynamo=False, opset_version=17,
            training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False,
            input_names=[name], output_names=["logits"], dynamic_axes={name: {0: "batch"}})
    import onnx
    exported = onnx.load(path)  # the trace steps running statistics: put the initial ones back
    for tensor in exported.graph.initializer:
        if tensor.name in before:
            tensor.CopyFrom(onnx.numpy_helper.from_array(before[tensor.name].numpy(), tensor.name))
    onnx.save(exported, path)
    model.load_state_dict(before)
    return before


def main():
    warnings.simplefilter("ignore")  # of the exporter
    build, words = os.path.abspath(sys.argv[1]), sys.argv[2:]
    torch.set_num_threads(1)
    torch.optim._muon._zeropower_via_newtonschulz = orthogonal
    lib, worst, runs = library(build), 0.0, 0
    pairs = [(kind, "cosine") for kind in OPTIMIZERS] + [
        ("adamw", s) for s in SCHEDULES if s != "cosine"]
    with tempfile.TemporaryDirectory() as folder:
        for name, (make, inputs, targets, loss, hidden) in samples().items():
            path, step = os.path.join(folder, name + ".onnx"), os.path.join(folder, "step.onnx")
            start = export(make, path, inputs, "input")
            for kind, schedule in pairs:
                title = f"{name:12} {kind:18} {schedule:16}"
                if not all(w in title for w in words):
                    continue
                group = f"*bias:weight-decay=0,lr={0.75 * rate_of(OPTIMIZERS[kind][0]):.9g}"
                subprocess.run(
                    [os.path.join(build, "ebb"), "grad", path, "-o", step, "--dim", f"batch={BATCH}", "--loss",
                     loss, "--optimizer", OPTIMIZERS[kind][0], "--lr-schedule", SCHEDULES[schedule][0],
                     "--clip-norm", "1", "--group", group, "--dropout", "off"],
                    check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                model = make().train()
                model.load_state_dict(start)
                wanted = by_torch(model, inputs, targets, kind, schedule, hidden)
                got = by_ebb(lib, step, [("input", inputs), ("target", targets)])
                error = float(np.max(np.abs(got - wanted) / np.abs(wanted)))
                worst, runs = max(worst, error), runs + 1
                print(f"{title} loss {wanted[0]:.4f} -> {wanted[-1]:.4f}  largest difference {error:.1e}",
                      flush=True)
    print(f"{runs} runs of {STEPS} steps: largest relative difference of a loss {worst:.1e}")
    return 0 if runs > 0 and worst <= LEAST else 1


if __name__ == "__main__":
    sys.exit(main())
