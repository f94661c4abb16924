"""Makes tests/zoo/newcomer, which the tests run: small models as newcomers export them, with their weights.

    python3 tests/zoo/newcomer_sample.py [NAME ...]        (needs what export.py needs; of these models alone)

Of each file only source lines and metadata that nobody reads are taken away. recorded.txt says, as test_newcomer.c
reads it, what the tensors are and what PyTorch computes:

    model NAME mse 1 0
    input NAME float|token LESS DIMS...     drawn by sample.py's `sequence`, in this order; the target last
    loss NUMBER                             the mean of squares; none where batch norm is lost
    weight NAME ELEMENTS WHAT               to be trained: what it is of PyTorch's, as newcomer.py says it
    constant NAME                           not to be trained: a constant, or a copy of a parameter
    grad NAME NORM PROJECTION               PyTorch's, in the file's order of elements
"""
import copy
import itertools
import pathlib
import sys
import tempfile
import zlib
from collections import OrderedDict

import numpy
import onnx
import torch
from onnx import numpy_helper
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import architectures  # noqa: E402
import export  # noqa: E402
import newcomer  # noqa: E402
import sample  # noqa: E402
import trained  # noqa: E402

there = pathlib.Path(__file__).resolve().parent / "newcomer"
KEPT = ("pkg.torch.onnx.class_hierarchy", "pkg.torch.onnx.fx_node", "pkg.torch.export.graph_signature.InputSpec.kind",
        "pkg.torch.export.ExportedProgram.graph_signature", "pkg.onnxscript.optimizer.folded_from",
        "pkg.torch.onnx.original_node_name", "pkg.torch.onnx.name_scopes")
BATCH = 4
LENGTH = 12  # with the token; a table of fewer places would look like any numbers


class Detached(nn.Module):
    """A target that no gradient shall reach, a scale taken from a weight, and a layer behind a detached input."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c, self.norm = nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 2), nn.LayerNorm(4)

    def forward(self, x):
        h = torch.tanh(self.a(x))
        t = self.b(h)
        y = self.c(h * t.detach() + self.norm((2 * h).detach()))
        return y * self.c.weight.detach().abs().mean() + t[:, :2]


class Stopped(Detached):
    """Without that scale, which folding would compute."""

    def forward(self, x):
        h = torch.tanh(self.a(x))
        t = self.b(h)
        return self.c(h * t.detach() + self.norm((2 * h).detach())) + t[:, :2] * (t.detach() @ self.a.weight)[:, :2]


class Attention(nn.Module):
    """Heads behind a token of their own, with a mask and a table of positions that are buffers."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out, self.norm = nn.Linear(8, 24), nn.Linear(8, 8), nn.LayerNorm(8)
        self.position = nn.Parameter(torch.randn(1, LENGTH, 8) * 0.1)
        self.gamma = nn.Parameter(torch.ones(8))
        self.token = nn.Parameter(torch.randn(1, 1, 8))
        angles = torch.arange(float(LENGTH))[:, None] / 100 ** (torch.arange(8) / 8)
        self.register_buffer("table", torch.sin(angles))
        self.register_buffer("mask", torch.triu(torch.full((LENGTH, LENGTH), -100.0), 1))

    def forward(self, x):
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.position + self.table
        q, k, v = self.qkv(self.norm(x)).reshape(-1, LENGTH, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        p = torch.softmax(q @ k.transpose(-2, -1) / 2.0 + self.mask, -1)
        y = (p @ v).transpose(1, 2).reshape(-1, LENGTH, 8)
        return x + self.gamma * self.out(y)


class Tied(nn.Module):
    """The head reads the embedding."""

    def __init__(self):
        super().__init__()
        self.embed, self.hidden, self.head = nn.Embedding(20, 8), nn.Linear(8, 8), nn.Linear(8, 20, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x):
        return self.head(torch.tanh(self.hidden(self.embed(x))))


class Tables(nn.Module):
    """Constants that look like weights (angles, places, a grid, an identity, weights of a bag), bounds that are trained,
    and a matrix that is used both ways."""

    def __init__(self):
        super().__init__()
        self.q, self.both = nn.Linear(8, 8), nn.Parameter(torch.randn(8, 12) * 0.3)
        self.low, self.high = nn.Parameter(-torch.rand(8)), nn.Parameter(torch.rand(8))

    def forward(self, x):
        angle = torch.arange(5.0)[:, None] * 10000.0 ** (-torch.arange(4) / 4)
        cos, sin = torch.cos(angle), torch.sin(angle)
        a, b = self.q(x).chunk(2, -1)
        y = torch.cat([a * cos - b * sin, a * sin + b * cos], -1)
        row, column = torch.meshgrid(torch.linspace(-1, 1, 5), torch.linspace(-1, 1, 8), indexing="ij")
        y = y + x * row + column * torch.sort(y, -1)[0] * torch.arange(8.0)
        y = y + (y.unsqueeze(-1) * torch.eye(8)[:, :3]).sum(-1)
        return torch.clamp(torch.tanh(y @ self.both) @ self.both.T, self.low, self.high)


class Cell(nn.Module):
    """Its first step begins with zeros, so that the product with them, and with it a share in the gradient of the
    bias, is folded."""

    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(4, 5)

    def forward(self, x):
        h = torch.zeros(x.shape[1], 5, dtype=x.dtype)
        for step in x:
            h = self.cell(step, h)
        return h


class Positions(nn.Module):
    """The first rows of a table of positions, and of a table of sines that its author holds fixed: folding looks both
    up."""

    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(16, 8), nn.Linear(8, 3)
        self.register_buffer("places", torch.arange(16))
        angles = torch.outer(torch.arange(16), 0.5 ** torch.arange(4))
        self.angles = nn.Parameter(torch.cat([angles.sin(), angles.cos()], 1), requires_grad=False)

    def forward(self, x):
        places = self.places[: x.shape[1]]
        return self.head(x * nn.functional.embedding(places, self.angles) + self.table(places))


class Parallel(nn.Module):
    """Two norms of one input: fresh, they are one node in the file."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)
        self.norm1, self.norm2 = nn.LayerNorm(8), nn.LayerNorm(8)

    def forward(self, x):
        return x + self.a(self.norm1(x)) + self.b(self.norm2(x))


class Offset(nn.Module):
    """Scales that are kept as what they differ from 1 by: fresh, folding makes the same of both."""

    def __init__(self):
        super().__init__()
        self.a, self.g1, self.g2 = nn.Linear(8, 8), nn.Parameter(torch.zeros(8)), nn.Parameter(torch.zeros(8))

    def forward(self, x):
        def normed(x, g):
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * (1 + g)
        return normed(self.a(normed(x, self.g1)), self.g2)


class Scalars(nn.Module):
    """Gates and temperatures of one number, of which folding leaves what it computed."""

    def __init__(self):
        super().__init__()
        self.a, self.epsilon, self.log_sigma = nn.Linear(8, 8), nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(()))

    def forward(self, x):
        return self.a((1 + self.epsilon) * x) * torch.exp(-self.log_sigma)


class Queries(nn.Module):
    """Learned queries look at each other before they look at x: all of that is known before the run."""

    def __init__(self):
        super().__init__()
        self.queries, self.norm = nn.Parameter(torch.randn(1, 3, 8)), nn.LayerNorm(8)
        self.own, self.look = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        q = self.queries.expand(x.shape[0], -1, -1)
        q = self.norm(q + torch.softmax(q @ q.transpose(1, 2), -1) @ self.own(q))
        return torch.softmax(self.look(q) @ x.transpose(1, 2), -1) @ x


class Bends(nn.Module):
    """One slope in two places, and another that is as large while both are fresh."""

    def __init__(self):
        super().__init__()
        self.first, self.bend, self.other = nn.Conv2d(2, 4, 3), nn.PReLU(), nn.PReLU()

    def forward(self, x):
        return self.other(self.bend(self.bend(self.first(x)).flip(1)).flip(1) - 0.1)


class Film(nn.Module):
    """Of a convolution of three axes without bias the exporter writes one, of zeros, in a shape that none has."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv3d(2, 3, (1, 3, 3), bias=False), nn.Conv3d(3, 2, (3, 1, 1))

    def forward(self, x):
        return self.last(torch.relu(self.first(x)))


class Codebook(nn.Module):
    """The nearest code takes the place of what was computed, straight through; the loss of the codes is beside it."""

    def __init__(self):
        super().__init__()
        self.encode, self.codes, self.decode = nn.Linear(4, 3), nn.Parameter(torch.randn(10, 3)), nn.Linear(3, 4)

    def forward(self, x):
        z = self.encode(x)
        q = self.codes[(z.unsqueeze(1) - self.codes).pow(2).sum(-1).argmin(-1)]
        return self.decode(z + (q - z).detach()) + (q - z.detach()).pow(2).mean(-1, keepdim=True)


class Keys(nn.Module):
    """Queries and values have a bias and keys have none, as in BEiT: zeros stand between the two."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24, bias=False), nn.Linear(8, 8)
        self.q_bias, self.v_bias = nn.Parameter(torch.zeros(8)), nn.Parameter(torch.zeros(8))
        self.register_buffer("k_bias", torch.zeros(8), persistent=False)

    def forward(self, x):
        bias = torch.cat([self.q_bias, self.k_bias, self.v_bias])
        q, k, v = nn.functional.linear(x, self.qkv.weight, bias).chunk(3, -1)
        return self.out(torch.softmax(torch.tanh(q) @ torch.tanh(k).transpose(1, 2), -1) @ v)


class Branches(nn.Module):
    """Batch norms of one input in two modules, as in FastViT: fresh, they are one node in the file."""

    def __init__(self):
        super().__init__()
        self.mixer, self.other = (nn.ModuleDict({"norm": nn.BatchNorm1d(8)}) for _ in range(2))
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        return self.second(self.first(self.mixer["norm"](x)) - (0 + self.other["norm"](x)))


class Heads(nn.Module):
    """Two heads of one input, each behind a batch norm, as in LeViT: fresh, the norms are one node in the file."""

    def __init__(self):
        super().__init__()
        self.body, self.norm = nn.Linear(8, 8), nn.BatchNorm1d(8)
        self.head, self.other = (nn.Sequential(OrderedDict(norm=nn.BatchNorm1d(8), layer=nn.Linear(8, 3))) for _ in range(2))

    def forward(self, x):
        x = torch.tanh(self.norm(torch.relu(self.body(x))))
        return self.head(x) + 2 * self.other(x)


class Memory(nn.Module):
    """Layers of which one was copied of the other look at the same: fresh, the file has its keys and values once."""

    def __init__(self):
        super().__init__()
        first = nn.MultiheadAttention(8, 2, batch_first=True)
        self.layers, self.last = nn.ModuleList([first, copy.deepcopy(first)]), nn.Linear(8, 32)

    def forward(self, x):
        memory = torch.tanh(x)
        for layer in self.layers:
            x = x + layer(x, memory, memory, need_weights=False)[0]
        return self.last(x)


class Spectral(nn.Module):
    """Norms that are iterated in each step of training, of a matrix and of a filter."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.utils.spectral_norm(nn.Conv1d(3, 4, 3)), nn.utils.spectral_norm(nn.Linear(6, 5))

    def forward(self, x):
        return self.last(torch.tanh(self.first(x)))


class Signs(nn.Module):
    """Weights of one bit, and a step of their own for each of them: straight through."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        w = self.first.weight
        w = w + (w.sign() * w.abs().mean() - w).detach()
        return self.last(torch.sigmoid(nn.functional.linear(x, w, self.first.bias)))


class Prototypes(nn.Module):
    """How like each of five rows it is; default exports hold the rows at unit length."""

    def __init__(self):
        super().__init__()
        self.first, self.rows = nn.Linear(6, 8), nn.Parameter(torch.randn(5, 8))

    def forward(self, x):
        unit = nn.functional.normalize
        return unit(self.first(x), dim=-1) @ unit(self.rows, dim=-1).T


class Triangle(nn.Module):
    """What is learned of a matrix is its lower triangle, which is put in its places in each run."""

    def __init__(self):
        super().__init__()
        self.numbers, self.last = nn.Parameter(torch.randn(10)), nn.Linear(4, 4)
        self.register_buffer("places", torch.tril_indices(4, 4))

    def forward(self, x):
        matrix = torch.zeros(4, 4, dtype=x.dtype).index_put((self.places[0], self.places[1]), self.numbers)
        return self.last(x @ matrix)


class Choices(nn.Module):
    """The likeliest of four, with the gradient of how likely it was."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        p = self.first(x).unflatten(-1, (2, 4)).softmax(-1)
        chosen = nn.functional.one_hot(p.argmax(-1), 4) + p - p.detach()
        return self.last(chosen.flatten(1))


class Centers(nn.Module):
    """Distances to what is learned; a TorchScript file has that without its name, and it may be a mean."""

    def __init__(self):
        super().__init__()
        self.centers, self.last = nn.Parameter(torch.randn(10, 4)), nn.Linear(10, 8)

    def forward(self, x):
        return self.last(torch.exp(-(x.unsqueeze(1) - self.centers.unsqueeze(0)).pow(2).sum(-1)))


class Sinks(nn.Module):
    """Scores that nothing is looked at, one a head, which start at zero: of how many they were made is not to be seen."""

    def __init__(self):
        super().__init__()
        self.first, self.last, self.sinks = nn.Linear(8, 8), nn.Linear(8, 8), nn.Parameter(torch.zeros(2))

    def forward(self, x):
        h = self.first(x).unflatten(-1, (2, 4)).transpose(1, 2)
        later = torch.ones(h.shape[2], h.shape[2]).triu(1).bool()
        scores = (h @ h.transpose(2, 3)).masked_fill(later, float("-inf"))
        scores = torch.cat([scores, self.sinks[None, :, None, None].expand(*h.shape[:3], 1)], -1)
        return self.last((scores.softmax(-1)[..., :-1] @ h).transpose(1, 2).flatten(2))


class Normed(nn.Module):
    """A table that is normalised before it is looked at, as DeBERTa's of distances."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(6, 8)
        self.first, self.second = nn.LayerNorm(8), nn.LayerNorm(8)

    def forward(self, x):
        return self.first(x) @ self.second(self.table.weight).T


class Token(nn.Module):
    """A token for each row of the batch."""

    def __init__(self):
        super().__init__()
        self.token, self.layer = nn.Parameter(torch.randn(1, 1, 16)), nn.Linear(16, 16)

    def forward(self, x):
        return self.layer(torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1))


class Places(nn.Module):
    """A table of places, for another size of image."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(16, 16), nn.Linear(16, 16)
        self.table = nn.Parameter(torch.zeros(1, 2, 2, 16))

    def forward(self, x):
        places = nn.functional.interpolate(self.table.permute(0, 3, 1, 2), size=(3, 3), mode="bilinear", align_corners=False)
        return self.last(torch.tanh(self.first(x + places.flatten(2).transpose(1, 2))))


class Shares(nn.Module):
    """So much of one layer, and the rest of the other."""

    def __init__(self):
        super().__init__()
        self.first, self.last, self.share = nn.Linear(8, 8), nn.Linear(8, 8), nn.Parameter(torch.rand(8))

    def forward(self, x):
        return self.share * self.first(x) + (1 - self.share) * self.last(x)


class Snake(nn.Module):
    """Divided by almost the frequency: fresh, both are ones, and the file has them once."""

    def __init__(self):
        super().__init__()
        self.first, self.last, self.frequency = nn.Linear(8, 8), nn.Linear(8, 8), nn.Parameter(torch.ones(8))

    def forward(self, x):
        h = self.first(x)
        return self.last(h + torch.sin(self.frequency * h) ** 2 / (self.frequency + 1e-9))


class Passed(nn.Module):
    """What comes in passes a gate that starts open: its ones were computed, and a norm's scale equals them."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.gate = nn.Linear(8, 8), nn.LayerNorm(8), nn.Parameter(torch.zeros(8))

    def forward(self, x):
        return self.norm(self.first(x) * torch.tanh(self.gate) + x * (1 - self.gate))


class Twice(nn.Module):
    """A layer that runs twice, and back by its transpose: fresh, the file has neither of the biases."""

    def __init__(self):
        super().__init__()
        self.w, self.b, self.c = nn.Parameter(torch.randn(6, 6) * 0.3), nn.Parameter(torch.zeros(6)), nn.Parameter(torch.zeros(6))

    def forward(self, x):
        for _ in range(2):
            x = torch.tanh(nn.functional.linear(x, self.w, self.b))
        return nn.functional.linear(x, self.w.T, self.c)


class Spread(nn.Module):
    """Two numbers that are repeated for each row, as the deviations of a policy."""

    def __init__(self):
        super().__init__()
        self.first, self.deviation = nn.Linear(6, 2), nn.Parameter(torch.zeros(1, 2))

    def forward(self, x):
        y = self.first(x)
        return torch.cat([y, self.deviation.expand_as(y)], 1)


class Latents(nn.Module):
    """Rows that are repeated for the batch and normalised first, as Perceiver's."""

    def __init__(self):
        super().__init__()
        self.latents, self.norm, self.last = nn.Parameter(torch.randn(3, 8)), nn.LayerNorm(8), nn.Linear(8, 8)

    def forward(self, x):
        return self.last(self.norm(self.latents.expand(x.shape[0], -1, -1))) @ x.transpose(1, 2)


class Globals(nn.Module):
    """A whole table, looked up for each row of the batch and normalised first, as the global tokens of Pegasus-X."""

    def __init__(self):
        super().__init__()
        self.table, self.norm, self.last = nn.Embedding(3, 8), nn.LayerNorm(8), nn.Linear(8, 8)

    def forward(self, x):
        return self.last(self.norm(self.table(torch.arange(3).expand(x.shape[0], -1)))) @ x.transpose(1, 2)


class Roots(nn.Module):
    """Distances, whose root a small number keeps from 0."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(4, 2)

    def forward(self, x):
        h = self.first(x).view(x.shape[0], 4, 2)
        return self.last((h * h).sum(2).add(1e-8).sqrt())


class Flipped(nn.Module):
    """A filter over, and back by itself, turned round."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv1d(3, 3, 3, padding=1)

    def forward(self, x):
        return nn.functional.conv1d(torch.tanh(self.first(x)), self.first.weight.flip(2).transpose(0, 1), padding=1)


class Positive(nn.Module):
    """Scales by what they are above zero."""

    def __init__(self):
        super().__init__()
        self.first, self.scale = nn.Linear(6, 8), nn.Parameter(torch.randn(8))

    def forward(self, x):
        return torch.tanh(self.first(x)) * self.scale.abs()


class Distances(nn.Module):
    """Waves of four lengths, which are a buffer, and what a layer makes of them: known before the run."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8, bias=False)
        self.register_buffer("lengths", 100 ** (-torch.arange(4) / 4))

    def forward(self, x):
        angles = torch.outer(torch.arange(5.0), self.lengths)
        return self.first(x) @ self.second(torch.cat([angles.sin(), angles.cos()], 1)).T


class Halves(nn.Module):
    """A mask of four numbers that is a buffer."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 3)
        self.register_buffer("chosen", torch.tensor([1.0, 0.0, 1.0, 0.0]))

    def forward(self, x):
        return self.last(torch.tanh(self.first(x * self.chosen)) + x)


class Quantised(nn.Module):
    """As trained for few bits: 8 of what comes in, a weight's by rows, 7 between; scales that make quotients exact."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        self.register_buffer("scale", 2.0 ** -torch.randint(8, 10, (8,)).float())
        self.register_buffer("zero", torch.zeros(8, dtype=torch.int32), persistent=False)

    def forward(self, x):
        x = torch.fake_quantize_per_tensor_affine(x, 2 ** -8, -10, -128, 127)
        w = torch.fake_quantize_per_tensor_affine(self.first.weight, 2 ** -9, 0, -128, 127)
        h = torch.tanh(nn.functional.linear(x, w, self.first.bias))
        h = torch.fake_quantize_per_tensor_affine(h, 2 ** -7, 60, 0, 127)
        w = torch.fake_quantize_per_channel_affine(self.second.weight, self.scale.float(), self.zero, 0, -128, 127)
        return self.last(torch.tanh(nn.functional.linear(h, w, self.second.bias)))


models = {
    "detached": (Detached, {"x": ("float", 3)}, ["trained-dynamo-plain"]),
    "stopped": (Stopped, {"x": ("float", 3)}, ["trained-default"]),
    "perceptron": (newcomer.mlp, {"x": ("float", 6, 12)}, ["trained-default", "trained-ts"]),
    "convolutions": (newcomer.Convolutions, {"x": ("float", 2, 8, 8)}, [
        "fresh-default", "trained-default", "trained-ts", "fresh-ts", "fresh-ts-unfolded", "trained-dynamo-advised",
        "trained-ts-advised"]),
    "recurrent": (newcomer.recurrent(nn.LSTM), {"x": ("int", 50, 7)},
                  ["trained-default", "trained-ts"]),
    "tied": (Tied, {"x": ("int", 20, 5)}, ["trained-default", "trained-ts"]),
    "attention": (Attention, {"x": ("float", LENGTH - 1, 8)}, ["trained-default", "trained-ts", "trained-ts-advised"]),
    "tables": (Tables, {"x": ("float", 5, 8)}, ["trained-default"]),
    "cell": (Cell, {"x": ("float", 3, 4)}, ["trained-default"]),
    "positions": (Positions, {"x": ("float", 7, 8)}, ["trained-default"]),
    "parallel": (Parallel, {"x": ("float", 8)}, ["fresh-default"]),
    "offset": (Offset, {"x": ("float", 8)}, ["fresh-default"]),
    "scalars": (Scalars, {"x": ("float", 8)}, ["fresh-default", "trained-default", "trained-ts"]),
    "queries": (Queries, {"x": ("float", 5, 8)}, ["trained-default"]),
    "bends": (Bends, {"x": ("float", 2, 6, 6)}, ["fresh-ts", "trained-ts"]),
    "codebook": (Codebook, {"x": ("float", 4)}, ["trained-dynamo-plain", "trained-default", "trained-ts"]),
    "keys": (Keys, {"x": ("float", 5, 8)}, ["fresh-ts", "trained-ts"]),
    "branches": (Branches, {"x": ("float", 8)}, ["fresh-default"]),
    "heads": (Heads, {"x": ("float", 8)}, ["fresh-default"]),
    "memory": (Memory, {"x": ("float", 3, 8)}, ["fresh-default"]),
    "spectral": (Spectral, {"x": ("float", 3, 8)}, ["trained-dynamo-advised", "trained-ts"]),
    "signs": (Signs, {"x": ("float", 6)}, ["trained-ts"]),
    "prototypes": (Prototypes, {"x": ("float", 6)}, ["trained-default"]),
    "triangle": (Triangle, {"x": ("float", 4)}, ["trained-ts"]),
    "choices": (Choices, {"x": ("float", 6)}, ["trained-ts"]),
    "centers": (Centers, {"x": ("float", 4)}, ["trained-ts"]),
    "sinks": (Sinks, {"x": ("float", 3, 8)}, ["fresh-default"]),
    "normed": (Normed, {"x": ("float", 5, 8)}, ["fresh-default"]),
    "quantised": (Quantised, {"x": ("float", 6)}, ["trained-default", "trained-ts"]),
    "token": (Token, {"x": ("float", 3, 16)}, ["trained-default"]),
    "places": (Places, {"x": ("float", 9, 16)}, ["trained-default", "fresh-ts"]),
    "shares": (Shares, {"x": ("float", 8)}, ["trained-default", "trained-ts"]),
    "snake": (Snake, {"x": ("float", 8)}, ["fresh-default"]),
    "passed": (Passed, {"x": ("float", 8)}, ["fresh-ts"]),
    "twice": (Twice, {"x": ("float", 6)}, ["fresh-default"]),
    "spread": (Spread, {"x": ("float", 6)}, ["trained-default"]),
    "latents": (Latents, {"x": ("float", 5, 8)}, ["trained-default"]),
    "globals": (Globals, {"x": ("float", 5, 8)}, ["trained-default"]),
    "roots": (Roots, {"x": ("float", 6)}, ["trained-default", "trained-dynamo-plain"]),
    "flipped": (Flipped, {"x": ("float", 3, 7)}, ["trained-default"]),
    "positive": (Positive, {"x": ("float", 6)}, ["trained-default"]),
    "distances": (Distances, {"x": ("float", 8)}, ["trained-default", "trained-ts-unfolded"]),
    "halves": (Halves, {"x": ("float", 4)}, ["trained-ts"]),
    "film": (Film, {"x": ("float", 2, 4, 5, 5)}, ["trained-dynamo-plain"]),
}
said = ("cell", "offset", "scalars", "queries", "keys", "branches", "heads", "memory", "centers", "sinks", "prototypes", "triangle", "token", "places", "shares", "snake", "passed", "spread", "latents", "globals", "roots",
        "flipped", "positive", "distances", "halves")  # of which nothing is recorded
# and of a codebook whose file has lost a detach(), and of norms that only training iterates
untold = [("codebook", "trained-default"), ("codebook", "trained-ts"), ("spectral", "trained-ts")]


def bare(path, to):
    """Without source lines, which name a machine's folders; the weights lie in the file."""
    model = onnx.load(path)
    things = [model.graph, *model.graph.node, *model.graph.value_info, *model.graph.input, *model.graph.output,
              *model.graph.initializer, *model.functions]
    things += [n for f in model.functions for n in f.node]
    for thing in [model, *things]:
        props = [p for p in thing.metadata_props if p.key in KEPT]
        del thing.metadata_props[:]
        thing.metadata_props.extend(props)
        thing.doc_string = ""
    onnx.save(model, to)
    return model


def drawn(row):
    lines, tensors = [], {}
    for i, (name, (kind, *dims)) in enumerate(row.inputs.items()):
        less = dims.pop(0) if kind == "int" else 0
        kind = "token" if kind == "int" else kind
        tensors[name] = torch.from_numpy(sample.drawn(kind, less, [BATCH, *dims], i + 1))
        lines.append(f"input {name} {kind} {less} " + " ".join(map(str, [BATCH, *dims])))
    return lines, tensors


def computed(row, module, tensors):
    """Loss and gradients in float64, dropout off."""
    module = copy.deepcopy(module).double().train()
    given = [t.double() if t.is_floating_point() else t for t in tensors.values()]
    with export.without_dropout():
        y = module(*given)
    target = torch.from_numpy(sample.drawn("float", 0, list(y.shape), 99))
    loss = nn.functional.mse_loss(y, target.double())
    loss.backward()
    grads = {n: p.grad.numpy() if p.grad is not None else numpy.zeros(1) for n, p in module.named_parameters()}
    return "input target float 0 " + " ".join(map(str, y.shape)), float(loss), grads


def one(name, form, folder):
    make, inputs, _ = models[name]
    row = architectures.Row(name, "torch", make, inputs, positional=True)
    state, call = form.split("-", 1)
    files = {}
    for s in newcomer.weights:
        files[s] = folder / f"{name}-{s}-{call}.onnx"
        module = newcomer.made(row, s)
        lines, tensors = drawn(row)
        newcomer.written(row, module, tensors, files[s], call)
        if s == state:
            kept = module, newcomer.described(row, module, tensors)
    module, facts = kept
    model = bare(files[state], there / f"{name}-{form}.onnx")
    values = {n: t.detach().numpy() for n, t in [*module.named_parameters(), *module.named_buffers()]}
    known = trained.Known(values, facts)
    constants = trained.constants_of(files["trained" if state == "fresh" else "fresh"])
    target, loss, grads = computed(row, module, tensors)
    weights, taken, fixed = [], set(), []
    tensors = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    for n, t in sorted(tensors.items(), key=lambda item: item[0] not in known.parameters):
        if t.dtype != numpy.float32:
            continue
        told = known.told(n, t, taken, constants)
        if told["is"] == "computed" and t.size == 1:
            continue  # made of what training changes, but nobody would train it
        copied = told["is"] == "transposed" and told["of"][0] in taken
        if copied or told["is"] not in (*trained.PARAMETERS, "computed"):
            fixed.append(n)
            continue
        taken |= set(told["of"])
        weights.append((n, t, told))
    lost = any(told["is"] in ("scaled", "computed") for *_, told in weights)
    lines = [f"model {name}-{form} mse 1 0", *lines, target] + ([] if lost else [f"loss {loss:.9g}"])
    lines += [f"weight {n} {t.size} {told['is']}" for n, t, told in weights] + [f"constant {n}" for n in fixed]
    for n in sorted(grads) if name in ("parallel", "normed", "twice") else []:
        if n not in tensors:  # the exporter made it one with another
            weights.append((n, values[n], {"is": "same", "of": [n]}))
    for n, t, told in weights:
        if lost or told["is"] not in ("same", "transposed", "reshaped", "repeated"):
            continue
        g = grads[told["of"][0]]
        g = g.T if told["is"] == "transposed" and g.size > 1 else g
        r = sample.signed(g.size, 7).astype(numpy.float64)
        lines.append(f"grad {n} {numpy.linalg.norm(g):.9g} {(g.ravel() * r).sum():.9g}")
    print(f"{name}-{form:28} {(there / f'{name}-{form}.onnx').stat().st_size} bytes", flush=True)
    return lines


def kept(names):
    """Lines of the models that are not made again."""
    lines, other = [], False
    for line in (there / "recorded.txt").read_text().splitlines():
        other = line.split()[1].split("-")[0] not in names if line.startswith("model ") else other
        lines += [line] if other else []
    return lines


def main():
    export.warnings.filterwarnings("ignore")
    export.logging.disable(export.logging.WARNING)
    torch.set_num_threads(1)
    there.mkdir(exist_ok=True)
    names = sys.argv[1:] or list(models)
    lines = kept(names) if sys.argv[1:] else []
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            for form in models[name][-1]:
                recorded = one(name, form, pathlib.Path(folder))
                lines += [] if name in said or (name, form) in untold else recorded
    (there / "recorded.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
