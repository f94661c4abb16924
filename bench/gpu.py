#!/usr/bin/env python3
"""A training step on a GPU: ebb beside PyTorch eager and torch.compile, in turns.

    bench/gpu.py --models DIR [--only resnet50,gpt2] [--rounds 5] [--steps 20] [-o bench/results/gpu]
    bench/gpu.py --models DIR --dry-run [--small]

Writes OUT.jsonl, a line for each model and way, and OUT.md, the table of all its lines. A model
whose lines are there is not measured again: a run that was stopped goes on, and removing lines has
them measured anew.

DIR holds NAME/ts.onnx, exports with a symbolic batch axis; what it lacks is exported there first.
Both sides have the same model, batch, data, precision and optimizer. float32 is float32: no TF32 on
either side. bf16 has parameters, optimizer state and loss in float32: autocast there, the pass
`precision` here. PyTorch gets its fused optimizers, its fused attention (the exports spell attention
out), channels last where ebb has them, a batch that is on the device already, and no wait between the
steps of a round. ebb's steps include the copy of the batch. Peaks: torch.cuda.max_memory_allocated
of one step, and ebb's arena, which holds everything it has.

The ways of ebb: plain; exact: with the exact memory passes; rounding (transformers): and with tiled
attention and loss; 50 % and 30 %: what `--budget` makes of the plain step with passes that may round.

Without a GPU: --dry-run prints every command, and runs those that make steps and plans with
--backend cpu. --small takes small models instead; --backend cpu --small runs everything, on the CPU,
as a test of this file.
"""
import argparse
import datetime
import json
import pathlib
import platform
import shlex
import statistics
import subprocess
import sys
import time
import warnings

ROOT = pathlib.Path(__file__).resolve().parent.parent
MIB = 2**20
EXACT = ("pool-index", "sign-mask", "pack-bools", "dropout-seed", "dropout-recompute", "release")
TILED = ("attention", "chunk-loss")
NO_PLAN_FITS = 3  # exit codes of ebb
RATES = {"momentum": "momentum:lr=0.001", "adamw": "adamw:lr=0.00001"}


# ---- models ----


def resnet50():
    import torchvision

    return torchvision.models.resnet50()


def resnet10():
    from torchvision.models.resnet import BasicBlock, ResNet

    return ResNet(BasicBlock, [1, 1, 1, 1], num_classes=10)


def vit(size, patch, layers, heads, hidden):
    import torchvision

    return torchvision.models.VisionTransformer(
        image_size=size, patch_size=patch, num_layers=layers, num_heads=heads, hidden_dim=hidden,
        mlp_dim=4 * hidden, num_classes=1000 if size == 224 else 10)


def bert(attention, layers, heads, hidden, words=30522):
    from transformers import BertConfig, BertForSequenceClassification

    return BertForSequenceClassification(BertConfig(
        num_labels=2, num_hidden_layers=layers, num_attention_heads=heads, hidden_size=hidden,
        intermediate_size=4 * hidden, vocab_size=words, attn_implementation=attention))


def gpt2(attention, layers, heads, hidden, words=50257):
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(
        n_layer=layers, n_head=heads, n_embd=hidden, vocab_size=words, use_cache=False,
        bos_token_id=None, eos_token_id=None, attn_implementation=attention))


class Case:
    """A model at one batch and precision. make(attention): the module; attention: sdpa or eager."""

    def __init__(self, model, make, optimizer, batch, *, size=None, sequence=None, words=0,
                 classes=2, bf16=True, channels_last=False):
        self.model, self.make, self.optimizer, self.batch = model, make, optimizer, batch
        self.size, self.sequence, self.words, self.classes = size, sequence, words, classes
        self.bf16, self.channels_last = bf16, channels_last
        self.each_token = classes == 0  # a target for each token, of as many classes as words

    @property
    def name(self):
        parts = [self.model, f"b{self.batch}"]
        parts += [f"s{self.sequence}"] if self.sequence else []
        parts += ["bf16" if self.bf16 else "fp32"]
        return " ".join(parts + (["channels last"] if self.channels_last else []))

    @property
    def tiled(self):
        return not self.model.startswith("resnet")

    def arrays(self, numpy):
        rng, batch = numpy.random.default_rng(0), self.batch
        if self.size:
            return {"input": rng.standard_normal((batch, 3, self.size, self.size), numpy.float32),
                    "target": rng.integers(0, self.classes, batch)}
        shape = (batch, self.sequence)
        return {"input_ids": rng.integers(0, self.words, shape),
                "attention_mask": numpy.ones(shape, numpy.int64),
                "target": rng.integers(0, self.words, shape) if self.each_token
                else rng.integers(0, self.classes, batch)}


def image_case(model, make, optimizer, batch, size, **more):
    classes = 1000 if size == 224 else 10
    return Case(model, lambda attention: make(), optimizer, batch, size=size, classes=classes, **more)


FULL = [
    image_case("resnet50", resnet50, "momentum", 128, 224, bf16=False),
    image_case("resnet50", resnet50, "momentum", 256, 224, channels_last=True),
    Case("bert_base", lambda a: bert(a, 12, 12, 768), "adamw", 32, sequence=512, words=30522),
    Case("bert_large", lambda a: bert(a, 24, 16, 1024), "adamw", 16, sequence=512, words=30522),
    Case("gpt2", lambda a: gpt2(a, 12, 12, 768), "adamw", 16, sequence=1024, words=50257, classes=0),
    image_case("vit_b16", lambda: vit(224, 16, 12, 12, 768), "adamw", 128, 224),
]
SMALL = [
    image_case("resnet10", resnet10, "momentum", 8, 32, bf16=False),
    image_case("resnet10", resnet10, "momentum", 8, 32,
               channels_last=True),
    Case("bert_small", lambda a: bert(a, 2, 2, 32, 100), "adamw", 32, sequence=32, words=100),
    Case("gpt2_small", lambda a: gpt2(a, 2, 2, 32, 100), "adamw", 32, sequence=32, words=100,
         classes=0),
    image_case("vit_small", lambda: vit(32, 8, 2, 2, 32), "adamw", 64, 32),
]


def logits_of(module, inputs):
    return module(inputs["input"]) if "input" in inputs else module(**inputs).logits


def export(case, path):
    """The module as PyTorch's own exporter writes it, for training."""
    import numpy
    import torch

    class Logits(torch.nn.Module):
        def __init__(self, module, names):
            super().__init__()
            self.module, self.names = module, names

        def forward(self, *inputs):
            return logits_of(self.module, dict(zip(self.names, inputs)))

    print(f"exporting {path}", file=sys.stderr, flush=True)
    warnings.simplefilter("ignore")  # of the exporter: some hundred
    path.parent.mkdir(parents=True, exist_ok=True)
    two = Case(case.model, case.make, case.optimizer, 2, size=case.size, sequence=case.sequence,
               words=case.words, classes=case.classes)
    arrays = two.arrays(numpy)
    del arrays["target"]
    unfinished = path.with_suffix(".part")
    torch.manual_seed(0)
    torch.onnx.export(
        Logits(case.make("eager").train(), list(arrays)), tuple(map(torch.from_numpy, arrays.values())),
        str(unfinished), dynamo=False, opset_version=17, do_constant_folding=False,
        training=torch.onnx.TrainingMode.TRAINING, input_names=list(arrays), output_names=["logits"],
        dynamic_axes={name: {0: "batch"} for name in (*arrays, "logits")})
    unfinished.rename(path)


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
        self.module = case.make("sdpa").to(device).train()
        tensors = {k: torch.from_numpy(v).to(device) for k, v in arrays.items()}
        if case.channels_last:
            self.module = self.module.to(memory_format=torch.channels_last)
            tensors["input"] = tensors["input"].to(memory_format=torch.channels_last)
        self.target = tensors.pop("target").flatten()
        tensors.pop("attention_mask", None)  # nothing is masked: spares it the work
        self.inputs = tensors
        of, fused = self.module.parameters(), device == "cuda"
        self.optimizer = (torch.optim.SGD(of, 0.001, momentum=0.9, fused=fused)
                          if case.optimizer == "momentum" else
                          torch.optim.AdamW(of, 1e-5, weight_decay=0.01, fused=fused))
        self.ways = {"eager": self.loss, "compile": torch.compile(self.loss)}

    def loss(self):
        torch = self.torch
        with torch.autocast(self.device, torch.bfloat16, enabled=self.case.bf16):
            logits = logits_of(self.module, self.inputs)
        return torch.nn.functional.cross_entropy(logits.float().flatten(0, -2), self.target)

    def step(self, way):
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
        for share in (50, 30):
            self.ways[f"{share} %"] = ["--budget", f"{share}%", "--allow", "rounding"]
        self.plans = {}

    @staticmethod
    def passes(names):
        return [word for name in names for word in ("--pass", name)]

    def run(self, *words):
        command = [str(word) for word in (self.options.ebb, *words)]
        if self.tell:
            print(shlex.join(command), flush=True)
            command = ["cpu" if word == "cuda" else word for word in command]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines()
            said = [line for line in lines if line.startswith("ebb: ")] or lines[-1:] or ["no word"]
            raise Refused(done.returncode, said[0].removeprefix("ebb: ").split(";")[0])
        return json.loads(done.stdout.splitlines()[-1] if words[0] == "train" else done.stdout)

    def file(self, way):
        return self.folder / f"{way.replace(' %', '')}.onnx"

    def make(self, way):
        """The step's file, and its plan."""
        case, given = self.case, []
        if case.channels_last:
            given += ["--pass", "layout:nhwc"]
        if case.bf16:
            given += ["--precision", "bf16"]
        if self.options.costs:
            given += ["--costs", self.options.costs]
        loss = "cross-entropy:axis=-1" if case.each_token else "cross-entropy"
        if "--budget" in self.ways[way]:
            given += ["--backend", self.options.backend]
        self.run("grad", self.source, "-o", self.file(way), "--dim", f"batch={case.batch}", "--loss",
                 loss, "--optimizer", RATES[case.optimizer], *given, *self.ways[way], "--json")
        self.plans[way] = self.run("plan", self.file(way), "--backend", self.options.backend, "--json")
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


def machine(options):
    facts = {"date": datetime.date.today().isoformat(), "backend": options.backend,
             "ebb": subprocess.run([options.ebb, "version"], capture_output=True,
                                   text=True).stdout.strip(),
             "device": platform.processor() or platform.machine()}
    import torch

    facts["torch"] = torch.__version__
    if options.backend == "cuda":
        facts["device"] = torch.cuda.get_device_name()
        facts["cuda"], facts["cudnn"] = torch.version.cuda, torch.backends.cudnn.version()
        said = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
                              capture_output=True, text=True)
        facts["driver"] = said.stdout.strip().splitlines()[0] if said.returncode == 0 else ""
    return facts


def lines_of(path):
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines() if line]


def times(value, other):
    return f"{value / other:.2f}" if value and other else ""


def table(lines):
    """Markdown: a block for each case, PyTorch first."""
    text = ["Made by `bench/gpu.py`. Medians of rounds in turns; x: times eager's.", ""]
    for where in sorted({(l["device"], l["date"], l["torch"], l["ebb"]) for l in lines}):
        here = [l for l in lines if (l["device"], l["date"], l["torch"], l["ebb"]) == where]
        text += ["## " + ", ".join(where[:2]), "",
                 f"torch {where[2]}, {where[3]}"
                 + "".join(f", {k} {here[0][k]}" for k in ("driver", "cuda", "cudnn") if here[0].get(k)),
                 "", "| model | by | step ms | x eager | x compile | peak MiB | x eager | a second |",
                 "|---|---|---|---|---|---|---|---|"]
        for name in dict.fromkeys(l["case"] for l in here):
            of = {l["by"]: l for l in here if l["case"] == name}
            eager, compiled = of.get("eager", {}), of.get("compile", {})
            for by, l in of.items():
                head = f"| {name} | {by if by in ('eager', 'compile') else 'ebb ' + by} "
                if "error" in l:
                    text.append(head + f"| {l['error'].replace('|', '/')} | | | | | |")
                    continue
                text.append(
                    head + f"| {1e3 * l['step_s']:.2f} | {times(l['step_s'], eager.get('step_s'))} "
                    f"| {times(l['step_s'], compiled.get('step_s'))} | {l['peak_bytes'] / MIB:,.0f} "
                    f"| {times(l['peak_bytes'], eager.get('peak_bytes'))} "
                    f"| {l['rate']:,.0f} {l['unit']} |")
        text.append("")
    return "\n".join(text)


def measure(case, options, folder):
    """Lines of a case: all its ways, in turns."""
    import numpy

    arrays = case.arrays(numpy)
    ours = Ebb(case, options, folder)
    numpy.savez(ours.data, **arrays)
    made, wrong = {}, {}
    for way in ours.ways:
        try:
            ours.make(way)
        except Refused as refused:
            wrong[way] = str(refused)
    theirs = Torch(case, arrays, options.backend)
    runners = [(way, theirs) for way in theirs.ways] + [(way, ours) for way in ours.ways]
    for turn in range(options.rounds):
        for way, runner in runners:
            if way in wrong:
                continue
            try:
                took, told = runner.round(way, options.steps)
            except Exception as error:  # out of memory, no compiler: said in the table
                wrong[way] = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
                theirs.rest()
                continue
            made.setdefault(way, []).append(took)
            made.setdefault((way, "told"), told)
            print(f"{case.name}, {way}, round {turn + 1}: {1e3 * took:.2f} ms", file=sys.stderr,
                  flush=True)
    unit = "tokens" if case.sequence else "images"
    for way, _ in runners:
        line = {"case": case.name, "by": way, "model": case.model, "batch": case.batch,
                "sequence": case.sequence, "precision": "bf16" if case.bf16 else "fp32",
                "channels_last": case.channels_last, "optimizer": case.optimizer}
        if way in wrong:
            yield line | {"error": wrong[way]}
            continue
        step = statistics.median(made[way])
        yield line | made[way, "told"] | {
            "step_s": step, "rounds_s": made[way], "unit": unit,
            "rate": case.batch * (case.sequence or 1) / step}


def folder_of(case, options):
    folder = pathlib.Path(options.work) / case.name.replace(" ", "_")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def compare(cases, options):
    out = pathlib.Path(options.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    record, facts = out.with_suffix(".jsonl"), machine(options)
    for case in cases:
        if any(l["case"] == case.name and l["device"] == facts["device"] for l in lines_of(record)):
            print(f"{case.name}: is in {record}", file=sys.stderr, flush=True)
            continue
        lines = [facts | line for line in measure(case, options, folder_of(case, options))]
        with record.open("a") as to:
            to.writelines(json.dumps(line) + "\n" for line in lines)
        out.with_suffix(".md").write_text(table(lines_of(record)))
    print(out.with_suffix(".md").read_text() if out.with_suffix(".md").exists() else "")


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
    if options.dry_run or options.backend == "cpu":
        return None
    said = subprocess.run([options.ebb, "devices", "--json"], capture_output=True, text=True)
    devices = json.loads(said.stdout)["devices"] if said.returncode == 0 else []
    ours = next((d for d in devices if d["backend"] == "cuda"), {})
    if not ours.get("available"):
        return f"ebb has no GPU here: {ours.get('reason', 'it says nothing')}; --dry-run needs none"
    try:
        import torch
    except ImportError:
        return "there is no PyTorch here to compare with"
    if not torch.cuda.is_available():
        return "PyTorch has no GPU here; --dry-run needs none"
    return None


def what_models_lack(cases, options):
    """Exports what is not there; a sentence where it cannot."""
    for case in cases:
        path = pathlib.Path(options.models) / case.model / "ts.onnx"
        if path.exists():
            continue
        try:
            export(case, path)
        except ImportError as error:
            return f"{path} is not there, and cannot be exported without {error.name}"
        except OSError as error:
            return f"{path} is not there, and cannot be written: {error.strerror}"
    return None


def main():
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter,
                                     description=__doc__)
    parser.add_argument("--models", required=True, help="a folder of exports, written where it lacks")
    parser.add_argument("--only", help="models, separated by commas")
    parser.add_argument("--batch", type=int, help="instead of each model's own")
    parser.add_argument("--rounds", type=int, default=5)
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
    missing = "no such model" if not cases else what_is_missing(options) or what_models_lack(
        cases, options)
    if missing:
        sys.exit(f"bench/gpu.py: {missing}")
    if options.dry_run:
        sys.exit(1 if dry_run(cases, options) > 0 else 0)
    compare(cases, options)


if __name__ == "__main__":
    main()
