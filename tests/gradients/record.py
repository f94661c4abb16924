"""Writes tests/gradients/recorded.txt: operators with the gradients that PyTorch gives them.

    python3 tests/gradients/record.py        (needs torch; the tests need only the file)

A case is a body that makes y of x, x1, ... (trained) and other tensors. The loss is the sum of
w y with w drawn; both sides compute in float64. Attributes are numbers that float32 has, too.
"""
import pathlib

import torch
import torch.nn.functional as F

torch.manual_seed(7)
torch.set_default_dtype(torch.float64)
cases = []


def draw(*dims):
    """Away from zero, where many functions have corners."""
    x = torch.rand(*dims) + 0.2
    return torch.where(torch.rand(*dims) < 0.5, -x, x)


def positive(*dims):
    return torch.rand(*dims) + 0.3


def ints(*list):
    return torch.tensor(list)


def case(body, function, **tensors):
    cases.append((body, function, tensors))


def show(x):
    kind = {torch.float64: "double", torch.int64: "int64", torch.int32: "int32", torch.uint8: "uint8", torch.int8: "int8",
            torch.bool: "bool"}[x.dtype]
    dims = "[" + ",".join(str(d) for d in x.shape) + "]" if x.dim() else ""
    values = ",".join(repr(float(v)) if kind == "double" else str(int(v)) for v in x.flatten())
    return kind + dims, "{" + values + "}"


def unary(op, function, x=None):
    case(f"y = {op} (x)", function, x=draw(2, 3) if x is None else x)


for op, f in [("Neg", torch.neg), ("Abs", torch.abs), ("Exp", torch.exp), ("Reciprocal", torch.reciprocal),
              ("Erf", torch.erf), ("Sin", torch.sin), ("Cos", torch.cos), ("Tan", torch.tan), ("Atan", torch.atan),
              ("Relu", torch.relu), ("Sigmoid", torch.sigmoid), ("Tanh", torch.tanh), ("Softplus", F.softplus),
              ("Softsign", F.softsign), ("HardSwish", F.hardswish), ("Mish", F.mish), ("Gelu", F.gelu),
              ("Gelu <approximate = \"tanh\">", lambda x: F.gelu(x, approximate="tanh")),
              ("Elu <alpha = 0.5>", lambda x: F.elu(x, 0.5)), ("LeakyRelu <alpha = 0.25>", lambda x: F.leaky_relu(x, 0.25)),
              ("ThresholdedRelu <alpha = 0.5>", lambda x: torch.where(x > 0.5, x, 0.0)),
              ("HardSigmoid <alpha = 0.25, beta = 0.5>", lambda x: torch.clamp(0.25 * x + 0.5, 0, 1)),
              ("Identity", lambda x: x * 1), ("Floor", torch.floor), ("Round", torch.round),
              ("Ceil", torch.ceil), ("Sign", torch.sign)]:
    unary(op, f)
for op, f in [("Log", torch.log), ("Sqrt", torch.sqrt)]:
    unary(op, f, positive(2, 3))

for op, f in [("Add", torch.add), ("Sub", torch.sub), ("Mul", torch.mul), ("Max", torch.maximum), ("Min", torch.minimum)]:
    case(f"y = {op} (x, x1)", f, x=draw(2, 1, 3), x1=draw(4, 1))
case("y = Div (x, x1)", torch.div, x=draw(3), x1=positive(2, 1))
case("y = Pow (x, x1)", torch.pow, x=positive(2, 3), x1=draw(3))
case("y = Sum (x, x1, x2)", lambda a, b, c: a + b + c, x=draw(2, 3), x1=draw(3), x2=draw(1, 1))
case("y = Mean (x, x1)", lambda a, b: (a + b) / 2, x=draw(2, 3), x1=draw(3))
case("y = Where (c, x, x1)", lambda x, x1, c: torch.where(c, x, x1), c=ints(1, 0, 1).bool(), x=draw(2, 3), x1=draw(2, 1))
case("y = PRelu (x, x1)", lambda x, s: torch.where(x > 0, x, s * x), x=draw(2, 3), x1=draw(3))
case("y = Clip (x, low, high)", lambda x, low, high: torch.clamp(x, low.item(), high.item()), x=draw(3, 3),
     low=torch.tensor(-0.5), high=torch.tensor(0.7))

axes = ints(1)
case("y = ReduceSum <keepdims = 0> (x, a)", lambda x, a: x.sum(1), x=draw(2, 3, 2), a=axes)
case("y = ReduceMean (x, a)", lambda x, a: x.mean(1, True), x=draw(2, 3, 2), a=axes)
case("y = ReduceMax (x, a)", lambda x, a: x.amax(1, True), x=draw(2, 3, 2), a=axes)
case("y = ReduceMin <keepdims = 0> (x, a)", lambda x, a: x.amin(1), x=draw(2, 3, 2), a=axes)
case("y = ReduceProd (x, a)", lambda x, a: x.prod(1, True), x=draw(2, 3, 2), a=axes)
one_zero, two_zeros = draw(2, 3), draw(2, 3)
one_zero[0, 1] = 0
two_zeros[1, 0] = two_zeros[1, 2] = 0
case("y = ReduceProd (x, a)", lambda x, a: x.prod(1, True), x=one_zero, a=axes)
case("y = ReduceProd (x, a)", lambda x, a: x.prod(1, True), x=two_zeros, a=axes)
case("y = ReduceL2 <keepdims = 0> (x, a)", lambda x, a: x.norm(dim=1), x=draw(2, 3, 2), a=axes)
case("y = ReduceSumSquare (x, a)", lambda x, a: (x * x).sum(1, True), x=draw(2, 3, 2), a=axes)
case("y = ReduceLogSumExp (x, a)", lambda x, a: x.logsumexp(1, True), x=draw(2, 3, 2), a=axes)
case("y = CumSum (x, k)", lambda x, k: x.cumsum(1), x=draw(2, 4), k=torch.tensor(1))
case("y = CumSum <reverse = 1> (x, k)", lambda x, k: x.flip(0).cumsum(0).flip(0), x=draw(3, 2), k=torch.tensor(0))

case("y = MatMul (x, x1)", torch.matmul, x=draw(2, 1, 2, 3), x1=draw(2, 3, 2))
case("y = Gemm <transB = 1, alpha = 0.5, beta = 2.0> (x, x1, x2)", lambda a, b, c: 0.5 * a @ b.T + 2 * c,
     x=draw(2, 3), x1=draw(4, 3), x2=draw(4))
case("y = Conv <strides = [2, 1], pads = [1, 0, 1, 0], group = 2> (x, x1, x2)",
     lambda x, w, b: F.conv2d(x, w, b, (2, 1), (1, 0), 1, 2), x=draw(1, 4, 4, 3), x1=draw(2, 2, 3, 2), x2=draw(2))
case("y = Conv <dilations = [2]> (x, x1)", lambda x, w: F.conv1d(x, w, dilation=2), x=draw(2, 2, 6), x1=draw(3, 2, 2))
case("y = ConvTranspose <strides = [2, 2], pads = [1, 1, 1, 1], output_padding = [1, 1]> (x, x1, x2)",
     lambda x, w, b: F.conv_transpose2d(x, w, b, 2, 1, 1), x=draw(1, 2, 3, 2), x1=draw(2, 2, 3, 3), x2=draw(2))
case("y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)", lambda x: F.max_pool2d(x, 2), x=draw(1, 2, 4, 4))
case("y = MaxPool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (x)",
     lambda x: F.max_pool2d(x, 3, 2, 1), x=draw(1, 1, 5, 5))
case("y = AveragePool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1], count_include_pad = 1> (x)",
     lambda x: F.avg_pool2d(x, 3, 2, 1), x=draw(1, 2, 5, 4))
case("y = GlobalAveragePool (x)", lambda x: x.mean((2, 3), True), x=draw(2, 2, 2, 3))
case("y = GlobalMaxPool (x)", lambda x: x.amax((2, 3), True), x=draw(2, 2, 2, 3))

case("y = LayerNormalization <stash_type = 11, epsilon = 0.0009765625> (x, x1, x2)",
     lambda x, s, b: F.layer_norm(x, (4,), s, b, 0.0009765625), x=draw(2, 3, 4), x1=draw(4), x2=draw(4))
case("y = InstanceNormalization <epsilon = 0.0009765625> (x, x1, x2)",
     lambda x, s, b: F.instance_norm(x, None, None, s, b, True, 0.1, 0.0009765625), x=draw(2, 2, 5), x1=draw(2), x2=draw(2))
case("y = BatchNormalization <epsilon = 0.0009765625> (x, x1, x2, m, v)",
     lambda x, s, b, m, v: F.batch_norm(x, m, v, s, b, False, 0.1, 0.0009765625), x=draw(3, 2, 2), x1=draw(2), x2=draw(2),
     m=draw(2), v=positive(2))
case("y = ai.ebb.GroupNorm <num_groups = 2, epsilon = 0.0009765625> (x, x1, x2)",
     lambda x, s, b: F.group_norm(x, 2, s, b, 0.0009765625), x=draw(2, 4, 3), x1=draw(4), x2=draw(4))
case("y = ai.ebb.RmsNorm <epsilon = 0.0009765625> (x, x1)",
     lambda x, s: x / (x.square().mean(-1, True) + 0.0009765625).sqrt() * s, x=draw(2, 4), x1=draw(4))
case("y = Softmax <axis = 1> (x)", lambda x: x.softmax(1), x=draw(2, 3, 2))
case("y = LogSoftmax (x)", lambda x: x.log_softmax(-1), x=draw(2, 4))
case("y = SoftmaxCrossEntropyLoss <ignore_index = 1> (x, t, q)",
     lambda x, t, q: F.cross_entropy(x, t, q, ignore_index=1), x=draw(4, 3), t=ints(0, 1, 2, 2), q=positive(3))
case("y = SoftmaxCrossEntropyLoss <reduction = \"none\"> (x, t)", lambda x, t: F.cross_entropy(x, t, reduction="none"),
     x=draw(2, 3, 2), t=torch.tensor([[0, 2], [1, 1]]))
case("y = NegativeLogLikelihoodLoss <reduction = \"sum\"> (x, t)", lambda x, t: F.nll_loss(x, t, reduction="sum"),
     x=draw(3, 4), t=ints(3, 0, 1))

case("y = Reshape (x, s)", lambda x, s: x.reshape(3, 4), x=draw(2, 3, 2), s=ints(3, -1))
case("y = Flatten <axis = 2> (x)", lambda x: x.reshape(6, 2), x=draw(2, 3, 2))
case("y = Transpose <perm = [2, 0, 1]> (x)", lambda x: x.permute(2, 0, 1), x=draw(2, 3, 2))
case("y = Squeeze (x, a)", lambda x, a: x.squeeze(1), x=draw(2, 1, 3), a=ints(1))
case("y = Unsqueeze (x, a)", lambda x, a: x[:, None, :, None], x=draw(2, 3), a=ints(1, 3))
case("y = Concat <axis = 1> (x, x1)", lambda a, b: torch.cat([a, b], 1), x=draw(2, 3), x1=draw(2, 1))
case("y0, y1 = Split <axis = 1> (x, s) y = Mul (y0, y1)", lambda x, s: x[:, :2] * x[:, 2:], x=draw(3, 4), s=ints(2, 2))
case("y = Slice (x, b, e, a, s)", lambda x, b, e, a, s: x.flip(1)[1:3, ::2], x=draw(4, 5), b=ints(1, 4), e=ints(3, -9),
     a=ints(0, 1), s=ints(1, -2))
case("y = Pad (x, p)", lambda x, p: F.pad(x, (1, 2, 0, 1)), x=draw(2, 3), p=ints(0, 1, 1, 2))
case("y = Expand (x, s)", lambda x, s: x.expand(2, 3, 4), x=draw(3, 1), s=ints(2, 1, 4))
case("y = Tile (x, r)", lambda x, r: x.repeat(2, 3), x=draw(2, 2), r=ints(2, 3))
case("y = Gather <axis = 1> (x, i)", lambda x, i: x[:, i], x=draw(2, 4), i=torch.tensor([[3, 0], [3, 1]]))
case("y = GatherElements <axis = 1> (x, i)", lambda x, i: x.gather(1, i), x=draw(2, 4), i=torch.tensor([[3, 0, 3], [1, 1, 2]]))
case("y = GatherND (x, i)", lambda x, i: x[i[:, 0], i[:, 1]], x=draw(3, 4), i=torch.tensor([[0, 1], [2, 3], [0, 1]]))
index, updates = torch.tensor([[1, 0, 1], [2, 3, 3]]), draw(2, 3)
zeros = updates.clone()
zeros[0, 0] = zeros[1, 2] = zeros[1, 1] = 0
for name, word in [("none", None), ("add", "sum"), ("mul", "prod"), ("max", "amax"), ("min", "amin")]:
    # Where nothing is reduced PyTorch asks for places that differ.
    at = torch.tensor([[1, 0, 3], [2, 3, 0]]) if word is None else index
    case(f"y = ScatterElements <axis = 1, reduction = \"{name}\"> (x, i, x1)",
         lambda x, u, i, word=word: x.scatter(1, i, u) if word is None else x.scatter_reduce(1, i, u, word),
         x=draw(2, 4), i=at, x1=updates)
case("y = ScatterElements <axis = 1, reduction = \"mul\"> (x, i, x1)",
     lambda x, u, i: x.scatter_reduce(1, i, u, "prod"), x=draw(2, 4), i=index, x1=zeros)
case("y = ScatterND <reduction = \"add\"> (x, i, x1)", lambda x, u, i: x.index_add(0, i[:, 0], u), x=draw(4, 2),
     i=torch.tensor([[3], [0], [3]]), x1=draw(3, 2))
case("y = Trilu <upper = 0> (x, k)", lambda x, k: x.tril(-1), x=draw(3, 3), k=torch.tensor(-1))
case("y, places = TopK <axis = 1> (x, k)", lambda x, k: x.topk(2, 1).values, x=draw(3, 5), k=ints(2))
case("y = DepthToSpace <blocksize = 2, mode = \"CRD\"> (x)", lambda x: F.pixel_shuffle(x, 2), x=draw(1, 4, 2, 2))
case("y = SpaceToDepth <blocksize = 2> (x)",
     lambda x: x.reshape(1, 2, 1, 2, 2, 2).permute(0, 3, 5, 1, 2, 4).reshape(1, 8, 1, 2), x=draw(1, 2, 2, 4))


def recurrent(kind, gates, hidden, lengths=None, last=False, bidirectional=False, backwards=False, states=0):
    """PyTorch's cell with the weights of ONNX, whose gates come in another order."""
    order = torch.tensor({"RNN": [0], "GRU": [1, 0, 2], "LSTM": [0, 2, 3, 1]}[kind])

    def run(x, w, r, b, *first):
        of = {"RNN": torch.nn.RNN, "GRU": torch.nn.GRU, "LSTM": torch.nn.LSTM}[kind]
        cell = of(x.shape[2], hidden, bidirectional=bidirectional)
        named = {}
        for d in range(w.shape[0]):
            end = "_l0" + "_reverse" * d
            regate = lambda t: t.reshape(gates, hidden, -1)[order].reshape(gates * hidden, -1)
            named |= {"weight_ih" + end: regate(w[d]), "weight_hh" + end: regate(r[d])}
            for i, name in enumerate(("bias_ih", "bias_hh")):
                named[name + end] = regate(b[d].reshape(2, -1)[i]).reshape(-1)
        first = tuple(first[:states])
        if backwards:
            x = x.flip(0)
        if lengths is not None:
            x = torch.nn.utils.rnn.pack_padded_sequence(x, torch.tensor(lengths), enforce_sorted=False)
        y, h = torch.func.functional_call(cell, named, (x, first if kind == "LSTM" and first else first[0] if first else None))
        if lengths is not None:
            y = torch.nn.utils.rnn.pad_packed_sequence(y, total_length=max(lengths))[0]
        if backwards:
            y = y.flip(0)
        if last:
            return h[1] if kind == "LSTM" else h
        return y.reshape(*y.shape[:2], w.shape[0], hidden).transpose(1, 2)

    return run


for kind, gates, more in [("RNN", 1, ""), ("GRU", 3, ", linear_before_reset = 1"), ("LSTM", 4, "")]:
    def weights(d, b=2, states=0):
        return dict(x=draw(3, b, 3), x1=draw(d, 2 * gates, 3), x2=draw(d, 2 * gates, 2), x3=draw(d, 4 * gates),
                    **{f"x{4 + i}": draw(d, b, 2) for i in range(states)})
    names, states = ("x4, x5", 2) if kind == "LSTM" else ("x4", 1)
    end = "h, " * (kind == "LSTM")
    case(f"y = {kind} <hidden_size = 2{more}> (x, x1, x2, x3)", recurrent(kind, gates, 2), **weights(1))
    case(f"y = {kind} <hidden_size = 2, direction = \"reverse\"{more}> (x, x1, x2, x3)",
         recurrent(kind, gates, 2, backwards=True), **weights(1))
    case(f"y = {kind} <hidden_size = 2, direction = \"bidirectional\"{more}> (x, x1, x2, x3, \"\", {names})",
         recurrent(kind, gates, 2, bidirectional=True, states=states), **weights(2, states=states))
    case(f"all, {end}y = {kind} <hidden_size = 2, direction = \"bidirectional\"{more}> (x, x1, x2, x3, lengths, {names})",
         recurrent(kind, gates, 2, bidirectional=True, states=states, lengths=[1, 3], last=True),
         **weights(2, states=states), lengths=torch.tensor([1, 3], dtype=torch.int32))
    case(f"y = {kind} <hidden_size = 2, direction = \"bidirectional\"{more}> (x, x1, x2, x3, lengths)",
         recurrent(kind, gates, 2, bidirectional=True, lengths=[3, 2, 1]), **weights(2, b=3), lengths=torch.tensor([3, 2, 1], dtype=torch.int32))

# Statistics that are computed, as in a weight that is standardised: PyTorch's operator takes none, so by hand.
case("m = Neg (x3) v = Exp (x4) y = BatchNormalization <epsilon = 0.0009765625> (x, x1, x2, m, v)",
     lambda x, s, b, m, v: (x + m[:, None]) / torch.sqrt(torch.exp(v) + 0.0009765625)[:, None] * s[:, None] + b[:, None],
     x=torch.arange(12.0).reshape(3, 2, 2) / 8 - 0.5, x1=torch.tensor([0.75, -1.5]), x2=torch.tensor([0.25, -0.5]),
     x3=torch.tensor([0.5, -0.25]), x4=torch.tensor([-0.5, 0.75]))

# The last ones draw nothing, so that the numbers of the others stay.
eighths = torch.arange(-11., 13.).reshape(2, 3, 4) / 8
case("y = GatherND <batch_dims = 1> (x, i)", lambda x, i: torch.stack([x[0][i[0]], x[1][i[1]]]).squeeze(2), x=eighths.clone(),
     i=ints(2, 2, 0, -1, 1, 1).reshape(2, 3, 1))
case("y = GatherND <batch_dims = 2> (x, i)", lambda x, i: x.gather(2, i).squeeze(2), x=eighths.clone(), i=ints(3, 3, 0, 1, 2, 1).reshape(2, 3, 1))
case("y = GatherND <batch_dims = 1> (x, i)", lambda x, i: torch.stack([x[0][tuple(i[0])], x[1][tuple(i[1])]]), x=eighths.clone(),
     i=ints(2, 3, 0, 1).reshape(2, 2))


def write(name):
    """The cases so far into this file beside this one."""
    with open(pathlib.Path(__file__).with_name(name), "w") as file:
        write_to(file)


def write_to(file):
    for body, function, tensors in cases:
        trained = [n for n in tensors if n.startswith("x")]
        others = [n for n in tensors if not n.startswith("x")]
        for n in trained:
            tensors[n] = tensors[n].clone().requires_grad_()
        y = function(*[tensors[n] for n in trained + others])
        w = draw(*y.shape) if y.dim() else torch.tensor(0.75)
        loss = (w * y).sum()
        grads = torch.autograd.grad(loss, [tensors[n] for n in trained], allow_unused=True) if loss.requires_grad else []
        values = [f"{kind} {n} = {text}" for n, (kind, text) in
                  [(n, show(t.detach())) for n, t in tensors.items()] + [("w", show(w))]]
        print(f"case {body}", file=file)
        print(f"g () => (double loss) < {', '.join(values)} > {{ {body} weighed = Mul (y, w) loss = ReduceSum <keepdims = 0> (weighed) }}",
              file=file)
        print(f"loss {loss.item()!r}", file=file)
        for n, g in zip(trained, grads):
            if g is not None:
                print(n + "_grad", *[repr(float(v)) for v in g.flatten()], file=file)


if __name__ == "__main__":
    write("recorded.txt")
