"""Runs ebb on what export.py made and compares with what PyTorch computed; writes docs/zoo.md.

    python3 tests/zoo/run.py [--ebb build/release/ebb] [--from DIR] [--write] [NAME ...]

The verdict on DIR/NAME/ts.onnx goes into ts.json beside it, and so on; the table is made of all.

Needs numpy and safetensors. For each file: `ebb grad` makes the step, without optimizer and dropout,
and `ebb run` runs it on the recorded batch.

Loss: relative difference. Gradients: the largest difference in a tensor by its largest magnitude, or
by 1/1000 of the largest magnitude in all gradients where that is more; the worst tensor counts. And
one minus the cosine of all gradients as one vector. A file passes if loss and gradients are within
20 times PyTorch's own rounding (its float32 against its float64), or 1e-5 and 1e-4 where that is
more, and each parameter that has a gradient in PyTorch has one here. What has one here alone is
named: PyTorch holds it fixed, which no exporter writes down.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy
from safetensors.numpy import load_file

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import architectures  # noqa: E402

root = pathlib.Path(__file__).resolve().parents[2]
exporters = ("ts", "dynamo")


class Failed(Exception):
    pass


def command(*words):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise Failed((done.stderr.strip() or f"ended with {done.returncode}"))
    return done.stdout


def stepped(ebb, row, file, batch, folder):
    """ebb's outputs by name: loss, PARAMETER_grad, ..."""
    step, out = folder / "step.onnx", folder / "out.safetensors"
    shapes = [f"--shape={name}:{'x'.join(map(str, t.shape))}" for name, t in batch.items()
              if name != "target"]
    kind = "cross-entropy:axis=%d" % row.axis if row.loss == "cross-entropy" else row.loss
    command(ebb, "grad", file, "-o", step, "--loss", kind, "--optimizer", "none", "--dropout", "off",
            *shapes)
    numpy.savez(folder / "batch.npz", **batch)
    command(ebb, "run", step, "--data", folder / "batch.npz", "--save", out, "--threads", "1")
    return load_file(out)


def compared(got, reference, shared):
    """What differs: loss, grad (of the worst tensor), its name, 1 - cosine, names without gradient."""
    grads = {k[5:]: v for k, v in reference.items() if k.startswith("grad/")}
    most = max(numpy.abs(v).max() for v in grads.values() if v.size)
    names = {n: group for group in shared for n in group}
    worst, where, missing, dots = 0.0, "", [], numpy.zeros(3)
    for name, want in grads.items():
        have = next((got[n + "_grad"] for n in [name, *names.get(name, ())] if n + "_grad" in got), None)
        if have is None:
            if numpy.abs(want).max() > 0:
                missing.append(name)
            continue
        have = have.astype(numpy.float64)
        if have.shape != want.shape:
            raise Failed(f"the gradient of {name} has shape {have.shape}, not {want.shape}")
        error = numpy.abs(have - want).max() / max(numpy.abs(want).max(), most / 1000)
        if not error <= worst:
            worst, where = float(error), name
        dots += [(have * want).sum(), (have * have).sum(), (want * want).sum()]
    known = {*grads, *names}
    extra = [n[:-5] for n in got if n.endswith("_grad") and n[:-5] not in known]
    loss = float(abs(got["loss"] - reference["loss"]) / abs(reference["loss"]))
    return {"loss": loss, "grad": worst, "where": where, "missing": missing, "extra": extra, "count": len(grads),
            "angle": float(max(0.0, 1 - dots[0] / numpy.sqrt(dots[1] * dots[2] + 1e-300)))}


def verdict(row, exporter, facts, ebb, folder):
    """One row of the table: {"result": pass|fail|refused, ...}."""
    if "error" in facts[exporter]:
        return {"result": "refused", "why": facts[exporter]["error"][-1]}
    broken = facts[exporter].get("onnxruntime")
    try:
        with tempfile.TemporaryDirectory() as there:
            batch = dict(numpy.load(folder / "batch.npz"))
            got = stepped(ebb, row, folder / f"{exporter}.onnx", batch, pathlib.Path(there))
        found = compared(got, dict(numpy.load(folder / "reference.npz")), facts["shared"])
    except (Failed, subprocess.TimeoutExpired) as error:
        result = "refused" if broken else "fail"
        return {"result": result, "why": str(error) + (f"; ONNX Runtime: {broken}" if broken else "")}
    noise = facts["noise"] if facts.get("dtype", "float32") == "float32" else {"loss": 0.0, "grad": 0.0}
    if found["missing"]:
        found["why"] = f"{len(found['missing'])} without gradient: {', '.join(found['missing'][:3])}"
    elif not found["loss"] <= max(20 * noise["loss"], 1e-5):
        found["why"] = f"the loss is {found['loss']:.1e} off"
    elif not found["grad"] <= max(20 * noise["grad"], 1e-4):
        found["why"] = f"the gradient of {found['where']} is {found['grad']:.1e} off"
    return {"result": "fail" if "why" in found else "pass"} | found


def short(why, onnxruntime):
    why = re.sub(r"^ebb: \S*: ", "", why.splitlines()[0]).replace("|", "\\|")[:160]
    return f"ONNX Runtime does not run the file either; {why}" if onnxruntime else why


def line(name, row, exporter, v, facts):
    numbers = " | ".join(f"{v[k]:.0e}" if k in v else "" for k in ("loss", "grad", "angle"))
    noise = f"{facts['noise']['grad']:.0e}"
    nodes = facts[exporter].get("nodes", "")
    why = f"; trains {', '.join(v['extra'])}, too" if v.get("extra") else ""
    why = why if v["result"] == "pass" else ": " + short(v["why"], facts[exporter].get("onnxruntime"))
    if facts.get("dtype") == "float64":
        exporter = exporter + " (float64)"
    return f"| {name} | {row.package} | {exporter} | {nodes} | {v['result']}{why} | {numbers} | {noise} |"


def table(results):
    runs = [v for *_, v, _ in results if v["result"] != "refused"]
    passed = sum(v["result"] == "pass" for v in runs)
    refused = len(results) - len(runs)
    names = len({name for name, *_ in results})
    loss = max(v["loss"] for v in runs if v["result"] == "pass")
    grad = max(v["grad"] for v in runs if v["result"] == "pass")
    return f"""# Zoo

Made by `tests/zoo/export.py` and `tests/zoo/run.py`, which say how. Models of timm, torchvision and
transformers, small and with random weights, through both of PyTorch's exporters; loss and gradients of
one training step by ebb against PyTorch's in float64 (float32 where a module cannot be widened), dropout off.

{passed} of {len(runs)} files of {names} architectures pass; {refused} more were refused by their exporter, or it wrote a
file that ONNX Runtime does not run either. Of those that pass the loss is at most {loss:.0e} off and a gradient at most {grad:.0e}.

`loss`: relative difference. `gradients`: largest difference in a tensor by its largest magnitude (or
1/1000 of the largest in all), of the worst tensor; `1 - cos`: of all gradients as one vector. `noise`: the
same as `gradients`, for PyTorch in float32; where it is so large that nothing could be seen (deep batch norm over
few values) the model was exported in float64. What `trains ..., too` names is fixed in PyTorch, which the file does
not say: `--freeze`.

| architecture | package | exporter | nodes | | loss | gradients | 1 - cos | noise |
|---|---|---|---|---|---|---|---|---|
""" + "\n".join(line(*r) for r in results) + "\n"


def saved(source):
    """The verdicts of this and earlier runs."""
    for name, row in architectures.rows.items():
        for exporter in exporters:
            file = source / name / f"{exporter}.json"
            if file.exists():
                facts = json.loads((file.parent / "facts.json").read_text())
                yield name, row, exporter, json.loads(file.read_text()), facts


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--ebb", type=pathlib.Path, default=root / "build" / "dev" / "ebb")
    arguments.add_argument("--from", dest="source", type=pathlib.Path, default=root / "build" / "zoo")
    arguments.add_argument("--write", action="store_true", help="docs/zoo.md, of all that was run")
    arguments.add_argument("names", nargs="*")
    given = arguments.parse_args()
    failed = False
    for name in given.names or architectures.rows:
        row, folder = architectures.rows[name], given.source / name
        if not (folder / "facts.json").exists():
            print(f"{name:28} not exported")
            continue
        facts = json.loads((folder / "facts.json").read_text())
        for exporter in (e for e in exporters if e in facts):
            v = verdict(row, exporter, facts, given.ebb, folder)
            (folder / f"{exporter}.json").write_text(json.dumps(v, indent=1))
            print(line(name, row, exporter, v, facts), flush=True)
            if v["result"] == "fail":
                failed = True
                print("    " + v["why"].replace("\n", "\n    "), flush=True)
    if given.write:
        (root / "docs" / "zoo.md").write_text(table(list(saved(given.source))))
    return failed


if __name__ == "__main__":
    sys.exit(main())
