"""Writes recorded_second.txt: what record.py does, for gradients of gradients. The loss is the squared length of the
gradient of sum w y for x, and is differentiated by x and by all else that is trained.

    python3 tests/gradients/record_second.py        (needs torch)
"""
import pathlib

import torch
import torch.nn.functional as F

from record import draw, ints, show

CASES = []


def case(body, function, **tensors):
    CASES.append((body, function, tensors))


def by_gates(count, size, order, f):
    """A layer of torch.nn as ONNX has it: gates in another order, both biases in one row."""
    def run(x, w, r, c):
        w, r = (t[0].reshape(count, size, -1)[order].flatten(0, 1) for t in (w, r))
        bias = [t.reshape(count, size)[order].flatten() for t in c[0].chunk(2)]
        h = torch.zeros(1, x.shape[1], size)
        state = (h, h) if count == 4 else h
        return f(x, state, [w, r, *bias], True, 1, 0.0, False, False, False)[0][:, None]
    return run


def recurrent(count):
    return dict(x=draw(4, 2, 2), x1=draw(1, 3 * count, 2), x2=draw(1, 3 * count, 3), x3=draw(1, 6 * count))


case("y = RNN <hidden_size = 3> (x, x1, x2, x3)", by_gates(1, 3, [0], torch.rnn_tanh), **recurrent(1))
case("y = GRU <hidden_size = 3, linear_before_reset = 1> (x, x1, x2, x3)", by_gates(3, 3, [1, 0, 2], torch.gru), **recurrent(3))
case("y = LSTM <hidden_size = 3> (x, x1, x2, x3)", by_gates(4, 3, [0, 2, 3, 1], torch.lstm), **recurrent(4))
case("y = Gelu (x)", F.gelu, x=draw(2, 3))
case("y = Gelu <approximate = \"tanh\"> (x)", lambda x: F.gelu(x, approximate="tanh"), x=draw(2, 3))
case("y = Mish (x)", F.mish, x=draw(2, 3))
case("y = LogSoftmax (x)", lambda x: x.log_softmax(-1), x=draw(2, 4))
case("y = LayerNormalization <stash_type = 11, epsilon = 0.0009765625> (x, x1, x2)",
     lambda x, s, b: F.layer_norm(x, (4,), s, b, 0.0009765625), x=draw(2, 3, 4), x1=draw(4), x2=draw(4))
case("y = InstanceNormalization <epsilon = 0.0009765625> (x, x1, x2)",
     lambda x, s, b: F.instance_norm(x, None, None, s, b, True, 0.1, 0.0009765625), x=draw(2, 2, 5), x1=draw(2), x2=draw(2))
case("t = Conv <strides = [2]> (x, x1) y = Tanh (t)", lambda x, w: torch.tanh(F.conv1d(x, w, stride=2)), x=draw(2, 2, 6), x1=draw(3, 2, 2))
case("y = Det (x)", torch.det, x=draw(2, 3, 3))
case("t = CumSum (x, k) y = Tanh (t)", lambda x, k: torch.tanh(x.cumsum(1)), x=draw(2, 4), k=torch.tensor(1))
case("t = GatherND (x, i) y = Tanh (t)", lambda x, i: torch.tanh(x[i[:, 0]]), x=draw(3, 2), i=ints(2, 0, 2)[:, None])


def write(path):
    lines = []
    for body, function, tensors in CASES:
        trained = {name: t.requires_grad_() for name, t in tensors.items() if name.startswith("x")}
        y = function(*tensors.values())
        w = draw(*y.shape)
        g, = torch.autograd.grad((w * y).sum(), tensors["x"], create_graph=True)
        loss = (g * g).sum()
        gradients = torch.autograd.grad(loss, trained.values(), allow_unused=True)
        given = ", ".join(f"{show(t.detach())[0]} {name} = {show(t.detach())[1]}"
                          for name, t in [*tensors.items(), ("w", w)])
        lines.append(f"case {body}")
        lines.append(f"g () => (double loss) < {given} > {{ {body} weighed = Mul (y, w) "
                     "s = ReduceSum <keepdims = 0> (weighed) gx = ai.onnx.preview.training.Gradient <xs = [\"x\"], y = \"s\"> (x) "
                     "square = Mul (gx, gx) loss = ReduceSum <keepdims = 0> (square) }")
        lines.append(f"loss {loss.item()!r}")
        for name, d in zip(trained, gradients):
            if d is not None:
                lines.append(f"{name}_grad " + " ".join(repr(float(v)) for v in d.flatten()))
    path.write_text("\n".join(lines) + "\n")


torch.manual_seed(13)
write(pathlib.Path(__file__).with_name("recorded_second.txt"))
