"""Exports the zoo's models and records what PyTorch computes for them.

    python3 tests/zoo/export.py [--to DIR] [--exporter ts|dynamo] [--again] [NAME ...]

Needs torch, torchvision, timm, transformers, onnx, onnxscript and onnxruntime; nothing is downloaded. Of each row
of architectures.py this makes, in DIR/NAME (default build/zoo):

    ts.onnx, dynamo.onnx    both exporters, in training mode, nothing folded, batch symbolic if it can be
    batch.npz               one batch: the inputs by name, and `target`
    reference.npz           loss, grad/PARAMETER, after/BUFFER: PyTorch's in float64, dropout off
    facts.json              opsets, PyTorch's own rounding in float32, names of shared parameters,
                            whether ONNX Runtime runs the files, or why an exporter refused

What is random is drawn from the row's name. Every parameter gets noise, as fresh models have equal
biases, scales of one and layer scales near zero, which would hide mistakes.
"""
import argparse
import contextlib
import copy
import json
import logging
import pathlib
import sys
import time
import warnings
import zlib

import numpy
import onnx
import onnxruntime
import torch
from onnx import numpy_helper
from torch.nn import functional

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import architectures  # noqa: E402

MOST_NOISE = 1e-3  # of PyTorch's float32 gradients: where there is more, the file is exported in float64
root = pathlib.Path(__file__).resolve().parents[2]


class Zoo(torch.nn.Module):
    """One tensor out, inputs by position: what both exporters take without more ado."""

    def __init__(self, row):
        super().__init__()
        self.model = row.make()
        self.row = row

    def forward(self, *inputs):
        row = self.row
        if row.positional:
            y = self.model(*inputs, **row.constants)
        else:
            y = self.model(**dict(zip(row.inputs, inputs)), **row.constants)
        if row.output is None:
            return y
        if isinstance(row.output, str) and hasattr(y, row.output):
            return getattr(y, row.output)
        return y[row.output]


def prepared(row):
    torch.manual_seed(zlib.crc32(row.name.encode()))
    module = Zoo(row)
    with torch.no_grad():
        for p in module.parameters():
            p.add_(0.03 * torch.randn_like(p))
        for name, b in module.named_buffers():
            if name.endswith("running_mean"):
                b.add_(0.1 * torch.randn_like(b))
            elif name.endswith("running_var"):
                b.mul_(1 + 0.2 * torch.rand_like(b))
    return module.train()


def drawn(row):
    tensors = {}
    for name, (kind, *dims) in row.inputs.items():
        dims = [architectures.BATCH, *dims]
        if kind == "float":
            tensors[name] = torch.randn(dims)
        elif kind == "token":
            tensors[name] = torch.randint(3, architectures.VOCABULARY, dims)
        elif kind == "mask":  # the second half of the batch is two tokens shorter
            mask = torch.ones(dims, dtype=torch.int64)
            mask[dims[0] // 2:, -2:] = 0
            tensors[name] = mask
        elif kind == "int":  # ("int", below, *dims)
            tensors[name] = torch.randint(0, dims[1], [dims[0], *dims[2:]])
        else:
            raise ValueError(kind)
    return tensors


@contextlib.contextmanager
def without_dropout():
    """Dropout is random, and no two programs draw alike: both sides leave it out."""
    names = ["dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"]
    kept = {name: getattr(functional, name) for name in names}
    attention = functional.scaled_dot_product_attention

    def same(x, *_, **__):
        return x

    def undropped(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, **options):
        return attention(query, key, value, attn_mask=attn_mask, is_causal=is_causal, **options)

    for name in names:
        setattr(functional, name, same)
    functional.scaled_dot_product_attention = undropped
    try:
        yield
    finally:
        for name, f in kept.items():
            setattr(functional, name, f)
        functional.scaled_dot_product_attention = attention


def certain(module):
    """No path is dropped."""
    for part in module.modules():
        if hasattr(part, "drop_prob"):
            part.drop_prob = 0.0
        if type(part).__name__ == "StochasticDepth":
            part.p = 0.0
    return module


def loss_of(row, y, target):
    if row.loss == "mse":
        return functional.mse_loss(y, target.to(y.dtype))
    y = torch.movedim(y, row.axis, -1)
    return functional.cross_entropy(y.reshape(-1, y.shape[-1]), target.reshape(-1))


def target_of(row, y):
    if row.loss == "mse":
        return torch.randn(y.shape)
    dims = list(y.shape)
    return torch.randint(0, dims.pop(row.axis), dims)


def computed(row, module, tensors, target, dtype):
    """Loss, gradients and buffers afterwards, in dtype."""
    module = certain(copy.deepcopy(module).to(dtype))
    given = [t.to(dtype) if t.is_floating_point() else t for t in tensors.values()]
    with without_dropout():
        loss = loss_of(row, module(*given), target)
    loss.backward()
    values = {"loss": loss.detach().double().numpy()}
    for name, p in module.named_parameters():
        if p.grad is not None:
            values["grad/" + name] = p.grad.double().numpy()
    for name, b in module.named_buffers():
        if name.endswith(("running_mean", "running_var")):
            values["after/" + name] = b.double().numpy()
    return values


def relative(got, want):
    """Largest difference in a tensor by its largest magnitude, or by 1/1000 of the group's largest."""
    most = max((numpy.abs(w).max() for k, w in want.items() if k.startswith("grad/")), default=0.0)
    worst = 0.0
    for k, w in want.items():
        if k.startswith("grad/") and w.size:
            worst = max(worst, numpy.abs(got[k] - w).max() / max(numpy.abs(w).max(), most / 1000))
    return float(worst)


def record(row, module, folder):
    tensors = drawn(row)
    with torch.no_grad(), without_dropout():
        target = target_of(row, certain(copy.deepcopy(module))(*tensors.values()))
    single = computed(row, module, tensors, target, torch.float32)
    facts = {"reference": "float64"}
    try:
        reference = computed(row, module, tensors, target, torch.float64)
    except (RuntimeError, TypeError) as error:  # a module that makes float32 tensors inside
        facts["reference"] = "float32"
        facts["why"] = str(error).splitlines()[0][:200]
        reference = single
    facts["noise"] = {"loss": float(abs(single["loss"] - reference["loss"]) / abs(reference["loss"])),
                      "grad": relative(single, reference)}
    names = {}
    for name, p in module.named_parameters(remove_duplicate=False):
        names.setdefault(p.data_ptr(), []).append(name)
    facts["shared"] = [n for n in names.values() if len(n) > 1]
    facts["parameters"] = sum(p.numel() for p in module.parameters())
    numpy.savez(folder / "batch.npz", target=target.numpy(), **{k: t.numpy() for k, t in tensors.items()})
    numpy.savez(folder / "reference.npz", **{k: v.astype(numpy.float64) for k, v in reference.items()})
    return facts, tensors


def by_torchscript(row, module, tensors, path, symbolic):
    axes = {name: {0: "batch"} for name in [*row.inputs, "y"]} if symbolic else None
    torch.onnx.export(
        module, tuple(tensors.values()), path, dynamo=False, opset_version=17,
        training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False,
        input_names=list(row.inputs), output_names=["y"], dynamic_axes=axes)


def by_dynamo(row, module, tensors, path, symbolic):
    shapes = None
    if symbolic:
        shapes = (tuple({0: torch.export.Dim("batch")} for _ in tensors),)
    torch.onnx.export(
        module, tuple(tensors.values()), path, dynamo=True, opset_version=20, optimize=False,
        external_data=False, verbose=False, input_names=list(row.inputs), output_names=["y"],
        dynamic_shapes=shapes)


exporters = {"ts": by_torchscript, "dynamo": by_dynamo}


def restored(path, module):
    """The trace steps the running statistics: put the initial ones back, and say what is in the file."""
    before = {k: v for k, v in module.state_dict().items()}
    model = onnx.load(path)
    for tensor in model.graph.initializer:
        if tensor.name in before and tensor.name.endswith(("running_mean", "running_var")):
            tensor.CopyFrom(numpy_helper.from_array(before[tensor.name].numpy(), tensor.name))
    onnx.save(model, path)
    return {"opset": {o.domain or "ai.onnx": o.version for o in model.opset_import},
            "nodes": len(model.graph.node), "functions": len(model.functions)}


def refused_by_onnxruntime(path, tensors):
    """Why ONNX Runtime cannot run the file either, or an empty string."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(path, options)
        wanted = {i.name for i in session.get_inputs()}
        session.run(None, {k: t.numpy() for k, t in tensors.items() if k in wanted})
        return ""
    except Exception as error:  # noqa: BLE001: it has no class of its own
        return str(error)[:500]


def export(row, module, tensors, folder, exporter):
    path = folder / f"{exporter}.onnx"
    path.unlink(missing_ok=True)
    refused = []
    for symbolic in (True, False):
        started = time.time()
        try:
            with torch.no_grad():
                exporters[exporter](row, copy.deepcopy(module), tensors, str(path), symbolic)
            seconds = round(time.time() - started, 1)
            facts = restored(path, module)
            return {"symbolic": symbolic, "refused": refused, "seconds": seconds,
                    "onnxruntime": refused_by_onnxruntime(str(path), tensors)} | facts
        except Exception as error:  # noqa: BLE001: any of an exporter's many; it is recorded
            while error.__cause__ is not None:  # the exporter's advice stands around what happened
                error = error.__cause__
            refused.append(f"{type(error).__name__}: {error}"[:2000])
    return {"error": refused}


def one(row, to, which, again):
    folder = to / row.name
    file = folder / "facts.json"
    facts = json.loads(file.read_text()) if file.exists() else {}
    for exporter in which if again else []:
        facts.pop(exporter, None)
    if all(e in facts for e in which):
        return
    folder.mkdir(parents=True, exist_ok=True)
    module = prepared(row)
    recorded, tensors = record(row, module, folder)
    facts = facts | recorded
    facts["dtype"] = "float32"
    if facts["noise"]["grad"] > MOST_NOISE and facts["reference"] == "float64":
        facts["dtype"] = "float64"
        module = module.double()
        tensors = {k: t.double() if t.is_floating_point() else t for k, t in tensors.items()}
        batch = dict(numpy.load(folder / "batch.npz"))
        numpy.savez(folder / "batch.npz", **{
            k: v.astype(numpy.float64) if v.dtype == numpy.float32 else v for k, v in batch.items()})
    for exporter in which:
        if exporter in facts:
            continue
        facts[exporter] = export(row, module, tensors, folder, exporter)
        error = facts[exporter].get("error")
        print(f"{row.name:28} {exporter:7}", "REFUSED " + error[-1].splitlines()[0][:150] if error
              else f"{facts[exporter]['nodes']} nodes, {facts[exporter]['seconds']} s", flush=True)
    file.write_text(json.dumps(facts, indent=1))


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--to", type=pathlib.Path, default=root / "build" / "zoo")
    arguments.add_argument("--exporter", choices=list(exporters))
    arguments.add_argument("--again", action="store_true", help="although it is there")
    arguments.add_argument("names", nargs="*")
    given = arguments.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    which = [given.exporter] if given.exporter else list(exporters)
    for name in given.names or architectures.rows:
        try:
            one(architectures.rows[name], given.to, which, given.again)
        except Exception as error:  # noqa: BLE001: the other rows are still to be made
            print(f"{name:28} no model: {type(error).__name__}: {str(error)[:300]}", flush=True)


if __name__ == "__main__":
    main()
