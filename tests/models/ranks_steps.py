"""What a step of several processes computes and keeps, beside what one process does.

    python3 tests/models/ranks_steps.py --ebb build/release/ebb --all

norms    batch norm over all processes' rows (resnet20, four of them): loss and all gradients are as near to those of one process
         as these are to its own of the same rows in another order, times ten.
memory   GPT-2 of 124 million parameters, eight processes, AdamW: what a process keeps of weights and states is the closed form to
         the byte, whole, with states in parts and with weights in parts, and gradients are there in parts alone.
alone    one process that was launched has the bytes of one that was not, whatever passes are asked for; and a step of two that
         is gathered gives in ONNX Runtime, as it comes, what it gives here.

The test models.ranks_steps takes two models of `alone`; with EBB_TEST_ALL=1 it is --all. Needs the models of ../shared; else it is skipped (exit code 77). A line
a check; exits with 1 at the first that does not hold.
"""
import argparse
import json
import os
import sys
import tempfile

from ranks_bytes import BATCH, BY, MODELS, models, tell, write_data
from runtimes import SKIPPED, by_ebb, by_onnxruntime, difference, distance, draw_state, np, onnx, read_safetensors, role, wide


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
    words = argparse.ArgumentParser()
    words.add_argument("--ebb", default="build/release/ebb")
    words.add_argument("--all", action="store_true", default=os.environ.get("EBB_TEST_ALL") == "1")
    given = words.parse_args()
    given.ebb = os.path.abspath(given.ebb)
    if not os.path.isdir(models):
        sys.exit(SKIPPED)
    for row in MODELS if given.all else MODELS[:1] + MODELS[3:4]:
        check_alone(given, *row)
    if given.all:
        check_norms(given)
        check_memory(given)


if __name__ == "__main__":
    main()
