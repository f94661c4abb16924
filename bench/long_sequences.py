#!/usr/bin/env python3
"""Long sequences: what schedules on disk and in memory cost, at 1,000 to 100,000 steps in the same memory.

    bench/long_sequences.py [--ebb build/release/ebb] [--steps 1000,10000,100000] [--only LSTM,GRU,Scan]
                            [--svg docs/long_sequences.svg] [--rows FILE...]

Makes, with the onnx package, a network of one recurrent layer (an LSTM, a GRU, or a cell in a Scan) whose last
state is regressed. For each length the step is made with everything kept, and by each schedule in parts of one length
(passes sequence-parts and recompute): revolve and multistage in the same memory beside the batch, which is little more
than what multistage takes at least (revolve has its least where that is more), double-checkpoint in what the shortest
takes with everything kept. All steps of a kind are run through the library in one process, by turns;
of some rounds the least processor time is taken, that of the threads which move values to disk and back included. So
what else a machine does counts for little, and waiting for the disk not at all. Prints a table in Markdown, draws the
time of a step by the length, and says each row as a line of JSON on stderr, of which --rows makes both again.

"runs" is how often a part is run forward, for each part; by its formula revolve takes (t(l, s) + l) / l of them for l
parts and s states (Griewank and Walther), and the s that comes nearest stands beside it.
"""
import argparse
import ctypes
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
from onnx import helper, numpy_helper

ROOT = pathlib.Path(__file__).resolve().parent.parent
FLOAT = onnx.TensorProto.FLOAT
BATCH, INPUT = 2, 1
ALIKE = 20000  # steps that are measured at a time, where a sequence is shorter
# kind: hidden units, steps of a part, memory beside the batch in MiB
CASES = {"LSTM": (64, 100, 1.2), "GRU": (64, 100, 0.85), "Scan": (128, 100, 0.875)}
SCHEDULES = ("revolve", "multistage", "double-checkpoint")


def value(name, *dims):
    return helper.make_tensor_value_info(name, FLOAT, dims)


def network(kind, hidden, steps):
    """Its gradients vanish within some steps: so hardly any arithmetic is on subnormal numbers, which takes longer."""
    rng = np.random.default_rng(1)
    draw = lambda *dims: (rng.standard_normal(dims) * 0.05 / np.sqrt(dims[-1])).astype(np.float32)
    make = helper.make_node
    if kind == "Scan":
        weights = {"W": draw(INPUT, hidden), "R": draw(hidden, hidden), "B": draw(hidden)}
        weights["s0"] = np.zeros((BATCH, hidden), np.float32)
        body = helper.make_graph(
            [make("MatMul", ["xt", "W"], ["a"]), make("MatMul", ["s", "R"], ["b"]), make("Add", ["a", "b"], ["c"]),
             make("Add", ["c", "B"], ["d"]), make("Tanh", ["d"], ["s2"])], "cell",
            [value("s", BATCH, hidden), value("xt", BATCH, INPUT)], [value("s2", BATCH, hidden)])
        nodes = [make("Scan", ["s0", "x"], ["last"], name="loop", num_scan_inputs=1, body=body)]
    else:
        gates = {"LSTM": 4, "GRU": 3}[kind]
        weights = {"W": draw(1, gates * hidden, INPUT), "R": draw(1, gates * hidden, hidden),
                   "B": draw(1, 2 * gates * hidden) - np.float32(2), "zero": np.array([0])}
        more = {"linear_before_reset": 1} if kind == "GRU" else {}
        nodes = [make(kind, ["x", "W", "R", "B"], ["", "end"], name="loop", hidden_size=hidden, **more),
                 make("Squeeze", ["end", "zero"], ["last"])]
    weights["out.weight"] = draw(hidden, 1)
    nodes.append(make("MatMul", ["last", "out.weight"], ["y"]))
    graph = helper.make_graph(nodes, "g", [value("x", steps, BATCH, INPUT)], [value("y", BATCH, 1)],
                              [numpy_helper.from_array(t, n) for n, t in weights.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.checker.check_model(model)
    return model


# ---- in a process of its own ----

class Named(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("dtype", ctypes.c_int), ("rank", ctypes.c_int),
                ("dims", ctypes.POINTER(ctypes.c_int64)), ("data", ctypes.c_void_p)]


class Batch(ctypes.Structure):
    _fields_ = [("tensors", ctypes.POINTER(Named)), ("count", ctypes.c_size_t)]


class Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("backend", ctypes.c_char_p), ("seed", ctypes.c_uint64), ("threads", ctypes.c_int),
                ("profile", ctypes.c_bool), ("spill", ctypes.c_char_p)]


def measure(library, files, spill, rounds):
    """Prints the processor seconds of a step of each file: the least of some rounds, in which they take turns."""
    ebb = ctypes.CDLL(library)
    for name in ("ebb_open", "ebb_program_compile", "ebb_program_step"):
        getattr(ebb, name).restype = ctypes.c_void_p
    ebb.ebb_status_text.restype = ctypes.c_char_p

    def good(status):
        if status:
            raise SystemExit(ebb.ebb_status_text(ctypes.c_void_p(status)).decode())

    def load(path):
        model, program = ctypes.c_void_p(), ctypes.c_void_p()
        good(ebb.ebb_open(ctypes.byref(model), path.encode()))
        options = Options(ctypes.sizeof(Options), None, 0, 1, False, spill.encode())
        good(ebb.ebb_program_compile(ctypes.byref(program), model, ctypes.byref(options)))
        graph = onnx.load(path).graph
        given = {i.name for i in graph.initializer}
        rng, named, keep = np.random.default_rng(2), [], []
        for i in graph.input:
            dims = [d.dim_value for d in i.type.tensor_type.shape.dim]
            if i.name in given:
                continue
            array = rng.standard_normal(dims).astype(np.float32)
            sizes = (ctypes.c_int64 * len(dims))(*dims)
            keep += [array, sizes]
            named.append(Named(i.name.encode(), FLOAT, len(dims), sizes, array.ctypes.data))
        batch = Batch((Named * len(named))(*named), len(named))
        return program, batch, keep, max(i.type.tensor_type.shape.dim[0].dim_value for i in graph.input)

    programs = [load(path) for path in files]
    least = [math.inf] * len(files)
    for _ in range(rounds):
        for k, (program, batch, _, steps) in enumerate(programs):
            count = max(1, ALIKE // steps)
            begin = time.process_time()
            for _ in range(count):
                good(ebb.ebb_program_step(program, ctypes.byref(batch)))
            least[k] = min(least[k], (time.process_time() - begin) / count)
    print(json.dumps(least))


# ---- here ----

def child(command, env):
    """Its processor seconds, the most memory resident in MiB, and what it said."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen([str(c) for c in command], stdout=out, stderr=err, env=env)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        said = out.read() if process.returncode == 0 else None
        return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, said, err.read()


def forwards(l, s):
    """t(l, s)"""
    r = 0
    while math.comb(s + r, s) < l:
        r += 1
    return r * l - math.comb(s + r, s + 1)


def nearest(l, runs):
    return min(range(1, l + 1), key=lambda s: abs(forwards(l, s) + l - runs))


class Bench:
    def __init__(self, ebb, folder):
        self.ebb, self.folder, self.rows = pathlib.Path(ebb), folder, []
        self.env = dict(os.environ, OMP_NUM_THREADS="1")

    def step(self, kind, steps, method):
        hidden, part, budget = CASES[kind]
        source, flat = (os.path.join(self.folder, f"{n}.onnx") for n in ("model", "kept"))
        made = os.path.join(self.folder, f"{kind}_{steps}_{method}.onnx")
        onnx.save(network(kind, hidden, steps), source)
        child([self.ebb, "rewrite", source, "-o", flat, "--pass", "unroll:most=1"], self.env)
        room = int(budget * 2**20) + 4 * BATCH * INPUT * steps
        if method == "double-checkpoint":
            room = next(r["arena"] for r in self.rows if r["kind"] == kind)
        grad = lambda room: child([self.ebb, "grad", flat, "-o", made, "--loss", "mse", "--optimizer", "sgd:lr=0.0001",
                                   "--threads", "1", *([] if method == "all kept" else [
                                       "--pass", f"sequence-parts:steps={part}",
                                       "--pass", f"recompute:planner={method},budget={room}"])], self.env)
        seconds, resident, said, error = grad(room)
        least = re.search(r"the least that it reaches is ([0-9.]+) ([KM])iB", error)
        if said is None and least:
            seconds, resident, said, error = grad(math.ceil(float(least[1]) * {"K": 1.01 * 2**10, "M": 1.01 * 2**20}[least[2]]))
        row = {"kind": kind, "steps": steps, "method": method, "plan_s": seconds, "plan_mib": resident}
        if said is None:
            print(f"{kind} {steps} {method}: {error.strip().splitlines()[0]}", file=sys.stderr)
            return
        plan = json.loads(child([self.ebb, "plan", made, "--json", "--threads", "1"], self.env)[2])
        graph = onnx.load(made).graph
        forward = ("Scan", "LSTM", "LSTMTraining", "GRU", "GRUTraining")
        runs = sum(n.op_type in forward and "_Grad/" not in n.name for n in graph.node)
        disk = sum(p["bytes"] for p in plan.get("places", []) if p["place"] == "disk")
        parts = 1 if method == "all kept" else math.ceil(steps / part)
        row |= {"arena": plan["arena_bytes"], "disk": disk, "parts": parts, "runs": runs, "file": made}
        self.rows.append(row)

    def measure(self, kind, rounds):
        rows = [r for r in self.rows if r["kind"] == kind]
        _, _, said, error = child([sys.executable, __file__, "--ebb", self.ebb, "--rounds", rounds, "--measure",
                                   *(r["file"] for r in rows)], self.env)
        if said is None:
            raise SystemExit(error)
        for row, seconds in zip(rows, json.loads(said)):
            row["us"] = seconds / row["steps"] * 1e6
            print(json.dumps(row), file=sys.stderr, flush=True)

    def print(self):
        print("| | steps | schedule | arena | disk | runs of a part | by formula | a step, µs | beside the shortest, all kept | planned in |")
        print("|---|---|---|---|---|---|---|---|---|---|")
        kept = {r["kind"]: r["us"] for r in reversed(self.rows) if r["method"] == "all kept"}
        for r in self.rows:
            formula = ""
            if r["method"] == "revolve" and r["parts"] > 1:
                s = nearest(r["parts"], r["runs"])
                formula = f"{(forwards(r['parts'], s) + r['parts']) / r['parts']:.2f} ({s} states)"
            base = kept.get(r["kind"])
            print(f"| {r['kind']} | {r['steps']:,} | {r['method']} | {r['arena'] / 2**20:.2f} MiB | "
                  f"{r['disk'] / 2**20:.2f} MiB | {r['runs'] / r['parts']:.2f} | {formula} | {r['us']:.1f} | "
                  f"{r['us'] / base if base else float('nan'):.2f} | {r['plan_s']:.1f} s, {r['plan_mib']:.0f} MiB |")

    def draw(self, path):
        """Time per step by length, a panel a kind; both axes start where the panel does, time at 0."""
        colours = {"all kept": "#888888", "revolve": "#c05020", "multistage": "#2060c0",
                   "double-checkpoint": "#209060"}
        kinds = sorted({r["kind"] for r in self.rows})
        width, high, parts = 260, 200, []
        for i, kind in enumerate(kinds):
            rows = [r for r in self.rows if r["kind"] == kind]
            low, top = math.log10(min(r["steps"] for r in rows)), max(r["us"] for r in rows) * 1.1
            span = max(math.log10(max(r["steps"] for r in rows)) - low, 1e-9)
            x0 = 50 + i * (width + 50)
            at = lambda r: (x0 + (math.log10(r["steps"]) - low) / span * width, 30 + high * (1 - r["us"] / top))
            parts.append(f'<rect x="{x0}" y="30" width="{width}" height="{high}" fill="none" stroke="#444"/>'
                         f'<text x="{x0}" y="20">{kind}: time of a step, µs</text>')
            for part in range(0, 5):
                y = 30 + high * (1 - part / 4)
                parts.append(f'<text x="{x0 - 4}" y="{y + 4:.0f}" text-anchor="end">{top * part / 4:.0f}</text>')
            for steps in sorted({r["steps"] for r in rows}):
                parts.append(f'<text x="{at(dict(steps=steps, us=0))[0]:.0f}" y="{high + 46}" text-anchor="middle">{steps:,}</text>')
            for method, colour in colours.items():
                points = [at(r) for r in rows if r["method"] == method]
                parts.append('<polyline fill="none" stroke="%s" stroke-width="2" points="%s"/>' %
                             (colour, " ".join(f"{x:.1f},{y:.1f}" for x, y in points)))
                parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
        for k, (method, colour) in enumerate(colours.items()):
            parts.append(f'<text x="{50 + k * 150}" y="{high + 72}" fill="{colour}">{method}</text>')
        total = 50 + len(kinds) * (width + 50)
        pathlib.Path(path).write_text(f'<svg xmlns="http://www.w3.org/2000/svg" width="{total}" height="{high + 85}" '
                                      'font-family="sans-serif" font-size="12">'
                                      f'<rect width="100%" height="100%" fill="white"/>{"".join(parts)}</svg>\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--ebb", default=ROOT / "build/release/ebb", type=pathlib.Path)
    parser.add_argument("--steps", default="1000,10000,100000")
    parser.add_argument("--only", default="LSTM,GRU,Scan")
    parser.add_argument("--schedules", default=",".join(SCHEDULES))
    parser.add_argument("--svg")
    parser.add_argument("--rows", nargs="+", help="files of lines that were written before: measure nothing")
    parser.add_argument("--rounds", default=3, type=int)
    parser.add_argument("--measure", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(str(options.ebb.parent / "libebb.so"), options.measure, tempfile.gettempdir(), options.rounds)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options.ebb, folder)
        if options.rows:
            bench.rows = [json.loads(line) for path in options.rows for line in open(path) if line.startswith("{")]
        for kind in options.only.split(",") if not options.rows else []:
            for steps in map(int, options.steps.split(",")):
                for method in ["all kept", *options.schedules.split(",")]:
                    if method != "double-checkpoint" or any(r["kind"] == kind and r["steps"] < steps for r in bench.rows):
                        bench.step(kind, steps, method)
            bench.measure(kind, options.rounds)
        bench.print()
        if options.svg:
            bench.draw(options.svg)
    return 0


if __name__ == "__main__":
    sys.exit(main())
