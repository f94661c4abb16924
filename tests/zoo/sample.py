"""Makes tests/zoo/sample, which the tests run: eight of the zoo's exports without their weights, and
what PyTorch computes for them with weights and inputs that anyone can draw again.

    python3 tests/zoo/sample.py [--ebb build/release/ebb]       (after export.py, with its packages)

A file keeps the graph as its exporter wrote it, less names of source lines. Of its weights only
random nodes are left (`training_info[0].initialization`), which `--init` draws, with mean and deviation
of what they stand for. recorded.txt says, as test_sample.c reads it:

    model NAME LOSS AXIS NOISE                  of PyTorch's own gradients in float32
    input NAME float|token|mask LESS DIMS...    drawn by `sequence` below, in this order; the target too
    loss NUMBER
    grad NAME NORM PROJECTION                   length, and sum of the products with the sequence
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

import numpy
import onnx
import torch
from onnx import helper, numpy_helper

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import architectures  # noqa: E402
import export  # noqa: E402

root = pathlib.Path(__file__).resolve().parents[2]
there = root / "tests" / "zoo" / "sample"
BATCH = 2
INLINE = 64  # elements that a tensor may have to be kept as it is

chosen = [
    ("convnext_atto", "ts"), ("densenet121", "dynamo"), ("dinov2", "ts"), ("clip", "dynamo"),
    ("deberta_v2", "dynamo"), ("llama_sdpa", "dynamo"), ("t5", "dynamo"), ("wav2vec2", "ts"),
]


def sequence(count, seed):
    """Numbers of 31 bits: a linear congruential generator, the same in C."""
    numbers = numpy.empty(count, dtype=numpy.int64)
    for i in range(count):
        seed = (seed * 1103515245 + 12345) % 2**31
        numbers[i] = seed
    return numbers


def signed(count, seed):
    return (sequence(count, seed).astype(numpy.float64) / 2**30 - 1).astype(numpy.float32)


def drawn(kind, less, dims, seed):
    count = int(numpy.prod(dims))
    if kind == "float":
        return signed(count, seed).reshape(dims)
    if kind == "token":
        return (3 + (sequence(count, seed) >> 8) % (less - 3)).reshape(dims)
    if kind == "target":
        return ((sequence(count, seed) >> 8) % less).reshape(dims)
    mask = numpy.ones(dims, dtype=numpy.int64)
    mask[dims[0] // 2:, -2:] = 0
    return mask


def bare(path, to, module):
    """The file without its weights."""
    state = {n for n, _ in module.named_parameters(remove_duplicate=False)}
    state |= {n for n, _ in module.named_buffers() if n.endswith(("running_mean", "running_var"))}
    model = onnx.load(path)
    model.doc_string = ""
    for graph in [model.graph, *model.functions]:
        graph.doc_string = ""
        for node in graph.node:
            node.doc_string = ""
            del node.metadata_props[:]
    marked = {t.name for t in model.graph.initializer}
    kept = [v for v in model.graph.value_info if v.name in marked]
    del model.graph.value_info[:]
    model.graph.value_info.extend(kept)
    for thing in [*kept, *model.graph.initializer, *model.graph.input, *model.graph.output]:
        props = [p for p in thing.metadata_props if p.key.endswith("InputSpec.kind")]
        del thing.metadata_props[:]
        thing.metadata_props.extend(props)
    nodes, bindings, offset = [], [], 0
    for i, t in enumerate(model.graph.initializer):
        values = numpy_helper.to_array(t)
        if values.size <= INLINE or t.name not in state:
            continue
        out = t.name + ".init"
        scale = max(float(values.std()), 1e-3)
        draw = {"seed": float(i + 1), "shape": list(t.dims)}
        if t.name.endswith("running_var"):  # never negative
            draw |= {"low": 0.9, "high": 1.3}
        else:
            draw |= {"mean": round(float(values.mean()), 4), "scale": round(scale, 4)}
        nodes.append(helper.make_node("RandomUniform" if "low" in draw else "RandomNormal", [], [out], **draw))
        bindings.append(onnx.StringStringEntryProto(key=t.name, value=out))
        t.ClearField("raw_data")
        t.ClearField("float_data")
        t.data_location = onnx.TensorProto.EXTERNAL
        for key, value in [("location", "weights.bin"), ("offset", offset), ("length", values.nbytes)]:
            t.external_data.add(key=key, value=str(value))
        offset += (values.nbytes + 4095) // 4096 * 4096
    info = model.training_info.add()
    info.initialization.name = "initialization"
    info.initialization.node.extend(nodes)
    info.initialization_binding.extend(bindings)
    to.write_bytes(model.SerializeToString())


def with_drawn_weights(ebb, row, file, shared):
    """The module with the weights that ebb draws for the file."""
    with tempfile.TemporaryDirectory() as folder:
        full = pathlib.Path(folder) / "full.onnx"
        subprocess.run([str(ebb), "rewrite", str(file), "-o", str(full), "--init", "--pass", "inline"],
                       check=True, capture_output=True)
        weights = {t.name: numpy_helper.to_array(t).copy() for t in onnx.load(full).graph.initializer}
    module = export.prepared(row)
    alias = {n: group for group in shared for n in group}
    with torch.no_grad():
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
            found = next((weights[n] for n in [name, *alias.get(name, ())] if n in weights), None)
            if found is not None and tensor.is_floating_point():
                assert tuple(found.shape) == tuple(tensor.shape), name
                tensor.copy_(torch.from_numpy(found))
    return module


def recorded(ebb, name, exporter):
    row, file = architectures.rows[name], there / f"{name}.onnx"
    lines, tensors = [], {}
    module = export.prepared(row)
    bare(root / "build" / "zoo" / name / f"{exporter}.onnx", file, module)
    shared = {}
    for n, p in module.named_parameters(remove_duplicate=False):
        shared.setdefault(p.data_ptr(), []).append(n)
    shared = [n for n in shared.values() if len(n) > 1]
    module = with_drawn_weights(ebb, row, file, shared)
    for i, (key, (kind, *dims)) in enumerate(row.inputs.items()):
        dims, less = [BATCH, *dims], architectures.VOCABULARY if kind == "token" else 0
        tensors[key] = torch.from_numpy(drawn(kind, less, dims, i + 1))
        lines.append(f"input {key} {kind} {less} " + " ".join(map(str, dims)))
    with torch.no_grad(), export.without_dropout():
        y = export.certain(module)(*tensors.values())
    dims = list(y.shape)
    less = dims.pop(row.axis)
    target = torch.from_numpy(drawn("target", less, dims, 99))
    lines.append(f"input target target {less} " + " ".join(map(str, dims)))
    values = export.computed(row, module, tensors, target, torch.float64)
    single = export.computed(row, module, tensors, target, torch.float32)
    noise = export.relative(single, values)
    lines.insert(0, f"model {name} {row.loss} {row.axis} {noise:.1e}")
    lines.append(f"loss {float(values['loss']):.9g}")
    present = {t.name for t in onnx.load(file, load_external_data=False).graph.initializer}
    alias = {n: group for group in shared for n in group}
    for key, g in values.items():
        if key.startswith("grad/"):
            n = next(n for n in [key[5:], *alias.get(key[5:], ())] if n in present)
            r = signed(g.size, 7).astype(numpy.float64)
            lines.append(f"grad {n} {numpy.linalg.norm(g):.9g} {(g.ravel() * r).sum():.9g}")
    print(f"{name:30} {file.stat().st_size} bytes, float32 is {noise:.1e} off")
    return lines


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--ebb", type=pathlib.Path, default=root / "build" / "dev" / "ebb")
    given = arguments.parse_args()
    there.mkdir(exist_ok=True)
    export.warnings.filterwarnings("ignore")
    lines = [line for name, exporter in chosen for line in recorded(given.ebb, name, exporter)]
    (there / "recorded.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
