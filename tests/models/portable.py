"""portable.py: whether the files that ebb writes are ONNX that others can run.

    python3 tests/models/portable.py --ebb build/release/ebb [--all] [--pass NAME]... [MODEL.onnx...]

Every pass that `ebb help passes` lists, and every preset, is put into a training step of every model, with
its defaults and with other values of each option. The file is checked by onnx.checker (shape inference
included), run by ONNX Runtime as it comes, its graph optimizations on, and by `ebb run`, on the same
weights, key and batch; and every output, gradient and new state is compared.

    model ── normalise, train-mode, loss, [PASS], gradient, optimizer, [PASS], default ──> step.onnx

A new pass is covered the day it is listed: its place is the first of PLACES where it applies. Its defaults
meet every model, from one exporter or the other by turns; each other value of an option the first model on
which it applies, or with --all every model. Without MODEL: the recorded models beside the repository, or
those in samples/. A batch is drawn so that the step without the pass agrees: where a kink (ReLU6, say)
lies within rounding of a value, gradients differ for no fault of either.

Exit codes: 0, 1 where something differs, 77 where onnxruntime is not here.
"""
import argparse
import collections
import hashlib
import json
import multiprocessing
import os
import sys
import tempfile
import traceback

from runtimes import (SOURCE, Refused, ask, by_ebb, by_onnxruntime, difference, distance, draw_state, np,
                      onnx, wide)

SHARED = os.path.join(os.path.dirname(SOURCE), "shared", "models")
SMALL = ["mlp_digits", "cnn_digits", "gelu_block_dropout", "lstm_char", "bert_tiny", "gpt2_tiny",
         "mobilenet_tiny", "resnet20_cifar"]
SAMPLES = ["samples/digits/mlp.onnx", "samples/digits/cnn.onnx", "samples/digits/transformer.onnx",
           "samples/text/char.onnx"]

# What exporters leave behind that none of the recorded models has.
MADE = """<ir_version: 8, opset_import: ["": 17, "made": 1, "ai.onnx.preview.training": 1]>
made (float[batch, 64] x) => (float[batch, 64] logits)
<float[64, 64] a = {%s}, float[64, 64] w = {%s}, float[64] b = {%s}, bool yes = {1},
 int64 three = {3}, float zero = {0}, float ratio = {0.25}, int64[2] row = {1, 64}>
{
    turned = MatMul (x, a)
    squares = Mul (x, turned)
    energy = ReduceSum <keepdims = 0> (squares)
    force = %s (x)
    block = made.Block (x, a, b)
    branch = If (yes) <then_branch = yes_graph () => (float[batch, 64] u) { u = Tanh (block) },
                       else_branch = no_graph () => (float[batch, 64] v) { v = Neg (block) }>
    last = Loop (three, yes, branch)
        <body = turn (int64 i, bool go, float[batch, 64] h) => (bool on, float[batch, 64] next) {
            on = Identity (go)
            product = MatMul (h, w)
            next = Tanh (product)
        }>
    product = MatMul (last, a)
    scores = Softmax (product)
    nan = IsNaN (scores)
    guarded = Where (nan, zero, scores)
    dropped = Dropout (guarded, ratio, yes)
    mixed = MatMul (dropped, w)
    sine = Sin (mixed)
    chain = Exp (sine)
    chosen = Greater (mixed, force)
    picked = Where (chosen, chain, force)
    mean = ReduceMean <axes = [1]> (mixed)
    wide = Expand (mean, row)
    spread = MatMul (wide, w)
    sum = Add (picked, mixed)
    logits = Add (sum, spread)
}
<domain: "made", opset_import: ["": 17]>
Block (x, a, b) => (y) { product = MatMul (x, a)  y = Add (product, b) }
"""

# What exporters wrote of old, in forms that its opset alone knows.
OLD = """<ir_version: 4, opset_import: ["": 9]>
old (float[batch, 64] x) => (float[batch, 64] logits)
<float[64, 64] a = {%s}, float[64, 64] w = {%s}, float[64] b = {%s}, int64[4] image = {0, 1, 8, 8},
 float[4] scales = {1.0, 1.0, 2.0, 1.0}, int64[2] flat = {0, 64}>
{
    h = Gemm (x, a, b)
    clipped = Clip <min = -0.5, max = 6.0> (h)
    pixels = Reshape (clipped, image)
    padded = Pad <pads = [0, 0, 1, 1, 0, 0, 1, 1], value = 0.25> (pixels)
    part = Slice <axes = [2, 3], starts = [1, 1], ends = [5, -1]> (padded)
    large = Upsample <mode = "nearest"> (part, scales)
    shares = Softmax <axis = 2> (large)
    upper, lower = Split <axis = 2, split = [4, 4]> (shares)
    turned = Concat <axis = 2> (lower, upper)
    squeezed = Squeeze <axes = [1]> (turned)
    dropped = Dropout <ratio = 0.25> (squeezed)
    energy = ReduceSum <axes = [1, 2], keepdims = 0> (dropped)
    columns = Unsqueeze <axes = [1]> (energy)
    rows = Reshape (dropped, flat)
    most, places = TopK <axis = 1, k = 64> (rows)
    product = MatMul (rows, w)
    added = Add (product, columns)
    logits = Add (added, most)
}
"""

GRADIENT = 'ai.onnx.preview.training.Gradient <xs = ["x"], y = "energy">'

Place = collections.namedtuple("Place", "where optimizer dropout")
PLACES = [Place("first", "none", "off"), Place("after", "none", "off"), Place("after", "momentum", "off"),
          Place("before", "none", "off"), Place("seeded", "none", "on"), Place("after", "none", "on")]

# What a pass needs beyond its defaults: what the user must say too, less time to plan, and blocks and tiles
# small enough for small models. And what must have run before it.
NEEDS = {"micro-batch": ["parts=2"], "recompute": ["budget=80%"], "fit": ["budget=80%", "time=0.5"],
         "chunk-loss": ["rows=1"], "stream": ["tile=1KiB"], "head": ["classes=1000"]}
AFTER = {"stream": "quantise", "dropout-recompute": "dropout-mask", "relu-epilogue": "layout"}
# Options that go together, and what no single option shows.
ALSO = {"loss": ["kind=cross-entropy,axis=-1,label-smoothing=0.1", "kind=dice,axis=-1", "kind=dice,axis=-1,over=batch",
                 "kind=bce-logits,pos-weight=2,weight=0.5", "kind=focal,gamma=1.5", "kind=kl,target-is=probabilities",
                 "kind=ctc,time-axis=1,labels=3"],
        "optimizer": [
    "kind=adamw,schedule=constant,warmup=3", "kind=sgd,schedule=linear,warmup=2,steps=9,floor=0.1",
    "kind=sgd,schedule=cosine,steps=9", "kind=sgd,schedule=step,every=2,gamma=0.5",
    "kind=sgd,schedule=one-cycle,steps=9", "kind=sgd,clip-norm=0.1", "kind=momentum,ema=0.9",
    "kind=adam,weight-decay=0.1", "kind=rmsprop,centered=1,momentum=0.9,weight-decay=0.1,epsilon=0.01",
    "kind=adagrad,lr-decay=0.1,weight-decay=0.1", "kind=muon,nesterov=0,adjust=match-rms-adamw",
    "kind=adamw,groups=\"*:kind=lion,weight-decay=0.1\""]}
# Why a pass cannot be run here.
CANNOT = {"cost": "it needs a file of measured times, and writes nothing but metadata",
          "decoder": "no model here was exported to generate: test_adapters.c has such",
          "segments": "none attends to tokens under a mask of its own: test_adapters.c has such"}
# States and weights that lie on disk are no outputs of a step, which here all are: tests/models/test_states_away.c.
NOT_HERE = {"offload:what=state", "offload:what=weights"}

# What stock ONNX Runtime, or ONNX itself, cannot do: words of its error -> the reason.
LIMITS = [
    (("NOT_IMPLEMENTED", "Could not find an implementation"), "bfloat16",
     "ONNX Runtime has no kernels for bfloat16 on the CPU"),
    (("unsupported type: tensor(bfloat16)",), "bfloat16",
     "convolutions and pools take bfloat16 from opset 22 on"),
    (("MLFloat16 data type is not supported with ScatterElements",), "float16",
     "ONNX Runtime's ScatterElements adds no float16"),
]
TOLERANCE = 2e-5 # of the largest magnitude in a tensor; and where batch norms stand one behind the other, on
TOLERANCE_DEEP = 2e-4 # few rows, rounding grows, and gradients that are zero but for it are larger
LEAST, LEAST_DEEP = 1e-7, 1e-6
TOLERANCE_16 = 4e-3 # of float16 with 11 bits, some roundings deep
TOLERANCE_DRAWN = 1e-3 # L2: one draw in thousands may be decided by rounding,
TOLERANCE_NORMED = 0.1 # which batch norms one behind the other amplify; a wrong code is off by 1 or more


class Differs(Exception):
    """The file is not as it should be."""


# ---- what there is to run ----

class Pass:
    def __init__(self, facts, presets):
        self.name = facts["name"]
        self.names = presets.get(self.name, [self.name])
        self.options = facts.get("options", [])

    def specs(self):
        """The defaults; then another value for each option."""
        needs = NEEDS.get(self.name, [])
        yield self.spelled(needs)
        for option in self.options:
            for value in others(option):
                if f"{self.name}:{option['name']}={value}" in NOT_HERE:
                    continue
                yield self.spelled([n for n in needs if not n.startswith(option["name"] + "=")] +
                                   [f"{option['name']}={value}"])
        for options in ALSO.get(self.name, []):
            yield self.spelled([options])

    def spelled(self, options):
        return self.name + (":" + ",".join(options) if options else "")


def others(option):
    """Values of an option that are not the default, where its kind says what is legal."""
    default = option["default"]
    if option["kind"] == "choice":
        return [c for c in option["choices"].split("|") if c != default]
    if option["kind"] == "int" and default not in ("", "0"):
        return [str(2 * int(default))]
    if option["kind"] == "number" and default != "":
        return [repr(float(default) / 2)]
    return []


def passes_of(ebb):
    known = json.loads(ask(ebb, "help", "passes", "--json"))
    presets = {p["name"]: p["stands_for"].split(",") for p in known["presets"]}
    return [Pass(p, presets) for p in known["passes"] + known["presets"]]


class Model:
    """A model as one exporter or another wrote it, and the loss to train it by."""

    def __init__(self, name, files, axis):
        self.name, self.files, self.axis = name, files, axis

    @staticmethod
    def beside(name):
        folder = os.path.join(SHARED, name)
        with open(os.path.join(folder, "manifest.json")) as file:
            axis = json.load(file).get("loss", {}).get("class_axis", 1)
        return Model(name, [os.path.join(folder, f) for f in ("ts.onnx", "dynamo.onnx")], axis)

    @staticmethod
    def at(path):
        manifest = os.path.join(os.path.dirname(path), "manifest.json")
        if os.path.exists(manifest):
            beside = Model.beside(os.path.basename(os.path.dirname(os.path.abspath(path))))
            return Model(beside.name, [path], beside.axis)
        return Model(os.path.basename(path)[:-len(".onnx")], [path], -1)


def made_model(folder, name, text, *more):
    rng = np.random.default_rng(0)
    weights = [", ".join(f"{v:.6f}" for v in rng.uniform(-0.25, 0.25, n)) for n in (4096, 4096, 64)]
    path = os.path.join(folder, name + ".onnx")
    onnx.save(onnx.parser.parse_model(text % (*weights, *more)), path)
    return Model.at(path)


def models_of(paths, folder):
    """The models, and those to turn to with a pass that has nothing to do in any of them."""
    if paths:
        return [Model.at(p) for p in paths], []
    samples = [Model.at(os.path.join(SOURCE, p)) for p in SAMPLES]
    samples += [made_model(folder, "made", MADE, "Tanh"), made_model(folder, "gradient", MADE, GRADIENT),
                made_model(folder, "old", OLD)]
    if os.path.isdir(SHARED):
        return [Model.beside(name) for name in SMALL], samples
    print("No recorded models beside the repository: those in samples/ serve.")
    return samples, []


# ---- one file ----

def pipeline(model, spec, place):
    """The passes of a step, the one under test among them, or none (spec None)."""
    made = {"normalise": "normalise", "train-mode": f"train-mode:dropout={place.dropout}",
            "loss": f"loss:kind=cross-entropy,axis={model.axis}", "gradient": "gradient",
            "optimizer": f"optimizer:kind={place.optimizer}", "default": "default"}
    name = spec.split(":")[0] if spec else None
    if name in made: # in its own place, the options at hand before those under test
        options = spec.partition(":")[2]
        made[name] = spec if name == "loss" and options or ":" not in made[name] else \
            made[name] + ("," + options if options else "")
        spec = None
    steps = [made["normalise"], made["train-mode"], "fold", "fuse", made["loss"], made["gradient"],
             made["optimizer"], made["default"]]
    at = {"first": 0, "before": 5, "after": 7, "seeded": 7}[place.where]
    if spec:
        steps[at:at] = (["dropout-seed"] if place.where == "seeded" else [])
        steps[at:at] = ([AFTER[name]] if name in AFTER and at == 7 else []) + [spec]
    return steps


def rows_of(model_path):
    """Fewer where inputs are integers, since each is a token and becomes a row."""
    graph = onnx.load(model_path, load_external_data=False).graph
    weights = {t.name for t in graph.initializer}
    return 4 if any(i.type.tensor_type.elem_type == 1 for i in graph.input if i.name not in weights) else 2


def write_step(ebb, path, steps, out):
    """Runs the passes; how often each of them applied, and whether one of those is lossy."""
    words = ["rewrite", path, "-o", out, "--json", "--dim", f"batch={rows_of(path)}"]
    for step in steps:
        words += ["--pass", step]
    applied, lossy = collections.Counter(), False
    for report in json.loads(ask(ebb, *words))["passes"]:
        applied[report["name"]] += report["applied"]
        lossy = lossy or (report["exactness"] == "lossy" and report["applied"] > 0)
    return applied, lossy


def draw_batch(model, seed):
    """Floats around 0; integers below 4, which every table of the small models has room for."""
    rng = np.random.default_rng(seed)
    initializers = {t.name for t in model.graph.initializer}
    batch = {}
    for value in model.graph.input:
        if value.name in initializers:
            continue
        t = value.type.tensor_type
        shape = [d.dim_value for d in t.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(t.elem_type)
        if np.issubdtype(dtype, np.floating):
            batch[value.name] = rng.standard_normal(shape).astype(dtype)
        elif "mask" in value.name or dtype == np.bool_:
            batch[value.name] = np.ones(shape, dtype)
        else:
            batch[value.name] = rng.integers(0, 2 if "type" in value.name else 4, shape).astype(dtype)
    return batch


def draws_its_own(model):
    """Whether an ONNX Dropout is active, whose random numbers every runtime draws in its own way."""
    return any(n.op_type == "Dropout" and n.domain == "" and len(n.input) == 3 for n in model.graph.node)


def computes_in(model, dtype):
    return any(t.data_type == dtype for t in model.graph.initializer) or any(
        a.name == "to" and a.i == dtype for n in model.graph.node for a in n.attribute)


def has_batch_norms(model):
    return any("BatchNorm" in n.op_type for n in model.graph.node)


def wrong_in(model, ours, theirs, lossy):
    half, deep = computes_in(model, onnx.TensorProto.FLOAT16), has_batch_norms(model)
    tolerance = TOLERANCE_16 if half else TOLERANCE_DEEP if deep else TOLERANCE
    drawn = 0 if not lossy else TOLERANCE_NORMED if deep else TOLERANCE_DRAWN
    wrong = []
    for name, value in theirs.items():
        if value.dtype.kind == "b" or value.dtype.kind in "iu":
            share = np.mean(ours[name] != value) if value.size else 0
            if share > (max(0.01, drawn) if drawn or half else 0):
                wrong.append(f"{name}: {share:.2%} of the numbers differ")
            continue
        fault = difference(ours[name], value, tolerance, LEAST_DEEP if deep else LEAST)
        if fault is not None and not distance(ours[name], value) < drawn:
            wrong.append(f"{name}: {fault}")
    return wrong


def limit_of(error, model):
    for words, dtype, reason in LIMITS:
        there = computes_in(model, getattr(onnx.TensorProto, dtype.upper()))
        if there and any(w in str(error) for w in words):
            return reason
    return None


def compare(ebb, path, folder, lossy, seeds):
    """'same', 'runs' (its random numbers are its own), or the reason for which ONNX Runtime cannot."""
    model = onnx.load(path)
    wide_path = os.path.join(folder, "wide.onnx")
    both = wide(model)
    draw_state(both, np.random.default_rng(1))
    onnx.save(both, wide_path)
    try:
        onnx.checker.check_model(model, full_check=True)
    except Exception as error:
        reason = limit_of(error, model)
        if reason is None:
            raise Differs(f"onnx.checker: {error}") from None
        by_ebb(ebb, wide_path, draw_batch(model, 0), folder)
        return reason
    wrong = []
    for seed in seeds:
        batch = draw_batch(model, seed)
        ours = by_ebb(ebb, wide_path, batch, folder)
        try:
            theirs = by_onnxruntime(wide_path, batch, stock=True)
        except Exception as error:
            reason = limit_of(error, model)
            if reason is None:
                raise Differs(f"ONNX Runtime: {error}") from None
            return reason
        if draws_its_own(model):
            if not all(np.all(np.isfinite(v)) for v in theirs.values() if v.dtype.kind == "f"):
                raise Differs("not every number is finite")
            return "runs"
        wrong = wrong_in(model, ours, theirs, lossy)
        if not wrong:
            return "same"
    raise Differs(f"{len(wrong)} of {len(theirs)}: " + "; ".join(wrong[:3]))


# ---- all of them ----

Case = collections.namedtuple("Case", "ebb model file pass_ spec first_seed seen")
Result = collections.namedtuple("Result", "case place verdict fault")


def placed(case, out):
    """The first place where the pass applies: its step is in `out`; and whether it is lossy. Or None, and
    why not."""
    why = None
    for place in PLACES:
        try:
            applied, lossy = write_step(case.ebb, case.file, pipeline(case.model, case.spec, place), out)
        except Refused as error:
            why = str(error)
            continue
        if sum(applied[name] for name in case.pass_.names) > 0:
            return place, lossy or "lossy" in case.spec # what fit takes up, it does not say by name
        why = why or "nowhere"
    return None, why


def digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def run(case):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "step.onnx")
        try:
            place, lossy = placed(case, out)
            if place is None:
                return Result(case, None, "nowhere", lossy)
            seeds = range(case.first_seed, case.first_seed + 8)
            mark = os.path.join(case.seen, digest(out)) # many passes are in every step anyway
            if os.path.exists(mark):
                return Result(case, place, "same", None)
            verdict = compare(case.ebb, out, folder, lossy, seeds)
            if verdict == "same":
                open(mark, "w").close()
            return Result(case, place, verdict, None)
        except Exception as error: # a fault of any kind is this case's, not the others'
            text = str(error) if isinstance(error, (Differs, Refused)) else traceback.format_exc()
            return Result(case, None, "FAIL", text)


def agreeing_seed(arguments):
    """Of the first batches the one on which ONNX Runtime and ebb agree on the step without a pass."""
    ebb, model, file = arguments
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "step.onnx")
        write_step(ebb, file, pipeline(model, None, Place("after", "none", "off")), out)
        for seed in range(8):
            try:
                compare(ebb, out, folder, False, [seed])
                return seed
            except Differs as error:
                last = error
    print(f"FAIL {model.name} {os.path.basename(file)}: no batch of 8 agrees without any pass: {last}")
    return None


class Run:
    """All of it: the cases, in the order in which they come, and their results."""

    def __init__(self, pool, ebb, passes, models, spare, seen, share):
        self.pool, self.ebb, self.passes, self.models, self.spare = pool, ebb, passes, models, spare
        self.seen, self.share, self.results, self.seeds = seen, share, [], {}

    def find_seeds(self, models):
        """False where a step without any pass differs."""
        pairs = [(self.ebb, model, file) for model in models for file in model.files]
        for (_, _, file), seed in zip(pairs, self.pool.map(agreeing_seed, pairs)):
            self.seeds[file] = seed
        return None not in self.seeds.values()

    def case(self, model, pass_, spec, file=None):
        turn = self.models.index(model) if model in self.models else 0
        file = file or model.files[(turn + self.passes.index(pass_)) % len(model.files)]
        return Case(self.ebb, model, file, pass_, spec, self.seeds[file] or 0, self.seen)

    def take(self, cases):
        some = []
        for r in self.pool.imap_unordered(run, cases):
            some.append(r)
            if r.verdict == "FAIL":
                where = f"{r.case.model.name} {os.path.basename(r.case.file)} {r.case.spec}"
                print(f"FAIL {where}: {r.fault[:900]}", flush=True)
        self.results += some
        return some

    def every_default(self):
        """Where the pass has its turn; and where it found nothing to do, on the other models."""
        turns = [(m, p, (i + k) // 2 % self.share) for i, m in enumerate(self.models)
                 for k, p in enumerate(self.passes)]
        for now in range(self.share):
            idle = [p for p in self.passes if now == 0 or p.name not in self.ran()]
            self.take([self.case(m, p, next(p.specs())) for m, p, turn in reversed(turns)
                       if turn == now and p in idle])

    def every_option(self, everywhere):
        rest = [(p, spec) for p in self.passes for spec in list(p.specs())[1:]]
        if everywhere:
            self.take([self.case(m, p, s, f) for p, s in rest for m in self.models for f in m.files])
            return
        for m in self.models: # from the smallest on, until it applies
            done = {r.case.spec for r in self.take([self.case(m, p, s) for p, s in rest])
                    if r.verdict != "nowhere"}
            rest = [(p, s) for p, s in rest if s not in done]

    def every_pass_somewhere(self):
        idle = [p for p in self.passes if p.name not in self.ran()]
        if idle and self.find_seeds(self.spare):
            for m in self.spare:
                self.take([self.case(m, p, s) for p in idle for s in p.specs()])

    def ran(self):
        return {r.case.pass_.name for r in self.results if r.verdict != "nowhere"}


def show(passes, models, results):
    models = [m for m in models if any(r.case.model.name == m.name for r in results)]
    print("\nPasses by models: files that ONNX Runtime runs with ebb's numbers. -: the pass finds nothing to do;"
          "\nr: runs, with random numbers of its own; a letter: see below; F: a failure.\n")
    letters, width = {}, max(len(p.name) for p in passes)
    short = [m.name.split("_")[0][:10] for m in models]
    print(" " * width, *(f"{s:>10}" for s in short))
    for p in passes:
        cells = []
        for m in models:
            verdicts = [r.verdict for r in results if r.case.pass_.name == p.name and
                        r.case.model.name == m.name and r.verdict != "nowhere"]
            limits = sorted({letters.setdefault(v, chr(ord("A") + len(letters))) for v in verdicts
                             if v not in ("same", "runs", "FAIL")})
            same = verdicts.count("same")
            cells.append((str(same) if same else "") + "r" * ("runs" in verdicts) + "".join(limits) +
                         "F" * ("FAIL" in verdicts) or "-")
        print(f"{p.name:<{width}}", *(f"{c:>10}" for c in cells))
    for reason, letter in letters.items():
        print(f"{letter}: {reason}")


def report(passes, models, job):
    """Prints the table and what is not in it; whether all agrees, and every pass has run somewhere."""
    results, ran = job.results, job.ran()
    show(passes, models, results)
    for name, reason in CANNOT.items():
        print(f"not run: {name}: {reason}")
    for p in passes:
        why = {r.fault for r in results if r.case.pass_.name == p.name and r.verdict == "nowhere"}
        if p.name not in ran and p.name not in CANNOT:
            print(f"not run: {p.name}: {'; '.join(sorted(why))[:300]}")
    count = collections.Counter(r.verdict for r in results)
    names = {r.case.model.name for r in results}
    print(f"{count['same']} files of {len(ran)} passes and presets on {len(names)} models agree, "
          f"{count['FAIL']} do not")
    return count["FAIL"] == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="*")
    parser.add_argument("--ebb", default="ebb")
    parser.add_argument("--pass", action="append", dest="passes", help="only these")
    parser.add_argument("--all", action="store_true", help="every value of every option on every model")
    parser.add_argument("--share", type=int, default=1 if os.environ.get("EBB_TEST_ALL") == "1" else 16,
                        help="a pass's defaults meet one model in so many (16; EBB_TEST_ALL=1: 1)")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    passes = [p for p in passes_of(args.ebb) if not args.passes or p.name in args.passes]
    with tempfile.TemporaryDirectory() as folder, multiprocessing.Pool(args.jobs) as pool:
        models, spare = models_of(args.models, folder)
        job = Run(pool, args.ebb, [p for p in passes if p.name not in CANNOT], models, spare, folder,
                  args.share)
        sound = job.find_seeds(models)
        job.every_default()
        job.every_option(args.all)
        job.every_pass_somewhere()
    return 0 if report(passes, models + spare, job) and sound else 1


if __name__ == "__main__":
    sys.exit(main())
