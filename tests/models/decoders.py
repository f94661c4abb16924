"""decoders.py: steps of published language models, adapters beside layers in few bits, as ONNX that others can run.

    python3 tests/models/decoders.py --ebb build/release/ebb [MODEL...]

For each of ../shared/models_q4: the step with the recorded adapters and AdamW, and that step after passes that
make operators of our own. Both files are checked by onnx.checker (shape inference included), run by ONNX
Runtime with the graph optimizations it has by default, and by `ebb run`, on the recorded batch; and every
output, new adapter and new state is compared. What ebb writes multiplies codes in float, so no accuracy
level has a say.

Exit codes: 0, 1 where something differs, 77 where onnxruntime or the models are not here.
"""
import argparse
import json
import os
import sys
import tempfile

from runtimes import (SKIPPED, SOURCE, Refused, ask, by_ebb, by_onnxruntime, difference, draw_state, np, onnx,
                      read_safetensors, wide)

FOLDER = os.path.join(os.path.dirname(SOURCE), "shared", "models_q4")
PASSES = {"as it is": [],
          "with passes": ["--pass", "attention", "--pass", "chunk-loss:rows=13", "--pass", "release"]}
TOLERANCE, LEAST = 4e-5, 1e-7 # of the largest magnitude: float32 on other orders of sums, as recorded
# Activations that are rounded to 8 bits, one on the edge falls either way; or that are float16.
TOLERANCE_ROUNDED = 2e-2


def write_step(ebb, name, manifest, passes, out):
    folder = os.path.join(FOLDER, name)
    loss, training = manifest["loss"], manifest["training"]
    words = ["grad", os.path.join(folder, "model.onnx"), "-o", out, "--optimizer", "adamw:lr=1e-3",
             "--loss", f"cross-entropy:output={training['output']},axis={loss['class_axis']},ignore_index=-100",
             "--pass", f"lora:file={os.path.join(folder, 'adapters.safetensors')},alpha=8", *passes]
    for key, value in batch_of(name).items():
        if key != "target":
            words.append(f"--shape={key}:{'x'.join(map(str, value.shape))}")
    ask(ebb, *words, *(["--straight-through"] if training["straight_through"] else []))


def batch_of(name):
    there = read_safetensors(os.path.join(FOLDER, name, "reference.safetensors"))
    batch = {key[6:]: value for key, value in there.items() if key.startswith("input/") and value.size}
    return batch | {"target": there["target"]}


def fault_of(ebb, name, passes, folder):
    """What is wrong with a step, or None."""
    with open(os.path.join(FOLDER, name, "manifest.json")) as file:
        manifest = json.load(file)
    out, both = os.path.join(folder, "step.onnx"), os.path.join(folder, "wide.onnx")
    write_step(ebb, name, manifest, passes, out)
    model = onnx.load(out)
    onnx.checker.check_model(model, full_check=True)
    model = wide(model)
    draw_state(model, np.random.default_rng(1))
    onnx.save(model, both)
    batch = {i.name: batch_of(name)[i.name] for i in model.graph.input}
    ours, theirs = by_ebb(ebb, both, batch, folder), by_onnxruntime(both, batch, stock=True)
    tolerance = TOLERANCE_ROUNDED if "int8" in name or "f16" in name else TOLERANCE
    faults = [f"{key}: {fault}" for key, value in theirs.items()
              if (fault := difference(ours[key], value, tolerance, LEAST)) is not None]
    return f"{len(faults)} of {len(theirs)}: " + "; ".join(faults[:3]) if faults else None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ebb", required=True)
    parser.add_argument("--share", type=int, default=1 if os.environ.get("EBB_TEST_ALL") == "1" else 4,
                        help="one case in so many (4; EBB_TEST_ALL=1: 1)")
    parser.add_argument("models", nargs="*")
    given = parser.parse_args()
    if not os.path.isdir(FOLDER):
        print("SKIP: no recorded models beside the repository")
        return SKIPPED
    names = given.models or [n for n in sorted(os.listdir(FOLDER))
                             if os.path.exists(os.path.join(FOLDER, n, "adapters.safetensors"))]
    wrong, cases = 0, [(form, name) for form in PASSES for name in names]
    for form, name in cases[::given.share]:
        with tempfile.TemporaryDirectory() as folder:
            try:
                fault = fault_of(given.ebb, name, PASSES[form], folder)
            except Refused as error:
                fault = str(error)
        print(f"{name:24} {form:12} {fault or 'same'}", flush=True)
        wrong += fault is not None
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
