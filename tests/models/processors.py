"""processors.py: whether the plain kernels of two builds, for two kinds of processors, compute the same.

    python3 tests/models/processors.py --ebb build/release/ebb --other build/aarch64/qemu/ebb

The models of samples/, forward and as a step that gives every gradient, on one batch. Products and convolutions of
the plain kernels are summed in double, one term after the other, and single operations of float32 are the same
everywhere. So what is made of these alone has the same bits: the logits of SAME. Elsewhere sums go by vectors, whose
length differs, and exp and its kin use the fused operation of a product and a sum where there is one: all other outputs
are compared by a bound.

Exit codes: 0, 1 where something differs, 77 where numpy is not here.
"""
import argparse
import os
import sys
import tempfile

from runtimes import SOURCE, ask, difference, np, read_safetensors

MODELS = {"digits/mlp": "digits", "digits/cnn": "digits", "digits/transformer": "digits", "text/char": "text"}
SAME = {"digits/mlp", "digits/cnn"}
# Of the largest magnitude in the tensor; and what rounding leaves of a gradient that is 0 in mathematics.
BOUND, LEAST = 2e-6, 1e-7


def batch_of(data, folder):
    arrays = np.load(os.path.join(SOURCE, "samples", data, data + ".npz"))
    path = os.path.join(folder, data + ".npz")
    named = {"label": "target"}
    np.savez(path, **{named.get(name, name): arrays[name][:8] for name in arrays.files if not name.startswith("test_")})
    return path


def outputs(ebb, model, data, folder):
    """Of the forward and of the step, by name."""
    common = ["--backend", "plain", "--threads", "1"]
    path = os.path.join(SOURCE, "samples", model + ".onnx")
    step, out = os.path.join(folder, "step.onnx"), os.path.join(folder, "out.safetensors")
    ask(ebb, "run", path, "--dim", "batch=8", "--data", data, "--save", out, *common)
    found = {"forward " + name: value for name, value in read_safetensors(out).items()}
    ask(ebb, "grad", path, "-o", step, "--dim", "batch=8", "--loss", "cross-entropy:axis=-1", "--optimizer", "none")
    ask(ebb, "run", step, "--data", data, "--save", out, *common)
    return {**found, **read_safetensors(out)}


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--ebb", required=True)
    arguments.add_argument("--other", required=True)
    given = arguments.parse_args()
    wrong = 0
    for model, data in MODELS.items():
        with tempfile.TemporaryDirectory() as folder:
            data = batch_of(data, folder)
            mine, other = (outputs(ebb, model, data, folder) for ebb in (given.ebb, given.other))
        assert mine.keys() == other.keys(), model
        same, worst = 0, 0.0
        for name, a in mine.items():
            b = other[name]
            if a.shape == b.shape and a.tobytes() == b.tobytes():
                same += 1
                continue
            must = model in SAME and name.endswith("logits")
            why = "bits differ" if must else difference(b, a, BOUND, LEAST)
            if why is not None:
                print(f"{model}: {name}: {why}")
                wrong += 1
            worst = max(worst, float(np.max(np.abs(a - b)) / np.max(np.abs(a))))
        print(f"{model}: {same} of {len(mine)} outputs have the same bits; of the others the largest difference is "
              f"{worst:.1e} of the largest magnitude")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
