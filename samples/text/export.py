"""Makes char.onnx and text.npz, which are kept beside this file; nobody needs to run it.

    pip install torch onnx numpy
    python export.py

The model is a character transformer: two layers of causal attention and GELU, 64 wide, 4 heads,
contexts of 64 characters, dropout 0.1, freshly initialised, exported by PyTorch's TorchScript exporter
in training mode. The data are pride.txt (see README.md) in windows of 64 characters that do not
overlap, each with the character that follows every one of them; the last tenth is for testing.
"""
import pathlib

import numpy
import torch
from torch import nn
from torch.nn import functional

here = pathlib.Path(__file__).parent
CONTEXT, WIDTH, HEADS, LAYERS, DROPOUT = 64, 64, 4, 2, 0.1


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = (
            t.reshape(-1, CONTEXT, HEADS, WIDTH // HEADS).transpose(1, 2)
            for t in self.qkv(self.norm1(x)).split(WIDTH, dim=-1)
        )
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=DROPOUT)
        y = self.out(y.transpose(1, 2).reshape(-1, CONTEXT, WIDTH))
        x = x + functional.dropout(y, DROPOUT, self.training)
        y = self.down(functional.gelu(self.up(self.norm2(x))))
        return x + functional.dropout(y, DROPOUT, self.training)


class Characters(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.letters, self.places = nn.Embedding(count, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, count, bias=False)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02 if "down" not in name else 0.02 / (2 * LAYERS) ** 0.5)

    def forward(self, ids):
        x = self.letters(ids) + self.places.weight
        x = functional.dropout(x, DROPOUT, self.training)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def main():
    text = (here / "pride.txt").read_text()
    letters = sorted(set(text))
    ids = numpy.array([letters.index(c) for c in text], numpy.int64)
    count = (len(ids) - 1) // CONTEXT
    inputs = ids[: count * CONTEXT].reshape(count, CONTEXT)
    targets = ids[1 : count * CONTEXT + 1].reshape(count, CONTEXT)
    train = count - count // 10
    numpy.savez_compressed(
        here / "text.npz", ids=inputs[:train], target=targets[:train],
        test_ids=inputs[train:], test_target=targets[train:],
    )

    torch.manual_seed(0)
    model = Characters(len(letters)).train()
    with torch.no_grad():
        torch.onnx.export(
            model, (torch.from_numpy(inputs[:4]),), here / "char.onnx", dynamo=False,
            opset_version=17, training=torch.onnx.TrainingMode.TRAINING,
            do_constant_folding=False, input_names=["ids"], output_names=["logits"],
            dynamic_axes={"ids": {0: "batch"}, "logits": {0: "batch"}},
        )


if __name__ == "__main__":
    main()
