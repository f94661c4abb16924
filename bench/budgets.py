#!/usr/bin/env python3
"""Budgets: what it costs to keep the steps of six full-size models within parts of PyTorch's peak.

    bench/budgets.py --models DIR [--ebb build/release/ebb] [--only resnet50,gpt2] [--jobs 1]
                     [--limit 120]

DIR holds NAME/ts.onnx, exports of the models below with a symbolic batch axis (weights may be missing).
For each model the step is made with `ebb grad`, and `fit` is asked for 50 % and 35 % of PyTorch
eager's peak, for the peak of PyTorch's checkpointing, and for the least that it reaches; then each
recomputation planner by its name for the two shares. Every number of a plan is that of `ebb plan` on
the file that came out. Prints three tables. A plan that takes more than --limit seconds is given up.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
MIB = 2**20
SHARES = (50, 35)
ALLOW = ("rounding", "exact")
PLANNERS = ("sqrt", "chain-dp", "chain-linear", "revolve", "rotor", "lower-set", "dtr", "search")

# PyTorch's numbers: torch 2.11, the sum of live storages over one step on fake tensors, no workspaces;
# attention by its memory-efficient kernel. With checkpointing of each block: peak and FLOPs over those
# of eager, as torch counts them (depthwise convolutions are not counted).
# name: (batch, optimizer, loss, eager MiB, checkpointing MiB or None, its FLOPs)
CASES = {
    "resnet50": (32, "momentum", "cross-entropy", 2849, 1283, 1.327),
    "vgg16_bn": (32, "momentum", "cross-entropy", 5429, None, None),
    "mobilenet_v2": (32, "momentum", "cross-entropy", 2434, 757, 1.049),
    "vit_b16": (32, "adamw", "cross-entropy", 4886, 1725, 1.224),
    "bert_base": (16, "adamw", "cross-entropy", 6166, None, None),
    "gpt2": (4, "adamw", "cross-entropy:axis=-1", 7914, 3951, 1.238),
}


def run(command, limit):
    """Exit code (None: given up), stdout, stderr, seconds passed, of processor, peak RSS in bytes."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        begin = time.monotonic()
        process = subprocess.Popen([str(c) for c in command], stdout=out, stderr=err)
        timer = threading.Timer(limit, process.kill)
        timer.start()
        _, status, usage = os.wait4(process.pid, 0)  # of this child alone
        passed = time.monotonic() - begin
        timer.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        code = None if process.returncode == -9 else process.returncode
        return (code, out.read(), err.read(), passed, usage.ru_utime + usage.ru_stime,
                usage.ru_maxrss * 1024)


class Model:
    def __init__(self, name, options, folder):
        self.name, self.options = name, options
        self.batch, self.optimizer, self.loss, self.eager, self.checkpointing, self.flops = CASES[name]
        self.path, self.out = folder / f"{name}.onnx", folder / f"{name}.out.onnx"
        self.must("grad", pathlib.Path(options.models) / name / "ts.onnx", "-o", self.path, "--dim",
                  f"batch={self.batch}", "--loss", self.loss, "--optimizer", self.optimizer, "--pass",
                  "release", "--json")
        self.step = self.plan(self.path)

    def must(self, *arguments):
        code, out, err, *_ = run([self.options.ebb, *arguments], self.options.limit)
        if code != 0:
            sys.exit(f"{self.name}: ebb {' '.join(map(str, arguments))}: exit {code}\n{err}")
        return out

    def plan(self, path):
        return json.loads(self.must("plan", path, "--json"))

    def ask(self, which, budget):
        """What a pass makes of the step; `arena` is None where it finds no plan, `why` says it."""
        code, out, err, passed, processor, rss = run(
            [self.options.ebb, "rewrite", self.path, "-o", self.out, "--pass",
             f"{which},budget={budget}", "--json"], self.options.limit)
        answer = {"arena": None, "why": err, "passed": passed, "processor": processor, "rss": rss,
                  "late": code is None}
        print(f"{self.name} {which} {budget / MIB:.0f} MiB: exit {code}, {passed:.1f} s",
              file=sys.stderr, flush=True)
        if code != 0:
            return answer
        plan, notes = self.plan(self.out), " ".join(
            note for done in json.loads(out)["passes"] for note in done["notes"])
        if plan["arena_bytes"] > budget:
            sys.exit(f"{self.name} {which}: arena {plan['arena_bytes']} above the budget {budget}")

        def said(pattern, default="0"):
            found = re.search(pattern, notes)
            return found.group(1) if found else default

        once = plan["flops"] - plan["recompute_flops"]
        answer.update(
            arena=plan["arena_bytes"], time=plan["planned_ns"] / self.step["planned_ns"],
            again=said(r"(\d+) nodes run again"), parts=said(r"in (\d+) parts", "1"),
            offers=said(r"(\d+ of \d+) offers", "-"))
        # Parts of the batch bear the mark of a repeat too, so their FLOPs do not tell.
        answer["flops"] = f"{plan['flops'] / once:.3f}" if answer["parts"] == "1" else "-"
        return answer

    def least(self, allow):
        """The smallest that fit reaches: the error of a hopeless budget tells it."""
        refused = self.ask(f"fit:allow={allow}", MIB)
        found = re.search(r"give a budget of at least (\d+)", refused["why"])
        return self.ask(f"fit:allow={allow}", int(found.group(1))) if found else refused

    def measure(self):
        budgets = {share: self.eager * MIB * share // 100 for share in SHARES}
        if self.checkpointing:
            budgets["checkpointing"] = self.checkpointing * MIB
        self.fit = {}
        for allow in ALLOW:
            for label, budget in budgets.items():
                self.fit[allow, label] = self.ask(f"fit:allow={allow}", budget)
            self.fit[allow, "least"] = self.least(allow)
        self.planned = {(p, share): self.ask(f"recompute:{p}", budgets[share])
                        for share in SHARES for p in PLANNERS}
        return self


def mib(size):
    return f"{size / MIB:,.0f}"


def ratio(answer):
    if answer["arena"] is not None:
        return f"{answer['time']:.3f}"
    return "late" if answer["late"] else "none"


def plans(models):
    print("| model | PyTorch MiB | step MiB | budget | allow | arena MiB | time | FLOPs | run again | parts "
          "| offers | planning s (processor) | RSS MiB |\n" + "|---" * 13 + "|")
    for m in models:
        for label in (*SHARES, "least"):
            for allow in ALLOW:
                a = m.fit[allow, label]
                budget = f"{label} %" if label != "least" else label
                head = f"| {m.name} b{m.batch} | {m.eager:,} | {mib(m.step['arena_bytes'])} | {budget} | {allow} "
                tail = f"| {a['passed']:.1f} ({a['processor']:.1f}) | {mib(a['rss'])} |"
                if a["arena"] is None:
                    print(head + "| none | | | | | " + tail)
                else:
                    print(head + f"| {mib(a['arena'])} | {a['time']:.3f} | {a['flops']} | {a['again']} "
                          f"| {a['parts']} | {a['offers']} " + tail)


def beside_checkpointing(models):
    print("\n| model | checkpointing MiB | its FLOPs | fit within it: time | FLOPs | exact: time | FLOPs "
          "| least MiB | exact: least MiB |\n" + "|---" * 9 + "|")
    for m in models:
        cells = [m.name, f"{m.checkpointing:,}" if m.checkpointing else "-", m.flops or "-"]
        for allow in ALLOW:
            a = m.fit.get((allow, "checkpointing"))
            made = a is not None and a["arena"] is not None
            cells += [ratio(a) if a else "-", a["flops"] if made else "-"]
        for allow in ALLOW:
            a = m.fit[allow, "least"]
            cells.append(mib(a["arena"]) if a["arena"] is not None else "none")
        print("| " + " | ".join(map(str, cells)) + " |")


def by_planner(models):
    print(f"\n| model | budget | fit, exact | {' | '.join(PLANNERS)} |\n" + "|---" * (3 + len(PLANNERS)) + "|")
    beaten = []
    for m in models:
        for share in SHARES:
            ours = m.fit["exact", share]
            cells = [ratio(m.planned[p, share]) for p in PLANNERS]
            print(f"| {m.name} | {share} % | {ratio(ours)} | {' | '.join(cells)} |")
            for p in PLANNERS:
                theirs = m.planned[p, share]
                if theirs["arena"] is not None and (ours["arena"] is None or
                                                    theirs["time"] < ours["time"] * (1 - 1e-9)):
                    beaten.append(f"{p} on {m.name} at {share} %: {ratio(theirs)}, fit {ratio(ours)}")
    print(f"\nbeaten by a planner: {'; '.join(beaten) if beaten else 'nowhere'}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", required=True)
    parser.add_argument("--ebb", default=str(ROOT / "build/release/ebb"))
    parser.add_argument("--only", default=",".join(CASES))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--limit", type=float, default=120)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, \
            concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        models = list(pool.map(lambda name: Model(name, options, pathlib.Path(folder)).measure(),
                               options.only.split(",")))
    plans(models)
    beside_checkpointing(models)
    by_planner(models)


if __name__ == "__main__":
    main()
