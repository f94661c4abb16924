"""Writes tests/dialect/recorded.txt: operators of other runtimes with the outputs that they have there.

    python3 tests/dialect/record.py        (needs onnx, onnxruntime and torch; the tests need only the file)

`case`: what ONNX Runtime's own kernel gives. `formula`: operators for which a build for inference on the
CPU has no kernel (those of training and of other devices); there PyTorch computes what the operator's
schema says, gradients by its own differentiation. Both are written down as a model whose inputs are
initializers, and its outputs.
"""
import pathlib

import numpy as np
import onnx
import onnxruntime
import torch
import torch.nn.functional as F
from onnx import helper

rng = np.random.default_rng(11)
torch.manual_seed(11)
KINDS = {"float32": "float", "uint8": "uint8", "int8": "int8", "int64": "int64", "int32": "int32", "uint16": "uint16", "int16": "int16", "bool": "bool"}
CODES = {"float": 1, "int32": 6, "int64": 7, "bool": 9}
lines = []
ML = "ai.onnx.ml."


def draw(*dims):
    return rng.uniform(-1, 1, dims).astype(np.float32)


def positive(*dims):
    return rng.uniform(0.5, 1.5, dims).astype(np.float32)


def ints(*values, dtype=np.int64):
    return np.array(values, dtype)


def show(name, x):
    x = np.asarray(x)
    dims = "[" + ",".join(str(d) for d in x.shape) + "]" if x.ndim else ""
    values = ",".join(repr(float(v)) if x.dtype == np.float32 else str(int(v)) for v in x.flatten())
    return f"{KINDS[x.dtype.name]}{dims} {name} = {{{values}}}"


def outputs_of(body):
    made = [name.strip() for line in body.split("\n") for name in line.split("=")[0].split(",")]
    return [name for name in made if name.startswith("y")]


def imports_of(body, opset):
    return f'"" : {opset}, "com.microsoft" : 1' + (', "ai.onnx.ml" : 1' if ML in body else "")


def text_of(body, tensors, outputs, opset):
    given = ", ".join(show(name, x) for name, x in tensors.items())
    def kind(x):
        return KINDS[x.dtype.name] + ("[" + ",".join(str(d) for d in x.shape) + "]" if x.ndim else "")
    results = ", ".join(f"{kind(x)} {name}" for name, x in outputs.items())
    steps = " ".join(body.split("\n"))
    return (f'<ir_version: 8, opset_import: [{imports_of(body, opset)}]> '
            f"g () => ({results}) < {given} > {{ {steps} }}")


def put(body, tensors, outputs, opset):
    lines.append("case " + body.split("\n")[-1].strip())
    lines.append(text_of(body, tensors, outputs, opset))
    for name, x in outputs.items():
        lines.append(f"{name} " + " ".join(repr(float(v)) for v in np.asarray(x, np.float64).flatten()))


def run(body, tensors, opset):
    names = outputs_of(body)
    header = f'<ir_version: 8, opset_import: [{imports_of(body, opset)}]>\n'
    given = ", ".join(show(name, x) for name, x in tensors.items())
    model = onnx.parser.parse_model(f"{header} g () => () < {given} > {{ {' '.join(body.split(chr(10)))} }}")
    for name in names:
        model.graph.output.append(onnx.ValueInfoProto(name=name))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return dict(zip(names, session.run(names, {})))


def case(body, opset=17, **tensors):
    put(body, tensors, run(body, tensors, opset), opset)


def formula(body, function, opset=17, **tensors):
    """function: of tensors as PyTorch has them, in the order given; -> outputs in order."""
    results = function(*[torch.from_numpy(np.asarray(x)) for x in tensors.values()])
    results = results if isinstance(results, (tuple, list)) else (results,)
    put(body, tensors, {n: r.detach().numpy() for n, r in zip(outputs_of(body), results)}, opset)


def gradients(function, dy, *inputs):
    xs = [x.clone().requires_grad_() for x in inputs]
    return torch.autograd.grad(function(*xs), xs, dy)


MS = "com.microsoft."

# activations
case(f"y = {MS}BiasGelu (x, x1)", x=draw(2, 3, 4), x1=draw(4))
case(f"y = {MS}Gelu (x)", x=draw(2, 3))
case(f"y = {MS}FastGelu (x)", x=draw(2, 3))
case(f"y = {MS}FastGelu (x, x1)", x=draw(2, 3, 4), x1=draw(4))
case(f"y = {MS}QuickGelu <alpha = 1.5> (x)", x=draw(2, 3))
formula(f"y = {MS}BiasSplitGelu (x, x1)",
        lambda x, b: (x + b)[..., :4] * F.gelu((x + b)[..., 4:]), x=draw(2, 3, 8), x1=draw(8))
formula(f"y = {MS}BiasAdd (x, x1, x2)", lambda x, b, s: x + b + s, x=draw(2, 3, 4), x1=draw(4), x2=draw(2, 3, 4))
formula(f"y = {MS}BiasSoftmax <axis = 3, is_inner_broadcast = 1> (x, x1)", lambda x, b: torch.softmax(x + b, 3),
        x=draw(2, 2, 3, 4), x1=draw(2, 1, 1, 4))
formula(f"y = {MS}BiasSoftmax <axis = 1, is_inner_broadcast = 0> (x, x1)",
        lambda x, b: torch.softmax((x + b).reshape(2, 12), 1).reshape(2, 3, 4), x=draw(2, 3, 4), x1=draw(1, 3, 4))
formula(f"y = {MS}BiasDropout (x, x1, x2, r, t)", lambda x, b, s, r, t: x + b + s, x=draw(2, 3), x1=draw(3),
        x2=draw(2, 3), r=np.float32(0.5), t=np.bool_(False))

# products and convolutions
case(f"y = {MS}FusedMatMul <alpha = 0.5, transA = 1, transB = 1> (x, x1)", x=draw(2, 4, 3), x1=draw(5, 4))
case(f"y = {MS}FusedMatMul <alpha = 2.0> (x, x1)", x=draw(2, 3, 4), x1=draw(2, 4, 2))
case(f"y = {MS}TransposeMatMul <transB = 1> (x, x1)", x=draw(2, 3, 4), x1=draw(2, 5, 4))
for activation in ["\"Relu\"", "\"LeakyRelu\", activation_alpha = 0.25", "\"Tanh\"", "\"Sigmoid\"",
                   "\"HardSigmoid\", activation_alpha = 0.3, activation_beta = 0.25"]:
    case(f"y = {MS}FusedGemm <transB = 1, alpha = 0.5, beta = 2.0, activation = {activation}> (x, x1, x2)",
         x=draw(3, 4), x1=draw(5, 4), x2=draw(5))
case(f"y = {MS}FusedConv <kernel_shape = [3, 3], pads = [1, 1, 1, 1], activation = \"Relu\"> (x, x1, x2)",
     x=draw(1, 2, 4, 5), x1=draw(3, 2, 3, 3), x2=draw(3))
case(f"y = {MS}FusedConv <kernel_shape = [2, 2], strides = [2, 2], group = 2, activation = \"LeakyRelu\", "
     "activation_params = [0.125]> (x, x1, x2)", x=draw(2, 4, 4, 4), x1=draw(4, 2, 2, 2), x2=draw(4))
case(f"y = {MS}FusedConv <kernel_shape = [1, 1], activation = \"Clip\", activation_params = [-0.25, 0.5]> (x, x1)",
     x=draw(1, 2, 3, 3), x1=draw(2, 2, 1, 1))
case(f"y = {MS}FusedConv <kernel_shape = [1, 1], activation = \"Relu\"> (x, x1, x2, x3)",
     x=draw(1, 2, 3, 3), x1=draw(2, 2, 1, 1), x2=draw(2), x3=draw(1, 2, 3, 3))
formula(f"y = {MS}GemmFastGelu (x, x1, x2)", lambda x, w, b: F.gelu(x @ w + b, approximate="tanh"),
        x=draw(2, 3, 4), x1=draw(4, 5), x2=draw(5))

# normalizations
case(f"y, m, d, y1 = {MS}SkipLayerNormalization <epsilon = 0.001> (x, x1, x2, x3, x4)",
     x=draw(2, 3, 4), x1=draw(2, 3, 4), x2=positive(4), x3=draw(4), x4=draw(4))
case(f"y = {MS}SkipLayerNormalization (x, x1, x2)", x=draw(2, 3, 4), x1=draw(3, 4), x2=positive(4))
case(f"y = {MS}SkipLayerNormalization (x, x1, x2, x3)", opset=14, x=draw(2, 3, 4), x1=draw(1, 3, 4), x2=positive(4),
     x3=draw(4))
case(f"y, m, d, y1 = {MS}SkipSimplifiedLayerNormalization (x, x1, x2, x3)", x=draw(2, 3, 4), x1=draw(2, 3, 4),
     x2=positive(4), x3=draw(4))
case("y = SimplifiedLayerNormalization <axis = -1, epsilon = 0.01> (x, x1)", x=draw(2, 3, 4), x1=positive(4))
case("y, y1, y2 = LayerNormalization <axis = 1, epsilon = 0.01> (x, x1, x2)", opset=15, x=draw(2, 3, 4), x1=positive(3, 4),
     x2=draw(3, 4))
tables = dict(word=draw(7, 4), place=draw(5, 4), kind=draw(2, 4), g=positive(4), b=draw(4))
case(f"y, y1, y2 = {MS}EmbedLayerNormalization <epsilon = 0.001, mask_index_type = 0> "
     "(ids, segments, word, place, kind, g, b, mask)", ids=ints(1, 3, 6, 0, 2, 5, dtype=np.int32).reshape(2, 3),
     segments=ints(0, 1, 1, 0, 0, 1, dtype=np.int32).reshape(2, 3), **tables,
     mask=ints(1, 1, 0, 1, 1, 1, dtype=np.int32).reshape(2, 3))
case(f"y, l = {MS}EmbedLayerNormalization (ids, \"\", word, place, \"\", g, b, \"\", at)",
     ids=ints(1, 3, 6, 0, dtype=np.int32).reshape(2, 2), **{k: v for k, v in tables.items() if k != "kind"},
     at=ints(4, 0, 2, 1, dtype=np.int32).reshape(2, 2))
for activation in [0, 1]:
    formula(f"y = {MS}GroupNorm <epsilon = 0.01, groups = 2, activation = {activation}, channels_last = 1> (x, x1, x2)",
            lambda x, g, b: (F.silu if activation else lambda v: v)(
                F.group_norm(x.permute(0, 3, 1, 2), 2, g, b, 0.01)).permute(0, 2, 3, 1),
            x=draw(2, 3, 2, 4), x1=positive(4), x2=draw(4))

# attention
packed = dict(x=draw(2, 3, 4), x1=draw(4, 12), x2=draw(12))
case(f"y = {MS}Attention <num_heads = 2> (x, x1, x2)", **packed)
case(f"y = {MS}Attention <num_heads = 2, unidirectional = 1, scale = 0.3> (x, x1, x2)", **packed)
case(f"y = {MS}Attention <num_heads = 2> (x, x1, x2, mask)", **packed,
     mask=ints(1, 1, 0, 1, 1, 1, dtype=np.int32).reshape(2, 3))
case(f"y = {MS}Attention <num_heads = 2> (x, x1, x2, mask)", **packed, mask=ints(3, 2, dtype=np.int32))
case(f"y = {MS}Attention <num_heads = 2> (x, x1, x2, mask)", **packed,
     mask=ints(1, 0, 0, 1, 1, 0, 1, 1, 1, 1, 1, 0, 0, 1, 0, 1, 1, 1, dtype=np.int32).reshape(2, 3, 3))
case(f"y = {MS}Attention <num_heads = 2> (x, x1, x2, \"\", \"\", x3)", **packed, x3=draw(2, 2, 3, 3))
case(f"y = {MS}Attention <num_heads = 2, qkv_hidden_sizes = [4, 4, 6]> (x, x1, x2)", x=draw(2, 3, 4), x1=draw(4, 14),
     x2=draw(14))
qkv = dict(x=draw(2, 3, 4), x1=draw(2, 5, 4), x2=draw(2, 5, 6))
case(f"y = {MS}MultiHeadAttention <num_heads = 2> (x, x1, x2)", **qkv)
case(f"y = {MS}MultiHeadAttention <num_heads = 2> (x, x1, x2, x3)", **qkv, x3=draw(14))
case(f"y = {MS}MultiHeadAttention <num_heads = 2, scale = 0.25> (x, x1, x2, \"\", mask)", **qkv,
     mask=ints(1, 1, 0, 1, 1, 1, 1, 1, 1, 0, dtype=np.int32).reshape(2, 5))
case(f"y = {MS}MultiHeadAttention <num_heads = 2> (x, x1, x2, \"\", \"\", x3)", **qkv, x3=draw(1, 2, 3, 5))
case(f"y = {MS}MultiHeadAttention <num_heads = 2> (x, x1, x2)", x=draw(2, 3, 4), x1=draw(2, 2, 5, 2), x2=draw(2, 2, 5, 2))
case(f"y, y1, y2 = {MS}MultiHeadAttention <num_heads = 2, unidirectional = 1> (x, x1, x2)", x=draw(1, 4, 4),
     x1=draw(1, 4, 4), x2=draw(1, 4, 4))
def by_heads(q, k, v):
    q, k, v = (t.permute(0, 2, 1, 3) for t in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v).permute(0, 2, 1, 3).flatten(2)
formula(f"y = {MS}MultiHeadAttention <num_heads = 2> (x)", lambda x: by_heads(x[..., 0, :], x[..., 1, :], x[..., 2, :]),
        x=draw(2, 3, 2, 3, 4))
formula(f"y = {MS}MultiHeadAttention <num_heads = 2> (x, x1)",
        lambda x, kv: by_heads(x.reshape(2, 3, 2, 4), kv[..., 0, :], kv[..., 1, :]), x=draw(2, 3, 8), x1=draw(2, 5, 2, 2, 4))
angle = np.arange(6, dtype=np.float32)[:, None] * np.array([[1.0, 0.3]], np.float32)
caches = dict(cos=np.cos(angle), sin=np.sin(angle))
case(f"y = {MS}RotaryEmbedding (x, at, cos, sin)", x=draw(2, 3, 8), at=ints(0, 2, 1, 3, 4, 5).reshape(2, 3), **caches)
case(f"y = {MS}RotaryEmbedding <interleaved = 1> (x, at, cos, sin)", x=draw(2, 2, 3, 4), at=ints(2), **caches)
case(f"y = {MS}RotaryEmbedding <num_heads = 2, rotary_embedding_dim = 4> (x, at, cos, sin)", x=draw(1, 3, 12),
     at=ints(0, 1, 2).reshape(1, 3), **caches)
groups = dict(x=draw(1, 4, 32), x1=draw(1, 4, 16), x2=draw(1, 4, 16))
angle = np.arange(6, dtype=np.float32)[:, None] * np.array([[1.0, 0.5, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01]], np.float32)
ends = dict(l=ints(3, dtype=np.int32), n=np.int32(4))
case(f"y, y1, y2 = {MS}GroupQueryAttention <num_heads = 2, kv_num_heads = 1> (x, x1, x2, \"\", \"\", l, n)", **groups, **ends)
case(f"y, k, v = {MS}GroupQueryAttention <num_heads = 2, kv_num_heads = 1, local_window_size = 2, scale = 0.4> "
     "(x, x1, x2, \"\", \"\", l, n)", **groups, **ends)
case(f"y, k, v = {MS}GroupQueryAttention <num_heads = 2, kv_num_heads = 1, softcap = 0.5> "
     "(x, x1, x2, \"\", \"\", l, n)", **groups, **ends)
case(f"y, y1, v = {MS}GroupQueryAttention <num_heads = 2, kv_num_heads = 1, do_rotary = 1> "
     "(x, x1, x2, \"\", \"\", l, n, cos, sin)", **groups, **ends,
     cos=np.cos(angle), sin=np.sin(angle))
case(f"y, k, v = {MS}GroupQueryAttention <num_heads = 2, kv_num_heads = 1, do_rotary = 1, rotary_interleaved = 1> "
     "(x, \"\", \"\", \"\", \"\", l, n, cos, sin)", x=draw(1, 4, 64), **ends, cos=np.cos(angle), sin=np.sin(angle))

# training
conv = dict(pads=1, stride=2)
formula(f"y, y1, y2 = {MS}ConvGrad <kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2], group = 2> (dy, x, x1)",
        lambda dy, x, w: gradients(lambda a, c, b: F.conv2d(a, c, b, 2, 1, 1, 2), dy, x, w, torch.zeros(4)),
        dy=draw(2, 4, 3, 2), x=draw(2, 2, 5, 4), x1=draw(4, 1, 3, 3))
formula(f"\"\", y1 = {MS}ConvGrad <kernel_shape = [2, 2]> (dy, x, x1)",
        lambda dy, x, w: gradients(F.conv2d, dy, x, w)[1:], dy=draw(1, 2, 2, 3), x=draw(1, 3, 3, 4), x1=draw(2, 3, 2, 2))
formula(f"y, y1 = {MS}ConvTransposeGrad <kernel_shape = [2, 2], strides = [2, 2]> (dy, x, x1)",
        lambda dy, x, w: gradients(lambda a, c: F.conv_transpose2d(a, c, None, 2), dy, x, w),
        dy=draw(1, 2, 4, 6), x=draw(1, 3, 2, 3), x1=draw(3, 2, 2, 2))
formula("m, at = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)\n"
        "y = MaxPoolGrad <kernel_shape = [2, 2], strides = [2, 2]> (dy, at)",
        lambda x, dy: gradients(lambda a: F.max_pool2d(a, 2), dy, x), x=draw(1, 2, 4, 6), dy=draw(1, 2, 2, 3))
formula(f"y, y1 = {MS}DivGrad (dy, x, x1)", lambda dy, a, b: gradients(torch.div, dy, a, b), dy=draw(2, 3, 4),
        x=draw(3, 1), x1=positive(2, 1, 4))
formula(f"y = {MS}GatherNDGrad (s, at, dy)",
        lambda s, at, dy: torch.zeros(3, 4).index_put((at[:, 0], at[:, 1]), dy, accumulate=True), s=ints(3, 4),
        at=ints(0, 1, 2, 3, 0, 1).reshape(3, 2), dy=draw(3))
formula(f"y = {MS}SoftmaxGrad <axis = 1> (dy, p)",
        lambda dy, p: (p * (dy - (p * dy).flatten(1).sum(1)[:, None, None])), dy=draw(2, 3, 2), p=positive(2, 3, 2))
formula(f"y = {MS}LogSoftmaxGrad <axis = 2> (dy, p)", lambda dy, p: dy - p.exp() * dy.sum(2, True), dy=draw(2, 3, 2),
        p=draw(2, 3, 2))
formula(f"y = {MS}BiasGeluGrad_dX (dy, x, x1)", lambda dy, x, b: gradients(lambda a: F.gelu(a + b), dy, x), dy=draw(2, 3),
        x=draw(2, 3), x1=draw(3))
formula(f"y = {MS}BiasFastGeluGrad_dX (dy, x, x1)",
        lambda dy, x, b: gradients(lambda a: F.gelu(a + b, approximate="tanh"), dy, x), dy=draw(2, 3), x=draw(2, 3), x1=draw(3))
labels = ints(1, 3, 0)
formula(f"y, y1 = {MS}SoftmaxCrossEntropyLossInternal <reduction = \"mean\"> (x, t, x1, i)",
        lambda x, t, w, i: (F.cross_entropy(x, t, w, ignore_index=3), torch.log_softmax(x, 1)), x=draw(3, 4), t=labels,
        x1=positive(4), i=np.int64(3))
formula(f"y = {MS}SoftmaxCrossEntropyLossInternalGrad <reduction = \"sum\"> (dy, p, t, \"\", i, more)",
        lambda dy, p, t, i, more: gradients(
            lambda a: F.cross_entropy(a, t, ignore_index=3, reduction="sum"), dy, p)[0] + more,
        dy=np.float32(0.7), p=torch.log_softmax(torch.from_numpy(draw(3, 4)), 1).numpy(), t=labels, i=np.int64(3),
        more=draw(3, 4))
formula(f"y = {MS}NegativeLogLikelihoodLossInternal <reduction = \"mean\"> (x, t, \"\", i)",
        lambda x, t, i: F.nll_loss(x, t, ignore_index=3), x=draw(3, 4), t=labels, i=np.int64(3))
formula(f"y = {MS}Scale <scale_down = 1> (x, s)", lambda x, s: x / s, x=draw(2, 3), s=positive(1))
formula(f"y = {MS}ScaledSum <scale_0 = 0.5, scale_1 = -2.0, scale_2 = 0.25> (x, x1, x2)",
        lambda a, b, c: 0.5 * a - 2 * b + 0.25 * c, x=draw(2, 3), x1=draw(2, 3), x2=draw(2, 3))
formula(f"y, y1 = {MS}BatchScale <scale_0 = 0.5, scale_1 = -2.0> (x)", lambda x: (0.5 * x, -2 * x), x=draw(2, 3))
formula(f"y, y1 = {MS}ConcatTraining <axis = 1> (x, x1)", lambda a, b: (torch.cat([a, b], 1), torch.tensor([3, 2])),
        x=draw(2, 3), x1=draw(2, 2))
formula(f"y, y1 = {MS}SplitTraining <axis = 1> (x, s)", lambda x, s: x.split([1, 4], 1), x=draw(2, 5), s=ints(1, 4))
formula(f"y = {MS}ReduceSumTraining <keepdims = 0> (x, a)", lambda x, a: x.sum(1), x=draw(2, 3, 2), a=ints(1))
formula(f"y, y1 = {MS}BroadcastGradientArgs (a, c)", lambda a, c: (torch.tensor([0, 2]), torch.tensor([1])), a=ints(3, 1),
        c=ints(2, 1, 4))
formula(f"y = {MS}InPlaceAccumulator (x, x1)", lambda a, b: a + b, x=draw(2, 3), x1=draw(2, 3))
formula(f"y, y1 = {MS}InPlaceAccumulatorV2 (x, x1, o)", lambda a, b, o: (torch.tensor([True]), b), x=draw(2, 3),
        x1=draw(2, 3), o=np.array([True]))
formula(f"y = {MS}ReduceAllL2 (x, x1)", lambda a, b: torch.sqrt((a * a).sum() + (b * b).sum()), x=draw(2, 3), x1=draw(4))
formula(f"y = {MS}FakeQuantGrad (x, m)", lambda x, m: torch.where(m, x, 0.0), x=draw(2, 2), m=np.array([[True, False], [False, True]]))
formula(f"y = {MS}ShrunkenGather <axis = 1> (x, at)", lambda x, at: x[:, at], x=draw(2, 4), at=ints(3, 0))
def batch_norm(x, g, b, m, v):
    mean, var = x.mean((0, 2)), x.var((0, 2), unbiased=False)
    n = (x - mean[:, None]) / torch.sqrt(var + 0.01)[:, None]
    return n * g[:, None] + b[:, None], 0.75 * m + 0.25 * mean, 0.75 * v + 0.25 * var, mean, 1 / torch.sqrt(var + 0.01)
formula(f"y, y1, y2, y3, y4 = {MS}BatchNormInternal <epsilon = 0.01, momentum = 0.75, training_mode = 1> (x, x1, x2, m, v)",
        batch_norm, x=draw(4, 2, 3), x1=positive(2), x2=draw(2), m=draw(2), v=positive(2))
def rms(x, g):
    return x / torch.sqrt((x * x).mean(-1, True) + 0.01) * g
x, g, dy = draw(2, 3, 4), positive(4), draw(2, 3, 4)
formula(f"y, y1 = {MS}SimplifiedLayerNormalizationGrad (dy, x, x1, d)", lambda dy, x, g, d: gradients(rms, dy, x, g), dy=dy,
        x=x, x1=g, d=(1 / np.sqrt((x * x).mean(-1, keepdims=True) + 0.01)).astype(np.float32))
deviation = (1 / np.sqrt(x.var(-1, keepdims=True) + 0.01)).astype(np.float32)
bias = draw(4)
normed = ((x - x.mean(-1, keepdims=True)) * deviation * g + bias).astype(np.float32)
kept = torch.from_numpy(x)
formula(f"y, y1, y2 = {MS}InvertibleLayerNormalizationGrad (dy, z, x1, x2, d)",
        lambda dy, z, g, b, d: gradients(lambda a, s, t: F.layer_norm(a, (4,), s, t, 0.01), dy, kept, g, b), dy=dy, z=normed,
        x1=g, x2=bias, d=deviation)

# attention that goes on from a past; they are last, so that the numbers of the others stay
past = dict(x=draw(2, 3, 4), x1=draw(4, 12), x2=draw(12), x3=draw(2, 2, 2, 5, 2))
case(f"y, y1 = {MS}Attention <num_heads = 2, unidirectional = 1> (x, x1, x2, \"\", x3)", **past)
case(f"y, y1 = {MS}Attention <num_heads = 2> (x, x1, x2, mask, x3)", **past,
     mask=ints(1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1, 1, dtype=np.int32).reshape(2, 8))
case(f"y, y1 = {MS}Attention <num_heads = 2> (x, x1, x2)", **packed)
case(f"y, y1, y2 = {MS}MultiHeadAttention <num_heads = 2, unidirectional = 1> (x, x1, x2, \"\", \"\", \"\", x3, x4)",
     x=draw(2, 3, 4), x1=draw(2, 3, 4), x2=draw(2, 3, 4), x3=draw(2, 2, 4, 2), x4=draw(2, 2, 4, 2))
case(f"y, y1, y2 = {MS}DecoderMaskedMultiHeadAttention <num_heads = 2, past_present_share_buffer = 1> (x, x1, x2, \"\", \"\", x4, x5, p)",
     x=draw(2, 1, 4), x1=draw(2, 1, 4), x2=draw(2, 1, 4), x4=draw(2, 2, 6, 2), x5=draw(2, 2, 6, 2), p=ints(3, dtype=np.int32))
def going_on(batch, length):
    return dict(x=draw(batch, length, 32), x1=draw(batch, length, 16), x2=draw(batch, length, 16),
                x3=draw(batch, 1, 4, 16), x4=draw(batch, 1, 4, 16))
case(f"y, k, v = {MS}GroupQueryAttention <num_heads = 2, kv_num_heads = 1> (x, x1, x2, x3, x4, l, n)", **going_on(1, 2),
     l=ints(5, dtype=np.int32), n=np.int32(6))
case(f"y, k, v = {MS}GroupQueryAttention <num_heads = 2, kv_num_heads = 1, local_window_size = 3, do_rotary = 1> "
     "(x, x1, x2, x3, x4, l, n, cos, sin)", **going_on(2, 1), l=ints(4, 2, dtype=np.int32), n=np.int32(5),
     cos=np.cos(angle), sin=np.sin(angle))


def one_more(x, w, c, past, filled):
    """DecoderMaskedSelfAttention by two heads; the present is the buffer with the new rows in it."""
    q, k, v = (t.reshape(2, 1, 2, 2).permute(0, 2, 1, 3) for t in (x @ w + c).split(4, 2))
    n = int(filled[0])
    kv = [torch.cat([past[i, :, :, :n], new], 2) for i, new in enumerate((k, v))]
    y = F.scaled_dot_product_attention(q, *kv).permute(0, 2, 1, 3).flatten(2)
    return y, torch.stack([torch.cat([kv[i], past[i, :, :, n + 1:]], 2) for i in range(2)])


formula(f"y, y1 = {MS}DecoderMaskedSelfAttention <num_heads = 2, past_present_share_buffer = 1> "
        "(x, x1, x2, \"\", x3, \"\", p)", one_more, x=draw(2, 1, 4), x1=draw(4, 12), x2=draw(12), x3=draw(2, 2, 2, 5, 2),
        p=ints(3, dtype=np.int32))


def in_turn(q, k, v, begins):
    """Rows of q, k, v, one sequence after the other, by two heads."""
    parts = [by_heads(*(t[a:z].reshape(1, int(z - a), 2, -1) for t in (q, k, v))) for a, z in zip(begins, begins[1:])]
    return torch.cat(parts, 1)[0]


rows = dict(offsets=ints(0, 1, 2, 4, 5, 3, 6, 7, dtype=np.int32).reshape(2, 4), begins=ints(0, 3, 5, dtype=np.int32))
formula(f"y = {MS}PackedAttention <num_heads = 2> (x, x1, x2, offsets, begins)",
        lambda x, w, c, o, at: in_turn(*(x @ w + c).split(4, 1), at), x=draw(5, 4), x1=draw(4, 12), x2=draw(12), **rows)
formula(f"y = {MS}PackedMultiHeadAttention <num_heads = 2> (x, x1, x2, x3, offsets, begins)",
        lambda q, k, v, c, o, at: in_turn(q + c[:4], k + c[4:8], v + c[8:], at), x=draw(5, 4), x1=draw(5, 4), x2=draw(5, 6),
        x3=draw(14), **rows)
formula(f"y = {MS}PackedMultiHeadAttention <num_heads = 2> (x, \"\", \"\", \"\", offsets, begins)",
        lambda x, o, at: in_turn(*(x[:, :, i].flatten(1) for i in range(3)), at), x=draw(5, 2, 3, 2), **rows)


def gru(x, w, r, c, h):
    """One direction, gates in the order z r n, the reset behind the product."""
    states, h = [], h[0]
    for step in x:
        a, t = step @ w[0].T + c[0, :9], h @ r[0].T + c[0, 9:]
        z, reset = torch.sigmoid(a[:, :6] + t[:, :6]).split(3, 1)
        h = (1 - z) * torch.tanh(a[:, 6:] + reset * t[:, 6:]) + z * h
        states.append(h)
    return torch.stack(states)[:, None], h[None]


def gru_gradients(x, w, r, c, h, states, gates, dy, last):
    xs = [t.clone().requires_grad_() for t in (x, w, r, c, h)]
    return torch.autograd.grad(gru(*xs), xs, (dy, last))


through = dict(x=draw(4, 2, 2), x1=draw(1, 9, 2), x2=draw(1, 9, 3), x3=draw(1, 18), x4=draw(1, 2, 3))
formula(f"y, y1 = {MS}GRUTraining <hidden_size = 3, linear_before_reset = 1> (x, x1, x2, x3, \"\", x4)", gru, **through)
first = dict(x=draw(2, 4, 2), x1=through["x1"], x2=through["x2"], x3=through["x3"], x4=draw(2, 1, 3))
formula("y, y1 = GRU <hidden_size = 3, linear_before_reset = 1, layout = 1> (x, x1, x2, x3, \"\", x4)",
        lambda x, w, r, c, h: [t.transpose(0, 1) if t.ndim == 3 else t.permute(2, 0, 1, 3)
                               for t in gru(x.transpose(0, 1), w, r, c, h.transpose(0, 1))], **first)
states = gru(*map(torch.from_numpy, through.values()))[0].numpy()
formula(f"y, y1, y2, y3, y4 = {MS}GRUGrad <hidden_size = 3, linear_before_reset = 1> "
        "(x, x1, x2, x3, \"\", x4, states, gates, dy, last)", gru_gradients, **through, states=states,
        gates=draw(4, 1, 2, 9), dy=draw(4, 1, 2, 3), last=draw(1, 2, 3))

case(f"y = {MS}FusedMatMul <transBatchA = 1, transB = 1> (x, x1)", x=draw(3, 2, 2, 4), x1=draw(2, 2, 5, 4))
case(f"y = {MS}FusedMatMul <transBatchB = 1, transBatchA = 1, transA = 1> (x, x1)", x=draw(4, 2, 3), x1=draw(4, 2, 5))
rows = draw(3, 4)
rows[1] = 0
case(f"y = {ML}Scaler <offset = [0.5, -0.25, 0.0, 1.0], scale = [2.0, 0.5, 1.0, -1.0]> (x)", x=draw(3, 4))
case(f"y = {ML}Scaler <offset = [0.5], scale = [3.0]> (x)", x=np.arange(6).reshape(3, 2))
for norm in ("L1", "L2"):
    case(f'y = {ML}Normalizer <norm = "{norm}"> (x)', x=rows)
case(f'y = {ML}Normalizer <norm = "MAX"> (x)', x=positive(3, 4))
case(f"y = {ML}Binarizer <threshold = 0.25> (x)", x=draw(3, 4))
case(f"y = {ML}Imputer <imputed_value_floats = [9.0, 8.0, 7.0, 6.0], replaced_value_float = 0.0> (x)", x=rows)
case(f"y = {ML}ArrayFeatureExtractor (x, i)", x=draw(3, 4), i=np.array([2, 0]))
case(f"y = {ML}ArrayFeatureExtractor (x, i)", x=np.array([5, 7, 9]), i=np.array([[2], [0], [1], [2]]))
linear = "coefficients = [0.5, -1.0, 0.25, 2.0, 0.125, -0.75], intercepts = [0.5, -0.25]"
case(f"y = {ML}LinearRegressor <{linear}, targets = 2> (x)", x=draw(4, 3))
case(f'y, y1 = {ML}LinearClassifier <{linear}, classlabels_ints = [7, 3], post_transform = "SOFTMAX"> (x)',
     x=draw(4, 3))
case(f'y, y1 = {ML}LinearClassifier <{linear}, classlabels_ints = [7, 3], post_transform = "LOGISTIC"> (x)',
     x=draw(4, 3))

# attention by groups of heads, in full
packed = dict(x=draw(2, 4, 64), l=ints(3, 3, dtype=np.int32), n=np.int32(4))
GROUPS = f"{MS}GroupQueryAttention <num_heads = 2, kv_num_heads = 1"
EMPTY = '"", "", "", ""'
wave = dict(cos=np.cos(angle), sin=np.sin(angle))
case(f"y, k, v = {GROUPS}, do_rotary = 1, local_window_size = 2, softcap = 1.5> "
     f'(x, {EMPTY}, l, n, cos, sin, "", "", x1)', **packed, **wave, x1=draw(2))
case(f'y, k, v = {GROUPS}, softcap = 0.5> (x, {EMPTY}, l, n, "", "", "", x1, x2)', **packed, x1=draw(1, 2, 4, 4), x2=draw(2))
case(f"y, k, v = {GROUPS}, smooth_softmax = 1> (x, {EMPTY}, l, n)", **packed)
case(f"y, k, v = {GROUPS}, causal = 0> (x, {EMPTY}, l, n)", **packed | dict(l=ints(2, 3, dtype=np.int32)))
case(f"y, k, v = {GROUPS}, do_rotary = 1> (x, {EMPTY}, l, n, cos, sin, at)", **packed, **wave,
     at=ints(2, 0, 1, 2, 0, 1, 0, 1).reshape(2, 4))
wide = np.arange(6, dtype=np.float32)[:, None] * np.exp(-np.arange(8, dtype=np.float32))
case(f"y, k, v = {GROUPS}, do_rotary = 1> (x, {EMPTY}, l, n, cos, sin)", **packed | dict(x=draw(2, 4, 128)),
     cos=np.cos(wide), sin=np.sin(wide))


def normed_groups(x, l, n, g, h):
    """Packed rows of two heads that share a key, RMS norm of each head before the product."""
    q, k, v = x.split([32, 16, 16], 2)
    q = F.rms_norm(q.reshape(2, 4, 2, 16).transpose(1, 2), (16,), g, 1e-3)
    k = F.rms_norm(k.reshape(2, 4, 1, 16).transpose(1, 2), (16,), h, 1e-3)
    v = v.reshape(2, 4, 1, 16).transpose(1, 2)
    y = F.scaled_dot_product_attention(q, k.expand(2, 2, 4, 16), v.expand(2, 2, 4, 16), is_causal=True)
    return y.transpose(1, 2).flatten(2), k, v


formula(f'y, k, v = {GROUPS}, qk_norm_epsilon = 0.001> (x, {EMPTY}, l, n, "", "", "", "", "", "", "", x1, x2)',
        normed_groups, **packed, x1=positive(16), x2=positive(16))

# weights in few bits; accuracy_level 1 computes in float32
few = np.random.default_rng(12)


def codes(*dims):
    return few.integers(0, 256, dims, np.uint8)


def scales(*dims):
    return few.uniform(-0.3, 0.3, dims).astype(np.float32)


def few_bits(x, options, *more, names="c, s", **tensors):
    case(f"y = {MS}MatMulNBits <{options}, accuracy_level = 1> (x, {names})", x=x, **tensors)


few_bits(draw(2, 40), "K = 40, N = 3, bits = 4, block_size = 16", c=codes(3, 3, 8), s=scales(3, 3))
few_bits(draw(2, 2, 40), "K = 40, N = 3, bits = 4, block_size = 16", names="c, s, z", c=codes(3, 3, 8), s=scales(3, 3), z=codes(3, 2))
few_bits(draw(2, 40), "K = 40, N = 3, bits = 4, block_size = 16", names="c, s, z", c=codes(3, 3, 8), s=scales(9), z=codes(6))
few_bits(draw(2, 40), "K = 40, N = 3, bits = 4, block_size = 16", names="c, s, z, , b", c=codes(3, 3, 8), s=scales(3, 3),
         z=few.uniform(0, 15, (3, 3)).astype(np.float32), b=scales(3))
few_bits(draw(3, 20), "K = 20, N = 4, bits = 8, block_size = 16", c=codes(4, 2, 16), s=scales(4, 2))
few_bits(draw(3, 64), "K = 64, N = 2, bits = 8, block_size = 32", names="c, s, z", c=codes(2, 2, 32), s=scales(2, 2), z=codes(2, 2))
few_bits(draw(3, 72), "K = 72, N = 2, bits = 2, block_size = 16", c=codes(2, 5, 4), s=scales(2, 5))
few_bits(draw(3, 72), "K = 72, N = 2, bits = 2, block_size = 16", names="c, s, z", c=codes(2, 5, 4), s=scales(2, 5), z=codes(2, 2))
few_bits(draw(2, 40), "K = 40, N = 3, bits = 4, block_size = 16", names="c, s, , g", c=codes(3, 3, 8), s=scales(3, 3),
         g=np.arange(40, dtype=np.int32) // 16)
for bits, table in ((4, codes(5, 16)), (8, codes(5, 32)), (2, codes(5, 8))):
    options = f"bits = {bits}, block_size = 16, gather_axis = 0, quantize_axis = 1"
    case(f"y = {MS}GatherBlockQuantized <{options}> (c, i, s)", c=table, i=ints(3, 0, 4), s=scales(5, 2))
    case(f"y = {MS}GatherBlockQuantized <{options}> (c, i, s, z)", c=table, i=ints(4, 1, 4, 2).reshape(2, 2),
         s=scales(5, 2), z=codes(5, bits * 2 // 8 or 1))
case(f"y = {MS}MatMulBnb4 <K = 24, N = 3, block_size = 16, quant_type = 1> (x, c, s)", x=draw(2, 24), c=codes(36), s=scales(5))
case(f"y = {MS}MatMulBnb4 <K = 32, N = 3, block_size = 16, quant_type = 0> (x, c, s)", x=draw(2, 32), c=codes(48), s=scales(6))

# layers of experts; blocks of 8 bits are computed in int8 there
def experts(rows, columns, bits=0):
    if bits == 0:
        return draws(3, rows, columns)
    return few.integers(0, 256, (3, rows, columns * bits // 8), np.uint8)


def draws(*dims):
    return few.uniform(-1, 1, dims).astype(np.float32)


def mixed(x, scores, w1, w2, act, k=2, b1=None, w3=None):
    """What the schema says, for weights in float and tokens [T, H]."""
    w, chosen = torch.softmax(scores, 1).topk(k, 1)
    y = torch.zeros_like(x)
    for t, e in np.ndindex(*chosen.shape):
        of = chosen[t, e]
        a = w1[of] @ x[t] + (0 if b1 is None else b1[of])
        y[t] += w[t, e] * (w2[of] @ (act(a) if w3 is None else act(a) * (w3[of] @ x[t])))
    return y


layer = dict(x=draws(2, 2, 4), x1=3 * draws(4, 3), x2=experts(6, 4), c=draws(3, 6), x3=experts(4, 6), d=draws(3, 4))
for activation in ("relu", "gelu", "silu", "identity"):
    case(f'y = {MS}MoE <k = 2, activation_type = "{activation}"> (x, x1, x2, c, x3, d)', **layer)
case(f'y = {MS}MoE <k = 2, normalize_routing_weights = 1> (x, x1, x2, "", x3)',
     x=draws(5, 4), x1=3 * draws(5, 3), x2=experts(6, 4), x3=experts(4, 6))
case(f"y = {MS}MoE (x, x1, x2, c, x3, d)", **layer)
gated = dict(x=draws(4, 4), x1=3 * draws(4, 3), x2=experts(12, 4), c=draws(3, 12), x3=experts(4, 6))
for more in ("", ", activation_alpha = 1.75, activation_beta = 1.0, swiglu_limit = 0.5"):
    case(f'y = {MS}MoE <k = 3, activation_type = "swiglu", swiglu_fusion = 1{more}> (x, x1, x2, c, x3)', **gated)
formula(f'y = {MS}MoE <k = 2, activation_type = "swiglu", swiglu_fusion = 2> (x, x1, x2, c, x3)',
        lambda x, r, w1, c, w2: mixed(x, r, w1, w2, lambda a: F.silu(a[:6]) * a[6:], b1=c), **gated)
for activation in ("silu", "swiglu"):
    formula(f'y = {MS}MoE <k = 2, activation_type = "{activation}"> (x, x1, x2, "", x3, "", u)',
            lambda x, r, w1, w2, u: mixed(x, r, w1, w2, F.silu, w3=u), x=draws(4, 4), x1=3 * draws(4, 3),
            x2=experts(6, 4), x3=experts(4, 6), u=experts(6, 4))
coded = dict(x=draws(4, 32), x1=3 * draws(4, 3), b=draws(3, 16), d=draws(3, 32))
for bits, block in ((2, 16), (4, 16), (2, 0), (4, 0), (8, 0)):
    options = f"k = 2, normalize_routing_weights = 1, expert_weight_bits = {bits}" + (f", block_size = {block}" if block else "")
    parts = dict(c=experts(16, 32, bits), s=scales(3, 16, *([32 // block] if block else [])) / 2 ** bits,
                 e=experts(32, 16, bits), t=scales(3, 32, *([1] if block else [])) / 2 ** bits)
    case(f'y = {MS}QMoE <{options}, activation_type = "silu"> (x, x1, c, s, b, e, t, d)', **coded, **parts)
    zeros = dict(z=codes(3, 16, -(-2 * bits // 8)) if block else codes(3, 16 * bits // 8),
                 v=codes(3, 32, 1) if block else codes(3, 32 * bits // 8))
    case(f'y = {MS}QMoE <{options}> (x, x1, c, s, b, e, t, d, "", "", "", z, v, "", m)', **coded, **parts, **zeros,
         m=np.abs(draws(4, 3)))
case(f'y = {MS}QMoE <k = 1, activation_type = "swiglu", swiglu_fusion = 1, block_size = 16> (x, x1, c, s, "", e, t)',
     x=draws(2, 2, 32), x1=3 * draws(4, 3), c=experts(32, 32, 4), s=scales(3, 32, 2) / 16, e=experts(32, 16, 4), t=scales(3, 32, 1) / 16)

# convolutions of hybrid decoders
before = dict(x=draw(2, 3, 5), x1=draw(3, 1, 4))
case(f"y, y1 = {MS}CausalConvWithState <activation = \"silu\"> (x, x1, x2)", **before, x2=draw(3))
case(f"y, y1 = {MS}CausalConvWithState <activation = \"none\"> (x, x1, \"\", x2)", **before, x2=draw(2, 3, 3))
case(f"y, p = {MS}CausalConvWithState <activation = \"swish\", dilation = 2> (x, x1, x2)", **before, x2=draw(3))
case(f"y, y1 = {MS}CausalConvWithState (x, x1)", x=draw(1, 2, 1), x1=draw(2, 1, 1))

# layers that compute with codes
whole = np.random.default_rng(14)


def bytes_of(*dims, dtype=np.uint8):
    return whole.integers(0 if dtype == np.uint8 else -128, 256 if dtype == np.uint8 else 128, dims).astype(dtype)


def coded(call, **tensors):
    """What an operator gives in codes of scale v and zero w. y0: it is not differentiated."""
    case(f"q = {call}\ny0 = DequantizeLinear (q, v, w)", **tensors)


def number(x, dtype=np.float32):
    return np.array(x, dtype)


a = dict(a=bytes_of(2, 4), s=number(0.02), z=number(120, np.uint8))
b = dict(b=bytes_of(2, 4), t=number(0.013), u=number(131, np.uint8))
y = dict(v=number(0.0311), w=number(127, np.uint8))
image = dict(a=bytes_of(1, 3, 4, 4), s=number(0.02), z=number(120, np.uint8))
for op in ("Add", "Mul"):
    coded(f"{MS}QLinear{op} (a, s, z, b, t, u, v, w)", **a, **b, **y)
coded(f'{MS}QLinearAdd (a, s, z, b, t, u, v, w)', a=bytes_of(2, 4, dtype=np.int8), s=number(0.02), z=number(3, np.int8),
     b=bytes_of(4, dtype=np.int8), t=number(0.013), u=number(0, np.int8), v=number(0.03), w=number(-2, np.int8))
coded(f"{MS}QLinearSigmoid (a, s, z, v, w)", **a, v=number(1 / 256), w=number(0, np.uint8))
coded(f"{MS}QLinearLeakyRelu <alpha = 0.1> (a, s, z, v, w)", **a, **y)
coded(f"{MS}QLinearSoftmax <axis = -1, opset = 13> (a, s, z, v, w)", **a, v=number(1 / 256), w=number(0, np.uint8))
coded(f"{MS}QLinearAveragePool <kernel_shape = [2, 2], strides = [2, 2]> (a, s, z, v, w)", **image, **y)
coded(f"{MS}QLinearGlobalAveragePool (a, s, z, v, w)", **image, **y)
coded(f"{MS}QLinearConcat <axis = 1> (v, w, a, s, z, b, t, u)", **y, **a, **b)
coded(f"{MS}QLinearWhere (c, a, s, z, b, t, u, v, w)", c=whole.integers(0, 2, (2, 4)) > 0, **a, **b, **y)
matrix = dict(b=bytes_of(4, 3, dtype=np.int8), t=(whole.uniform(0.01, 0.02, 3)).astype(np.float32), u=np.zeros(3, np.int8),
              c=whole.integers(-900, 900, 3).astype(np.int32))
coded(f"{MS}QGemm (a, s, z, b, t, u, c, v, w)", **a, **matrix, v=number(0.2), w=number(127, np.uint8))
case(f"y0 = {MS}QGemm <transB = 1, alpha = 0.5> (a, s, z, b, t, u, c)", **a, **matrix | dict(b=matrix["b"].T.copy()))
coded("QLinearMatMul (a, s, z, b, t, u, v, w)", **a, b=matrix["b"], t=number(0.015), u=number(2, np.int8), v=number(0.2), w=number(127, np.uint8))
coded("QLinearConv <pads = [1, 1, 1, 1]> (a, s, z, b, t, u, v, w, c)", **image, **matrix | dict(b=bytes_of(3, 3, 3, 3, dtype=np.int8)),
     v=number(0.7), w=number(127, np.uint8))
case(f"y0 = {MS}DynamicQuantizeMatMul (a, b, t, u, d)", a=whole.uniform(-1, 1, (2, 4)).astype(np.float32), **matrix, d=number([0.5, -1, 2]))
case(f'y0 = {MS}MatMulIntegerToFloat (a, b, s, t, z, "", d)', **a, b=matrix["b"], t=matrix["t"], d=number([0.5, -1, 2]))
for kind in (np.uint16, np.int16):
    case(f"q = {MS}QuantizeLinear (a, s, z)\ny0 = {MS}DequantizeLinear (q, s, z)",
         a=whole.uniform(-1, 1, (2, 3)).astype(np.float32), s=number(1e-4), z=number(7, kind))
grid = whole.integers(0, 256, (1, 2, 6)).astype(np.int64)
grid.flat[:2] = 0, 255
fixed = ((grid - 128) / 128).astype(np.float32) # what ONNX Runtime rounds is on the grid
gates = dict(x=fixed, a=bytes_of(1, 6, 16, dtype=np.int8), r=bytes_of(1, 4, 16, dtype=np.int8), i=whole.uniform(-1, 1, (1, 32)).astype(np.float32))
case(f'y0, y1, y2 = {MS}DynamicQuantizeLSTM <hidden_size = 4> (a1, a, r, i, "", "", "", "", s, z, t, u)', a1=gates.pop("x"), **gates,
     s=number([0.01]), z=number([3], np.int8), t=number([0.02]), u=number([0], np.int8))
case(f'y0 = {MS}QAttention <num_heads = 2> (a, b, d, s, t, "", z, u)', a=bytes_of(2, 3, 4), b=bytes_of(4, 12, dtype=np.int8),
     d=whole.uniform(-1, 1, 12).astype(np.float32), s=number(0.02), t=number(0.01), z=number(120, np.uint8), u=number(1, np.int8))
tables = {k: bytes_of(*dims) for k, dims in dict(b=(9, 4), c=(5, 4), d=(2, 4), e=(4,), f=(4,)).items()}
case(f'y0, m = {MS}QEmbedLayerNormalization (a, i, b, c, d, e, f, "", s, s, s, s, s, z, z, z, z, z)',
     a=whole.integers(0, 9, (2, 3)).astype(np.int32), i=whole.integers(0, 2, (2, 3)).astype(np.int32), **tables,
     s=number(0.02), z=number(120, np.uint8))

pathlib.Path(__file__).with_name("recorded.txt").write_text("\n".join(lines) + "\n")
print(sum(line.startswith("case ") for line in lines), "cases")
