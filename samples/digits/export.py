"""Makes cnn.onnx, mlp.onnx, transformer.onnx and digits.npz, which are kept beside this file; nobody
needs to run it.

    pip install torch onnx scikit-learn numpy
    python export.py

The models are a small convolutional network with batch norm, ReLU, max-pool and dropout, a perceptron
with layer norm, SiLU and dropout, and a vision transformer of two layers on patches of 2x2 pixels,
with GELU, layer norm and dropout: freshly initialised, exported by PyTorch's TorchScript exporter in
training mode. The data are the 1,797 handwritten digits of 8x8 pixels of the UCI repository (Alpaydin and Kaynak, 1998; CC BY 4.0), as
scikit-learn packages them, scaled to [0, 1] and split 1437 : 360.
"""
import pathlib

import numpy
import onnx
import torch
from onnx import numpy_helper
from sklearn.datasets import load_digits
from torch.nn import functional

here = pathlib.Path(__file__).parent


def block(inputs, outputs):
    return [
        torch.nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        torch.nn.BatchNorm2d(outputs),
        torch.nn.ReLU(),
        torch.nn.Dropout(0.1),
    ]


def network():
    return torch.nn.Sequential(
        *block(1, 16), *block(16, 32), torch.nn.MaxPool2d(2), *block(32, 64),
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(64, 10),
    )


def perceptron():
    layers = [torch.nn.Flatten()]
    for inputs in (64, 128):
        layers += [
            torch.nn.Linear(inputs, 128), torch.nn.LayerNorm(128), torch.nn.SiLU(),
            torch.nn.Dropout(0.1),
        ]
    return torch.nn.Sequential(*layers, torch.nn.Linear(128, 10))


class Layer(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.width, self.heads = width, heads
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = (
            t.reshape(-1, 16, self.heads, self.width // self.heads).transpose(1, 2)
            for t in self.qkv(self.norm1(x)).split(self.width, dim=-1)
        )
        y = functional.scaled_dot_product_attention(q, k, v, dropout_p=0.1)
        y = self.out(y.transpose(1, 2).reshape(-1, 16, self.width))
        x = x + functional.dropout(y, 0.1, self.training)
        y = self.down(functional.gelu(self.up(self.norm2(x))))
        return x + functional.dropout(y, 0.1, self.training)


class Transformer(torch.nn.Module):
    def __init__(self, width=32, heads=4):
        super().__init__()
        self.patches = torch.nn.Conv2d(1, width, 2, stride=2)
        self.places = torch.nn.Parameter(0.02 * torch.randn(1, 16, width))
        self.layers = torch.nn.Sequential(Layer(width, heads), Layer(width, heads))
        self.norm, self.head = torch.nn.LayerNorm(width), torch.nn.Linear(width, 10)

    def forward(self, image):
        x = self.patches(image).flatten(2).transpose(1, 2) + self.places
        x = self.layers(functional.dropout(x, 0.1, self.training))
        return self.head(self.norm(x).mean(dim=1))


def export(make, name):
    torch.manual_seed(0)
    model = make()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    with torch.no_grad():
        model.train()
        path = here / name
        torch.onnx.export(
            model, (torch.zeros(4, 1, 8, 8),), path, dynamo=False, opset_version=17,
            training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False,
            input_names=["image"], output_names=["logits"],
            dynamic_axes={"image": {0: "batch"}, "logits": {0: "batch"}},
        )
    # The trace steps the running statistics: put the initial ones back.
    exported = onnx.load(path)
    for tensor in exported.graph.initializer:
        if tensor.name in before:
            tensor.CopyFrom(numpy_helper.from_array(before[tensor.name].numpy(), tensor.name))
    onnx.save(exported, path)


def main():
    for make, name in (
        (network, "cnn.onnx"), (perceptron, "mlp.onnx"), (Transformer, "transformer.onnx"),
    ):
        export(make, name)

    digits = load_digits()
    images = (digits.images / 16.0).astype(numpy.float32)[:, None]
    labels = digits.target.astype(numpy.int64)
    order = numpy.random.default_rng(0).permutation(len(labels))
    train, test = order[:1437], order[1437:]
    numpy.savez_compressed(
        here / "digits.npz", image=images[train], label=labels[train],
        test_image=images[test], test_label=labels[test],
    )


if __name__ == "__main__":
    main()
