"""Writes docs/operators.md and docs/passes.md from the tables in the code.

    python3 docs/generate.py [path of the ebb command]
"""
import itertools
import json
import pathlib
import re
import subprocess
import sys

import tested

here = pathlib.Path(__file__).resolve().parent
ebb = sys.argv[1] if len(sys.argv) > 1 else str(here.parent / "build/release/ebb")


def ask(*words):
    return json.loads(subprocess.run([ebb, *words], check=True, capture_output=True).stdout)


def operators():
    rows = ask("ops", "--json")["operators"]
    yield "# Operators\n"
    yield "Generated from `onnx/tables/ops.def` by `docs/generate.py`. `stops`: no gradient flows by nature. "
    yield "`straight-through`: the derivative is 0, and stops it unless `gradient:straight-through=on` is asked for. "
    yield "`by its body`: of second order, differentiated as the standard operators of its function body.\n"
    yield ("Tested by, with the number of cases that name the operator: ONNX's own tests of nodes; gradients by "
           "differences of random draws, and against PyTorch's; kernels against function bodies, and otherwise; "
           "kernels for CUDA compiled for the host; passes before and after.\n")
    words, on_cuda = tested.tested_by()
    yield "| domain | operator | since opset | gradient | kernels | tested by |\n|---|---|---|---|---|---|"
    for r in sorted(rows, key=lambda r: (r["domain"], r["op"])):
        domain = r["domain"] or "ai.onnx"
        row = (r["domain"], r["op"], r["since"])
        kernels = " ".join(([r["kernel"]] if r["kernel"] else []) + (["cuda"] if row in on_cuda else []))
        yield f"| {domain} | {r['op']} | {r['since']} | {r['gradient']} | {kernels} | {words[row]} |"
    yield "\n## ONNX's tests that do not pass\n"
    yield ("Of the folders `node`, `simple`, `pytorch-converted` and `pytorch-operator` of onnx 1.22; written by their "
           "run (`tests/onnx/test_backend.c`), which fails where this is no longer what it sees.\n")
    yield "| test | why |\n|---|---|"
    for line in (here.parent / "tests/onnx/not_passed.txt").read_text().splitlines():
        test, why = line.split(": ", 1)
        yield f"| {test} | {why.replace('|', '&#124;')} |"


def bounds():
    yield "\n## Kernels for CUDA that do not give the CPU's numbers\n"
    yield ("Every other one gives the very numbers of the plain kernel. Written from `tests/cuda/bounds.def`, which says why "
           "and is what the suites `cuda.*` hold the kernels to as gcc compiles them, `cuda.ptx.*` as nvcc does, and `gpu.*` "
           "on a device. A share is of 1 and the largest number of the result; units are of the last place of each number. "
           "16 bits: beyond the result of float32 rounded once, as a share.\n")
    yield "| kernel | float32 | float64 | 16 bits |\n|---|---|---|---|"
    for line in (here.parent / "tests/cuda/bounds.def").read_text().splitlines():
        found = re.match(r'(SHARE|PLACES)\( "(\w+)", *(.*) \)', line)
        if found:
            numbers = found[3].replace(" ", "").split(",")
            f32, f64, half = numbers if found[1] == "SHARE" else [f"{numbers[0]} units"] * 2 + ["0"]
            yield f"| {found[2]} | {f32} | {f64} | {half.replace('1.0/', '1/')} |"


def passes():
    yield "# Passes\n"
    yield "Generated from the descriptors in `passes/` by `docs/generate.py`.\n"
    known = ask("help", "passes", "--json")
    yield "A preset stands for a list of passes:\n"
    yield "| preset | stands for | |\n|---|---|---|"
    for p in known["presets"]:
        yield f"| `{p['name']}` | `{p['stands_for']}` | {p['doc']} |"
    yield ""
    yield ("What tidies is run by every step and may find nothing to do. What changes the primal, its parameters or its "
           "computation, is run before `gradient` wherever it is named.\n")
    for p in known["passes"]:
        traits = [p["exactness"]] + ["tidies"] * p["tidies"]
        traits += [f"changes the primal's {p['primal']}"] if p["primal"] != "nothing" else []
        yield f"## {p['name']} ({', '.join(traits)})\n\n{p['doc']}" + (f"\n\n{p['paper']}" if p["paper"] else "")
        if p["options"]:
            yield "\n| option | default | choices | |\n|---|---|---|---|"
            for o in p["options"]:
                choices = o["choices"].replace("|", ", ") or o["range"]
                yield f"| `{o['name']}` | {o['default']} | {choices} | {o['doc']} |"
        yield ""


for name, lines in (("operators", itertools.chain(operators(), bounds())), ("passes", passes())):
    (here / f"{name}.md").write_text("\n".join(lines) + "\n")
