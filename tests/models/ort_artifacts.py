"""ort_artifacts.py: the four files of `--dialect ort`, by the tools of others.

    python3 tests/models/ort_artifacts.py --ebb build/release/ebb

For the models in samples/: onnx.checker takes each file; the flatbuffers library reads the checkpoint, which
holds what the graphs ask for and nothing else; stock ONNX Runtime evaluates eval_model.onnx to the loss that
ebb has, and runs training_model.onnx, whose operators all have bodies for it, to the loss and the gradients
of ebb's own step, adding them up where it is told to. optimizer_model.onnx it cannot run: AdamWOptimizer and
SGDOptimizerV2 are in its training build alone.

Beside the repository there may be artifacts that ONNX Runtime's own tools wrote (../shared/models_ort): ours of
the same models have the same inputs, outputs, weights, moments and attributes.

Exit codes: 0, 1 where something differs, 77 where onnxruntime is not here.
"""
import argparse
import os
import sys
import tempfile

from runtimes import SOURCE, ask, by_ebb, by_onnxruntime, difference, np, onnx, read_safetensors

import flatbuffers.table
from flatbuffers import number_types as kinds

SHARED = os.path.join(os.path.dirname(SOURCE), "shared")
SAMPLES = [("samples/digits/mlp.onnx", "cross-entropy", "adamw"),
           ("samples/digits/cnn.onnx", "cross-entropy", "sgd"),
           ("samples/digits/transformer.onnx", "cross-entropy", "adamw:order=transformers"),
           ("samples/text/char.onnx", "cross-entropy:axis=-1", "adamw")]
FILES = ["training_model.onnx", "eval_model.onnx", "optimizer_model.onnx", "checkpoint"]
DTYPES = {1: np.float32, 7: np.int64, 9: np.bool_, 11: np.float64}
BUFFER, FLAG = "_grad.accumulation.buffer", "_grad.accumulation.out"
faults = []


def expect(holds, what):
    if not holds:
        faults.append(what)
        print(f"  WRONG: {what}")


# ---- the checkpoint ----

class Table:
    """A table of a FlatBuffer; fields by number."""

    def __init__(self, data, at):
        self.table = flatbuffers.table.Table(data, at)

    def place(self, field):
        offset = self.table.Offset(4 + 2 * field)
        return offset + self.table.Pos if offset else 0

    def child(self, field):
        at = self.place(field)
        return Table(self.table.Bytes, self.table.Indirect(at)) if at else None

    def children(self, field):
        offset = self.table.Offset(4 + 2 * field)
        if not offset:
            return []
        first = self.table.Vector(offset)
        return [Table(self.table.Bytes, self.table.Indirect(first + 4 * i))
                for i in range(self.table.VectorLen(offset))]

    def text(self, field):
        return self.table.String(self.place(field)).decode()

    def number(self, field, kind):
        at = self.place(field)
        return self.table.Get(kind, at) if at else 0

    def array(self, field, dtype):
        offset = self.table.Offset(4 + 2 * field)
        count = self.table.VectorLen(offset) if offset else 0
        return np.frombuffer(self.table.Bytes, np.uint8, count * dtype.itemsize if dtype.itemsize > 1 else count,
                             self.table.Vector(offset)).view(dtype) if count else np.zeros(0, dtype)


def tensor(table):
    dims = table.array(2, np.dtype(np.int64))
    return table.array(4, np.dtype(np.uint8)).view(DTYPES[table.number(3, kinds.Int32Flags)]).reshape(dims)


def read_checkpoint(path):
    with open(path, "rb") as file:
        data = file.read()
    expect(data[4:8] == b"ODTC", "the checkpoint's identifier")
    root = Table(data, int.from_bytes(data[:4], "little"))
    module = root.child(1)
    groups = root.children(2)
    moments = {}
    for state in groups[0].children(3) if groups else []:
        for moment in state.children(1):
            moments[state.text(0) + "." + moment.text(0)] = tensor(moment)
    return {"trained": {t.text(0): tensor(t) for t in module.children(0)},
            "frozen": {t.text(0): tensor(t) for t in module.children(1)},
            "moments": moments,
            "group": groups[0].text(0) if groups else None,
            "step": groups[0].number(1, kinds.Int64Flags) if groups else None,
            "rate": groups[0].number(2, kinds.Float32Flags) if groups else None,
            "version": root.number(0, kinds.Int32Flags)}


# ---- graphs ----

def kind_of(value):
    """What an input or output is: data type and dims, an open dim as None."""
    t = value.type
    if t.HasField("sequence_type"):
        return "sequence", t.sequence_type.elem_type.tensor_type.elem_type
    dims = [d.dim_value if d.HasField("dim_value") else None for d in t.tensor_type.shape.dim]
    return t.tensor_type.elem_type, tuple(dims)


def kinds_of(values):
    return {v.name: kind_of(v) for v in values}


def users_inputs(model, checkpoint):
    weights = {**checkpoint["trained"], **checkpoint["frozen"]}
    return [v for v in model.graph.input
            if v.name not in weights and not v.name.endswith(BUFFER) and v.name != "lazy_reset_grad"]


def draw(values, rng):
    batch = {}
    for v in values:
        dtype, dims = kind_of(v)
        batch[v.name] = rng.integers(0, 2, dims) if dtype == 7 else rng.standard_normal(dims).astype(np.float32)
    return batch


def load_all(folder):
    models = {}
    for name in FILES[:3]:
        path = os.path.join(folder, name)
        onnx.checker.check_model(path, full_check=True)
        models[name] = onnx.load(path)
        expect(models[name].ir_version <= 10, f"{name}: a version of the format that is too new")
    return models


# ---- our samples ----

def compare(what, ours, theirs):
    wrong = difference(np.asarray(ours), np.asarray(theirs), 2e-5, 1e-7)
    expect(wrong is None, f"{what}: {wrong}")


def check_weights(model, checkpoint):
    asked = kinds_of(model.graph.input)
    for name, array in {**checkpoint["trained"], **checkpoint["frozen"]}.items():
        dtype, dims = asked.get(name, (None, None))
        expect(dims == array.shape and DTYPES.get(dtype) == array.dtype, f"'{name}' of the checkpoint")
    for name in checkpoint["trained"]:
        expect(asked.get(name + BUFFER) == asked.get(name), f"the buffer of '{name}'")


def run_training(folder, model, checkpoint, batch, gradients):
    wide = os.path.join(folder, "wide.onnx")
    for node in model.graph.node:
        if node.op_type == "InPlaceAccumulatorV2":
            node.output[1] = node.output[0] + ".sum"
            dtype, dims = kind_of(next(v for v in model.graph.input if v.name == node.input[0]))
            for name in (node.input[1], node.output[1]):
                model.graph.output.append(onnx.helper.make_tensor_value_info(name, dtype, dims))
    onnx.save(model, wide)
    feeds = {**batch, **checkpoint["trained"], **checkpoint["frozen"]}
    for name, array in checkpoint["trained"].items():
        feeds[name + BUFFER] = np.full_like(array, 0.5)
    for reset in (True, False):
        # Copies, since it writes new running statistics over those that it is given.
        fresh = {k: np.array(v) for k, v in {**feeds, "lazy_reset_grad": [reset]}.items()}
        got = by_onnxruntime(wide, fresh, True)
        compare("the loss in training", gradients["loss"], got["loss"])
        for name in checkpoint["trained"]:
            compare(f"the gradient of '{name}'", gradients[name + "_grad"], got[name + "_grad"])
            expect(got[name + FLAG].tolist() == [True], f"the flag of '{name}'")
            compare(f"what is accumulated of '{name}'", got[name + FLAG + ".sum"],
                    got[name + "_grad"] + (0 if reset else 0.5))


def check_sample(ebb, file, loss, optimizer, folder):
    out, plain = os.path.join(folder, "out"), os.path.join(folder, "step.onnx")
    words = [os.path.join(SOURCE, file), "--dim", "batch=4", "--loss", loss, "--dropout", "off"]
    ask(ebb, "grad", *words, "--optimizer", optimizer, "--dialect", "ort", "-o", out)
    ask(ebb, "grad", *words, "--optimizer", "none", "-o", plain)
    models, checkpoint = load_all(out), read_checkpoint(os.path.join(out, "checkpoint"))
    training, evaluation = models["training_model.onnx"], models["eval_model.onnx"]
    check_weights(training, checkpoint)
    bodies = {(f.domain, f.name) for f in training.functions}
    lacking = {n.op_type for n in training.graph.node if n.domain and (n.domain, n.op_type) not in bodies}
    expect(not lacking, f"operators without bodies: {lacking}")
    batch = draw(users_inputs(training, checkpoint), np.random.default_rng(1))
    run_training(out, training, checkpoint, batch, by_ebb(ebb, plain, batch, folder))
    asked = {v.name for v in evaluation.graph.input}
    feeds = {name: a for name, a in {**batch, **checkpoint["trained"], **checkpoint["frozen"]}.items()
             if name in asked}
    saved = os.path.join(folder, "eval.safetensors")
    ask(ebb, "run", os.path.join(out, "eval_model.onnx"), "--weights", os.path.join(out, "checkpoint"), "--data",
        os.path.join(folder, "batch.npz"), "--save", saved)
    theirs = by_onnxruntime(os.path.join(out, "eval_model.onnx"), feeds, True)
    compare("the loss at rest", read_safetensors(saved)["loss"], theirs["loss"])
    expect(len(theirs) == 1, "eval_model.onnx has outputs beside the loss")
    expect(checkpoint["group"] == "group0" and checkpoint["step"] == 0, "the optimizer's group")
    print(f"{file}: {len(checkpoint['trained'])} trained, {len(checkpoint['frozen'])} not; "
          f"{models['optimizer_model.onnx'].graph.node[0].op_type}; bodies of {sorted(n for _, n in bodies)}")


# ---- those of ONNX Runtime's tools ----

def normal(name, model):
    """Names that the tools and ebb choose freely: of the loss, and of the labels."""
    loss, label = model.graph.output[0].name, model.graph.input[1].name
    return {loss: "loss", label: "labels"}.get(name, name)


def signature(model, values):
    """Names in order, with types; the first dim of what a batch feeds is anybody's."""
    fed = {v.name for v in model.graph.input[:2]}
    return [(normal(v.name, model), (kind_of(v)[0], kind_of(v)[1][1:]) if v.name in fed else kind_of(v))
            for v in values]


def check_beside(ebb, name, folder):
    theirs_at = os.path.join(SHARED, "models_ort", name)
    out = os.path.join(folder, "beside")
    ask(ebb, "grad", os.path.join(SHARED, "models", name, "ts.onnx"), "--dim", "batch=8", "--loss", "cross-entropy",
        "--optimizer", "adamw:order=transformers,epsilon=1e-6,weight-decay=0", "--dialect", "ort", "-o", out)
    ours = load_all(out)
    for file in FILES[:2]:
        theirs = onnx.load(os.path.join(theirs_at, file))
        for part in ("input", "output"):
            expect(signature(ours[file], getattr(ours[file].graph, part)) ==
                   signature(theirs, getattr(theirs.graph, part)), f"{name}/{file}: its {part}s")
    mine, other = ours[FILES[2]].graph, onnx.load(os.path.join(theirs_at, FILES[2])).graph
    expect(kinds_of(mine.input) == kinds_of(other.input), f"{name}: the optimizer's inputs")
    expect([v.name for v in mine.input] == [v.name for v in other.input], f"{name}: their order")
    expect([kind_of(v) for v in mine.output] == [kind_of(v) for v in other.output], f"{name}: its outputs")
    attributes = [{a.name: onnx.helper.get_attribute_value(a) for a in g.node[0].attribute} for g in (mine, other)]
    expect(attributes[0] == attributes[1], f"{name}: the optimizer's attributes {attributes}")
    a, b = (read_checkpoint(os.path.join(f, "checkpoint")) for f in (out, theirs_at))
    expect(a["version"] == b["version"], f"{name}: the checkpoint's version")
    for part in ("trained", "frozen"):
        expect(list(a[part]) == list(b[part]), f"{name}: what is {part}")
        expect(all(np.array_equal(a[part][k], b[part][k]) for k in a[part]), f"{name}: bytes of what is {part}")
    there = {n.op_type for n in onnx.load(os.path.join(theirs_at, FILES[0])).graph.node}
    here = {n.op_type for n in ours[FILES[0]].graph.node}
    print(f"{name}: as ONNX Runtime's; operators of ours alone {sorted(here - there)}, of its alone "
          f"{sorted(there - here)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ebb", required=True)
    ebb = os.path.abspath(parser.parse_args().ebb)
    with tempfile.TemporaryDirectory() as folder:
        for sample in SAMPLES:
            check_sample(ebb, *sample, folder)
    beside = os.path.join(SHARED, "models_ort")
    if os.path.isdir(beside):
        with tempfile.TemporaryDirectory() as folder:
            for name in sorted(os.listdir(beside)):
                if os.path.isdir(os.path.join(beside, name)):
                    check_beside(ebb, name, folder)
    else:
        print(f"SKIP: no artifacts of ONNX Runtime's own in {beside}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
