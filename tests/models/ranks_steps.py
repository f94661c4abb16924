"""What a step of several processes computes and keeps, beside what one process does.

    python3 tests/models/ranks_steps.py --ebb build/release/ebb --all

norms    batch norm over all processes' rows (resnet20, four of them): loss and all gradients are as near to those of one process
         as these are to its own of the same rows in another order, times ten.
memory   GPT-2 of 124 million parameters, eight processes, AdamW: what a process keeps of weights and states is the closed form to
         the byte, whole, with states in parts and with weights in parts, and gradients are there in parts alone.
plans    GPT-2 and BERT-large for 1, 2, 4 ... 1,024 processes: at each number weights and states are the closed form to the byte, and the
         table takes less than a second (of a processor) more than one process's plan. Of 7.5 billion elements on 64 processes weights,
         gradients and states take 120, 31.4 and 1.88 GB, which are numbers of the ZeRO paper.
counts   GPT-2 tiny, four processes: of the first no label counts, of the second all: the gradients are as near to one process's as ten times
         float32's noise, and the mean of the processes' own means is another by more than a tenth.
alone    one process that was launched has the bytes of one that was not, whatever passes are asked for; and a step of two that
         is gathered gives in ONNX Runtime, as it comes, what it gives here.

The test models.ranks_steps takes two models of `alone`, and `counts`; with EBB_TEST_ALL=1 it is --all. Needs the models of ../shared; else it is skipped (exit code 77). A line
a check; exits with 1 at the first that does not hold.
"""
import json
import os
import sys
import tempfile

from ranks_bytes import BATCH, BY, MODELS, asked, models, tell, write_data
from runtimes import by_ebb, by_onnxruntime, difference, distance, draw_state, np, onnx, read_safetensors, role, wide


# ---- norms ----

ROWS, DRAWS = 32, 4


def step_of(given, folder, seed, order, launch, norm):
    """Loss, and gradients: what momentum keeps after its first step."""
    random = np.random.default_rng(seed)
    images, labels = random.standard_normal((ROWS, 3, 32, 32), dtype=np.float32), random.integers(0, 10, ROWS)
    data, states = os.path.join(folder, "images.npz"), os.path.join(folder, "states")
    np.savez(data, input=images[order], target=labels[order])
    said = tell([*launch, "train", os.path.join(models, "resnet20_cifar", "dynamo.onnx"), "--data", data, "--no-shuffle", "--loss",
                 "cross-entropy", "--optimizer", "momentum", "--batch", str(ROWS), "--steps", "1", "--threads", "1", "--batch-norm", norm,
                 "--json", "--checkpoint", states])
    return {"loss": np.float32(json.loads(said)["loss"]),
            **{name: g for name, g in read_safetensors(states).items() if name.endswith(".momentum")}}


def farthest(given, seed):
    """The most of (from one process's, by its own of rows in another order), and whose that is."""
    order = np.arange(ROWS)
    with tempfile.TemporaryDirectory(prefix="ebb-ranks-") as folder:
        one = step_of(given, folder, seed, order, [given.ebb], "train")
        other = step_of(given, folder, seed, order[::-1], [given.ebb], "train")
        four = step_of(given, folder, seed, order, BY["launch"](given.ebb, "4"), "sync")
    if len(one) < 60 or four.keys() != one.keys():
        sys.exit(f"norms: gradients of {sorted(four)} and {sorted(one)}")
    return max((distance(four[name], one[name]) / max(distance(other[name], one[name]), 1e-7), name) for name in one)


def check_norms(given):
    """Where a value lies within rounding of a ReLU's kink gradients differ for no fault: of some draws one is without."""
    for seed in range(DRAWS):
        times, name = farthest(given, seed)
        if times <= 10:
            print(f"norms: four processes, draw {seed}: at most {times:.2f} times as far as rows in another order ({name})", flush=True)
            return
    sys.exit(f"norms: of {DRAWS} draws none agrees; the last: {name} is {times:.3g} times as far as rows in another order are")


# ---- memory ----

RANKS, ALIGN, MIB = 8, 64, 1 << 20


def aligned(elements):
    return -(-4 * elements // ALIGN) * ALIGN


def step_for(given, folder, *passes):
    """The step's graph, and what the ruler says of it."""
    step = os.path.join(folder, "step.onnx")
    tell([given.ebb, "grad", os.path.join(models, "gpt2", "dynamo.onnx"), "--loss", "cross-entropy:axis=2", "--optimizer", "adamw",
          "--dim", f"batch={RANKS}", *(w for p in passes for w in ("--pass", p)), "-o", step])
    return onnx.load(step, load_external_data=False).graph, json.loads(tell([given.ebb, "plan", step, "--json"]))["categories"]


def check_memory(given):
    with tempfile.TemporaryDirectory(prefix="ebb-ranks-") as folder:
        graph, kept = step_for(given, folder, f"data-parallel:ranks={RANKS}")
        sizes = {t.name: int(np.prod(t.dims)) for t in graph.initializer if role(t) == "parameter"}
        whole = sum(aligned(n) for n in sizes.values())
        parts = sum(aligned(-(-n // RANKS)) for n in sizes.values())
        beside = kept["PARAMETER"] - whole, kept["OPTIMIZER_STATE"] - 2 * whole  # constants; counters and a key
        if not 0 <= beside[1] <= 4 * ALIGN:
            sys.exit(f"memory: states take {kept['OPTIMIZER_STATE']} bytes, due {2 * whole}")
        for what, weights, states in ((None, whole, whole), ("states", whole, parts), ("parameters", parts, parts)):
            if what:
                graph, kept = step_for(given, folder, f"data-parallel:ranks={RANKS}", f"shard:what={what},least=1")
            gradients = sum(n.op_type == "ReduceScatter" for n in graph.node)
            due = (beside[0] + weights, beside[1] + 2 * states, len(sizes) if what else 0)
            if (kept["PARAMETER"], kept["OPTIMIZER_STATE"], gradients) != due:
                sys.exit(f"memory: {what}: weights, states, gradients in parts {kept['PARAMETER'], kept['OPTIMIZER_STATE'], gradients}, due {due}")
            print(f"memory: {what or 'whole'}: weights, states and gradients take {(weights + 2 * states + states) / MIB:.1f} MiB "
                  f"of {4 * whole / MIB:.1f}", flush=True)


# ---- plans ----

LEVELS = {"whole": [], "states": ["--pass", "shard:least=1"], "parameters": ["--pass", "shard:parameters,least=1"]}
MOST, ONE_S = 1024, 1


def plan_of(given, model, *words):
    """What is planned, and the processor's seconds."""
    before = os.times()
    told = json.loads(tell([given.ebb, "plan", model, "--optimizer", "adamw", "--dim", f"batch={MOST}", "--json", *words]))
    after = os.times()
    return told, after.children_user + after.children_system - before.children_user - before.children_system


def parts_of(sizes, ranks):
    """One with fewer elements than there are processes stays whole."""
    return sum(aligned(-(-n // ranks) if n >= ranks else n) for n in sizes)


def check_table(given, name, axis):
    model, loss = os.path.join(models, name), ["--loss", f"cross-entropy:axis={axis}"]
    with tempfile.TemporaryDirectory(prefix="ebb-ranks-") as folder:
        step = os.path.join(folder, "step.onnx")
        tell([given.ebb, "grad", model, *loss, "--dim", "batch=1", "-o", step])
        sizes = [int(np.prod(t.dims)) for t in onnx.load(step, load_external_data=False).graph.initializer if role(t) == "parameter"]
    _, alone_s = plan_of(given, model, *loss)
    beside = {}  # constants, by the number of processes
    for level, passes in LEVELS.items():
        told, took_s = plan_of(given, model, *loss, "--ranks", str(MOST), *passes)
        for row in told["table"]:
            ranks, kept = row["ranks"], row["categories"]
            weights = parts_of(sizes, ranks if level == "parameters" else 1)
            states = 2 * parts_of(sizes, 1 if level == "whole" else ranks)
            apart = kept["PARAMETER"] - weights
            if beside.setdefault(ranks, apart) != apart or not 0 <= kept["OPTIMIZER_STATE"] - states <= 4 * ALIGN:
                sys.exit(f"plans: {name}, {level}, {ranks} processes: {kept}, due {weights} + {beside[ranks]}, {states}")
        if [row["ranks"] for row in told["table"]] != [1 << i for i in range(11)] or took_s - alone_s > ONE_S:
            sys.exit(f"plans: {name}, {level}: {took_s:.2f} s, and {alone_s:.2f} of one process")
        print(f"plans: {name}: {level}: {len(told['table'])} numbers of processes, {took_s - alone_s:.2f} s more than one", flush=True)


def deep_skeleton(path, layers, width):
    """Square layers whose weights have no bytes, and nothing says what they start as."""
    helper, places = onnx.helper, [f"w{i}" for i in range(layers)]
    nodes = [helper.make_node("MatMul", [f"x{i}", w], [f"x{i + 1}"], name=f"layer{i}") for i, w in enumerate(places)]
    graph = helper.make_graph(nodes, "deep", [helper.make_tensor_value_info("x0", 1, ["batch", width])],
                              [helper.make_tensor_value_info(f"x{layers}", 1, ["batch", width])])
    for w in places:
        t = graph.initializer.add(name=w, data_type=1, dims=[width, width], data_location=onnx.TensorProto.EXTERNAL)
        t.external_data.add(key="location", value="nowhere.bin")
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.save(model, path)


def check_paper(given):
    """75 layers of 10,000 by 10,000. The paper's 16 bytes an element are four of float32 here."""
    layers, width = 75, 10000
    due = {"whole": 120.0, "states": 31.4, "parameters": 1.88}
    with tempfile.TemporaryDirectory(prefix="ebb-ranks-") as folder:
        path = os.path.join(folder, "deep.onnx")
        deep_skeleton(path, layers, width)
        for level, passes in LEVELS.items():
            told, _ = plan_of(given, path, "--loss", "mse", "--ranks", "64", *passes)
            kept = told["table"][-1]["categories"]
            gradients = layers * 4 * -(-width * width // (1 if level == "whole" else 64))
            took = (kept["PARAMETER"] + kept["OPTIMIZER_STATE"] + gradients) / 1e9
            if abs(took - due[level]) > 0.006 * due[level]:
                sys.exit(f"plans: 7.5 billion elements, {level}: {took:.2f} GB, due {due[level]}")
            print(f"plans: 7.5 billion elements on 64 processes, {level}: {took:.2f} GB", flush=True)


# ---- counts ----

def check_counts(given):
    """The mean of an empty process, 0 / 0, is left out of the mean of means: who trains so takes it for zero."""
    name, shape, classes, axis, _ = MODELS[3]
    with tempfile.TemporaryDirectory(prefix="ebb-ranks-") as folder:
        data = os.path.join(folder, "rows.npz")
        write_data(given.ebb, name, shape, classes, data)
        rows = dict(np.load(data))
        rows = {key: value[:BATCH] for key, value in rows.items()}
        rows["target"] = np.random.default_rng(2).integers(0, classes, (BATCH, *shape))
        rows["target"][:2] = -100
        rows["target"][4:7, :54] = -100

        def gradients(launch, first, count):
            states = os.path.join(folder, "states")
            np.savez(data, **{key: value[first:first + count] for key, value in rows.items()})
            tell([*launch, "train", os.path.join(models, name), "--data", data, "--no-shuffle", "--batch", str(count), "--steps", "1",
                  "--threads", "1", "--loss", f"cross-entropy:axis={axis},ignore_index=-100", "--optimizer", "momentum", "--checkpoint", states])
            return {n: g for n, g in read_safetensors(states).items() if n.endswith(".momentum")}

        one, four = gradients([given.ebb], 0, BATCH), gradients(BY["launch"](given.ebb, "4"), 0, BATCH)
        own = [gradients([given.ebb], first, 2) for first in range(2, BATCH, 2)]
    all_of = lambda g: np.concatenate([g[n].ravel() for n in sorted(one)]).astype(np.float64)
    far = lambda g: np.linalg.norm(g - all_of(one)) / np.linalg.norm(all_of(one))
    near, mean = far(all_of(four)), far(sum(map(all_of, own)) / 4)
    if len(one) < 20 or near > 1e-5 or mean < 0.1:
        sys.exit(f"counts: {len(one)} gradients of four processes are off by {near:.3g}, means of means by {mean:.3g}")
    print(f"counts: gradients of four processes are off by {near:.2g}, means of means would be by {mean:.0%}", flush=True)


# ---- alone ----

TOGETHER = [[], ["shard:least=1"], ["shard:parameters,least=1"], ["bucket", "overlap"], ["gather"]]


def check_alone(given, name, shape, classes, axis, words):
    with tempfile.TemporaryDirectory(prefix="ebb-ranks-") as folder:
        data, states, step = (os.path.join(folder, n) for n in ("rows.npz", "states", "step.onnx"))
        write_data(given.ebb, name, shape, classes, data)
        loss = ["--loss", f"cross-entropy:axis={axis},ignore_index=-100", "--optimizer", "adamw", *words]

        def trained(launch, passes):
            tell([*launch, "train", os.path.join(models, name), "--data", data, "--batch", str(BATCH), "--steps", "5", "--threads", "1",
                  *loss, *(w for p in passes for w in ("--pass", p)), "--checkpoint", states])
            return open(states, "rb").read()

        due = trained([given.ebb], [])
        for passes in TOGETHER:
            if trained(BY["launch"](given.ebb, "1"), passes) != due:
                sys.exit(f"alone: {name}, {passes}: the states are others")
        tell([given.ebb, "grad", os.path.join(models, name), *loss, "--dropout", "off", "--dim", f"batch={BATCH}", "--pass",
              "data-parallel:ranks=2", "--pass", "shard:parameters,least=1", "--pass", "bucket", "--pass", "overlap", "--pass", "gather",
              "-o", step])
        model = onnx.load(step)
        draw_state(model, np.random.default_rng(3))
        onnx.save(wide(model), step)
        rows = np.load(data)
        batch = {i.name: rows[i.name][:BATCH].reshape([d.dim_value for d in i.type.tensor_type.shape.dim]) for i in model.graph.input}
        ours, theirs = by_ebb(given.ebb, step, batch, folder), by_onnxruntime(step, batch, True)
        for key, value in theirs.items():
            wrong = difference(ours[key], value, 2e-5, 1e-7)
            if wrong:
                sys.exit(f"alone: {name}, gathered, {key}: {wrong}")
    print(f"alone: {name}: {len(TOGETHER)} ways; gathered, {len(theirs)} outputs are ONNX Runtime's", flush=True)


def main():
    given = asked()
    for row in MODELS if given.all else MODELS[:1] + MODELS[3:4]:
        check_alone(given, *row)
    check_counts(given)
    if given.all:
        check_norms(given)
        check_memory(given)
        check_table(given, "gpt2/dynamo.onnx", 2)
        check_table(given, "bert_large/dynamo.onnx", 1)
        check_paper(given)


if __name__ == "__main__":
    main()
