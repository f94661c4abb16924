"""Small modules unlike the zoo's architectures, as people write them who never train from ONNX: rows for newcomer.py.

Each has what an exporter may lose or a reader may take for something else: towers that are run twice, gates and
temperatures of one number, tables and filters that are buffers, weights that are computed of parameters, tied ones.
"""
import copy
import math
import pathlib
import sys

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import architectures  # noqa: E402

names = []


def row(name, inputs, loss="mse", axis=1):
    """Of the class below it; inputs as architectures.Row has them."""

    def take(make):
        architectures.add(architectures.Row(name, "torch", make, inputs, loss, axis, positional=True))
        names.append(name)
        return make

    return take


# ---- graphs, sets, tables ----


@row("graph_dense", {"x": ("float", 6, 5), "adjacency": ("float", 6, 6)})
class GraphDense(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(5, 8), nn.Linear(8, 3)
        self.source, self.target = nn.Parameter(torch.randn(8, 1)), nn.Parameter(torch.randn(8, 1))

    def forward(self, x, adjacency):
        mask = (adjacency > 0).float() + torch.eye(6)
        h = self.first(x)
        scores = functional.leaky_relu(h @ self.source + (h @ self.target).transpose(1, 2), 0.2)
        h = torch.softmax(scores.masked_fill(mask == 0, -1e9), -1) @ h
        degree = mask.sum(-1, keepdim=True).rsqrt()
        return self.second(degree * (mask @ (degree * functional.elu(h))))


@row("graph_edges", {"x": ("float", 5), "edges": ("int", 4, 2)})
class GraphEdges(nn.Module):
    def __init__(self):
        super().__init__()
        self.message, self.update = nn.Linear(10, 8), nn.GRUCell(8, 5)
        self.epsilon = nn.Parameter(torch.zeros(1))

    def forward(self, x, edges):
        for _ in range(2):
            told = torch.relu(self.message(torch.cat([x[edges[:, 0]], x[edges[:, 1]]], -1)))
            x = self.update(torch.zeros(4, 8).index_add(0, edges[:, 1], told), (1 + self.epsilon) * x)
        return x


@row("point_net", {"x": ("float", 3, 16)}, "cross-entropy")
class PointNet(nn.Module):
    """Turns its points by a matrix that it computes, as what is added to the identity."""

    def __init__(self):
        super().__init__()
        self.turn = nn.Sequential(nn.Conv1d(3, 8, 1), nn.ReLU(), nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(8, 9))
        self.each = nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU())
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        turned = self.turn(x).view(-1, 3, 3) + torch.eye(3)
        return self.head(self.each(torch.bmm(turned, x)).max(2)[0])


@row("recommender", {"user": ("int", 20), "items": ("int", 30, 6), "dense": ("float", 4)}, "mse")
class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        self.user, self.items = nn.Embedding(20, 8), nn.EmbeddingBag(30, 8, mode="mean")
        self.user_bias, self.global_bias = nn.Embedding(20, 1), nn.Parameter(torch.zeros(1))
        self.bottom = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
        self.top = nn.Linear(8 + 3, 1)
        self.register_buffer("first", torch.tensor([0, 0, 1]))
        self.register_buffer("second", torch.tensor([1, 2, 2]))

    def forward(self, user, items, dense):
        d = self.bottom(dense)
        all = torch.stack([d, self.user(user), self.items(items)], 1)
        products = torch.bmm(all, all.transpose(1, 2))[:, self.first, self.second]
        return self.top(torch.cat([d, products], 1)) + self.user_bias(user) + self.global_bias


@row("tabular", {"category": ("int", 7, 3), "x": ("float", 4)}, "cross-entropy")
class Tabular(nn.Module):
    """Categories of three columns lie in one table, each behind its offset; numbers times vectors of their own."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(21, 8)
        self.register_buffer("offset", torch.tensor([0, 7, 14]))
        self.scale, self.shift = nn.Parameter(torch.randn(4, 8)), nn.Parameter(torch.zeros(4, 8))
        self.token = nn.Parameter(torch.zeros(1, 1, 8))
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True, activation="gelu")
        self.head = nn.Linear(8, 3)

    def forward(self, category, x):
        numbers = x.unsqueeze(-1) * self.scale + self.shift
        tokens = torch.cat([self.token.expand(x.shape[0], -1, -1), self.table(category + self.offset), numbers], 1)
        return self.head(self.layer(tokens)[:, 0])


# ---- sound ----


@row("vocoder", {"x": ("float", 6, 12)})
class Vocoder(nn.Module):
    """Weight norm as it was and as it is, behind transposed convolutions and dilated ones."""

    def __init__(self):
        super().__init__()
        self.before = nn.utils.weight_norm(nn.Conv1d(6, 8, 7, padding=3))
        self.up = parametrizations.weight_norm(nn.ConvTranspose1d(8, 4, 4, 2, 1))
        self.blocks = nn.ModuleList(parametrizations.weight_norm(
            nn.Conv1d(4, 4, 3, padding=d, dilation=d)) for d in (1, 3))
        self.alpha = nn.Parameter(torch.zeros(4, 1))
        self.after = nn.Conv1d(4, 1, 7, padding=3)

    def forward(self, x):
        x = self.up(functional.leaky_relu(self.before(x), 0.1))
        for block in self.blocks:
            x = x + block(x + torch.sin(x * self.alpha.exp()).pow(2) / (self.alpha.exp() + 1e-9))
        return torch.tanh(self.after(x))


@row("critic", {"x": ("float", 1, 40)})
class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        spectral = parametrizations.spectral_norm
        self.layers = nn.Sequential(
            spectral(nn.Conv1d(1, 8, 5, 2)), nn.LeakyReLU(0.2), spectral(nn.Conv1d(8, 8, 5, 2, groups=4)),
            nn.LeakyReLU(0.2), nn.Flatten(), spectral(nn.Linear(56, 1)))

    def forward(self, x):
        return self.layers(x)


@row("gated_waves", {"x": ("float", 4, 20)})
class GatedWaves(nn.Module):
    """Causal and dilated, with a gate; the sum of what is skipped."""

    def __init__(self):
        super().__init__()
        self.gates = nn.ModuleList(nn.Conv1d(4, 8, 2, dilation=d) for d in (1, 2, 4))
        self.skips = nn.ModuleList(nn.Conv1d(4, 6, 1) for _ in range(3))
        self.norm = nn.GroupNorm(2, 6)
        self.head = nn.Conv1d(6, 3, 1, bias=False)

    def forward(self, x):
        total = 0
        for gate, skip in zip(self.gates, self.skips):
            a, b = gate(functional.pad(x, (gate.dilation[0], 0))).chunk(2, 1)
            y = torch.tanh(a) * torch.sigmoid(b)
            total, x = total + skip(y), x + y
        return self.head(torch.relu(self.norm(total)))


@row("spectrogram", {"wave": ("float", 128)}, "cross-entropy")
class Spectrogram(nn.Module):
    """A Fourier transform and a filter bank that are buffers, then what is learned."""

    def __init__(self):
        super().__init__()
        angle = 2 * math.pi * torch.outer(torch.arange(17), torch.arange(32)) / 32
        window = torch.hann_window(32)
        self.register_buffer("transform", torch.cat([angle.cos(), angle.sin()]).mul(window).unsqueeze(1))
        self.register_buffer("bank", torch.relu(1 - (torch.arange(17)[:, None] - torch.linspace(2, 15, 6)).abs() / 3))
        self.norm, self.conv, self.head = nn.BatchNorm1d(6), nn.Conv1d(6, 8, 3), nn.Linear(8, 4)

    def forward(self, wave):
        parts = functional.conv1d(wave.unsqueeze(1), self.transform, stride=8)
        power = parts[:, :17].pow(2) + parts[:, 17:].pow(2)
        x = torch.log(power.transpose(1, 2) @ self.bank + 1e-6).transpose(1, 2)
        return self.head(torch.relu(self.conv(self.norm(x))).mean(-1))


# ---- pictures ----


@row("autoencoder", {"x": ("float", 1, 12, 12)})
class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 6, 3, 2, 1), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 8, 3, 2, 1), nn.ELU(),
            nn.ConvTranspose2d(8, 6, 3, 2, 1, output_padding=1), nn.BatchNorm2d(6), nn.ReLU(),
            nn.ConvTranspose2d(6, 1, 3, 2, 1, output_padding=1), nn.Sigmoid())

    def forward(self, x):
        return self.layers(x)


@row("variational", {"x": ("float", 20), "noise": ("float", 3)})
class Variational(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode, self.mean, self.spread = nn.Linear(20, 12), nn.Linear(12, 3), nn.Linear(12, 3)
        self.decode = nn.Sequential(nn.Linear(3, 12), nn.Softplus(), nn.Linear(12, 20))
        self.log_sigma = nn.Parameter(torch.zeros(()))

    def forward(self, x, noise):
        h = torch.tanh(self.encode(x))
        return self.decode(self.mean(h) + noise * torch.exp(0.5 * self.spread(h))) * torch.exp(-self.log_sigma)


@row("u_net", {"x": ("float", 2, 16, 16)}, "cross-entropy")
class UNet(nn.Module):
    def __init__(self):
        super().__init__()

        def twice(a, b):
            return nn.Sequential(nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU(),
                                 nn.Conv2d(b, b, 3, padding=1), nn.InstanceNorm2d(b, affine=True), nn.ReLU())

        self.down, self.low, self.up = twice(2, 6), twice(6, 8), twice(12, 6)
        self.widen, self.head = nn.ConvTranspose2d(8, 6, 2, 2), nn.Conv2d(6, 3, 1)

    def forward(self, x):
        a = self.down(x)
        b = self.low(functional.max_pool2d(a, 2))
        y = self.head(self.up(torch.cat([a, self.widen(b)], 1)))
        return y + functional.interpolate(b[:, :3], scale_factor=2, mode="bilinear", align_corners=False)


@row("super_resolution", {"x": ("float", 3, 8, 8)})
class SuperResolution(nn.Module):
    """What is learned is added to the picture made larger; its mean is a buffer, its last layers share a bend."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.4488, 0.4371, 0.4040]).view(1, 3, 1, 1))
        self.first, self.last = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 12, 3, padding=1)
        self.bend, self.scale = nn.PReLU(), nn.Parameter(torch.full((1,), 0.1))

    def forward(self, x):
        y = self.bend(self.first(x - self.mean))
        y = functional.pixel_shuffle(self.last(self.bend(y)), 2)
        return functional.interpolate(x, scale_factor=2, mode="bicubic") + self.scale * y + self.mean


@row("norms", {"x": ("float", 4, 8, 8)}, "cross-entropy")
class Norms(nn.Module):
    """All kinds of them, with what they learn and without."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1) for _ in range(6))
        self.norms = nn.ModuleList([
            nn.GroupNorm(2, 4), nn.InstanceNorm2d(4, affine=True), nn.InstanceNorm2d(4), nn.LocalResponseNorm(3),
            nn.BatchNorm2d(4, affine=False), nn.LayerNorm([4, 8, 8])])
        self.root, self.plain, self.head = nn.RMSNorm(4), nn.LayerNorm(4, elementwise_affine=False), nn.Linear(4, 3)

    def forward(self, x):
        for conv, norm in zip(self.convs, self.norms):
            x = x + torch.relu(norm(conv(x)))
        return self.head(self.plain(x.mean((2, 3))) + self.root(x.amax((2, 3))))


@row("standardised", {"x": ("float", 3, 8, 8)}, "cross-entropy")
class Standardised(nn.Module):
    """Weights that lose their mean and spread in each call, and rows of unit length under a learned temperature."""

    def __init__(self):
        super().__init__()
        self.conv, self.gain = nn.Conv2d(3, 6, 3), nn.Parameter(torch.ones(6, 1, 1, 1))
        self.classes, self.temperature = nn.Parameter(torch.randn(5, 6)), nn.Parameter(torch.tensor(10.0))

    def forward(self, x):
        spread, mean = torch.var_mean(self.conv.weight, (1, 2, 3), keepdim=True, correction=0)
        weight = (self.conv.weight - mean) * torch.rsqrt(spread * 27 + 1e-4) * self.gain
        x = torch.relu(functional.conv2d(x, weight, self.conv.bias)).mean((2, 3))
        return self.temperature * functional.normalize(x, dim=1) @ functional.normalize(self.classes, dim=1).T


@row("filters", {"x": ("float", 1, 12, 12)}, "cross-entropy")
class Filters(nn.Module):
    """Sobel's filters, a blur and a whitening are buffers; borders as pictures have them."""

    def __init__(self):
        super().__init__()
        sobel = torch.tensor([[1.0, 0, -1], [2, 0, -2], [1, 0, -1]])
        self.register_buffer("sobel", torch.stack([sobel, sobel.T]).unsqueeze(1))
        row = torch.tensor([1.0, 3, 3, 1]) / 8
        self.register_buffer("blur", torch.outer(row, row).expand(4, 1, 4, 4).clone())
        self.round = nn.Conv2d(2, 4, 3, padding=1, padding_mode="circular")
        self.mirror = nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect", groups=4)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        x = self.mirror(torch.relu(self.round(functional.conv2d(x, self.sobel, padding=1))))
        return self.head(functional.conv2d(x, self.blur, stride=2, groups=4).mean((2, 3)))


@row("transformer_of_space", {"x": ("float", 1, 12, 12)}, "cross-entropy")
class TransformerOfSpace(nn.Module):
    def __init__(self):
        super().__init__()
        self.where = nn.Sequential(nn.Flatten(), nn.Linear(144, 8), nn.ReLU(), nn.Linear(8, 6))
        self.where[3].weight.data.zero_()
        self.where[3].bias.data.copy_(torch.tensor([1.0, 0, 0, 0, 1, 0]))
        self.conv, self.head = nn.Conv2d(1, 6, 5), nn.LazyLinear(4)
        self.head(torch.zeros(1, 96))

    def forward(self, x):
        grid = functional.affine_grid(self.where(x).view(-1, 2, 3), [x.shape[0], 1, 12, 12], align_corners=False)
        x = functional.grid_sample(x, grid, align_corners=False)
        return self.head(functional.max_pool2d(torch.relu(self.conv(x)), 2).flatten(1))


@row("video", {"x": ("float", 2, 6, 8, 8)}, "cross-entropy")
class Video(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv3d(2, 4, (1, 3, 3), bias=False), nn.BatchNorm3d(4), nn.ReLU(), nn.Conv3d(4, 6, (3, 1, 1)),
            nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Dropout(0.3), nn.Linear(6, 3))

    def forward(self, x):
        return self.layers(x)


# ---- towers, experts, weights that are shared or computed ----


@row("siamese", {"a": ("float", 3, 8, 8), "b": ("float", 3, 8, 8)}, "mse")
class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.tower = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(216, 8))
        self.head = nn.Linear(8, 1)

    def forward(self, a, b):
        a, b = self.tower(a), self.tower(b)
        return self.head((a - b).abs()) + functional.cosine_similarity(a, b, 1).unsqueeze(1)


@row("experts", {"x": ("float", 5, 8)})
class Experts(nn.Module):
    """The two best of four, each of all rows, weighted by a gate."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(8, 4, bias=False)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(8, 12), nn.GELU(), nn.Linear(12, 8)) for _ in range(4))

    def forward(self, x):
        best, which = torch.topk(torch.softmax(self.gate(x), -1), 2, -1)
        weight = torch.zeros(*x.shape[:-1], 4).scatter(-1, which, best / best.sum(-1, keepdim=True))
        return sum(weight[..., i, None] * expert(x) for i, expert in enumerate(self.experts))


@row("experts_stacked", {"x": ("float", 5, 8)})
class ExpertsStacked(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Parameter(torch.randn(8, 3) * 0.3)
        self.first, self.second = nn.Parameter(torch.randn(3, 8, 12) * 0.3), nn.Parameter(torch.randn(3, 12, 8) * 0.3)
        self.bias = nn.Parameter(torch.zeros(3, 1, 12))

    def forward(self, x):
        h = functional.silu(torch.einsum("bti,eio->beto", x, self.first) + self.bias)
        return torch.einsum("beto,eoi,bte->bti", h, self.second, torch.softmax(x @ self.gate, -1))


@row("tied_both_ways", {"ids": ("int", 20, 5)}, "cross-entropy", 2)
class TiedBothWays(nn.Module):
    """Embedding and head are one, and so are the layer down and, transposed, the layer up."""

    def __init__(self):
        super().__init__()
        self.embed, self.down, self.norm = nn.Embedding(20, 8, padding_idx=0), nn.Linear(8, 4), nn.LayerNorm(8)
        self.up_bias, self.head_bias = nn.Parameter(torch.zeros(8)), nn.Parameter(torch.zeros(20))

    def forward(self, ids):
        h = self.embed(ids) * math.sqrt(8)
        h = functional.linear(torch.relu(self.down(h)), self.down.weight.T, self.up_bias)
        return functional.linear(self.norm(h), self.embed.weight, self.head_bias)


@row("again_and_again", {"x": ("float", 6)})
class AgainAndAgain(nn.Module):
    """One block four times, with a step that is learned and starts at zero; a mixture of what came of each."""

    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 6))
        self.step, self.mixture = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(4))

    def forward(self, x):
        kept = []
        for _ in range(4):
            x = x + self.step * self.block(x) + 0.1 * torch.tanh(x)
            kept.append(x)
        return (torch.softmax(self.mixture, 0)[:, None, None] * torch.stack(kept)).sum(0)


@row("hyper_network", {"x": ("float", 5), "which": ("float", 3)})
class HyperNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Linear(3, 30), nn.Linear(3, 6)
        self.film, self.both, self.head = nn.Linear(3, 12), nn.Bilinear(6, 3, 4), nn.Linear(4, 2)

    def forward(self, x, which):
        h = torch.bmm(self.weight(which).view(-1, 6, 5), x.unsqueeze(2)).squeeze(2) + self.bias(which)
        scale, shift = self.film(which).chunk(2, 1)
        return self.head(torch.relu(self.both((1 + scale) * h + shift, which)))


@row("codebook", {"x": ("float", 6, 4)})
class Codebook(nn.Module):
    """The nearest code of a table takes the place of what was computed, straight through."""

    def __init__(self):
        super().__init__()
        self.encode, self.codes, self.decode = nn.Linear(4, 3), nn.Embedding(10, 3), nn.Linear(3, 4)

    def forward(self, x):
        z = self.encode(x)
        distance = z.pow(2).sum(-1, keepdim=True) - 2 * z @ self.codes.weight.T + self.codes.weight.pow(2).sum(-1)
        q = self.codes(distance.argmin(-1))
        return self.decode(z + (q - z).detach()) + (q - z.detach()).pow(2).mean(-1, keepdim=True)


@row("waves_of_place", {"x": ("float", 2)})
class WavesOfPlace(nn.Module):
    """Random frequencies that are a buffer, and layers of sines."""

    def __init__(self):
        super().__init__()
        self.register_buffer("frequencies", torch.randn(2, 8))
        self.first, self.second, self.head = nn.Linear(16, 12), nn.Linear(12, 12), nn.Linear(12, 3)

    def forward(self, x):
        angle = 2 * math.pi * x @ self.frequencies
        x = torch.cat([angle.sin(), angle.cos()], -1)
        return self.head(torch.sin(30 * self.second(torch.sin(30 * self.first(x)))))


@row("splines", {"x": ("float", 4)})
class Splines(nn.Module):
    """Curves on each edge, whose knots are a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("knots", torch.linspace(-2, 2, 9).expand(4, 9).contiguous())
        self.base, self.curve = nn.Parameter(torch.randn(3, 4) * 0.5), nn.Parameter(torch.randn(3, 4, 7) * 0.1)
        self.scale = nn.Parameter(torch.ones(3, 4))

    def forward(self, x):
        knots, at = self.knots, x.unsqueeze(-1)
        b = ((at >= knots[:, :-1]) & (at < knots[:, 1:])).float()
        b = ((at - knots[:, :-2]) / (knots[:, 1:-1] - knots[:, :-2]) * b[..., :-1] +
             (knots[:, 2:] - at) / (knots[:, 2:] - knots[:, 1:-1]) * b[..., 1:])
        y = functional.linear(functional.silu(x), self.base)
        return y + functional.linear(b.flatten(1), (self.curve * self.scale.unsqueeze(-1)).flatten(1))


# ---- sequences ----


@row("sequence_to_sequence", {"source": ("int", 20, 6), "target": ("int", 20, 4)}, "cross-entropy", 2)
class SequenceToSequence(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 8, padding_idx=0)
        self.encoder, self.cell = nn.GRU(8, 6, batch_first=True, bidirectional=True), nn.GRUCell(8 + 12, 12)
        self.start, self.query = nn.Linear(12, 12), nn.Linear(12, 12, bias=False)
        self.value, self.head = nn.Parameter(torch.randn(12)), nn.Linear(24, 20)

    def forward(self, source, target):
        states, last = self.encoder(self.embed(source))
        h, out = torch.tanh(self.start(torch.cat([last[0], last[1]], 1))), []
        for t in range(4):
            scores = torch.tanh(states + self.query(h).unsqueeze(1)) @ self.value
            context = (torch.softmax(scores, 1).unsqueeze(2) * states).sum(1)
            h = self.cell(torch.cat([self.embed(target[:, t]), context], 1), h)
            out.append(self.head(torch.cat([h, context], 1)))
        return torch.stack(out, 1)


@row("started_states", {"x": ("float", 5, 4)})
class StartedStates(nn.Module):
    """States that are learned start a network of layers of other widths; one of them projects."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LSTM(4, 6, batch_first=True), nn.RNN(6, 5, 2, batch_first=True, nonlinearity="relu")
        self.h, self.c = nn.Parameter(torch.zeros(1, 1, 6)), nn.Parameter(torch.zeros(1, 1, 6))
        self.head = nn.Linear(5, 2)

    def forward(self, x):
        h, c = (s.expand(-1, x.shape[0], -1).contiguous() for s in (self.h, self.c))
        return self.head(self.second(self.first(x, (h, c))[0])[0][:, -1])


@row("conv_lstm", {"x": ("float", 3, 2, 6, 6)})
class ConvLSTM(nn.Module):
    """Weights of the peepholes are as large as the picture and start at zero."""

    def __init__(self):
        super().__init__()
        self.gates, self.head = nn.Conv2d(2 + 4, 16, 3, padding=1), nn.Conv2d(4, 1, 1)
        self.peep = nn.Parameter(torch.zeros(1, 4, 6, 6))

    def forward(self, x):
        h = c = torch.zeros(x.shape[0], 4, 6, 6)
        for t in range(3):
            i, f, o, g = self.gates(torch.cat([x[:, t], h], 1)).chunk(4, 1)
            c = torch.sigmoid(f + self.peep * c) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        return self.head(h)


@row("labelled_path", {"x": ("float", 5, 4)})
class LabelledPath(nn.Module):
    """The forward of a conditional random field: scores of transitions, and of beginning and end."""

    def __init__(self):
        super().__init__()
        self.emit, self.transitions = nn.Linear(4, 3), nn.Parameter(torch.randn(3, 3) * 0.1)
        self.begin, self.end = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(3))

    def forward(self, x):
        scores = self.emit(x)
        alpha = self.begin + scores[:, 0]
        for t in range(1, 5):
            alpha = torch.logsumexp(alpha.unsqueeze(2) + self.transitions, 1) + scores[:, t]
        return torch.logsumexp(alpha + self.end, 1, keepdim=True)


@row("queries", {"x": ("float", 6, 8)})
class Queries(nn.Module):
    """Learned queries look into a memory, with keys of their own, and past what is masked."""

    def __init__(self):
        super().__init__()
        self.queries, self.places = nn.Parameter(torch.randn(1, 3, 8)), nn.Parameter(torch.zeros(1, 6, 8))
        self.look = nn.MultiheadAttention(8, 2, batch_first=True, add_bias_kv=True)
        self.layer = nn.TransformerDecoderLayer(8, 2, 16, 0.0, batch_first=True)
        self.register_buffer("mask", torch.triu(torch.full((3, 3), float("-inf")), 1))
        self.gate = nn.Parameter(torch.tensor(0.0))

    def forward(self, x):
        q = self.queries.expand(x.shape[0], -1, -1)
        y = self.layer(q, x + self.places, tgt_mask=self.mask)
        return y + torch.tanh(self.gate) * self.look(y, x, x, need_weights=False)[0]


# ---- layers that begin with equal weights: copied of one another, or tied ----


@row("copied_layers", {"x": ("float", 6, 8)})
class CopiedLayers(nn.Module):
    """PyTorch's own encoder is made of copies; a recurrent layer and a filter are copied, a projection is tied."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.first = nn.GRU(8, 8, batch_first=True)
        self.second = copy.deepcopy(self.first)
        self.filters = nn.ModuleList(copy.deepcopy(m) for m in [nn.Conv1d(8, 8, 3, padding=1)] * 2)
        self.into, self.out = nn.Linear(8, 8), nn.Linear(8, 8)
        self.out.weight = self.into.weight

    def forward(self, x):
        y = self.second(self.first(self.encoder(self.into(x)))[0])[0].transpose(1, 2)
        for conv in self.filters:
            y = torch.tanh(conv(y))
        return self.out(y.transpose(1, 2))
