#!/usr/bin/env python3
"""A training step on a GPU: ebb beside PyTorch eager and torch.compile, in turns.

    bench/gpu.py --models DIR --work STEPS --prepare --device h100       beforehand, without a GPU
    bench/gpu.py --models DIR --work STEPS [--limit 540] [-o bench/results/gpu]
    bench/gpu.py --models DIR --dry-run [--small]

Made for a machine that is lent for minutes. What a budget makes of a step is planned beforehand,
where that is cheap (--prepare), and taken from --work; what is not there is made on the way. The
cases and ways that matter most come first; each has one round before any has a second. Nothing is
begun that --limit leaves no time for, nothing waits longer than its own limit, and what fails or
hangs is said in the table and stops nothing else: PyTorch runs in a process of its own.

Each round is a line of OUT.jsonl as soon as it is measured, and OUT.md the table of all lines. What
has its lines is not measured again: a run that was stopped goes on, and removing lines has them
measured anew.

DIR holds NAME/ts.onnx, exports with a symbolic batch axis; what it lacks is exported there first,
by PyTorch's own exporter from torchvision's and transformers' classes: nothing is downloaded.
Without PyTorch, or those, the columns of ebb are measured alone.

Both sides have the same model, batch, data, precision and optimizer. float32 is float32: no TF32 on
either side. bf16 has parameters, optimizer state and loss in float32: autocast there, the pass
`precision` here. PyTorch gets its fused optimizers, its fused attention (the exports spell attention
out), channels last where ebb has them, a batch that is on the device already, and no wait between the
steps of a round. ebb's steps include the copy of the batch. Peaks: torch.cuda.max_memory_allocated
of one step, and ebb's arena, which holds everything it has.

The ways of ebb: plain; exact: with the exact memory passes; rounding: and with the gradients of a
linear layer's weight and bias in one call, and tiled attention and loss (transformers), or batch
norm, sum and ReLU in one kernel (channels last); 50 % and 30 %: what `--budget` makes of the plain
step with passes that may round.

Without a GPU: --dry-run prints every command, and runs those that make steps and plans with
--backend cpu. --small takes small models instead; --backend cpu --small runs everything, on the CPU,
as a test of this file.
"""
import argparse
import concurrent.futures
import datetime
import json
import os
import pathlib
import platform
import selectors
import shlex
import statistics
import subprocess
import sys
import time

from gpu_cases import FULL, SMALL, export, logits_of

ROOT = pathlib.Path(__file__).resolve().parent.parent
MIB = 2**20
EXACT = ("pool-index", "sign-mask", "pack-bools", "dropout-seed", "dropout-recompute", "release")
TILED = ("attention", "chunk-loss")
JOINED = ("relu-epilogue",)
NO_PLAN_FITS = 3  # exit codes of ebb
# Seconds that anything may take, and that must be left for it to begin.
LONGEST = {"make": 240, "eager": 120, "compile": 240, "ebb": 120}
LEAST = {"make": 20, "eager": 25, "compile": 90, "ebb": 20}
RATES = {"momentum": "momentum:lr=0.001", "adamw": "adamw:lr=0.00001"}


# ---- PyTorch ----


class Torch:
    """The same step by PyTorch; device: cuda or cpu."""

    def __init__(self, case, arrays, device):
        import torch

        self.torch, self.case, self.device = torch, case, device
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = True
        torch.manual_seed(0)
        with torch.device(device):
            self.module = case.make("sdpa").train()
        tensors = {k: torch.tensor(v, device=device) for k, v in arrays.items()}
        if case.channels_last:
            for tensor in [tensors["input"], *self.module.parameters()]:
                if tensor.dim() == 4:
                    tensor.data = tensor.data.contiguous(memory_format=torch.channels_last)
        self.target = tensors.pop("target").flatten()
        tensors.pop("attention_mask", None)  # nothing is masked: spares it the work
        self.inputs = tensors
        of, fused = self.module.parameters(), device == "cuda"
        self.optimizer = (torch.optim.SGD(of, 0.001, momentum=0.9, fused=fused)
                          if case.optimizer == "momentum" else
                          torch.optim.AdamW(of, 1e-5, weight_decay=0.01, fused=fused))
        self.ways = {"eager": self.loss}

    def loss(self):
        torch = self.torch
        with torch.autocast(self.device, torch.bfloat16, enabled=self.case.bf16):
            logits = logits_of(self.module, self.inputs)
        return torch.nn.functional.cross_entropy(logits.float().flatten(0, -2), self.target)

    def step(self, way):
        if way not in self.ways:
            self.ways[way] = self.torch.compile(self.loss)
        self.optimizer.zero_grad(set_to_none=True)
        self.ways[way]().backward()
        self.optimizer.step()

    def wait(self):
        if self.device == "cuda":
            self.torch.cuda.synchronize()

    def rest(self):
        """Leaves ebb the memory."""
        self.optimizer.zero_grad(set_to_none=True)
        if self.device == "cuda":
            self.torch.cuda.empty_cache()

    def round(self, way, steps):
        """Seconds a step, and the peak of one in bytes (0 on the CPU)."""
        peak = 0
        for _ in range(3):  # the first after a rest allocates
            self.step(way)
        self.wait()
        begin = time.perf_counter()
        for _ in range(steps):
            self.step(way)
        self.wait()
        took = (time.perf_counter() - begin) / steps
        if self.device == "cuda":
            self.torch.cuda.reset_peak_memory_stats()
            self.step(way)
            self.wait()
            peak = self.torch.cuda.max_memory_allocated()
        self.rest()
        return took, {"peak_bytes": peak}


def work(case, options):
    """PyTorch's own process: a line of JSON in, {way, steps}; a line out."""
    import numpy

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever libraries print is no answer
    runner, facts = None, {}
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            runner = runner or Torch(case, case.arrays(numpy), options.backend)
            facts = facts or facts_of(runner)
            took, told = runner.round(asked["way"], asked["steps"])
            answer = {"took": took, "told": told, "facts": facts}
        except Exception as error:  # out of memory, no compiler, no such package: said in the table
            said = str(error).strip().splitlines() or [type(error).__name__]
            answer = {"error": said[0][:200], "facts": facts}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def facts_of(runner):
    torch = runner.torch
    facts = {"torch": torch.__version__}
    if runner.device == "cuda":
        facts |= {"cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
    return facts


class Theirs:
    """PyTorch in a process of its own, which may fail or hang."""

    def __init__(self, case, options):
        self.case, self.options, self.process, self.facts = case, options, None, {}

    def round(self, way, steps):
        if self.process is None:
            self.process = subprocess.Popen(
                [sys.executable, __file__, *sys.argv[1:], "--worker", self.case.name],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        limit = min(LONGEST[way], self.options.clock.left())
        try:
            self.process.stdin.write((json.dumps({"way": way, "steps": steps}) + "\n").encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # the answer will be missing, too
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            line = self.process.stdout.readline() if selector.select(limit) else None
        if not line:
            ended = self.process.poll()
            self.end()
            raise Refused(1, f"no answer within {limit:.0f} s" if line is None else
                          f"PyTorch's process ended{'' if ended is None else f' with {ended}'}")
        answer = json.loads(line)
        self.facts = answer["facts"] or self.facts
        if "error" in answer:
            raise Refused(1, answer["error"])
        return answer["took"], answer["told"]

    def end(self):
        """Leaves ebb the memory."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        self.process = None


# ---- ebb ----


class Refused(Exception):
    """ebb ended otherwise than with 0."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


class Ebb:
    """A case by ebb, in the ways that it has."""

    def __init__(self, case, options, folder):
        self.case, self.options, self.folder = case, options, folder
        self.source = pathlib.Path(options.models) / case.model / "ts.onnx"
        self.data = folder / "data.npz"
        self.tell = options.dry_run
        self.ways = {"plain": [], "exact": self.passes(EXACT)}
        if case.tiled:
            self.ways["rounding"] = self.passes(TILED + EXACT)
        elif case.channels_last:
            self.ways["rounding"] = self.passes(EXACT + JOINED)
        for share in (50, 30):
            self.ways[f"{share} %"] = ["--budget", f"{share}%", "--allow", "rounding"]
        self.plans = {}

    def save_data(self):
        import numpy

        numpy.savez(self.data, **self.case.arrays(numpy))

    @staticmethod
    def passes(names):
        return [word for name in names for word in ("--pass", name)]

    def run(self, *words, limit=None):
        command = [str(word) for word in (self.options.ebb, *words)]
        if self.tell:
            print(shlex.join(command), flush=True)
            command = ["cpu" if word == "cuda" else word for word in command]
        limit = min(limit or LONGEST["ebb"], self.options.clock.left())
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=max(limit, 1))
        except subprocess.TimeoutExpired:
            raise Refused(1, f"no answer within {limit:.0f} s") from None
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines()
            said = [line for line in lines if line.startswith("ebb: ")] or lines[-1:] or ["no word"]
            raise Refused(done.returncode, said[0].removeprefix("ebb: ").split(";")[0])
        return json.loads(done.stdout.splitlines()[-1] if words[0] == "train" else done.stdout)

    def file(self, way):
        return self.folder / f"{way.replace(' %', '')}.onnx"

    def target(self):
        """For which machine steps are planned."""
        if self.options.device:
            return ["--device", self.options.device]
        return ["--backend", self.options.backend]

    def make_words(self, way):
        case, given = self.case, []
        if case.channels_last:
            given += ["--pass", "layout:nhwc"]
        if case.bf16:
            given += ["--precision", "bf16"]
        if self.options.costs:
            given += ["--costs", self.options.costs]
        loss = "cross-entropy:axis=-1" if case.each_token else "cross-entropy"
        return ["grad", self.source, "-o", self.file(way), "--dim", f"batch={case.batch}", "--loss",
                loss, "--optimizer", RATES[case.optimizer], *given, *self.ways[way]]

    def is_made(self, way):
        """There is a step by these very words, for whatever machine."""
        note = self.file(way).with_suffix(".words")
        return self.file(way).exists() and note.exists() and note.read_text() == self.note(way)

    def note(self, way):
        return shlex.join(map(str, self.make_words(way)[4:]))

    def make(self, way):
        """The step's file, and its plan."""
        made = self.file(way).with_suffix(".words")
        made.unlink(missing_ok=True)
        planned = self.target() if "--budget" in self.ways[way] else []
        self.run(*self.make_words(way), *planned, "--json", limit=LONGEST["make"])
        self.plans[way] = self.run("plan", self.file(way), *self.target(), "--json")
        made.write_text(self.note(way))
        return self.plans[way]

    def training(self, way, steps):
        given = ["--init"] if self.lacks_weights() else []
        return ["train", self.file(way), *given, "--data", self.data, "--batch", self.case.batch,
                "--steps", steps + 3, "--repeat-batch", "--on-nan", "warn", "--backend",
                self.options.backend, "--json"]

    def lacks_weights(self):
        tell, self.tell = self.tell, False
        facts = self.run("inspect", self.source, "--json")
        self.tell = tell
        return facts["missing_bytes"] > 0

    def round(self, way, steps):
        if not self.data.exists():
            self.save_data()
        if not self.is_made(way):
            self.make(way)
        facts = self.run(*self.training(way, steps))
        if facts["arena_bytes"] != facts["measured_arena_bytes"]:
            raise Refused(1, f"planned {facts['arena_bytes']} bytes, allocated "
                             f"{facts['measured_arena_bytes']}")
        # The first step loads modules, the second is recorded, the third is the first replay.
        took = statistics.mean(facts["step_ns"][3:]) / 1e9
        told = {"peak_bytes": facts["arena_bytes"]}
        told |= {k: facts[k] for k in ("device_bytes", "process_bytes", "loss") if k in facts}
        return took, told


# ---- what comes out ----


class Clock:
    """What is left of the limit, in seconds."""

    def __init__(self, limit):
        self.end = time.monotonic() + limit if limit else None

    def left(self):
        return self.end - time.monotonic() if self.end else 1e6


def machine(options):
    facts = {"date": datetime.date.today().isoformat(), "backend": options.backend, "torch": "none",
             "ebb": subprocess.run([options.ebb, "version"], capture_output=True,
                                   text=True).stdout.strip(),
             "device": platform.processor() or platform.machine()}
    if options.backend == "cuda":
        said = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version",
                               "--format=csv,noheader"], capture_output=True, text=True)
        if said.returncode == 0:
            facts["device"], facts["driver"] = said.stdout.splitlines()[0].split(", ")
    return facts


def lines_of(path):
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines() if line]


def times(value, other):
    return f"{value / other:.2f}" if value and other else ""


def merged(lines):
    """Of one case and way: the median of its rounds, or why there is none."""
    good = [l for l in lines if "error" not in l]
    if not good:
        return lines[-1]
    step = statistics.median(l["step_s"] for l in good)
    rate = good[-1]["batch"] * (good[-1]["sequence"] or 1) / step
    return good[-1] | {"step_s": step, "rate": rate, "rounds": len(good)}


def table(lines):
    """Markdown: a block for each case, PyTorch first."""
    text = ["Made by `bench/gpu.py`. Medians of rounds in turns; x: times eager's.", ""]
    for where in sorted({(l["device"], l["date"], l["ebb"]) for l in lines}):
        here = [l for l in lines if (l["device"], l["date"], l["ebb"]) == where]
        known = {k: l[k] for l in here for k in ("torch", "driver", "cuda", "cudnn")
                 if l.get(k, "none") != "none"}
        text += ["## " + ", ".join(where[:2]), "",
                 ", ".join([where[2], *(f"{k} {v}" for k, v in known.items())]), "",
                 "| model | by | rounds | step ms | x eager | x compile | peak MiB | x eager | a second |",
                 "|---|---|---|---|---|---|---|---|---|"]
        for name in dict.fromkeys(l["case"] for l in here):
            ways = dict.fromkeys(l["by"] for l in here if l["case"] == name)
            of = {by: merged([l for l in here if l["case"] == name and l["by"] == by])
                  for by in sorted(ways, key=lambda by: by not in ("eager", "compile"))}
            eager, compiled = of.get("eager", {}), of.get("compile", {})
            for by, l in of.items():
                head = f"| {name} | {by if by in ('eager', 'compile') else 'ebb ' + by} "
                if "error" in l:
                    text.append(head + f"| | {l['error'].replace('|', '/')} | | | | | |")
                    continue
                text.append(
                    head + f"| {l['rounds']} | {1e3 * l['step_s']:.2f} "
                    f"| {times(l['step_s'], eager.get('step_s'))} "
                    f"| {times(l['step_s'], compiled.get('step_s'))} | {l['peak_bytes'] / MIB:,.0f} "
                    f"| {times(l['peak_bytes'], eager.get('peak_bytes'))} "
                    f"| {l['rate']:,.0f} {l['unit']} |")
        text.append("")
    return "\n".join(text)


class Record:
    """Lines of OUT.jsonl, each on the disk before the next is measured."""

    def __init__(self, options):
        self.out = pathlib.Path(options.out)
        self.out.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.facts = self.out.with_suffix(".jsonl"), machine(options)
        self.done = {(l["case"], l["by"], l["turn"]) for l in lines_of(self.path)
                     if l["device"] == self.facts["device"]}

    def add(self, case, way, turn, rest):
        line = self.facts | {
            "case": case.name, "by": way, "turn": turn, "model": case.model, "batch": case.batch,
            "sequence": case.sequence, "precision": "bf16" if case.bf16 else "fp32",
            "channels_last": case.channels_last, "optimizer": case.optimizer,
            "unit": "tokens" if case.sequence else "images"} | rest
        with self.path.open("a") as to:
            to.write(json.dumps(line) + "\n")
            to.flush()
            os.fsync(to.fileno())
        self.out.with_suffix(".md").write_text(table(lines_of(self.path)))
        said = line.get("error") or f"{1e3 * line['step_s']:.2f} ms"
        print(f"{case.name}, {way}, round {turn + 1}: {said}", file=sys.stderr, flush=True)


def measure(case, turn, record, options):
    """One round of all ways of a case."""
    ours, theirs = Ebb(case, options, folder_of(case, options)), Theirs(case, options)
    runners = [("eager", theirs), *((way, ours) for way in ours.ways)]
    if options.compile and turn == 0:
        runners.insert(1, ("compile", theirs))
    try:
        for way, runner in runners:
            kind = way if runner is theirs else "ebb"
            least = LEAST[kind] + (LEAST["make"] if runner is ours and not ours.is_made(way) else 0)
            if (case.name, way, turn) in record.done:
                continue
            if options.clock.left() < least:
                print(f"{case.name}, {way}: no time is left for it", file=sys.stderr, flush=True)
                continue
            if runner is ours:
                theirs.end()
            try:
                took, told = runner.round(way, options.steps)
                record.add(case, way, turn, theirs.facts | told | {"step_s": took})
            except Exception as error:  # said in the table; the others go on
                said = (str(error).strip().splitlines() or [type(error).__name__])[0]
                record.add(case, way, turn, theirs.facts | {"error": said[:200]})
    finally:
        theirs.end()


def folder_of(case, options):
    folder = pathlib.Path(options.work) / case.name.replace(" ", "_")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def compare(cases, options):
    record = Record(options)
    for turn in range(options.rounds):
        for case in cases:
            try:
                measure(case, turn, record, options)
            except Exception as error:  # no data, no folder: the other cases go on
                print(f"{case.name}: {error}", file=sys.stderr, flush=True)
    text = record.out.with_suffix(".md")
    print(text.read_text() if text.exists() else "nothing was measured")


def prepare(cases, options):
    """Steps of all ways, several at a time. The number that could not be made."""
    def make(ours, way):
        if ours.is_made(way):
            return True
        try:
            plan = ours.make(way)
        except Refused as refused:
            print(f"{ours.case.name}, {way}: {refused}", flush=True)
            return refused.code == NO_PLAN_FITS
        print(f"{ours.case.name}, {way}: {plan['arena_bytes'] / MIB:,.0f} MiB", flush=True)
        return True

    with concurrent.futures.ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // 2)) as pool:
        all_ours = [Ebb(case, options, folder_of(case, options)) for case in cases]
        made = [pool.submit(make, ours, way) for ours in all_ours for way in ours.ways]
        return sum(not m.result() for m in made)


# ---- without a GPU ----


def dry_run(cases, options):
    """Prints what would run; what plans is run, on the CPU. The number of commands that failed."""
    failed = 0
    for case in cases:
        print(f"\n# {case.name}: {case.optimizer}; PyTorch eager and torch.compile, "
              f"{'autocast to bf16' if case.bf16 else 'float32 without TF32'}, beside", flush=True)
        ours = Ebb(case, options, folder_of(case, options))
        for way in ours.ways:
            print(f"# {way}")
            try:
                plan = ours.make(way)
            except Refused as refused:
                impossible = refused.code == NO_PLAN_FITS
                failed += not impossible
                print(f"#   {'an answer too' if impossible else 'FAILED'}: {refused}", flush=True)
                continue
            told = f"arena {plan['arena_bytes'] / MIB:,.1f} MiB on the CPU"
            plain = ours.plans.get("plain")
            if plain and way != "plain":
                told += f", {plan['arena_bytes'] / plain['arena_bytes']:.2f} of plain"
            print(f"#   {told}", flush=True)
            print(shlex.join([str(options.ebb), *map(str, ours.training(way, options.steps))]))
    print(f"\n{'every plan was made' if failed == 0 else f'{failed} commands failed'}")
    return failed


def what_is_missing(options):
    """A sentence, or None."""
    if not pathlib.Path(options.ebb).is_file():
        return f"there is no ebb at {options.ebb}: build it, or name it with --ebb"
    if options.dry_run or options.prepare or options.backend == "cpu":
        return None
    said = subprocess.run([options.ebb, "devices", "--json"], capture_output=True, text=True)
    devices = json.loads(said.stdout)["devices"] if said.returncode == 0 else []
    ours = next((d for d in devices if d["backend"] == "cuda"), {})
    if not ours.get("available"):
        return f"ebb has no GPU here: {ours.get('reason', 'it says nothing')}; --dry-run needs none"
    return None


def those_there(cases, options):
    """The cases whose model is there, or can be exported; why the others are not."""
    there = []
    for case in cases:
        path = pathlib.Path(options.models) / case.model / "ts.onnx"
        try:
            if not path.exists():
                export(case, path)
            there.append(case)
        except ImportError as error:
            why = f"is not there, and cannot be exported without {error.name}"
            print(f"bench/gpu.py: {path} {why}", file=sys.stderr, flush=True)
        except Exception as error:  # of an exporter, or a disk that is full: the others go on
            print(f"bench/gpu.py: {path} cannot be made: {error}", file=sys.stderr, flush=True)
    return there


def main():
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter,
                                     description=__doc__)
    parser.add_argument("--models", required=True, help="a folder of exports, written where it lacks")
    parser.add_argument("--only", help="models, separated by commas")
    parser.add_argument("--batch", type=int, help="instead of each model's own")
    parser.add_argument("--rounds", type=int, default=3, help="at most; --limit may end it sooner")
    parser.add_argument("--limit", type=float, default=540, help="seconds for all of it; 0: none")
    parser.add_argument("--no-compile", dest="compile", action="store_false",
                        help="without torch.compile")
    parser.add_argument("--prepare", action="store_true", help="make the steps, measure nothing")
    parser.add_argument("--device", help="plan steps for a described device: h100, a100 ...")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--steps", type=int, default=20, help="that are timed in a round")
    parser.add_argument("--costs", help="plan budgets by these times, of ebb bench --calibrate")
    parser.add_argument("--ebb", default=str(ROOT / "build/release/ebb"))
    parser.add_argument("--work", default="/tmp/ebb-gpu", help="a folder for steps and data")
    parser.add_argument("-o", dest="out", default=str(ROOT / "bench/results/gpu"))
    parser.add_argument("--small", action="store_true", help="small models instead of the full ones")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--backend", choices=("cuda", "cpu"), default="cuda")
    options = parser.parse_args()
    cases = SMALL if options.small else FULL
    if options.only:
        cases = [case for case in cases if case.model in options.only.split(",")]
    for case in cases:
        case.batch = options.batch or case.batch
    options.clock = Clock(0 if options.prepare or options.dry_run else options.limit)
    if options.worker:
        work(next(case for case in cases if case.name == options.worker), options)
        return
    missing = "no such model" if not cases else what_is_missing(options)
    cases = those_there(cases, options) if missing is None else []
    if missing or not cases:
        sys.exit(f"bench/gpu.py: {missing or 'there is no model'}")
    if options.dry_run:
        sys.exit(1 if dry_run(cases, options) > 0 else 0)
    if options.prepare:
        sys.exit(1 if prepare(cases, options) > 0 else 0)
    compare(cases, options)


if __name__ == "__main__":
    main()
