"""runtimes.py: one file run by ebb and by ONNX Runtime, and what differs.

    file.onnx ── wide() ──> every new state is an output too ──┬── ebb run ─────────┐
                                                               └── ONNX Runtime ────┴── compare()

Imports of numpy, onnx and onnxruntime come from .oracles, where tests/run.sh puts them, or from
wherever this Python has them. Without them importing this ends the process with code 77, which ctest
shows as skipped.
"""
import json
import os
import struct
import subprocess
import sys

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SKIPPED = 77

sys.path[:0] = [folder for folder in (os.path.join(SOURCE, ".oracles", name)
                                      for name in ("onnxruntime-1.31.1", "onnx-1.22.0"))
                if os.path.isdir(folder)]
sys.dont_write_bytecode = True
try:
    import ml_dtypes
    import numpy as np
    import onnx
    import onnxruntime
    from onnx import numpy_helper
except ImportError as error:
    print(f"SKIP: {error}; tests/run.sh fetches onnx and onnxruntime for Python 3.11 "
          f"(this is {sys.version.split()[0]}) into .oracles")
    sys.exit(SKIPPED)

DTYPES = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16,
          "I64": np.int64, "I32": np.int32, "I16": np.int16, "I8": np.int8, "U64": np.uint64,
          "U32": np.uint32, "U16": np.uint16, "U8": np.uint8, "BOOL": np.bool_}


class Refused(Exception):
    """A command of ebb that ended with a code other than 0, and its sentence."""

    def __init__(self, code, sentence):
        super().__init__(code, sentence) # both, or it cannot go from a process to another
        self.code, self.sentence = code, sentence

    def __str__(self):
        return self.sentence


def ask(ebb, *words):
    """What one command of ebb prints."""
    done = subprocess.run([ebb, *words], capture_output=True, text=True)
    if done.returncode != 0:
        raise Refused(done.returncode, done.stderr.strip())
    return done.stdout


def read_safetensors(path):
    """name -> array. The format: u64 length of the header, JSON header, bytes."""
    with open(path, "rb") as file:
        length, = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = file.read()
    arrays = {}
    for name, tensor in header.items():
        if name == "__metadata__":
            continue
        begin, end = tensor["data_offsets"]
        arrays[name] = np.frombuffer(data[begin:end], DTYPES[tensor["dtype"]]).reshape(tensor["shape"])
    return arrays


def wide(model):
    """A copy of the model whose outputs are also the new states, by the names that replace them."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    have = {o.name for o in copy.graph.output}
    types = {t.name: t for t in copy.graph.initializer}
    for state, new in updates(model).items():
        if new not in have and new not in types:
            t = types[state]
            copy.graph.output.append(onnx.helper.make_tensor_value_info(new, t.data_type, list(t.dims)))
            have.add(new)
    return copy


def updates(model):
    """state -> what replaces it after a step"""
    return {b.key: b.value for info in model.training_info for b in info.update_binding}


def role(tensor):
    return {p.key: p.value for p in tensor.metadata_props}.get("ebb.role")


def draw_state(model, rng):
    """States as after some steps. With moments of zero AdamW moves a weight by the learning rate whatever
    its gradient, so that rounding decides where the gradient is 0 but for that. And of vectors of equal
    numbers, as models begin with, no two elements stay equal: scales of 1 would hide a fault, and rows of
    one length, as a layer norm with such a scale makes them, leave a choice among rows to rounding."""
    for t in model.graph.initializer:
        value = numpy_helper.to_array(t)
        if role(t) == "optimizer" and value.dtype.kind == "f":
            value = rng.uniform(0.5, 1, value.shape).astype(value.dtype)
        elif role(t) == "optimizer":
            value = rng.integers(0, 256, value.shape) if value.dtype == np.uint8 else np.full(value.shape, 3)
        elif value.dtype == np.float32 and value.ndim == 1 and value.size > 1 and np.ptp(value) == 0:
            value = value * rng.uniform(0.5, 1.5, value.shape)
        else:
            continue
        t.CopyFrom(numpy_helper.from_array(value.astype(numpy_helper.to_array(t).dtype), t.name))


def by_ebb(ebb, path, batch, folder):
    data, out = os.path.join(folder, "batch.npz"), os.path.join(folder, "out.safetensors")
    np.savez(data, **batch)
    ask(ebb, "run", path, "--data", data, "--save", out, "--threads", "1")
    return read_safetensors(out)


def by_onnxruntime(path, batch, stock):
    """Every output. stock: with the graph optimizations that ONNX Runtime has by default."""
    options = onnxruntime.SessionOptions()
    if not stock:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, batch)))


def difference(ours, theirs, tolerance, least):
    """What is wrong, or None: differences may be `tolerance` of the largest magnitude, and `least`."""
    if ours.shape != theirs.shape:
        return f"shape {ours.shape}, ONNX Runtime's is {theirs.shape}"
    if ours.size == 0:
        return None
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    worst, scale = np.max(np.abs(a - b)), np.max(np.abs(b))
    if not worst <= tolerance * scale + least: # not a number is wrong, too
        return f"differs by {worst:.3g}, largest magnitude {scale:.3g}"
    return None


def distance(ours, theirs):
    """L2, relative to theirs."""
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    return np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-12)
