"""portable.py: whether step files that ebb writes are ONNX that others can run.

    python3 tests/models/portable.py --ebb build/dev/ebb MODEL.onnx...

For each model and each optimizer of --optimizer: `ebb grad` makes a step file; onnx.checker checks it,
shape inference included; ONNX Runtime, its graph optimizations off, and `ebb run` run one step on the same
weights and the same random batch; and every output and every new state is compared. Operators that
ONNX Runtime lacks run by the function bodies that the file carries.

    --optimizer KIND     none, sgd, momentum, adamw (repeatable; default: none and adamw)
    --loss KIND          as for ebb grad; default: cross-entropy, over the class axis that the model's
                         manifest.json names, else over axis 1
    --dim NAME=N         as for ebb grad (repeatable; default: batch=4)
    --pass NAME          as for ebb grad (repeatable)
    --dropout on|off     as for ebb grad; the default is off, and on with the pass dropout-seed, without
                         which each runtime draws its own
    --seed N             of the batch; where a kink (ReLU6, say) lies within rounding of a value, gradients
                         differ for no fault of either, and another seed tells
    --tolerance E        of the largest magnitude in a tensor (default 1e-5); see compare()

Needs numpy, onnx, onnxruntime and safetensors. It is no part of the test suite.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper
from safetensors.numpy import load_file


def class_axis(model_path):
    manifest = os.path.join(os.path.dirname(model_path), "manifest.json")
    if not os.path.exists(manifest):
        return 1
    with open(manifest) as f:
        return json.load(f).get("loss", {}).get("class_axis", 1)


def make_step(args, model_path, optimizer, step_path):
    loss = args.loss or f"cross-entropy:axis={class_axis(model_path)}"
    command = [args.ebb, "grad", model_path, "-o", step_path, "--loss", loss, "--optimizer", optimizer]
    command += ["--dropout", args.dropout or ("on" if "dropout-seed" in args.passes else "off")]
    for dim in args.dim or ["batch=4"]:
        command += ["--dim", dim]
    for name in args.passes:
        command += ["--pass", name]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError("ebb grad: " + done.stderr.strip())


def random_batch(model, rng):
    """Floats around 0; integers below 4, which every table of the small models has room for."""
    initializers = {t.name for t in model.graph.initializer}
    batch = {}
    for value in model.graph.input:
        if value.name in initializers:
            continue
        t = value.type.tensor_type
        shape = [d.dim_value for d in t.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(t.elem_type)
        if np.issubdtype(dtype, np.floating):
            batch[value.name] = rng.standard_normal(shape).astype(dtype)
        elif "mask" in value.name or dtype == np.bool_:
            batch[value.name] = np.ones(shape, dtype)
        else:
            high = 2 if "type" in value.name else 4
            batch[value.name] = rng.integers(0, high, shape).astype(dtype)
    return batch


def with_states(model):
    """A copy of the model whose outputs are also the new states, by the names that replace them."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    have = {o.name for o in copy.graph.output}
    states = {b.key: b.value for info in model.training_info for b in info.update_binding}
    types = {t.name: t for t in copy.graph.initializer}
    for state, new in states.items():
        if new not in have and new not in types:
            t = types[state]
            copy.graph.output.append(onnx.helper.make_tensor_value_info(new, t.data_type, list(t.dims)))
            have.add(new)
    return copy


def draw_optimizer_state(model, rng):
    """Moments as after some steps. With moments of zero AdamW moves a weight by the learning rate
    whatever its gradient, so that rounding decides where the gradient is 0 but for that."""
    for t in model.graph.initializer:
        role = {p.key: p.value for p in t.metadata_props}.get("ebb.role")
        if role != "optimizer":
            continue
        zeros = numpy_helper.to_array(t)
        drawn = rng.uniform(0.5, 1, zeros.shape) if zeros.dtype.kind == "f" else 3
        t.CopyFrom(numpy_helper.from_array(np.full(zeros.shape, drawn, zeros.dtype), t.name))


def compare(name, ours, theirs, tolerance):
    """What is wrong, or None: differences may be `tolerance` of the largest magnitude, plus 1e-7."""
    if ours.shape != theirs.shape:
        return f"{name}: shape {ours.shape}, ONNX Runtime's is {theirs.shape}"
    if ours.size == 0:
        return None
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    worst = np.max(np.abs(a - b))
    scale = np.max(np.abs(b))
    if np.isnan(worst) or worst > tolerance * scale + 1e-7:
        return f"{name}: differs by {worst:.3g}, largest magnitude {scale:.3g}"
    return None


def check(args, model_path, optimizer, folder):
    step_path = os.path.join(folder, "step.onnx")
    data_path, out_path = os.path.join(folder, "batch.npz"), os.path.join(folder, "out.safetensors")
    make_step(args, model_path, optimizer, step_path)
    model = onnx.load(step_path)
    onnx.checker.check_model(model, full_check=True)

    rng = np.random.default_rng(args.seed)
    wide = with_states(model)
    draw_optimizer_state(wide, rng)
    wide_path = os.path.join(folder, "wide.onnx")
    onnx.save(wide, wide_path)
    batch = random_batch(model, rng)
    np.savez(data_path, **batch)
    done = subprocess.run([args.ebb, "run", wide_path, "--data", data_path, "--save", out_path],
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError("ebb run: " + done.stderr.strip())
    ours = load_file(out_path)

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(wide_path, options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    theirs = dict(zip(names, session.run(names, batch)))
    wrong = [compare(n, ours[n], theirs[n], args.tolerance) for n in names]
    wrong = [w for w in wrong if w is not None]
    if wrong:
        raise RuntimeError(f"{len(wrong)} of {len(names)}: " + "; ".join(wrong[:args.show]))
    return len(names), len(model.functions)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--ebb", default="ebb")
    parser.add_argument("--optimizer", action="append")
    parser.add_argument("--loss")
    parser.add_argument("--dim", action="append")
    parser.add_argument("--pass", action="append", dest="passes", default=[])
    parser.add_argument("--dropout")
    parser.add_argument("--tolerance", type=float, default=1e-5)
    parser.add_argument("--seed", type=int, default=0, help="of the random batch")
    parser.add_argument("--show", type=int, default=3)
    args = parser.parse_args()
    failures = 0
    for model_path in args.models:
        for optimizer in args.optimizer or ["none", "adamw"]:
            label = f"{model_path} {optimizer}"
            with tempfile.TemporaryDirectory() as folder:
                try:
                    tensors, bodies = check(args, model_path, optimizer, folder)
                    print(f"ok    {label}: {tensors} tensors agree, {bodies} bodies")
                except Exception as error:
                    failures += 1
                    print(f"FAIL  {label}: {str(error)[:600]}")
            sys.stdout.flush()
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
