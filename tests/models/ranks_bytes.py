"""Several processes have the bytes of one that computes as many parts: five steps of AdamW on six exported models and a small one whose table is tied, rows with
ignored labels unevenly spread (one process may have none that count), dropout on; with buckets, beside the step, with states
and weights in parts, and gathered into a step of one process.

    python3 tests/models/ranks_bytes.py --ebb build/release/ebb --models "" --ways 5 --by openmpi --ranks 2,4

--by says who starts the processes: launch, openmpi or mpich (whose processes want a processor each). The test models.ranks_bytes is a small one. Needs numpy and the models of ../shared; else it is skipped (exit code 77). A line a
model; exits with 1 at the first that differs.
"""
import argparse
import os
import subprocess
import sys
import tempfile

from runtimes import SKIPPED, SOURCE, np as numpy, onnx

models = os.path.join(os.path.dirname(SOURCE), "shared", "models")
ROWS, BATCH, STEPS = 40, 8, 5
MODELS = [  # shape of the target, classes, axis of the classes
    ("mlp_digits/dynamo.onnx", (), 10, 1, []),
    ("cnn_digits/ts.onnx", (), 10, 1, ["--batch-norm", "frozen"]),
    ("bert_tiny/dynamo.onnx", (), 4, 1, []),
    ("gpt2_tiny/ts.onnx", (64,), 256, 2, []),
    ("lstm_char/dynamo.onnx", (32,), 96, 2, []),
    ("gelu_block_dropout/dynamo.onnx", (16,), 10, 2, []),
]
TIED = ("tied", (8,), 256, 2, [])  # write_tied
INPUTS = {"mlp_digits": ("input", (64,)), "cnn_digits": ("input", (1, 8, 8)), "gelu_block_dropout": ("input", (16, 64))}
WORDS = {"bert_tiny": 32, "gpt2_tiny": 64, "lstm_char": 32, "tied": 8}
PASSES = [[], ["release", "bucket:bytes=1000", "overlap"], ["bucket:bytes=1000000", "overlap:depth=9"], ["shard:least=1"],
          ["shard:parameters,least=1", "bucket", "overlap"]]


BY = {
    "launch": lambda ebb, ranks: [ebb, "launch", "-n", ranks, "--", ebb],
    "openmpi": lambda ebb, ranks: ["env", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "mpirun.openmpi",
                                   "--oversubscribe", "-n", ranks, ebb],
    "mpich": lambda ebb, ranks: ["mpirun.mpich", "-n", ranks, ebb],
}


def asked():
    """What is asked for by --ebb and --all. Without the models of ../shared the test is skipped."""
    words = argparse.ArgumentParser()
    words.add_argument("--ebb", default="build/release/ebb", type=os.path.abspath)
    words.add_argument("--all", action="store_true", default=os.environ.get("EBB_TEST_ALL") == "1")
    given = words.parse_args()
    if not os.path.isdir(models):
        sys.exit(SKIPPED)
    return given


def tell(words):
    ended = subprocess.run(words, capture_output=True, text=True, timeout=600)
    if ended.returncode != 0:
        sys.exit(f"{' '.join(words)}\nexit {ended.returncode}: {ended.stderr[-600:]}")
    return ended.stdout


def write_data(ebb, name, shape, classes, path):
    """Random rows; of the first of each two half the labels are ignored, and of every fifth all."""
    random, family = numpy.random.default_rng(5), name.split("/")[0]
    target = random.integers(0, classes, (ROWS, *shape))
    if shape:
        target[::2, : shape[0] // 2] = -100
    target[::5] = -100
    rows = {"target": target}
    if family in INPUTS:
        key, dims = INPUTS[family]
        rows[key] = random.standard_normal((ROWS, *dims), dtype=numpy.float32)
    else:
        rows["input_ids"] = random.integers(0, 90, (ROWS, WORDS[family]))
        if family in ("bert_tiny", "gpt2_tiny"):
            rows["attention_mask"] = numpy.ones((ROWS, WORDS[family]), numpy.int64)
    numpy.savez(path, **rows)


def write_tied(path):
    """Few words of a table are looked up, and each is a class: pass overlap sends its gradient in two parts."""
    helper, random = onnx.helper, numpy.random.default_rng(6)
    weights = {"table": random.standard_normal((256, 64)), "layer": random.standard_normal((64, 64)) / 8}
    nodes = [("Gather", ["table", "input_ids"], "x"), ("MatMul", ["x", "layer"], "h"), ("Tanh", ["h"], "t"),
             ("Transpose", ["table"], "head"), ("MatMul", ["t", "head"], "logits")]
    graph = helper.make_graph([helper.make_node(op, ins, [out], name=out) for op, ins, out in nodes], "tied",
                              [helper.make_tensor_value_info("input_ids", 7, ["batch", 8])],
                              [helper.make_tensor_value_info("logits", 1, ["batch", 8, 256])],
                              [onnx.numpy_helper.from_array(w.astype(numpy.float32), name) for name, w in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)


def check(ebb, name, shape, classes, axis, words, given):
    with tempfile.TemporaryDirectory(prefix="ebb-ranks-") as folder:
        data, model = os.path.join(folder, "rows.npz"), os.path.join(models, name)
        write_data(ebb, name, shape, classes, data)
        if name == TIED[0]:
            model = os.path.join(folder, "tied.onnx")
            write_tied(model)

        def states(passes, start=(ebb,)):
            path = os.path.join(folder, "states")
            tell([*start, "train", model, "--data", data, "--loss",
                  f"cross-entropy:axis={axis},ignore_index=-100", "--batch", str(BATCH), "--steps", str(STEPS), "--seed", "4", "--threads", "1",
                  "--optimizer", "adamw", *words, *(w for p in passes for w in ("--pass", p)), "--checkpoint", path])
            return open(path, "rb").read()

        last = PASSES[given.ways - 1]
        for ranks in given.ranks.split(","):
            due = states([f"micro-batch:parts={ranks},require=1"])
            for passes in PASSES[:given.ways]:
                if states(passes, BY[given.by](ebb, ranks)) != due:
                    sys.exit(f"{name}, {ranks} processes, {passes}: the states are others")
            for passes in (last, ["overlap"]) if name == TIED[0] else (last,):
                if states([f"data-parallel:ranks={ranks}", *passes, "gather"]) != due:
                    sys.exit(f"{name}, {ranks} processes gathered, {passes}: the states are others")
    print(f"{name}: {given.ranks} processes by {given.by}, {given.ways} ways each", flush=True)


def main():
    words = argparse.ArgumentParser()
    words.add_argument("--ebb", default="build/release/ebb")
    words.add_argument("--ways", type=int, default=2, choices=range(1, len(PASSES) + 1))
    words.add_argument("--models", default="gpt2_tiny,tied")
    words.add_argument("--by", default="launch", choices=BY)
    words.add_argument("--ranks", default="2,4")
    given = words.parse_args()
    if not os.path.isdir(models):
        sys.exit(SKIPPED)
    for row in [*MODELS, TIED]:
        if any(name in row[0] for name in given.models.split(",")):
            check(os.path.abspath(given.ebb), *row, given)


if __name__ == "__main__":
    main()
