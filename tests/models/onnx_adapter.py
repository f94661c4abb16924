"""onnx_adapter.py: adapters that ebb saves as .onnx_adapter, by stock ONNX Runtime; and one that ONNX Runtime writes, by ebb.

    python3 tests/models/onnx_adapter.py --ebb build/release/ebb

A place for an adapter is put beside each layer of models of ../shared/models_q4 (two products and a sum, whose A and B
are inputs of rank 0 by default). Without an adapter the model is what it was; with what ebb trained it gives the
logits of `ebb run --adapter`, within 1e-5 of their range, and so does ebb on the file that ONNX Runtime wrote again.
The model with places is trained as the one without them is: the same adapters, to the bit, and a merged model whose
places are still empty.

Exit codes: 0, 1 where something differs, 77 where onnxruntime or the models are not here.
"""
import argparse
import json
import os
import sys
import tempfile

from runtimes import SKIPPED, SOURCE, ask, np, onnx, onnxruntime, read_safetensors

FOLDER = os.path.join(os.path.dirname(SOURCE), "shared", "models_q4")
MODELS = ["qwen2_float", "qwen2_q4"]
TOLERANCE = 1e-5


def with_places(model, modules, shapes):
    """Beside each node x -> y: y = node(x) + (x A) B. modules: by node name; shapes: of the tensors."""
    graph = model.graph
    nodes = []
    for node in graph.node:
        nodes.append(node)
        module = modules.get(node.name)
        if module is None:
            continue
        a, b, y = f"{module}.lora_A.weight", f"{module}.lora_B.weight", node.output[0]
        node.output[0] = f"{y}/base"
        nodes += [onnx.helper.make_node("MatMul", [node.input[0], a], [f"{y}/narrow"]),
                  onnx.helper.make_node("MatMul", [f"{y}/narrow", b], [f"{y}/wide"]),
                  onnx.helper.make_node("Add", [f"{y}/base", f"{y}/wide"], [y])]
        for name, dims, empty in ((a, [shapes[a][0], "r"], (shapes[a][0], 0)), (b, ["r", shapes[b][1]], (0, shapes[b][1]))):
            graph.input.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, dims))
            graph.initializer.append(onnx.numpy_helper.from_array(np.zeros(empty, np.float32), name))
    del graph.node[:]
    graph.node.extend(nodes)
    return model


def logits(session, batch, adapter=None):
    options = onnxruntime.RunOptions()
    if adapter is not None:
        loaded = onnxruntime.LoraAdapter()
        loaded.Load(adapter)
        options.add_active_adapter(loaded)
    return session.run(["logits"], batch, options)[0]


def train(ebb, path, data, adapter, *more):
    ask(ebb, "train", path, "--data", data, "--batch", "2", "--steps", "4", "--threads", "1", "--save-adapter", adapter,
        "--loss", "cross-entropy:output=logits,axis=-1,ignore_index=-100", "--optimizer", "adamw:lr=0.02",
        "--pass", "lora:rank=4,alpha=8", *more)


def is_trained_alike(ebb, path, data, adapter, merges):
    """Whether the model with places gives the same adapter, and takes it in where its weights are floats."""
    again, merged = f"{adapter}.places.onnx_adapter", f"{path}.merged.onnx"
    train(ebb, path, data, again, *(["--save-model", merged] if merges else []))
    with open(adapter, "rb") as one, open(again, "rb") as other:
        same = one.read() == other.read()
    return same and (not merges or all(0 in t.dims for t in onnx.load(merged).graph.initializer if ".lora_" in t.name))


def fault_of(ebb, name, folder):
    path, adapter, again = (os.path.join(FOLDER, name, "model.onnx"), os.path.join(folder, "a.onnx_adapter"),
                            os.path.join(folder, "again.onnx_adapter"))
    there = read_safetensors(os.path.join(FOLDER, name, "reference.safetensors"))
    batch = {k[6:]: v for k, v in there.items() if k.startswith("input/")}
    with open(os.path.join(FOLDER, name, "manifest.json")) as file:
        modules = {places[0]["node"]: module for module, places in json.load(file)["lora"]["adapters"].items()}
    data, out = os.path.join(folder, "b.npz"), os.path.join(folder, "o.safetensors")
    np.savez(data, **{k: v for k, v in batch.items() if v.size}, target=there["target"])
    train(ebb, path, data, adapter)
    held = onnxruntime.AdapterFormat.read_adapter(adapter)
    held.export_adapter(again)
    shapes = {k: v.shape() for k, v in held.get_parameters().items()}
    model = onnx.load(path)
    before = logits(onnxruntime.InferenceSession(model.SerializeToString()), batch)
    open_to = os.path.join(folder, "places.onnx")
    onnx.save(with_places(model, modules, shapes), open_to)
    session = onnxruntime.InferenceSession(open_to)
    theirs, bare = logits(session, batch, adapter), logits(session, batch)
    ours = []
    for file in (adapter, again):
        ask(ebb, "run", path, "--data", data, "--save", out, "--threads", "1", "--adapter", file)
        ours.append(read_safetensors(out)["logits"])
    valid = there["valid"] != 0
    size = np.ptp(before[valid])
    far = [np.abs(x - y)[valid].max() / size for x, y in ((theirs, ours[0]), (ours[1], ours[0]), (bare, before), (theirs, before))]
    print(f"{name:16} {len(shapes)} tensors; ONNX Runtime and ebb {far[0]:.1e} of the range, by its own file {far[1]:.1e}, "
          f"without an adapter {far[2]:.1e}, moved by {far[3]:.1e}")
    alike = is_trained_alike(ebb, open_to, data, adapter, name == "qwen2_float")
    return not (alike and far[0] <= TOLERANCE and far[1] == 0 and far[2] <= TOLERANCE and far[3] > 1e-2)


def main():
    onnxruntime.set_default_logger_severity(4) # it warns of inputs that have a default
    parser = argparse.ArgumentParser()
    parser.add_argument("--ebb", required=True)
    given = parser.parse_args()
    if not os.path.isdir(FOLDER):
        print("SKIP: no recorded models beside the repository")
        return SKIPPED
    if not hasattr(onnxruntime, "LoraAdapter"):
        print("SKIP: this onnxruntime has no adapters")
        return SKIPPED
    wrong = 0
    for name in MODELS:
        with tempfile.TemporaryDirectory() as folder:
            wrong += fault_of(given.ebb, name, folder)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
