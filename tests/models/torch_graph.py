"""torch_graph.py: what a decoder's ONNX graph means, in float64 by PyTorch, so that autograd gives its gradients.

    values = run(model, {"input_ids": ...}, weights={"norm.weight": tensor}, layers={"/q_proj/MatMul_Q4": (A, B, scale)})

Floats are float64 wherever the file says float; integers stay what they are. Weights in few bits are decoded.
Rounding of activations (QuantizeLinear, DynamicQuantizeLinear) has the derivative of x where it is not clipped,
with scale and zero point taken as constants. An adapter stands beside its node and reads what that node reads.
"""
import math

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

NF4 = [-1, -.696192801, -.525073051, -.394917488, -.284441382, -.18477343, -.0910500363, 0,
       .0795802996, .160930201, .246112302, .337915242, .440709829, .562617004, .722956836, 1]
FP4 = [0, .00520833349, .666666687, 1, .333333343, .5, .166666672, .25]
FP4 += [-x for x in FP4]
FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE)
INTEGERS = {TensorProto.INT64: torch.int64, TensorProto.INT32: torch.int32, TensorProto.BOOL: torch.bool,
            TensorProto.INT8: torch.int8, TensorProto.UINT8: torch.uint8}


def tensor_of(proto):
    array = numpy_helper.to_array(proto)
    kind = proto.data_type
    if kind in FLOATS:
        return torch.from_numpy(np.array(array, np.float64))
    return torch.from_numpy(np.array(array, np.int64 if kind not in (TensorProto.BOOL, TensorProto.UINT8) else array.dtype))


def unpacked(data, bits):
    """Codes of the last axis's bytes, low bits first."""
    each = [(data.long() >> shift) & ((1 << bits) - 1) for shift in range(0, 8, bits)]
    return torch.stack(each, -1).reshape(*data.shape[:-1], -1)


def decode_nbits(data, scales, zero_points, k, n, block, bits):
    """[N, K] of a MatMulNBits."""
    blocks = -(-k // block)
    codes = unpacked(data.reshape(n, blocks, -1), bits).double()
    if zero_points is None:
        zeros = torch.full((n, blocks), float(1 << (bits - 1)), dtype=torch.float64)
    elif zero_points.is_floating_point():
        zeros = zero_points.reshape(n, blocks)
    else:
        zeros = unpacked(zero_points.reshape(n, -1), bits)[:, :blocks].double()
    return ((codes - zeros[..., None]) * scales.reshape(n, blocks, 1)).reshape(n, -1)[:, :k]


def decode_bnb4(data, absmax, k, n, block, kind):
    codes = torch.stack([data.long() >> 4, data.long() & 15], -1).reshape(-1)[:n * k]
    levels = torch.tensor(NF4 if kind == 1 else FP4, dtype=torch.float64)[codes]
    return (levels * absmax.reshape(-1).repeat_interleave(block)[:n * k]).reshape(n, k)


def along(scale, x, axis, block):
    """A scale or a zero point as wide as x."""
    if scale.numel() == 1:
        return scale.reshape(())
    axis %= x.dim()
    if block:
        return scale.repeat_interleave(block, axis).narrow(axis, 0, x.shape[axis])
    shape = [1] * x.dim()
    shape[axis] = -1
    return scale.reshape(shape)


def rounded(x, scale, zero, low, high):
    """Codes of x as floats; their derivative is that of x / scale where nothing is clipped."""
    smooth = (x / scale.detach() + zero).clamp(low, high)
    return smooth + (torch.clamp(torch.round(x / scale) + zero, low, high) - smooth).detach()


def broadcast_min(values, f):
    out = values[0]
    for v in values[1:]:
        out = f(out, v)
    return out


class Graph:
    """One run. operators are methods `op_NAME(node, inputs, attributes)`."""

    def __init__(self, weights, layers):
        self.weights, self.layers = weights, layers

    def run(self, graph, values):
        for t in graph.initializer:
            values[t.name] = self.weights[t.name] if t.name in self.weights else tensor_of(t)
        self.types = {t.name: t.data_type for t in graph.initializer}
        places = self.place(graph)
        for node in graph.node:
            attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
            inputs = [values[i] if i else None for i in node.input]
            self.values = values
            out = getattr(self, "op_" + node.op_type)(node, inputs, attributes)
            out = out if isinstance(out, (tuple, list)) else (out,)
            for name, y in zip(node.output, out):
                if name:
                    values[name] = y
            if node.name in places:
                (a, b, scale), x = places[node.name]
                values[node.output[0]] = values[node.output[0]] + scale * (x(values) @ a.T) @ b.T
        return values

    def place(self, graph):
        """node -> the adapter that is added to what it gives, and the value that this reads."""
        made = {o: n for n in graph.node for o in n.output}
        reads = {i: n for n in graph.node for i in n.input}
        places = {}
        for node in graph.node:
            if node.name not in self.layers:
                continue
            last, x = node, lambda values, name=node.input[0]: values[name]
            if node.op_type == "MatMulInteger": # what was rounded, as a float; behind Cast and Mul by the scales
                last = reads[reads[node.output[0]].output[0]]
                x = lambda values, of=made[node.input[0]].output: (values[of[0]] - values[of[2]]) * values[of[1]]
            places[last.name] = self.layers[node.name], x
        return places

    # ---- weights in few bits ----

    def op_MatMulNBits(self, node, i, a):
        i = i + [None] * (6 - len(i))
        w = decode_nbits(i[1], i[2], i[3], a["K"], a["N"], a["block_size"], a.get("bits", 4))
        y = i[0] @ w.T
        return y if i[5] is None else y + i[5]

    def op_MatMulBnb4(self, node, i, a):
        return i[0] @ decode_bnb4(i[1], i[2], a["K"], a["N"], a["block_size"], a["quant_type"]).T

    def op_GatherBlockQuantized(self, node, i, a):
        data, indices, scales = i[:3]
        bits = a.get("bits", 4)
        packed = data.dtype == torch.uint8
        zero = torch.tensor(float(1 << (bits - 1)) if packed else 0.0, dtype=torch.float64)
        codes = unpacked(data, bits) if packed else data
        if len(i) > 3 and i[3] is not None:
            zero = (unpacked(i[3], bits)[..., :scales.shape[-1]] if packed else i[3]).double()
        axis = a.get("quantize_axis", 1)
        w = (codes.double() - along(zero, codes, axis, a["block_size"])) * along(scales, codes, axis, a["block_size"])
        return w[indices]

    def op_DequantizeLinear(self, node, i, a):
        x, scale = i[:2]
        zero = i[2].double() if len(i) > 2 else torch.zeros((), dtype=torch.float64)
        axis, block = a.get("axis", 1), a.get("block_size", 0)
        return (x.double() - along(zero, x, axis, block)) * along(scale, x, axis, block)

    def op_QuantizeLinear(self, node, i, a):
        x, scale, zero = i
        low, high = (0, 255) if self.types[node.input[2]] == TensorProto.UINT8 else (-128, 127)
        axis = a.get("axis", 1)
        return rounded(x, along(scale, x, axis, 0), along(zero.double(), x, axis, 0), low, high)

    def op_DynamicQuantizeLinear(self, node, i, a):
        x = i[0]
        low, high = min(x.min().item(), 0.0), max(x.max().item(), 0.0)
        scale = torch.tensor((high - low) / 255, dtype=torch.float64)
        zero = torch.round(torch.tensor(-low, dtype=torch.float64) / scale).clamp(0, 255)
        codes = torch.clamp(torch.round(x / scale) + zero, 0, 255) # the ends of the range are its own: none is clipped
        return x / scale + (codes - x / scale).detach(), scale, zero

    def op_MatMulInteger(self, node, i, a):
        i = i + [None] * (4 - len(i))
        left = i[0] - (0 if i[2] is None else i[2].double())
        right = i[1].double() - (0 if i[3] is None else i[3].double())
        return left @ right

    # ---- products and norms ----

    def op_MatMul(self, node, i, a):
        return i[0] @ i[1]

    def op_Gemm(self, node, i, a):
        x = i[0].mT if a.get("transA") else i[0]
        y = a.get("alpha", 1.0) * (x @ (i[1].mT if a.get("transB") else i[1]))
        return y if len(i) < 3 else y + a.get("beta", 1.0) * i[2]

    def op_Einsum(self, node, i, a):
        return torch.einsum(a["equation"].decode(), *i)

    def op_Softmax(self, node, i, a):
        return torch.softmax(i[0], a.get("axis", -1))

    def op_LayerNormalization(self, node, i, a):
        shape = i[0].shape[a.get("axis", -1) % i[0].dim():]
        return torch.nn.functional.layer_norm(i[0], shape, i[1], i[2] if len(i) > 2 else None, a.get("epsilon", 1e-5))

    def op_SimplifiedLayerNormalization(self, node, i, a):
        return i[0] * torch.rsqrt((i[0] ** 2).mean(-1, True) + a.get("epsilon", 1e-5)) * i[1]

    op_RMSNormalization = op_SimplifiedLayerNormalization

    def op_SkipSimplifiedLayerNormalization(self, node, i, a):
        x = i[0] + i[1] + (i[3] if len(i) > 3 and i[3] is not None else 0)
        return self.op_SimplifiedLayerNormalization(node, [x, i[2]], a), None, None, x

    def op_SkipLayerNormalization(self, node, i, a):
        x = i[0] + i[1] + (i[4] if len(i) > 4 and i[4] is not None else 0)
        return self.op_LayerNormalization(node, [x, i[2], i[3]], a), None, None, x

    def op_RotaryEmbedding(self, node, i, a):
        x, positions, cos, sin = i
        heads = x
        if x.dim() == 3:
            size = a["num_heads"] and x.shape[-1] // a["num_heads"] or 2 * cos.shape[-1]
            heads = x.reshape(*x.shape[:2], -1, size).transpose(1, 2)
        positions = positions + torch.arange(heads.shape[2]) if positions.numel() == 1 else positions
        y = turned(heads, cos[positions][:, None], sin[positions][:, None], a.get("interleaved", 0))
        return y if x.dim() == 4 else y.transpose(1, 2).reshape(x.shape)

    def op_MultiHeadAttention(self, node, i, a):
        i = i + [None] * (8 - len(i))
        h = a["num_heads"]
        bias = [0, 0, 0] if i[3] is None else i[3].chunk(3)
        q, k, v = (heads_of(x + b, h) if x.dim() == 3 else x for x, b in zip(i[:3], bias))
        if i[6] is not None:
            k, v = torch.cat([i[6], k], 2), torch.cat([i[7], v], 2)
        scores = q @ k.mT * (a.get("scale", 0) or 1 / math.sqrt(q.shape[-1]))
        scores = scores if i[5] is None else scores + i[5]
        if a.get("unidirectional"):
            scores = scores + causal(scores.shape[-2:], -1)
        return torch.softmax(scores, -1).matmul(v).transpose(1, 2).flatten(2), k, v

    def op_GroupQueryAttention(self, node, i, a):
        i = i + [None] * (16 - len(i))
        h, g = a["num_heads"], a["kv_num_heads"]
        q, k, v = i[:3]
        if k is None:
            size = q.shape[-1] // (h + 2 * g)
            q, k, v = q.split([h * size, g * size, g * size], -1)
        q, k, v = heads_of(q, h), heads_of(k, g), heads_of(v, g)
        if i[14] is not None:
            q, k = (self.op_SimplifiedLayerNormalization(node, [x, w], {"epsilon": a.get("qk_norm_epsilon", 1e-6)})
                    for x, w in ((q, i[14]), (k, i[15])))
        if a.get("do_rotary"):
            positions = torch.arange(q.shape[2])[None]
            q, k = (turned(x, i[7][positions][:, None], i[8][positions][:, None], a.get("rotary_interleaved", 0))
                    for x in (q, k))
        present = k, v
        k, v = (x.repeat_interleave(h // g, 1) for x in (k, v))
        scores = q @ k.mT * (a.get("scale", 0) or 1 / math.sqrt(q.shape[-1]))
        if a.get("softcap", 0):
            scores = a["softcap"] * torch.tanh(scores / a["softcap"])
        scores = scores if i[10] is None else scores + i[10]
        scores = scores + causal(scores.shape[-2:], a.get("local_window_size", -1))
        keys = torch.arange(scores.shape[-1]) <= i[5].reshape(-1, 1)
        scores = scores.masked_fill(~keys[:, None, None], -1e30)
        return (torch.softmax(scores, -1).matmul(v).transpose(1, 2).flatten(2), *present)

    def op_QMoE(self, node, i, a):
        """Experts by swiglu of interleaved rows, in codes; what a token's experts weigh adds up to 1."""
        i = i + [None] * (15 - len(i))
        x, bits, k = i[0].flatten(0, -2), a.get("expert_weight_bits", 4), a["k"]
        fc1, fc2 = (torch.stack([self.expert(c, s, None if z is None else z[e], bits, a.get("block_size", 0)) for e, (c, s) in enumerate(zip(codes, scales))])
                    for codes, scales, z in ((i[2], i[3], i[11]), (i[5], i[6], i[12])))
        share, chosen = torch.topk(torch.softmax(i[1], -1), k)
        share = share / share.sum(-1, True)
        y = torch.zeros_like(x)
        for n in range(k):
            e = chosen[:, n]
            h = torch.einsum("td,tnd->tn", x, fc1[e]) + (0 if i[4] is None else i[4][e])
            gate, linear = h[:, ::2], h[:, 1::2]
            h = gate * torch.sigmoid(a["activation_alpha"] * gate) * (linear + a["activation_beta"])
            y = y + share[:, n:n + 1] * (torch.einsum("td,tnd->tn", h, fc2[e]) + (0 if i[7] is None else i[7][e]))
        return y.reshape(i[0].shape)

    def expert(self, codes, scales, zero_points, bits, block):
        n, k = codes.shape[0], codes.shape[1] * 8 // bits
        return decode_nbits(codes, scales, zero_points, k, n, block or k, bits)

    def op_Conv(self, node, i, a):
        rank = i[0].dim() - 2
        pads = a.get("pads", [0] * 2 * rank)
        x = torch.nn.functional.pad(i[0], [p for d in range(rank - 1, -1, -1) for p in (pads[d], pads[d + rank])])
        product = (torch.nn.functional.conv1d, torch.nn.functional.conv2d)[rank - 1]
        return product(x, i[1], i[2] if len(i) > 2 else None, a.get("strides", 1), 0, a.get("dilations", 1), a.get("group", 1))

    def op_CausalConvWithState(self, node, i, a):
        i = i + [None] * (4 - len(i))
        past = torch.zeros(*i[0].shape[:2], i[1].shape[2] - 1, dtype=torch.float64) if i[3] is None else i[3]
        x = torch.cat([past, i[0]], 2)
        y = torch.nn.functional.conv1d(x, i[1], i[2], groups=i[1].shape[0])
        y = y if a.get("activation", b"none") == b"none" else torch.nn.functional.silu(y)
        return y, x[:, :, x.shape[2] - past.shape[2]:]

    def op_If(self, node, i, a):
        branch = a["then_branch" if i[0].item() else "else_branch"]
        values = Graph(self.weights, {}).run(branch, dict(self.values))
        return [values[o.name] for o in branch.output]

    # ---- elements ----

    def op_Cast(self, node, i, a):
        return i[0].double() if a["to"] in FLOATS else i[0].to(INTEGERS[a["to"]])

    def op_CastLike(self, node, i, a):
        return i[0].to(i[1].dtype)

    def op_Div(self, node, i, a):
        return i[0] / i[1] if i[0].is_floating_point() else torch.div(i[0], i[1], rounding_mode="trunc")

    def op_Gelu(self, node, i, a):
        return torch.nn.functional.gelu(i[0], approximate=a.get("approximate", b"none").decode())

    def op_FastGelu(self, node, i, a):
        return torch.nn.functional.gelu(i[0] if len(i) < 2 else i[0] + i[1], approximate="tanh")

    def op_BiasGelu(self, node, i, a):
        return torch.nn.functional.gelu(i[0] + i[1])

    def op_QuickGelu(self, node, i, a):
        return i[0] * torch.sigmoid(a.get("alpha", 1.702) * i[0])

    def op_Clip(self, node, i, a):
        i = i + [None] * (3 - len(i))
        return torch.clamp(i[0], i[1], i[2])

    def op_Max(self, node, i, a):
        return broadcast_min(i, torch.maximum)

    def op_Min(self, node, i, a):
        return broadcast_min(i, torch.minimum)

    def op_Sum(self, node, i, a):
        return sum(i)

    def op_Dropout(self, node, i, a):
        return i[0], torch.ones_like(i[0], dtype=torch.bool)

    # ---- shapes ----

    def op_Constant(self, node, i, a):
        (key, value), = a.items()
        if key == "value":
            return tensor_of(value)
        return torch.tensor(value, dtype=torch.float64 if "float" in key else torch.int64)

    def op_ConstantOfShape(self, node, i, a):
        value = tensor_of(a["value"]) if "value" in a else torch.zeros(1, dtype=torch.float64)
        return value.reshape(()).expand(tuple(i[0].tolist())).clone()

    def op_Shape(self, node, i, a):
        shape = list(i[0].shape)
        return torch.tensor(shape[a.get("start", 0):a.get("end", len(shape))], dtype=torch.int64)

    def op_Size(self, node, i, a):
        return torch.tensor(i[0].numel())

    def op_Reshape(self, node, i, a):
        shape = [i[0].shape[k] if n == 0 and not a.get("allowzero") else n for k, n in enumerate(i[1].tolist())]
        return torch.reshape(i[0], tuple(shape))

    def op_Expand(self, node, i, a):
        return i[0].expand(torch.broadcast_shapes(i[0].shape, tuple(i[1].tolist())))

    def op_Unsqueeze(self, node, i, a):
        axes, y = (i[1].tolist() if len(i) > 1 else a["axes"]), i[0]
        rank = y.dim() + len(axes)
        for axis in sorted(n % rank for n in axes):
            y = y.unsqueeze(axis)
        return y

    def op_Squeeze(self, node, i, a):
        axes = i[1].tolist() if len(i) > 1 else a.get("axes", [k for k, n in enumerate(i[0].shape) if n == 1])
        y = i[0]
        for axis in sorted((n % y.dim() for n in axes), reverse=True):
            y = y.squeeze(axis)
        return y

    def op_Flatten(self, node, i, a):
        axis = a.get("axis", 1)
        return i[0].reshape(math.prod(i[0].shape[:axis]), -1)

    def op_Transpose(self, node, i, a):
        return i[0].permute(a.get("perm", list(range(i[0].dim()))[::-1]))

    def op_Concat(self, node, i, a):
        return torch.cat([x for x in i], a["axis"])

    def op_Split(self, node, i, a):
        axis = a.get("axis", 0)
        count = len(node.output)
        sizes = i[1].tolist() if len(i) > 1 else a.get("split", [-(-i[0].shape[axis] // count)] * count)
        return torch.split(i[0], sizes, axis)

    def op_Slice(self, node, i, a):
        x, starts, ends = i[0], i[1].tolist(), i[2].tolist()
        axes = i[3].tolist() if len(i) > 3 and i[3] is not None else range(len(starts))
        steps = i[4].tolist() if len(i) > 4 else [1] * len(starts)
        for axis, start, end, step in zip(axes, starts, ends, steps):
            picked = list(range(x.shape[axis]))[slice(start, end if end > -(1 << 60) else None, step)]
            x = x.index_select(axis, torch.tensor(picked, dtype=torch.int64))
        return x

    def op_Gather(self, node, i, a):
        axis, indices = a.get("axis", 0) % max(1, i[0].dim()), i[1].long()
        indices = torch.where(indices < 0, indices + i[0].shape[axis], indices)
        y = i[0].index_select(axis, indices.reshape(-1))
        return torch.reshape(y, (*i[0].shape[:axis], *indices.shape, *i[0].shape[axis + 1:]))

    def op_GatherElements(self, node, i, a):
        return torch.gather(i[0], a.get("axis", 0), i[1])

    def op_GatherND(self, node, i, a):
        batch = a.get("batch_dims", 0)
        if batch:
            raise NotImplementedError("GatherND of batches")
        return i[0][tuple(i[1].long().unbind(-1))]

    def op_ScatterElements(self, node, i, a):
        return i[0].scatter(a.get("axis", 0), i[1].long(), i[2])

    def op_ScatterND(self, node, i, a):
        y = i[0].clone()
        y[tuple(i[1].long().unbind(-1))] = i[2]
        return y

    def op_Range(self, node, i, a):
        return torch.arange(i[0].item(), i[1].item(), i[2].item(), dtype=i[0].dtype)

    def op_Tile(self, node, i, a):
        return i[0].repeat(i[1].tolist())

    def op_Pad(self, node, i, a):
        pads, rank = i[1].tolist(), i[0].dim()
        flat = [p for d in range(rank - 1, -1, -1) for p in (pads[d], pads[d + rank])]
        return torch.nn.functional.pad(i[0], flat, value=i[2].item() if len(i) > 2 and i[2] is not None else 0)

    def op_Trilu(self, node, i, a):
        k = int(i[1]) if len(i) > 1 else 0
        return torch.triu(i[0], k) if a.get("upper", 1) else torch.tril(i[0], k)

    def op_CumSum(self, node, i, a):
        return torch.cumsum(i[0], int(i[1]))

    def op_TopK(self, node, i, a):
        return torch.topk(i[0], int(i[1]), a.get("axis", -1), bool(a.get("largest", 1)))

    def op_OneHot(self, node, i, a):
        y = torch.nn.functional.one_hot(i[0].long(), int(i[1])).to(i[2].dtype) * (i[2][1] - i[2][0]) + i[2][0]
        return y.movedim(-1, a.get("axis", -1))

    def op_NonZero(self, node, i, a):
        return torch.nonzero(i[0]).T


def turned(x, cos, sin, interleaved):
    """Rotary positions; columns beyond the table's width stay."""
    width = 2 * cos.shape[-1]
    x, rest = x[..., :width], x[..., width:]
    if interleaved:
        a, b = x[..., ::2], x[..., 1::2]
        return torch.cat([torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2), rest], -1)
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)


def heads_of(x, count):
    return x.reshape(*x.shape[:2], count, -1).transpose(1, 2)


def causal(shape, window):
    rows, columns = (torch.arange(n) for n in shape)
    ahead = columns[None] - rows[:, None] - (shape[1] - shape[0])
    hidden = (ahead > 0) | ((ahead <= -window) if window > 0 else torch.zeros_like(ahead, dtype=torch.bool))
    return torch.zeros(tuple(shape), dtype=torch.float64).masked_fill(hidden, -1e30)


def plain(f):
    return lambda self, node, i, a: f(*i)


def reduction(f):
    def run_it(self, node, i, a):
        axes = i[1].tolist() if len(i) > 1 and i[1] is not None else a.get("axes", list(range(i[0].dim())))
        return f(i[0], axes, bool(a.get("keepdims", 1))) if axes else i[0]
    return run_it


for _name, _f in {
        "Add": torch.add, "Sub": torch.sub, "Mul": torch.mul, "Pow": lambda x, y: x ** y, "Mod": torch.remainder,
        "Sqrt": torch.sqrt, "Reciprocal": torch.reciprocal, "Neg": torch.neg, "Abs": torch.abs, "Exp": torch.exp,
        "Log": torch.log, "Tanh": torch.tanh, "Sigmoid": torch.sigmoid, "Erf": torch.erf, "Relu": torch.relu,
        "Sin": torch.sin, "Cos": torch.cos, "Identity": lambda x: x, "Where": torch.where, "Softplus": torch.nn.functional.softplus,
        "Equal": torch.eq, "Less": torch.lt, "LessOrEqual": torch.le, "Greater": torch.gt, "GreaterOrEqual": torch.ge,
        "And": torch.logical_and, "Or": torch.logical_or, "Xor": torch.logical_xor, "Not": torch.logical_not, "IsNaN": torch.isnan,
        "Floor": torch.floor}.items():
    setattr(Graph, "op_" + _name, plain(_f))
for _name, _f in {"ReduceMean": torch.mean, "ReduceSum": torch.sum, "ReduceMax": torch.amax, "ReduceMin": torch.amin}.items():
    setattr(Graph, "op_" + _name, reduction(_f))


def run(model, inputs, weights=None, layers=None):
    """All values by name. inputs: arrays; weights: float64 tensors in the place of initializers; layers: adapters by node."""
    given = {k: torch.from_numpy(np.array(v, np.float64 if v.dtype.kind == "f" else v.dtype)) for k, v in inputs.items()}
    return Graph(weights or {}, layers or {}).run(model.graph, given)


def layers_of(model):
    """node name -> decoded weight [out, in] of each product with a stored weight."""
    stored = {t.name: t for t in model.graph.initializer}
    made = {o: n for n in model.graph.node for o in n.output}
    found = {}

    def tensor(name):
        """What a weight's chain of operators gives, or None where it reads more than what is stored."""
        if name in stored:
            return tensor_of(stored[name])
        node = made.get(name)
        if node is None or node.op_type not in ("DequantizeLinear", "Transpose", "Cast", "Identity"):
            return None
        inputs = [tensor(i) for i in node.input]
        if any(i is None for i in inputs):
            return None
        return getattr(Graph({}, {}), "op_" + node.op_type)(node, inputs, {a.name: helper.get_attribute_value(a) for a in node.attribute})

    for node in model.graph.node:
        a = {x.name: helper.get_attribute_value(x) for x in node.attribute}
        if node.op_type == "MatMulNBits":
            zero = tensor(node.input[3]) if len(node.input) > 3 and node.input[3] else None
            found[node.name] = decode_nbits(tensor(node.input[1]), tensor(node.input[2]), zero, a["K"], a["N"], a["block_size"], a.get("bits", 4))
        elif node.op_type == "MatMulBnb4":
            found[node.name] = decode_bnb4(tensor(node.input[1]), tensor(node.input[2]), a["K"], a["N"], a["block_size"], a["quant_type"])
        elif node.op_type in ("MatMul", "Gemm", "MatMulInteger"):
            w = tensor(node.input[1])
            if w is None or w.dim() != 2:
                continue
            if node.op_type == "MatMulInteger":
                w = w.double() - (tensor(node.input[3]).double() if len(node.input) > 3 and node.input[3] else 0)
            found[node.name] = w if a.get("transB") else w.T
    return found
