"""Exports models as somebody does who never trained from ONNX, and says what ebb trains of them.

    python3 tests/zoo/newcomer.py export [--to DIR] [--again] [NAME ...]
    python3 tests/zoo/newcomer.py check [--ebb build/dev/ebb] [--to DIR] [--write] [NAME ...]

Needs what export.py needs. DIR (default /tmp/newcomer) gets, of each architecture in `chosen` and of each form:

    NAME-FORM.onnx      the form is WEIGHTS-CALL: fresh or trained weights, and a row of `calls` below
    NAME-FORM.json      what PyTorch would train: parameters with shape, size, requires_grad and whether a
                        loss reaches them; buffers; nodes and bytes of the file, or why the exporter refused
    NAME-WEIGHTS.npz    all their values

`check` makes the training graph of each file with `ebb grad --optimizer none` and finds for each tensor that is
trained what it is in PyTorch, by value: a parameter as it is, transposed, reshaped, in parts or several in one
(`pieces`), multiplied by what was folded into it (`scaled`), made of parameters (`computed`: it differs between two
sets of weights), a parameter that its author holds fixed, a buffer, or a constant. The verdict on a file:

    all         what PyTorch trains; batch norm inside a convolution counts with the convolution
    tied        all, but equal parameters that the exporter made one are trained as one
    parted      all, but one parameter that the exporter stored twice is trained as two
    part        less some parameters
    wrong       something that is no parameter is trained
    refused     nothing is trained, and the export call that helps is named
    failed      nothing is trained, and it is not named
"""
import argparse
import copy
import itertools
import json
import logging
import pathlib
import re
import subprocess
import sys
import tempfile
import warnings
import zlib

import numpy
import onnx
import torch
from onnx import numpy_helper
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import architectures  # noqa: E402
import export  # noqa: E402

root = pathlib.Path(__file__).resolve().parents[2]
EVAL, TRAINING = torch.onnx.TrainingMode.EVAL, torch.onnx.TrainingMode.TRAINING

# In the mode of the module, with these arguments beside module, inputs and file.
calls = {
    "default": ("eval", {}),
    "dynamo-plain": ("eval", {"dynamo": True, "optimize": False}),
    "ts": ("eval", {"dynamo": False}),
    "ts-unfolded": ("eval", {"dynamo": False, "do_constant_folding": False}),
    # README's first screen
    "dynamo-advised": ("train", {"dynamo": True, "optimize": False}),
    "ts-advised": ("train", {"dynamo": False, "training": TRAINING, "do_constant_folding": False}),
}
weights = ("fresh", "trained")
PARAMETERS = ("same", "transposed", "reshaped", "pieces", "scaled")


# ---- small modules that the zoo does not have ----


class Sequence(nn.Module):
    """A recurrent layer between an embedding and a head."""

    def __init__(self, kind, **options):
        super().__init__()
        self.embed = nn.Embedding(50, 12)
        self.cell = kind(12, 16, batch_first=True, **options)
        self.head = nn.LazyLinear(5)

    def forward(self, ids):
        y, _ = self.cell(self.embed(ids))
        return self.head(y[:, -1])


def initialised(module, *shape, below=None):
    module(torch.randint(0, below, shape) if below else torch.randn(shape))
    return module


def normalised(norm):
    return nn.Sequential(norm(nn.Conv2d(3, 8, 3)), nn.ReLU(), nn.Flatten(), norm(nn.Linear(8 * 36, 5)))


def mlp():
    return nn.Sequential(nn.Linear(12, 24), nn.LayerNorm(24), nn.GELU(), nn.Dropout(0.1), nn.Linear(24, 12),
                         nn.ReLU(), nn.Linear(12, 3))


extra = [
    ("resnet18", lambda: __import__("torchvision").models.resnet18(num_classes=10), ("float", 3, 64, 64)),
    ("mobilenet_v2", lambda: __import__("torchvision").models.mobilenet_v2(num_classes=10), ("float", 3, 64, 64)),
    ("lstm", lambda: initialised(Sequence(nn.LSTM, bidirectional=True, num_layers=2), 2, 7, below=50), ("int", 50, 7)),
    ("gru", lambda: initialised(Sequence(nn.GRU), 2, 7, below=50), ("int", 50, 7)),
    ("linear_3d", mlp, ("float", 6, 12)),
    ("weight_norm", lambda: normalised(nn.utils.parametrizations.weight_norm), ("float", 3, 8, 8)),
    ("spectral_norm", lambda: normalised(nn.utils.parametrizations.spectral_norm), ("float", 3, 8, 8)),
]
for name, make, shape in extra:
    if name not in architectures.rows:
        axis = 2 if name == "linear_3d" else 1
        architectures.add(architectures.Row(name, "torch" if name not in ("resnet18", "mobilenet_v2") else "torchvision",
                                            make, {"x": shape}, axis=axis, positional=True))

chosen = [
    # the first ten: one of each kind
    "resnet18", "mobilenet_v3_small", "densenet121", "vit_tiny_patch16_224", "convnext_atto", "swin_tiny_patch4_window7_224",
    "bert_sdpa", "gpt2_sdpa", "t5", "lstm", "gru", "linear_3d", "weight_norm", "spectral_norm",
    # torchvision
    "mobilenet_v2", "squeezenet1_1", "shufflenet_v2_x0_5", "regnet_x_400mf", "mnasnet0_5", "googlenet",
    # timm
    "efficientnet_b0", "regnety_002", "nf_regnet_b0", "beit_base_patch16_224", "convit_tiny", "mixer_s32_224", "levit_128s",
    "poolformer_s12", "coat_lite_tiny", "mobilevit_xxs", "xcit_nano_12_p16_224", "fastvit_t8", "ghostnet_050",
    "swinv2_tiny_window8_256", "edgenext_xx_small",
    # transformers
    "distilbert", "roberta", "albert", "deberta_v2", "electra", "mobilebert", "llama_sdpa", "gemma", "bloom", "opt", "qwen3",
    "gpt_neo", "mamba", "bart", "marian", "whisper", "wav2vec2", "hubert", "clip", "segformer", "dinov2",
]


# ---- export ----


def made(row, state):
    torch.manual_seed(zlib.crc32(row.name.encode()))
    module = export.Zoo(row)
    return export.prepared(row) if state == "trained" else module


def reached(row, module, tensors):
    """Names of what a loss changes: the file cannot have the others."""
    module = export.certain(copy.deepcopy(module)).train()
    with export.without_dropout():
        y = module(*tensors.values())
    y.float().square().sum().backward()
    return {n for n, p in module.named_parameters(remove_duplicate=False) if p.grad is not None}


def described(row, module, tensors):
    names, facts = {}, {"parameters": [], "buffers": []}
    for name, p in module.named_parameters(remove_duplicate=False):
        names.setdefault(id(p), []).append(name)
    used = reached(row, module, tensors)
    for name, p in module.named_parameters():
        facts["parameters"].append({
            "name": name, "shape": list(p.shape), "elements": p.numel(), "requires_grad": p.requires_grad,
            "reached": name in used, "also": [n for n in names[id(p)] if n != name]})
    for name, b in module.named_buffers():
        facts["buffers"].append({"name": name, "shape": list(b.shape), "elements": b.numel(),
                                 "dtype": str(b.dtype).removeprefix("torch.")})
    return facts


def written(row, module, tensors, path, call):
    mode, options = calls[call]
    module = copy.deepcopy(module)
    module.train(mode == "train")
    names = {"input_names": list(row.inputs), "output_names": ["y"]}
    with torch.no_grad():
        torch.onnx.export(module, tuple(tensors.values()), str(path), verbose=False, **names, **options)


def export_row(row, to, again):
    for state in weights:
        files = {call: to / f"{row.name}-{state}-{call}.json" for call in calls}
        if all(f.exists() for f in files.values()) and not again:
            continue
        module = made(row, state)
        tensors = export.drawn(row)
        known = described(row, module, tensors)
        numpy.savez(to / f"{row.name}-{state}.npz", **{
            n: t.detach().numpy() for n, t in [*module.named_parameters(), *module.named_buffers()]})
        for call, file in files.items():
            if file.exists() and not again:
                continue
            facts = {"architecture": row.name, "package": row.package, "weights": state, "call": call}
            path = file.with_suffix(".onnx")
            try:
                written(row, module, tensors, path, call)
                facts["nodes"] = len(onnx.load(path, load_external_data=False).graph.node)
            except Exception as error:  # noqa: BLE001: any of an exporter's many; it is recorded
                while error.__cause__ is not None:
                    error = error.__cause__
                facts["error"] = f"{type(error).__name__}: {error}"[:1000]
                path.unlink(missing_ok=True)
            file.write_text(json.dumps(facts | known, indent=1))
            print(f"{file.stem:50}", facts.get("error", f"{facts.get('nodes')} nodes")[:100], flush=True)


# ---- what is trained ----


class Known:
    """PyTorch's tensors, to be found again by value."""

    def __init__(self, values, facts):
        self.parameters = {p["name"]: p for p in facts["parameters"]}
        self.buffers = {b["name"]: b for b in facts["buffers"]}
        self.values = {n: values[n] for n in [*self.parameters, *self.buffers]}
        flat = [(n, self.values[n].ravel()) for n in self.parameters]
        everything = numpy.concatenate([v for _, v in flat])
        owner = numpy.repeat(numpy.arange(len(flat)), [v.size for _, v in flat])
        order = numpy.argsort(everything, kind="stable")
        self.sorted, self.owner, self.names = everything[order], owner[order], [n for n, _ in flat]

    def same(self, name, t, taken):
        """Parameter or buffer with these values as it is, transposed or reshaped: the one of that name, or one that is
        not taken (fresh parameters have equal values), or any."""
        order = sorted(self.values, key=lambda n: (n != name, n in taken, n not in self.parameters))
        for kind in ("same", "transposed", "reshaped"):
            for n in order:
                v = self.values[n]
                if v.size != t.size or v.dtype != t.dtype:
                    continue
                if kind == "same" and v.shape == t.shape and numpy.array_equal(v, t):
                    return kind, n
                if kind == "transposed" and 1 < t.ndim < 5 and v.ndim == t.ndim and any(
                        v.transpose(p).shape == t.shape and numpy.array_equal(v.transpose(p), t)
                        for p in itertools.permutations(range(t.ndim))):
                    return kind, n
                if kind == "reshaped" and numpy.array_equal(v.ravel(), t.ravel()):
                    return kind, n
        return None

    def pieces(self, t):
        """Parameters that its elements are taken from, unless any of them says nothing (zeros, ones)."""
        flat = t.ravel()
        telling = flat[(flat != 0) & (flat != 1)]
        if telling.size == 0:
            return []
        at = numpy.minimum(numpy.searchsorted(self.sorted, telling), self.sorted.size - 1)
        hit = self.sorted[at] == telling
        if hit.mean() < 0.999:
            return []
        counts = numpy.bincount(self.owner[at], minlength=len(self.names))
        return [self.names[i] for i in numpy.flatnonzero(counts > max(1, telling.size // 1000))]

    def scaled(self, t):
        """The parameter that it is a multiple of, one factor for each first or last index, or in all."""
        for n, p in self.parameters.items():
            v = self.values[n]
            if v.size != t.size or v.ndim < 2 or t.ndim < 2:
                continue
            for p in itertools.permutations(range(v.ndim)) if v.ndim < 5 else ():
                w = v.transpose(p)
                if w.shape != t.shape:
                    continue
                for axis in {0, w.ndim - 1}:
                    a = numpy.moveaxis(w, axis, 0).reshape(w.shape[axis], -1).astype(float)
                    b = numpy.moveaxis(t, axis, 0).reshape(w.shape[axis], -1).astype(float)
                    dots = (a * b).sum(1) ** 2
                    lengths = (a * a).sum(1) * (b * b).sum(1)
                    if a.shape[1] > 1 and numpy.all(dots >= (1 - 1e-6) * lengths):
                        return n
        return None


    def told(self, name, t, taken, constants):
        """What the tensor is. constants: bytes of what depends on no weight."""
        kind, of = self.same(name, t, taken) or (None, None)
        pieces = self.pieces(t) if kind is None else []
        multiple = self.scaled(t) if kind is None and not pieces else None
        if kind is not None:
            fixed = of not in self.buffers and not self.parameters[of]["requires_grad"]
            kind, of = "buffer" if of in self.buffers else "fixed" if fixed else kind, [of]
        elif pieces:
            kind, of = "pieces", pieces
        elif name in self.buffers:  # the trace of a module in training mode steps running statistics
            kind, of = "buffer", [name]
        elif multiple is not None:
            kind, of = "scaled", [multiple]
        else:
            kind, of = "constant" if t.tobytes() in constants else "computed", []
        return {"is": kind, "of": of, "elements": int(t.size), "shape": list(t.shape)}


def trained_names(ebb, facts, path, row, folder):
    """Initializers that have a gradient, or what ebb says."""
    step = folder / "step.onnx"
    kind = "cross-entropy:axis=%d" % row.axis if row.loss == "cross-entropy" else row.loss
    done = subprocess.run([str(ebb), "grad", str(path), "-o", str(step), "--loss", kind, "--optimizer", "none",
                           "--dropout", "off"], capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        return None, done.stderr.strip()
    model = onnx.load(step)
    tensors = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    outputs = {o.name for o in model.graph.output}
    return {n: t for n, t in tensors.items() if n + "_grad" in outputs}, done.stderr.strip()


def constants_of(other):
    """Bytes of all tensors of the same export with other weights: what is in both depends on none."""
    if not other.exists():
        return set()
    return {numpy_helper.to_array(t).tobytes() for t in onnx.load(other).graph.initializer}


def judged(ebb, facts, path, to):
    row = architectures.rows[facts["architecture"]]
    values = dict(numpy.load(to / f"{row.name}-{facts['weights']}.npz"))
    known = Known(values, facts)
    with tempfile.TemporaryDirectory() as folder:
        trained, said = trained_names(ebb, facts, path, row, pathlib.Path(folder))
    wanted = {n: p["elements"] for n, p in known.parameters.items() if p["requires_grad"] and p["reached"]}
    if trained is None:
        helps = re.search(r"optimize=False|TrainingMode|do_constant_folding=False", said)
        return {"result": "refused" if helps else "failed", "why": said}
    other = "fresh" if facts["weights"] == "trained" else "trained"
    fixed_bytes = constants_of(to / f"{row.name}-{other}-{facts['call']}.onnx")
    tensors, covered = {}, set()
    for name, t in sorted(trained.items(), key=lambda item: item[0] not in known.parameters):
        tensors[name] = known.told(name, t, covered, fixed_bytes)
        if tensors[name]["is"] in PARAMETERS:
            covered |= set(tensors[name]["of"])
    model = onnx.load(path)
    lost = absorbed(model, tensors, known, wanted, covered)
    kept = {v.tobytes() for n, v in known.values.items() if n in covered} | {t.tobytes() for t in trained.values()}
    tied = [n for n in wanted if n not in covered | lost and known.values[n].tobytes() in kept]
    missing = {n: e for n, e in wanted.items() if n not in covered | lost and n not in tied}
    whole = [t["of"][0] for t in tensors.values() if t["is"] in ("same", "transposed", "reshaped")]
    parted = sorted({n for n in whole if whole.count(n) > 1})
    wrong = [n for n, t in tensors.items() if t["is"] not in (*PARAMETERS, "computed")]
    share = 1 - sum(missing.values()) / max(1, sum(wanted.values()))
    result = "wrong" if wrong else "part" if missing else "tied" if tied else "parted" if parted else "all"
    return {"result": result, "share": share, "said": said, "tensors": tensors, "tied": tied, "parted": parted, "missing": list(missing), "absorbed": sorted(lost), "wrong": wrong}


def absorbed(model, tensors, known, wanted, covered):
    """Of what is not trained by itself: what lies in a tensor that is, and nowhere else in the file."""
    present = {numpy_helper.to_array(t).tobytes() for t in model.graph.initializer}
    by_computation = sum(t["elements"] for t in tensors.values() if t["is"] == "computed")
    lost = set()
    for n in wanted:
        if n in covered or known.values[n].tobytes() in present:
            continue
        beside = any(t["is"] in ("scaled", "computed") and known.values[n].size in t["shape"] for t in tensors.values())
        if known.values[n].ndim <= 1 and beside:
            lost.add(n)  # scale and bias of a norm, in the weight and the bias of its neighbour
        elif known.values[n].size <= by_computation and beside:
            lost.add(n)  # normalised, interpolated, shifted
            by_computation -= known.values[n].size
    return lost


# ---- report ----


def line(facts, v):
    counts = {}
    for t in v.get("tensors", {}).values():
        counts[t["is"]] = counts.get(t["is"], 0) + 1
    what = ", ".join(f"{n} {k}" for k, n in sorted(counts.items(), key=lambda i: -i[1]))
    if v.get("absorbed"):
        what += f"; {len(v['absorbed'])} parameters inside them"
    if v["result"] in ("failed", "refused"):
        what = re.sub(r"^ebb: \S*: ", "", v["why"].splitlines()[0] if v["why"] else "")[:160]
    if v.get("tied"):
        what += f"; {len(v['tied'])} tied to others"
    if v.get("parted"):
        what += f"; twice: {', '.join(v['parted'][:2])}"
    if v.get("missing"):
        what += f"; not {len(v['missing'])}: {', '.join(v['missing'][:2])}"
    if v.get("wrong"):
        what += f"; no parameter: {', '.join(v['wrong'][:3])}"
    share = f"{100 * v['share']:.1f} %" if "share" in v else ""
    return (f"| {facts['architecture']} | {facts['package']} | {facts['weights']} | {facts['call']} | {v['result']} | "
            f"{share} | {what.replace('|', chr(92) + '|')} |")


def table(results):
    lines = "\n".join(line(f, v) for f, v in results)
    names = {f["architecture"] for f, _ in results}
    kinds = ("all", "refused", "tied", "parted", "part", "wrong", "failed")
    count = {r: sum(v["result"] == r for _, v in results) for r in kinds}
    return f"""# Exports of newcomers

Made by `tests/zoo/newcomer.py`, which says how and what the words mean: {len(names)} architectures, with fresh and with
trained (perturbed) weights, exported without a thought for training, and by README's calls (`advised`). What ebb
trains of each file is compared with PyTorch's parameters by value.

Of {len(results)} files ebb trains all that PyTorch would of {count['all']}, refuses {count['refused']} with the export
call that helps, ties parameters of {count['tied']}, parts one of {count['parted']}, trains {count['part']} in part, something else in {count['wrong']}, and fails at {count['failed']}.
`%`: of the elements that PyTorch would train.

| architecture | package | weights | call | verdict | % | what is trained |
|---|---|---|---|---|---|---|
{lines}
"""


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("what", choices=("export", "check"))
    arguments.add_argument("--to", type=pathlib.Path, default=pathlib.Path("/tmp/newcomer"))
    arguments.add_argument("--ebb", type=pathlib.Path, default=root / "build" / "dev" / "ebb")
    arguments.add_argument("--again", action="store_true", help="export although it is there")
    arguments.add_argument("--write", action="store_true", help="docs/newcomer.md, of what is checked")
    arguments.add_argument("names", nargs="*")
    given = arguments.parse_intermixed_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    given.to.mkdir(parents=True, exist_ok=True)
    results = []
    for name in given.names or chosen:
        row = architectures.rows[name]
        try:
            if given.what == "export":
                export_row(row, given.to, given.again)
                continue
        except Exception as error:  # noqa: BLE001: the other rows are still to be made
            print(f"{name:50} no model: {type(error).__name__}: {str(error)[:300]}", flush=True)
            continue
        for state, call in itertools.product(weights, calls):
            file = given.to / f"{name}-{state}-{call}.json"
            if not file.with_suffix(".onnx").exists():
                continue
            facts = json.loads(file.read_text())
            v = judged(given.ebb, facts, file.with_suffix(".onnx"), given.to)
            results.append((facts, v))
            file.with_suffix(".verdict.json").write_text(json.dumps(v, indent=1))
            print(line(facts, v), flush=True)
    for result, group in itertools.groupby(sorted(v["result"] for _, v in results)):
        print(f"{result}: {len(list(group))}")
    if given.write:
        (root / "docs" / "newcomer.md").write_text(table(results))
    return any(v["result"] not in ("all", "refused") for _, v in results)


if __name__ == "__main__":
    sys.exit(main())
