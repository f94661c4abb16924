"""What a process sends in a step, counted in the run, beside the closed form: to each of the others a part of each weight, ceil(n / N)
elements, twice: for its gradient's sum (AllReduce), or for the sum in parts and the new weight (states in parts); with weights in
parts once for the sum, and as often as the weight is put together, once or twice. Beside them stand the loss, how many labels count,
the mask of all rows (a byte a word), and who goes on. How often each kind is there, and which are put together twice, are numbers of the model.

    python3 tests/models/ranks_traffic.py --ebb build/release/ebb --all

The test models.ranks_traffic takes two models; with EBB_TEST_ALL=1 it is --all: six. Needs the models of ../shared; else it is skipped
(exit code 77). A line a model; exits with 1 at the first that does not hold.
"""
import collections
import json
import os
import sys
import tempfile

from ranks_bytes import BATCH, BY, MODELS, WORDS, asked, models, tell, write_data
from runtimes import np, onnx, role

LEVELS = {"whole": [], "states": ["shard:least=1"], "parameters": ["shard:parameters,least=1"]}
SCALARS, GOES_ON, FLOAT = 2, 8, 4  # the loss and how many labels count; bytes
TWICE = {"mlp_digits": 2, "cnn_digits": 4, "bert_tiny": 19, "gpt2_tiny": 14, "lstm_char": 1, "gelu_block_dropout": 4}
LOOKED_UP = {"bert_tiny": ("bert.embeddings.position_embeddings.weight", 32)}  # as many rows of a table with more: they are summed
MASKS = {"bert_tiny": 1, "gpt2_tiny": 1}


def part(elements, ranks):
    return -(-elements // ranks)


def shape_of(graph):
    """Elements of each weight, and how often it is put together."""
    joined = collections.Counter(n.input[0] for n in graph.node if n.op_type == "Unshard")
    return {t.name: joined[t.name] for t in graph.initializer if role(t) == "parameter"}


def due_of(family, sizes, joined, level, ranks):
    """What is sent to each of the others, and in how many exchanges."""
    bytes_of = {name: FLOAT * part(n, ranks) for name, n in sizes.items()}
    table, rows = LOOKED_UP.get(family, (None, 0))
    masks, others = MASKS.get(family, 0), 1 if table else 0
    sums = sum(b for name, b in bytes_of.items() if name != table)
    apart = (2 * FLOAT * part(rows * (64 if table else 0), ranks) + 2 * FLOAT * SCALARS + GOES_ON +
             masks * part(BATCH * WORDS.get(family, 0), ranks))
    if level == "whole":
        return 2 * sums + apart, 2 * (len(sizes) + SCALARS) + masks + 1
    times = joined if level == "parameters" else dict.fromkeys(sizes, 1)
    again = sum(bytes_of[name] * times[name] for name in sizes)
    return sums + again + apart, len(sizes) - others + sum(times.values()) + 2 * (SCALARS + others) + masks + 1


def check(given, name, shape, classes, axis, words):
    family = name.split("/")[0]
    with tempfile.TemporaryDirectory(prefix="ebb-ranks-") as folder:
        data, step = os.path.join(folder, "rows.npz"), os.path.join(folder, "step.onnx")
        write_data(given.ebb, name, shape, classes, data)
        path, loss = os.path.join(models, name), ["--loss", f"cross-entropy:axis={axis},ignore_index=-100", "--optimizer", "adamw", *words]

        def graph_of(passes):
            tell([given.ebb, "grad", path, *loss, "--dim", f"batch={BATCH}", *(w for p in passes for w in ("--pass", p)), "-o", step])
            return onnx.load(step).graph

        sizes = {t.name: int(np.prod(t.dims)) for t in graph_of([]).initializer if role(t) == "parameter"}
        for ranks in (2, 4):
            for level, passes in LEVELS.items():
                joined = shape_of(graph_of([f"data-parallel:ranks={ranks}", *passes]))
                if level == "parameters" and sorted(joined.values()) != [1] * (len(sizes) - TWICE[family]) + [2] * TWICE[family]:
                    sys.exit(f"{name}: put together: {joined}")
                told = [json.loads(tell([*BY["launch"](given.ebb, str(ranks)), "train", path, "--data", data, "--batch", str(BATCH),
                                         "--threads", "1", *loss, *(w for p in passes for w in ("--pass", p)), "--steps", str(steps), "--json"]))
                        for steps in (1, 2)]
                sent, exchanges = (told[1][key] - told[0][key] for key in ("sent_bytes", "exchanges"))
                due, times = due_of(family, sizes, joined, level, ranks)
                if (sent, exchanges) != (due * (ranks - 1), times):
                    sys.exit(f"{name}, {ranks} processes, {level}: {sent} bytes in {exchanges} exchanges, due {due * (ranks - 1)} in {times}")
    print(f"{name}: {len(sizes)} weights of {sum(sizes.values())} elements: as it should be sent, by 2 and 4 processes", flush=True)


def main():
    given = asked()
    for row in MODELS if given.all else MODELS[2:4]:
        check(given, *row)


if __name__ == "__main__":
    main()
