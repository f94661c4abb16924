"""zero_points.py: adapters that zero points take up (lora:qalora=on): the saved model, still in few bits, by stock ONNX Runtime.

    python3 tests/models/zero_points.py --ebb build/release/ebb [MODEL...]

Models of ../shared/models_q4 are trained for some steps; then ONNX Runtime on what --save-model wrote gives
the logits that `ebb run` has on the untouched file with the saved adapters, within 1e-5 of their range; the
file has grown by one float a block and no more; and the adapters did change the logits.

Exit codes: 0, 1 where something differs, 77 where onnxruntime or the models are not here.
"""
import argparse
import os
import sys
import tempfile

from runtimes import Refused, SKIPPED, SOURCE, ask, by_onnxruntime, np, onnx, read_safetensors

FOLDER = os.path.join(os.path.dirname(SOURCE), "shared", "models_q4")
# Symmetric and packed zero points, rows of an odd number of blocks, q k v in one, codes that a table shares.
MODELS = ["qwen2_q4", "qwen2_q4_asym16", "llama_genai_int4", "llama_genai_int4_tied"]
TOLERANCE = 1e-5


def read_batch(name):
    there = read_safetensors(os.path.join(FOLDER, name, "reference.safetensors"))
    return {key[6:]: value for key, value in there.items() if key.startswith("input/")}, there["target"], there["valid"]


def float_logits(path, batch, folder):
    """By ONNX Runtime, which computes in float where the file asks for less."""
    model = onnx.load(path)
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name == "accuracy_level":
                attribute.i = 1
    changed = os.path.join(folder, "level1.onnx")
    onnx.save(model, changed)
    return by_onnxruntime(changed, {i.name: batch[i.name] for i in model.graph.input}, stock=True)["logits"]


def added_floats(path):
    """Blocks of all the layers that have zero points as floats."""
    model = onnx.load(path)
    sizes = {t.name: int(np.prod(t.dims)) for t in model.graph.initializer if t.data_type == onnx.TensorProto.FLOAT}
    return sum(sizes.get(n.input[3], 0) for n in model.graph.node if n.op_type == "MatMulNBits" and len(n.input) > 3)


def fault_of(ebb, name, folder):
    model, saved, adapter = (os.path.join(FOLDER, name, "model.onnx"), os.path.join(folder, "merged.onnx"),
                             os.path.join(folder, "adapter.safetensors"))
    batch, target, valid = read_batch(name)
    data, out = os.path.join(folder, "batch.npz"), os.path.join(folder, "out.safetensors")
    filled = {key: value for key, value in batch.items() if value.size}
    np.savez(data, **filled, target=target)
    ask(ebb, "train", model, "--data", data, "--batch", "2", "--steps", "4", "--threads", "1",
        "--loss", "cross-entropy:output=logits,axis=-1,ignore_index=-100", "--optimizer", "adamw:lr=0.02",
        "--pass", "lora:rank=4,alpha=8,qalora=on", "--save-adapter", adapter, "--save-model", saved)
    ask(ebb, "run", model, "--data", data, "--save", out, "--threads", "1", "--adapter", adapter)
    ours, theirs, before = read_safetensors(out)["logits"], float_logits(saved, batch, folder), float_logits(model, batch, folder)
    size = np.ptp(ours[valid != 0])
    far = [np.abs(ours - other)[valid != 0].max() / size for other in (theirs, before)]
    floats, grown = added_floats(saved), os.path.getsize(saved) - os.path.getsize(model)
    print(f"{name:24} {far[0]:.1e} of the range from base and adapter, {far[1]:.1e} from the base, {grown} bytes more")
    if not far[0] <= TOLERANCE:
        return "differs from base and adapter"
    if not far[1] > 1e-2:
        return "the adapters change nothing"
    return None if floats > 0 and grown <= 4 * floats + 200 * 16 else f"{floats} zero points in {grown} bytes more"


def is_refused(ebb, name, sentence):
    """Layers whose zero points cannot take an adapter up in ONNX Runtime get none."""
    try:
        ask(ebb, "rewrite", os.path.join(FOLDER, name, "model.onnx"), "-o", os.devnull, "--dry-run", "--pass", "lora:qalora=on")
    except Refused as error:
        print(f"{name:24} {error}")
        return sentence in str(error)
    return False


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ebb", required=True)
    parser.add_argument("models", nargs="*")
    given = parser.parse_args()
    if not os.path.isdir(FOLDER):
        print("SKIP: no recorded models beside the repository")
        return SKIPPED
    wrong = 0 if given.models else not is_refused(given.ebb, "qwen2_q8", "8 bits")
    for name in given.models or MODELS:
        with tempfile.TemporaryDirectory() as folder:
            fault = fault_of(given.ebb, name, folder)
        if fault is not None:
            print(f"{name:24} {fault}")
        wrong += fault is not None
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
