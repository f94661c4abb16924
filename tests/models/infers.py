"""infers.py: whether ONNX's own inference accepts the training steps of full-size models.

    python3 tests/models/infers.py --ebb build/release/ebb [--all] [MODEL.onnx...]

For each skeleton beside the repository (a model without the bytes of its weights), from each exporter:
`ebb grad`, without memory passes and with many (without --all: of each model one file, with them), and on what it writes onnx.shape_inference in strict mode,
types checked and shapes computed from data. In strict mode it is an error where what a node is inferred to
give is not what the file says; and every output of every node must have a shape in the end.

Exit codes: 0, 1 where something is wrong, 77 without onnx or without the models.
"""
import argparse
import json
import multiprocessing
import os
import sys
import tempfile

from runtimes import SKIPPED, SOURCE, ask, onnx

SHARED = os.path.join(os.path.dirname(SOURCE), "shared", "models")
MEMORY = ["attention", "pool-index", "sign-mask", "pack-bools", "dropout-seed", "norm-from-output",
          "inplace-abn", "invert", "quantise:bits=4", "release"]


def skeletons():
    for name in sorted(os.listdir(SHARED)) if os.path.isdir(SHARED) else []:
        folder = os.path.join(SHARED, name)
        if os.path.isdir(folder) and not os.path.exists(os.path.join(folder, "reference.safetensors")):
            yield from (os.path.join(folder, f) for f in sorted(os.listdir(folder)) if f.endswith(".onnx"))


def class_axis(path):
    with open(os.path.join(os.path.dirname(path), "manifest.json")) as file:
        return json.load(file).get("loss", {}).get("class_axis", 1)


def shapes_of(graph):
    """name -> (dtype, dims or None)"""
    shapes = {}
    for value in [*graph.value_info, *graph.output, *graph.input]:
        t = value.type.tensor_type
        dims = [d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in t.shape.dim]
        shapes[value.name] = (t.elem_type, dims if t.HasField("shape") else None)
    return shapes


def check(ebb, path, passes, out):
    words = ["grad", path, "-o", out, "--dim", "batch=2", "--loss", f"cross-entropy:axis={class_axis(path)}"]
    for name in passes:
        words += ["--pass", name]
    ask(ebb, *words)
    model = onnx.load(out, load_external_data=False)
    said = shapes_of(model.graph)
    inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    found = shapes_of(inferred.graph)
    unknown = [name for node in inferred.graph.node for name in node.output
               if name and (found.get(name) is None or found[name][1] is None or None in found[name][1])]
    if unknown:
        raise ValueError(f"{len(unknown)} values without a shape, first '{unknown[0]}'")
    wrong = [name for name in said if found[name] != said[name]]
    if wrong:
        raise ValueError(f"'{wrong[0]}' is {found[wrong[0]]}, the file says {said[wrong[0]]}")
    return len(model.graph.node), len(model.functions)


def run(arguments):
    ebb, path, passes = arguments
    label = f"{os.path.relpath(path, SHARED)} {'with memory passes' if passes else ''}"
    with tempfile.TemporaryDirectory() as folder:
        try:
            nodes, bodies = check(ebb, path, passes, os.path.join(folder, "step.onnx"))
            return True, f"ok    {label}: {nodes} nodes, {bodies} bodies"
        except Exception as error:
            return False, f"FAIL  {label}: {str(error)[:800]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="*")
    parser.add_argument("--ebb", default="ebb")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--all", action="store_true", help="every file, and without memory passes too")
    args = parser.parse_args()
    paths = args.models or list(skeletons())
    if not args.all and not args.models:
        by_model = {}
        for path in paths:
            by_model.setdefault(os.path.dirname(path), []).append(path)
        paths = [files[i % len(files)] for i, files in enumerate(by_model.values())]
    steps = [(args.ebb, p, m) for p in paths for m in ([[], MEMORY] if args.all or args.models else [MEMORY])]
    if not paths:
        print("SKIP: no full-size models beside the repository")
        return SKIPPED
    failures = 0
    with multiprocessing.Pool(args.jobs) as pool:
        for good, line in pool.imap(run, steps):
            failures += not good
            print(line, flush=True)
    print(f"{len(steps) - failures} of {len(steps)} steps of {len(paths)} files infer strictly")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
