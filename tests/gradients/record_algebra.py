"""Writes recorded_algebra.txt: what record.py does, for further functions, sums of products, transforms and attention;
and recorded_straight.txt, which is for the option straight-through=on, with PyTorch's fake_quantize. In
recorded_training.txt is a small quantised model and its loss in each step of SGD.

    python3 tests/gradients/record_algebra.py        (needs torch)
"""
import math
import pathlib

import torch
import torch.nn.functional as F

from record import case, cases, draw, ints, positive, show, unary, write


def inside(*dims):
    return torch.rand(*dims) * 1.8 - 0.9


def with_zeros(*dims):
    return torch.where(torch.rand(*dims) < 0.3, 0.0, draw(*dims))


def selu(x, alpha=1.67326319217681884765625, gamma=1.05070102214813232421875):
    """With ONNX's constants, which are those of float32."""
    return gamma * torch.where(x > 0, x, alpha * x.expm1())


def functions():
    for op, f in [("Sinh", torch.sinh), ("Cosh", torch.cosh), ("Asinh", torch.asinh), ("Selu", selu), ("Celu", F.celu),
                  ("Celu <alpha = 0.5>", lambda x: F.celu(x, 0.5)), ("Shrink", F.hardshrink),
                  ("Shrink <lambd = 0.25, bias = 0.25>", lambda x: F.softshrink(x, 0.25)),
                  ("Swish", F.silu), ("Swish <alpha = 0.5>", lambda x: x * torch.sigmoid(0.5 * x))]:
        unary(op, f)
    for op, f in [("Asin", torch.asin), ("Acos", torch.acos), ("Atanh", torch.atanh)]:
        unary(op, f, inside(2, 3))
    unary("Acosh", torch.acosh, positive(2, 3) + 1)
    case("y = ReduceL1 <keepdims = 0> (x, a)", lambda x, a: x.abs().sum(1), x=with_zeros(2, 3, 2), a=ints(1))
    case("y = ReduceLogSum (x, a)", lambda x, a: x.sum(1, True).log(), x=positive(2, 3, 2), a=ints(1))
    for x in (draw(2, 4), with_zeros(3, 6)):
        case("y = CumProd (x, k)", lambda x, k: x.cumprod(1), x=x, k=torch.tensor(1))
        case("y = CumProd <reverse = 1> (x, k)", lambda x, k: x.flip(0).cumprod(0).flip(0), x=x, k=torch.tensor(0))
    case("y = LpNormalization <axis = 1> (x)", lambda x: F.normalize(x, 2, 1), x=draw(2, 3, 2))
    case("y = LpNormalization <axis = 0, p = 1> (x)", lambda x: F.normalize(x, 1, 0), x=draw(2, 3, 2))

    def standardized(x):
        d = x - x.mean((0, 2, 3), True)
        return d / ((d * d).mean((0, 2, 3), True).sqrt() + 1e-9)
    case("y = MeanVarianceNormalization (x)", standardized, x=draw(2, 2, 3, 2))


def places():
    case("y = Compress <axis = 1> (x, c)", lambda x, c: x[:, c], x=draw(2, 4), c=ints(1, 0, 1, 0).bool())
    case("y = Compress (x, c)", lambda x, c: x.flatten()[:5][c], x=draw(2, 4), c=ints(0, 1, 1, 0, 1).bool())

    def reverse(x, n):
        return torch.stack([torch.cat([x[:k, b].flip(0), x[k:, b]]) for b, k in enumerate(n.tolist())], 1)
    case("y = ReverseSequence (x, n)", reverse, x=draw(4, 3, 2), n=ints(2, 4, 1))

    def write_at(x, u, at):
        x = x.clone()
        for b, k in enumerate(at.tolist()):
            for i in range(u.shape[1]):
                x[b, (k + i) % x.shape[1]] = u[b, i]
        return x
    case('y = TensorScatter <mode = "circular"> (x, x1, i)', write_at, x=draw(2, 5, 2), x1=draw(2, 3, 2), i=ints(1, 4))


def products():
    for text, shapes in [("ij,jk->ik", [(2, 3), (3, 2)]), ("bij,bjk->bk", [(2, 2, 3), (2, 3, 2)]), ("ij,j,k->ik", [(2, 3), (3,), (2,)]),
                         ("iji->ij", [(2, 3, 2)]), ("ii,i->", [(3, 3), (3,)]), ("...ij,jk->...ik", [(2, 2, 3), (3, 2)]),
                         ("ijk->j", [(2, 3, 2)])]:
        tensors = {"x" + ("" if k == 0 else str(k)): draw(*s) for k, s in enumerate(shapes)}
        case(f'y = Einsum <equation = "{text}"> ({", ".join(tensors)})', lambda *x, text=text: torch.einsum(text, *x), **tensors)
    case("y = Det (x)", torch.det, x=draw(2, 3, 3))
    case("y = Det (x)", torch.det, x=draw(5, 5))
    case("y = Det (x)", lambda x: x[0, 0] * (x[1, 1] * x[2, 2] - x[1, 2] * x[2, 1]) - x[0, 1] * (x[1, 0] * x[2, 2] - x[1, 2] * x[2, 0])
         + x[0, 2] * (x[1, 0] * x[2, 1] - x[1, 1] * x[2, 0]), x=torch.tensor([[1.0, 2, 3], [2, 4, 6], [0, 1, 1]]))


def transforms():
    real = torch.view_as_real
    whole = torch.view_as_complex
    case("y = DFT (x, , a)", lambda x, a: real(torch.fft.fft(x[..., 0], dim=1)), x=draw(2, 5, 3, 1), a=torch.tensor(1))
    case("y = DFT <onesided = 1> (x, n)", lambda x, n: real(torch.fft.rfft(x[..., 0], 7)), x=draw(2, 5, 1), n=torch.tensor(7))
    case("y = DFT (x, n)", lambda x, n: real(torch.fft.fft(whole(x), 4)), x=draw(2, 5, 2), n=torch.tensor(4))
    case("y = DFT <inverse = 1> (x)", lambda x: real(torch.fft.ifft(whole(x))), x=draw(2, 6, 2))
    for n in (6, 7):
        case("y = DFT <inverse = 1, onesided = 1> (x, n)", lambda x, n: torch.fft.irfft(whole(x), n.item())[..., None],
             x=draw(2, 4, 2), n=torch.tensor(n))
    for half in (0, 1):
        case(f"y = STFT <onesided = {half}> (x, n, x1)",
             lambda x, w, n, half=half: real(torch.stft(x[..., 0], 5, 2, 5, w, center=False, onesided=half == 1, return_complex=True))
             .transpose(1, 2), x=draw(2, 12, 1), x1=positive(5), n=torch.tensor(2))


def bare_signal():
    """As PyTorch's TorchScript exporter writes it: without the axis of one."""
    case("y = STFT (x, n, x1)", lambda x, w, n: torch.view_as_real(torch.stft(x, 5, 2, 5, w, center=False, return_complex=True)).transpose(1, 2),
         x=draw(2, 12), x1=positive(5), n=torch.tensor(2))


def bounds():
    """What is often a constant, computed: the bounds of Clip, the divisor of Mod, the frame of Pad."""
    case("y = Clip (x, x1, x2)", torch.clamp, x=draw(3, 4), x1=torch.tensor(-0.5), x2=torch.tensor(0.6))
    case("y = Clip (x, x1, x2)", torch.clamp, x=draw(3, 4), x1=torch.tensor(0.7), x2=torch.tensor(0.3))
    case("y = Clip (x, , x1)", lambda x, high: torch.clamp(x, max=high), x=draw(3, 4), x1=torch.tensor(0.4))
    case("y = Mod <fmod = 1> (x, x1)", torch.fmod, x=2 * draw(3, 4), x1=draw(4))
    frame = ints(0, 1, 1, -1)
    case("y = Pad (x, p, x1)", lambda x, v, p: torch.cat([v.expand(3, 1), torch.cat([x, v.expand(1, 3)])[:, :2]], 1),
         x=draw(2, 3), x1=torch.tensor(0.25), p=frame)
    case("y = Pad (x, p, x1, a)", lambda x, v, p, a: torch.cat([v.expand(2, 1), x, v.expand(2, 2)], 1),
         x=draw(2, 3), x1=torch.tensor(0.25), p=ints(1, 2), a=ints(-1))


def attention():
    f = F.scaled_dot_product_attention
    case("y = Attention (x, x1, x2)", f, x=draw(2, 2, 3, 4), x1=draw(2, 2, 5, 4), x2=draw(2, 2, 5, 2))
    case("y = Attention <is_causal = 1, scale = 0.75> (x, x1, x2)", lambda q, k, v: f(q, k, v, is_causal=True, scale=0.75),
         x=draw(1, 2, 4, 3), x1=draw(1, 2, 4, 3), x2=draw(1, 2, 4, 3))
    case("y = Attention (x, x1, x2, x3)", lambda q, k, v, m: f(q, k, v, m, enable_gqa=True),
         x=draw(1, 4, 2, 3), x1=draw(1, 2, 3, 3), x2=draw(1, 2, 3, 2), x3=draw(2, 3))
    case("y = Attention (x, x1, x2, m)", lambda q, k, v, m: f(q, k, v, m), x=draw(1, 2, 2, 3), x1=draw(1, 2, 3, 3),
         x2=draw(1, 2, 3, 2), m=torch.tensor([[1, 0, 1], [0, 1, 1]]).bool())

    def heads(x, n):
        return x.unflatten(2, (n, -1)).transpose(1, 2)

    def capped(q, k, v, pk, pv):
        q, k, v = heads(q, 4), torch.cat([pk, heads(k, 2)], 2), torch.cat([pv, heads(v, 2)], 2)
        k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
        s = 2 * torch.tanh(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) / 2)
        row, column = torch.arange(s.shape[-2])[:, None] + pk.shape[2], torch.arange(s.shape[-1])
        y = torch.where(column <= row, s, -math.inf).softmax(-1) @ v
        return y.transpose(1, 2).flatten(2)
    case("y = Attention <q_num_heads = 4, kv_num_heads = 2, softcap = 2.0, is_causal = 1> (x, x1, x2, , x3, x4)", capped,
         x=draw(1, 2, 12), x1=draw(1, 2, 6), x2=draw(1, 2, 4), x3=draw(1, 2, 3, 3), x4=draw(1, 2, 3, 2))

    def rotated(x, cos, sin, at):
        cos, sin = cos[at][:, None], sin[at][:, None]
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
    case("y = RotaryEmbedding (x, x1, x2, i)", rotated, x=draw(2, 2, 3, 4), x1=draw(5, 2), x2=draw(5, 2),
         i=torch.tensor([[0, 1, 4], [2, 1, 1]]))

    def recurrence(q, k, v, state, decay, beta):
        q, k, v, decay = (heads(t, n) for t, n in ((q, 4), (k, 2), (v, 2), (decay, 2)))
        rows = []
        for t in range(q.shape[2]):
            state = state * decay[:, :, t, :, None].exp()
            held = (state * k[:, :, t, :, None]).sum(2)
            u = beta[:, t, :, None] * (v[:, :, t] - held)
            state = state + k[:, :, t, :, None] * u[:, :, None]
            rows.append((q[:, :, t, :, None] * state.repeat_interleave(2, 1)).sum(2) * 0.5)
        return torch.stack(rows, 1).flatten(2)
    case("y = LinearAttention <q_num_heads = 4, kv_num_heads = 2, scale = 0.5> (x, x1, x2, x3, x4, x5)", recurrence,
         x=draw(1, 3, 12), x1=draw(1, 3, 6), x2=draw(1, 3, 4), x3=draw(1, 2, 3, 2), x4=-positive(1, 3, 6), x5=positive(1, 3, 2))


def quantised(x, scale, zero, least, most):
    """Straight through, for the scale too: what PyTorch's learnable fake_quantize does, which is for float32 only."""
    u = x / scale
    code = (u + (u.round() - u).detach() + zero).clamp(least, most)
    return (code - zero) * scale


def straight():
    for op, f in [("Round", torch.round), ("Floor", torch.floor), ("Ceil", torch.ceil)]:
        unary(op, lambda x, f=f: x + (f(x) - x).detach(), draw(2, 3) * 3)
    unary("Sign", lambda x: F.hardtanh(x) + (x.sign() - F.hardtanh(x)).detach(), draw(2, 4) * 1.5)
    unsigned, signed = dict(z=torch.tensor(100, dtype=torch.uint8)), dict(z=torch.tensor(0, dtype=torch.int8))
    body = "q = QuantizeLinear (x, s, z) y = DequantizeLinear (q, s, z)"
    # Scales are powers of two, which make quotients exact: PyTorch multiplies by a reciprocal.
    for z, least, most in ((unsigned, 0, 255), (signed, -128, 127)):
        case(body, lambda x, s, z, least=least, most=most: torch.fake_quantize_per_tensor_affine(x, s.item(), int(z), least, most),
             x=draw(4, 6) * 9, s=torch.tensor(0.0625), **z)
    case("q = QuantizeLinear (x, s) y = DequantizeLinear (q, s)",
         lambda x, s: torch.fake_quantize_per_tensor_affine(x, s.item(), 0, 0, 255), x=draw(4, 6) * 9, s=torch.tensor(0.03125))
    case(body.replace("Linear (", "Linear <axis = 0> ("),
         lambda x, s, z: torch.fake_quantize_per_channel_affine(x, s.float(), z.int(), 0, -128, 127),
         x=draw(3, 5) * 9, s=torch.tensor([0.0625, 0.03125, 0.125]), z=torch.tensor([0, 3, -5], dtype=torch.int8))
    x, s, z = draw(4, 6) * 9, torch.tensor([0.0625]), torch.tensor([3], dtype=torch.int8)
    case("q = QuantizeLinear (x, x1, z) y = DequantizeLinear (q, x1, z)",
         lambda x, s, z: quantised(x, s, z.double(), -128, 127), x=x, x1=s, z=z)
    ours, theirs = (t.clone().requires_grad_() for t in (s, s.float()))
    quantised(x, ours, 3.0, -128, 127).sum().backward()
    torch._fake_quantize_learnable_per_tensor_affine(x.float(), theirs, z.float(), -128, 127, 1.0).sum().backward()
    assert abs(ours.grad.item() - theirs.grad.item()) < 1e-4 * abs(ours.grad.item())
    case("q = QuantizeLinear <axis = 1> (x, x1, z) y = DequantizeLinear <axis = 1> (q, x1, z)",
         lambda x, s, z: quantised(x, s, z.double(), 0, 255), x=draw(3, 4) * 9, x1=positive(4) / 16, z=torch.tensor([3, 7, 100, 130], dtype=torch.uint8))
    case("q = QuantizeLinear <axis = 1, block_size = 2> (x, x1, z) y = DequantizeLinear <axis = 1, block_size = 2> (q, x1, z)",
         lambda x, s, z: quantised(x, s.repeat_interleave(2, 1)[:, :5], z.double().repeat_interleave(2, 1)[:, :5], -128, 127),
         x=draw(2, 5) * 9, x1=positive(2, 3) / 16, z=torch.tensor([[3, 7, 100], [1, 0, -9]], dtype=torch.int8))

    tensors = small_tensors()
    case(small_body("x"), small, x=tensors.pop("a"), **tensors)


def small_body(first):
    """Two layers with everything quantised, the first's weight by rows and turned as codes."""
    return (f"xq = QuantizeLinear ({first}, s, z) xd = DequantizeLinear (xq, s, z) wq = QuantizeLinear <axis = 0> (x1, t, o) "
            "wt = Transpose (wq) wd = DequantizeLinear <axis = 1> (wt, t, o) m = MatMul (xd, wd) h = Relu (m) "
            "hq = QuantizeLinear (h, r, z) hd = DequantizeLinear (hq, r, z) vq = QuantizeLinear (x2, s, z) "
            "vd = DequantizeLinear (vq, s, z) y = MatMul (hd, vd)")


def small(x, w, v, o, r, s, t, z):
    def fake(x, s):
        return torch.fake_quantize_per_tensor_affine(x, s.item(), int(z), -128, 127)
    w = torch.fake_quantize_per_channel_affine(w, t.float(), o.int(), 0, -128, 127)
    return fake(torch.relu(fake(x, s) @ w.T), r) @ fake(v, s)


def small_tensors():
    return dict(a=draw(3, 5), x1=draw(4, 5), x2=draw(4, 2), o=torch.zeros(4, dtype=torch.int8), r=torch.tensor(0.015625),
                s=torch.tensor(0.0078125), t=torch.tensor([0.0078125, 0.015625, 0.00390625, 0.0625]),
                z=torch.tensor(0, dtype=torch.int8))


def write_training(name, steps=20, rate=1.0):
    """The losses of that model as SGD trains it."""
    tensors = small_tensors()
    target = draw(3, 2)
    values = ", ".join(f"{kind} {n} = {text}" for n, (kind, text) in ((n, show(t)) for n, t in [*tensors.items(), ("target", target)]))
    weights = [tensors[n].requires_grad_() for n in ("x1", "x2")]
    losses = []
    for _ in range(steps):
        loss = ((small(*tensors.values()) - target) ** 2).mean()
        losses.append(loss.item())
        for w, g in zip(weights, torch.autograd.grad(loss, weights)):
            w.data -= rate * g
    with open(pathlib.Path(__file__).with_name(name), "w") as file:
        print(f"g () => (double loss) < {values} > {{ {small_body('a')} d = Sub (y, target) e = Mul (d, d) "
              "loss = ReduceMean <keepdims = 0> (e) }", file=file)
        print("losses", *map(repr, losses), file=file)


if __name__ == "__main__":
    for name, parts in (("recorded_algebra.txt", (functions, places, products, transforms, attention, bare_signal, bounds)),
                        ("recorded_straight.txt", (straight,))):
        cases.clear()
        torch.manual_seed(9)
        for part in parts:
            part()
        write(name)
    write_training("recorded_training.txt")
