#!/usr/bin/env python3
"""Places: what a disk, or the host's memory, does for the steps of three full-size models.

    bench/places.py --models DIR [--ebb build/release/ebb] [--only resnet50,bert_base,gpt2] [--what least,gpu,cpu]
                    [--batch N] [--rounds 3] [--rows FILE...]

DIR holds NAME/ts.onnx, exports with a symbolic batch axis (weights may be missing). Of each step are said:

    least   the least arena that `fit` reaches, without a disk and with one
    gpu     the planned time with a quarter and a sixth of the activations, by that of all of them, for described devices:
            without another place, and with the host's memory over PCIe
    cpu     the same here with a disk: planned by what `ebb bench --calibrate` measured, and run. Steps take turns, of
            `--rounds` rounds the least time counts; where others compute beside it, it is too long all the same. The disk is
            that of $TMPDIR.

Every number of a plan is that of `ebb plan` on the file that came out. Prints a table in Markdown for each, and each
row as a line of JSON on stderr, of which --rows makes the tables again.
"""
import argparse
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
MIB = 2**20
CASES = {  # batch, optimizer, loss
    "resnet50": (32, "momentum", "cross-entropy"),
    "bert_base": (16, "adamw", "cross-entropy"),
    "gpt2": (4, "adamw", "cross-entropy:axis=-1"),
}
SHARES = (4, 6)
DEVICES = ("h100", "a100")
FAR = "1TiB"  # as much as there is


class Model:
    def __init__(self, name, options, folder):
        self.name, self.options, self.folder = name, options, folder
        batch, optimizer, loss = CASES[name]
        self.step = folder / f"{name}.onnx"
        self.ebb("grad", pathlib.Path(options.models) / name / "ts.onnx", "-o", self.step, "--dim",
                 f"batch={options.batch or batch}",
                 "--loss", loss, "--optimizer", optimizer, "--pass", "release")

    def ebb(self, *arguments, fails=False):
        done = subprocess.run([str(a) for a in (self.options.ebb, *arguments)], capture_output=True, text=True)
        if done.returncode != 0 and not fails:
            sys.exit(f"{self.name}: ebb {' '.join(map(str, arguments))}: exit {done.returncode}\n{done.stderr}")
        return done.stdout if done.returncode == 0 else done.stderr

    def plan(self, path, *more):
        return json.loads(self.ebb("plan", path, "--json", *more))

    def fit(self, source, made, fit, *more):
        """The file, or None where no plan fits."""
        made.unlink(missing_ok=True)
        self.ebb("rewrite", source, "-o", made, "--pass", f"fit:{fit}", *more, fails=True)
        return made if made.exists() else None

    def say(self, what, **more):
        row = {"model": self.name, "what": what, **more}
        print(json.dumps(row), file=sys.stderr, flush=True)
        return row

    def budgets(self, plan):
        """Shares of the activations, and all else as it is."""
        kept = plan["categories"].get("ACTIVATION", 0)
        return {share: plan["arena_bytes"] - kept + kept // share for share in SHARES}

    def least(self):
        reached = {}
        for place in ("none", "disk"):
            more = "" if place == "none" else f",disk={FAR}"
            said = self.ebb("rewrite", self.step, "-o", self.folder / "least.onnx", "--pass", f"fit:budget=1MiB{more}",
                            fails=True)
            found = re.search(r"at least (\d+)", said)
            reached[place] = int(found.group(1)) if found else None
        return [self.say("least", **reached)]

    def gpu(self):
        rows = []
        for device in DEVICES:
            backend = f"cuda:{device}"
            whole = self.plan(self.step, "--backend", backend)
            for share, budget in self.budgets(whole).items():
                for place in ("none", "host"):
                    more = "" if place == "none" else f",host={FAR}"
                    made = self.fit(self.step, self.folder / "gpu.onnx", f"budget={budget},backend={backend}{more}")
                    plan = self.plan(made, "--backend", backend) if made else None
                    rows.append(self.say(
                        "gpu", device=device, share=share, place=place,
                        overhead=plan["planned_ns"] / whole["planned_ns"] if plan else None,
                        moved=sum(p["bytes"] for p in plan.get("places", []) if p["place"] == "host") if plan else None))
        return rows

    def cpu(self):
        costs, timed = self.folder / "costs.json", self.folder / "timed.onnx"
        self.ebb("bench", self.step, "--calibrate", "--init", "-o", costs)
        self.ebb("rewrite", self.step, "-o", timed, "--pass", f"cost:file={costs}")
        files = {0: timed}
        for share, budget in self.budgets(self.plan(timed)).items():
            files[share] = self.fit(timed, self.folder / f"cpu_{share}.onnx", f"budget={budget},disk={FAR},costs={costs}")
        planned = {share: self.plan(made) for share, made in files.items() if made}
        least = {share: math.inf for share in planned}
        for _ in range(self.options.rounds):
            for share in planned:
                run = self.plan(files[share], "--run", "--init")
                least[share] = min(least[share], run["step_ns"])
        return [self.say("cpu", share=share, arena=p["arena_bytes"], planned=p["planned_ns"], measured=least[share],
                         disk=sum(q["bytes"] for q in p.get("places", []) if q["place"] == "disk"))
                for share, p in planned.items()]


def mib(size):
    return f"{size / MIB:,.0f} MiB" if size is not None else "none"


def ratio(value):
    return f"{value:.3f}" if value is not None else "none"


def print_least(rows):
    print("| | least | least with a disk | |\n|---|---|---|---|")
    for r in rows:
        print(f"| {r['model']} | {mib(r['none'])} | {mib(r['disk'])} | {r['none'] / r['disk']:.2f}x |")


def print_gpu(rows):
    columns = [(d, s) for d in DEVICES for s in SHARES]
    print("| | " + " | ".join(f"{d}, 1/{s}" for d, s in columns) + " |\n|---|" + "---|" * len(columns))
    for name in dict.fromkeys(r["model"] for r in rows):
        cells = []
        for column in columns:
            here = {r["place"]: r for r in rows if (r["model"], r["device"], r["share"]) == (name, *column)}
            cells.append(" ".join((ratio(here["none"]["overhead"]), ratio(here["host"]["overhead"]),
                                   f"({mib(here['host']['moved'] or 0)})")))
        print(f"| {name} | " + " | ".join(cells) + " |")


def print_cpu(rows):
    print("| | activations | arena | on disk | planned | measured | planned by measured | overhead planned | measured |")
    print("|---|---|---|---|---|---|---|---|---|")
    for r in rows:
        whole = next(w for w in rows if w["model"] == r["model"] and w["share"] == 0)
        kept = f"1/{r['share']}" if r["share"] else "all"
        print(f"| {r['model']} | {kept} | {mib(r['arena'])} | {mib(r['disk'])} | {r['planned'] / 1e9:.2f} s | "
              f"{r['measured'] / 1e9:.2f} s | {r['planned'] / r['measured']:.2f} | "
              f"{r['planned'] / whole['planned']:.3f} | {r['measured'] / whole['measured']:.3f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--models")
    parser.add_argument("--ebb", default=ROOT / "build/release/ebb", type=pathlib.Path)
    parser.add_argument("--only", default=",".join(CASES))
    parser.add_argument("--what", default="least,gpu,cpu")
    parser.add_argument("--batch", type=int, help="of each model, instead of its own")
    parser.add_argument("--rounds", default=3, type=int)
    parser.add_argument("--rows", nargs="+", help="files of lines that were written before: run nothing")
    options = parser.parse_args()
    if options.rows:
        rows = [json.loads(line) for path in options.rows for line in open(path) if line.startswith("{")]
    elif options.models:
        rows = []
        with tempfile.TemporaryDirectory() as folder:
            for name in options.only.split(","):
                model = Model(name, options, pathlib.Path(folder))
                for what in options.what.split(","):
                    rows += getattr(model, what)()
    else:
        parser.error("--models DIR is needed")
    for what, show in (("least", print_least), ("gpu", print_gpu), ("cpu", print_cpu)):
        if any(r["what"] == what for r in rows):
            show([r for r in rows if r["what"] == what])
            print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
