"""Writes docs/operators.md and docs/passes.md from the tables in the code.

    python3 docs/generate.py [path of the ebb command]
"""
import json
import pathlib
import subprocess
import sys

here = pathlib.Path(__file__).resolve().parent
ebb = sys.argv[1] if len(sys.argv) > 1 else str(here.parent / "build/release/ebb")


def ask(*words):
    return json.loads(subprocess.run([ebb, *words], check=True, capture_output=True).stdout)


def operators():
    rows = ask("ops", "--json")["operators"]
    yield "# Operators\n"
    yield "Generated from `onnx/ops.def` by `docs/generate.py`. `stops`: no gradient flows by nature. "
    yield "`straight-through`: the derivative is 0, and stops it unless `gradient:straight-through=on` is asked for.\n"
    yield "| domain | operator | since opset | gradient | kernels |\n|---|---|---|---|---|"
    for r in sorted(rows, key=lambda r: (r["domain"], r["op"])):
        domain = r["domain"] or "ai.onnx"
        yield f"| {domain} | {r['op']} | {r['since']} | {r['gradient']} | {r['kernel']} |"


def passes():
    yield "# Passes\n"
    yield "Generated from the descriptors in `passes/` by `docs/generate.py`.\n"
    known = ask("help", "passes", "--json")
    yield "A preset stands for a list of passes:\n"
    yield "| preset | stands for | |\n|---|---|---|"
    for p in known["presets"]:
        yield f"| `{p['name']}` | `{p['stands_for']}` | {p['doc']} |"
    yield ""
    for p in known["passes"]:
        yield f"## {p['name']} ({p['exactness']})\n\n{p['doc']}" + (f"\n\n{p['paper']}" if p["paper"] else "")
        if p["options"]:
            yield "\n| option | default | choices | |\n|---|---|---|---|"
            for o in p["options"]:
                choices = o["choices"].replace("|", ", ")
                yield f"| `{o['name']}` | {o['default']} | {choices} | {o['doc']} |"
        yield ""


for name, lines in (("operators", operators()), ("passes", passes())):
    (here / f"{name}.md").write_text("\n".join(lines) + "\n")
