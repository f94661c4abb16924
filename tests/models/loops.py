"""loops.py: loops that are kept, by ONNX Runtime.

    python3 tests/models/loops.py --ebb build/release/ebb [--steps T]

    model ── unroll:most=1, loss, gradient, [optimizer, alias] ──> step.onnx, two Scans

The loops of ONNX's own tests give the outputs that stand beside them; steps with a kept loop pass
onnx.checker, shape inference included, and give in ONNX Runtime, its optimizations on, what `ebb run` gives.
A cell of an LSTM and one of a GRU written as a Scan, or as a Scan within one, have the gradients of the
operators, which tests/gradients holds against PyTorch's, and in parts the same bits.

Exit codes: 0, 1 where something differs, 77 where onnxruntime is not here.
"""
import argparse
import glob
import os
import sys
import tempfile

from runtimes import SOURCE, ask, by_ebb, by_onnxruntime, difference, np, numpy_helper, onnx

helper, FLOAT = onnx.helper, onnx.TensorProto.FLOAT
SUITE = os.path.join(SOURCE, ".oracles/onnx-1.22.0/onnx/backend/test/data/node")
TOLERANCE, LEAST = 2e-5, 1e-7
STEPS, BATCH, INPUT, HIDDEN = 9, 2, 3, 4


def value(name, *dims):
    return helper.make_tensor_value_info(name, FLOAT, dims)


def lstm_cell():
    """Gates in the order of ONNX: input, output, forget, cell."""
    make = helper.make_node
    nodes = [make("MatMul", ["xt", "wt"], ["xw"]), make("MatMul", ["h", "rt"], ["hr"]),
             make("Add", ["xw", "hr"], ["xh"]), make("Add", ["xh", "b"], ["a"]),
             make("Split", ["a"], ["ai", "ao", "af", "ac"], axis=-1, num_outputs=4),
             make("Sigmoid", ["ai"], ["i"]), make("Sigmoid", ["ao"], ["o"]), make("Sigmoid", ["af"], ["f"]),
             make("Tanh", ["ac"], ["n"]), make("Mul", ["f", "c"], ["fc"]), make("Mul", ["i", "n"], ["in"]),
             make("Add", ["fc", "in"], ["c2"]), make("Tanh", ["c2"], ["tc"]), make("Mul", ["o", "tc"], ["h2"]),
             make("Identity", ["h2"], ["yt"])]
    return nodes, ["h", "c"], ["h2", "c2"], 4


def gru_cell():
    """Gates in the order of ONNX: update, reset, hidden; linear_before_reset, as PyTorch has it."""
    make = helper.make_node
    nodes = [make("MatMul", ["xt", "wt"], ["xw0"]), make("Add", ["xw0", "wb"], ["xw"]),
             make("MatMul", ["h", "rt"], ["hr0"]), make("Add", ["hr0", "rb"], ["hr"]),
             make("Split", ["xw"], ["xz", "xr", "xn"], axis=-1, num_outputs=3),
             make("Split", ["hr"], ["hz", "hs", "hn"], axis=-1, num_outputs=3),
             make("Add", ["xz", "hz"], ["az"]), make("Sigmoid", ["az"], ["z"]),
             make("Add", ["xr", "hs"], ["ar"]), make("Sigmoid", ["ar"], ["r"]),
             make("Mul", ["r", "hn"], ["rh"]), make("Add", ["xn", "rh"], ["an"]), make("Tanh", ["an"], ["n"]),
             make("Sub", ["h", "n"], ["hd"]), make("Mul", ["z", "hd"], ["zh"]), make("Add", ["n", "zh"], ["h2"]),
             make("Identity", ["h2"], ["yt"])]
    return nodes, ["h"], ["h2"], 3


def weights(gates, rng):
    draw = lambda *dims: (rng.standard_normal(dims) * 0.4).astype(np.float32)
    return {"W": draw(1, gates * HIDDEN, INPUT), "R": draw(1, gates * HIDDEN, HIDDEN),
            "B": draw(1, 2 * gates * HIDDEN)}


def by_scan(kind, tensors, steps, rows=0):
    """The operator's own weights are turned and taken apart before the loop. rows: so many steps are a step of a
    loop around."""
    nodes, states, news, gates = lstm_cell() if kind == "LSTM" else gru_cell()
    make = helper.make_node
    body = helper.make_graph(nodes, "cell", [value(s, BATCH, HIDDEN) for s in states] + [value("xt", BATCH, INPUT)],
                             [value(n, BATCH, HIDDEN) for n in news] + [value("yt", BATCH, HIDDEN)])
    before = [make("Squeeze", ["W", "zero"], ["w"]), make("Transpose", ["w"], ["wt"], perm=[1, 0]),
              make("Squeeze", ["R", "zero"], ["r0"]), make("Transpose", ["r0"], ["rt"], perm=[1, 0]),
              make("Squeeze", ["B", "zero"], ["b0"]), make("Split", ["b0"], ["wb", "rb"], axis=0, num_outputs=2),
              make("Add", ["wb", "rb"], ["b"])]
    if rows:
        inner = make("Scan", [s + "_row" for s in states] + ["xs"], [n + "_row" for n in news] + ["ys"], name="row",
                     num_scan_inputs=1, body=body)
        body = helper.make_graph([inner], "rows", [value(s + "_row", BATCH, HIDDEN) for s in states] +
                                 [value("xs", rows, BATCH, INPUT)], [value(n + "_row", BATCH, HIDDEN) for n in news] +
                                 [value("ys", rows, BATCH, HIDDEN)])
        before.append(make("Reshape", ["x", "in_rows"], ["x_rows"]))
        tensors = dict(tensors, in_rows=np.array([-1, rows, BATCH, INPUT]), whole=np.array([-1, BATCH, HIDDEN]))
    scan = make("Scan", [s + "0" for s in states] + ["x_rows" if rows else "x"], [s + "_end" for s in states] +
                ["steps"], name="loop", num_scan_inputs=1, body=body)
    end = make("Reshape", ["steps", "whole"], ["y"]) if rows else make("Identity", ["steps"], ["y"])
    return finish(before + [scan, end], states, tensors, steps)


def by_operator(kind, tensors, steps):
    make = helper.make_node
    states = ["h", "c"] if kind == "LSTM" else ["h"]
    attributes = {"linear_before_reset": 1} if kind == "GRU" else {}
    nodes = [make("Unsqueeze", [s + "0", "zero"], [s + "1"]) for s in states]
    nodes += [make(kind, ["x", "W", "R", "B", ""] + [s + "1" for s in states], ["Y"], name="loop",
                   hidden_size=HIDDEN, **attributes), make("Squeeze", ["Y", "one"], ["y"])]
    return finish(nodes, states, tensors, steps)


def finish(nodes, states, tensors, steps):
    inits = [numpy_helper.from_array(t, n) for n, t in tensors.items()]
    inits += [numpy_helper.from_array(np.array([i]), n) for i, n in enumerate(["zero", "one"])]
    graph = helper.make_graph(nodes, "g", [value(s + "0", BATCH, HIDDEN) for s in states] +
                              [value("x", steps, BATCH, INPUT)], [value("y", steps, BATCH, HIDDEN)], inits)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.checker.check_model(model, full_check=True)
    return model


class Run:
    def __init__(self, ebb, folder):
        self.ebb, self.folder, self.wrong = ebb, folder, 0

    def tell(self, what, why):
        if why is not None:
            print(f"{what}: {why}")
            self.wrong += 1

    def rewritten(self, model, passes):
        source, made = os.path.join(self.folder, "in.onnx"), os.path.join(self.folder, "out.onnx")
        onnx.save(model, source)
        ask(self.ebb, "rewrite", source, "-o", made, "--threads", "1", "--pass", passes)
        onnx.checker.check_model(onnx.load(made), full_check=True)
        return made

    def both(self, what, path, batch):
        """By ebb, where ONNX Runtime says the same."""
        ours = by_ebb(self.ebb, path, batch, self.folder)
        theirs = by_onnxruntime(path, batch, True)
        for name, array in ours.items():
            self.tell(f"{what}, {name}", difference(array, np.asarray(theirs[name]), TOLERANCE, LEAST))
        return ours

    def suite(self):
        """Tests of Scan of opset 9 and newer: of 8 goes over a batch, and Loops of the suite carry lists."""
        found = 0
        for folder in sorted(glob.glob(os.path.join(SUITE, "test_scan9_*"))):
            model = onnx.load(os.path.join(folder, "model.onnx"))
            model.ir_version = max(model.ir_version, 4)
            batch = {}
            for i, given in enumerate(model.graph.input):
                with open(os.path.join(folder, "test_data_set_0", f"input_{i}.pb"), "rb") as file:
                    batch[given.name] = numpy_helper.to_array(onnx.TensorProto.FromString(file.read()))
            path = self.rewritten(model, "opset,unroll:most=1,alias")
            self.tell(folder, None if kept(path) == 1 else "its loop is not kept")
            ours = self.both(os.path.basename(folder), path, batch)
            for i, made in enumerate(model.graph.output):
                with open(os.path.join(folder, "test_data_set_0", f"output_{i}.pb"), "rb") as file:
                    wanted = numpy_helper.to_array(onnx.TensorProto.FromString(file.read()))
                self.tell(f"{folder}, {made.name}", difference(ours[made.name], wanted, 1e-6, 1e-7))
            found += 1
        self.tell("ONNX's own tests", None if found >= 3 else f"{found} loops")

    def dropout(self, rng):
        """Each step draws with a key of its own, by the standard operators of its function body, too."""
        model = by_scan("LSTM", weights(4, rng), STEPS)
        body = [a.g for n in model.graph.node for a in n.attribute if a.name == "body"][0]
        body.node[-1].CopyFrom(helper.make_node("Dropout", ["h2", "ratio"], ["yt"], name="drop"))
        body.initializer.append(numpy_helper.from_array(np.float32(0.5), "ratio"))
        path = self.rewritten(model, "opset,fold,unroll:most=1,train-mode,loss:mse,gradient:train=W;R;B,"
                              "drop-saves,alias")
        batch = {i.name: (rng.standard_normal([d.dim_value for d in i.type.tensor_type.shape.dim]))
                 .astype(np.float32) for i in onnx.load(path).graph.input}
        self.both("LSTM with dropout", path, batch)

    def in_parts(self, kind, model, behind, batch, ours):
        """The same bits; and elsewhere the same numbers, with states kept as revolve does."""
        before = "opset,fold,unroll:most=1,sequence-parts" + behind + ",drop-saves"
        path = self.rewritten(model, before + ",alias")
        whole = kept(path)
        self.tell(kind, None if whole > 2 else "its loop is not in parts")
        for name, array in self.both(f"{kind}, in parts", path, batch).items():
            self.tell(f"{kind}, {name}, in parts", None if np.array_equal(array, ours[name]) else "other bits")
        if whole < 40:
            return
        path = self.rewritten(model, before + ",recompute:planner=revolve,budget=60%,alias")
        self.tell(kind, None if kept(path) > whole else "no part runs again")
        for name, array in by_onnxruntime(path, batch, True).items():
            self.tell(f"{kind}, {name}, by revolve", difference(np.asarray(array), ours[name], TOLERANCE, LEAST))

    def cell(self, kind, steps, rng, rows=0):
        tensors = weights(4 if kind == "LSTM" else 3, rng)
        behind = ",loss:mse,gradient:train=W;R;B"
        model = by_scan(kind, tensors, steps, rows)
        loop = self.rewritten(model, "opset,fold,unroll:most=1" + behind + ",drop-saves,alias")
        self.tell(kind, None if kept(loop) == 2 and kept_within(loop) == (2 if rows else 0) else "its loop is not kept")
        batch = {i.name: (rng.standard_normal([d.dim_value for d in i.type.tensor_type.shape.dim]))
                 .astype(np.float32) for i in onnx.load(loop).graph.input}
        ours = self.both(f"{kind} of {steps} steps", loop, batch)
        again = self.rewritten(model, "opset,fold,unroll:most=1" + behind + ",loops=again,drop-saves,alias")
        for name, array in self.both(f"{kind} of {steps} steps, computed again", again, batch).items():
            self.tell(f"{kind}, {name}, computed again", None if np.array_equal(array, ours[name]) else "other bits")
        if steps > 2:
            self.in_parts(kind, model, behind, batch, ours)
        operator = self.rewritten(by_operator(kind, tensors, steps), "opset,fold,unroll" + behind)
        theirs = by_ebb(self.ebb, operator, batch, self.folder)
        for name in ("loss", "W_grad", "R_grad", "B_grad"):
            self.tell(f"{kind} of {steps} steps, {name}, beside the operator",
                      difference(ours[name], theirs[name], 5e-5, 1e-7))


def kept(path):
    return sum(n.op_type == "Scan" for n in onnx.load(path).graph.node)


def kept_within(path):
    bodies = [a.g for n in onnx.load(path).graph.node if n.op_type == "Scan" for a in n.attribute if a.name == "body"]
    return sum(n.op_type == "Scan" for body in bodies for n in body.node)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--ebb", default=os.path.join(SOURCE, "build/release/ebb"))
    parser.add_argument("--steps", type=int, default=STEPS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = Run(options.ebb, folder)
        rng = np.random.default_rng(5)
        if os.path.isdir(SUITE):
            run.suite()
        run.dropout(rng)
        for kind in ("LSTM", "GRU"):
            for steps in (2, options.steps, 300):
                run.cell(kind, steps, rng)
            for rows in (2, 5):
                run.cell(kind, 40, rng, rows)
    print("loops kept: " + ("as they should be" if run.wrong == 0 else f"{run.wrong} differ"))
    return 1 if run.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
