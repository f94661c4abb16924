"""Makes cnn.onnx and digits.npz, which are kept beside this file; nobody needs to run it.

    pip install torch onnx scikit-learn numpy
    python export.py

The model is a small convolutional network with batch norm, ReLU, max-pool and dropout, freshly
initialised, exported by PyTorch's TorchScript exporter in training mode. The data are the 1,797
handwritten digits of 8x8 pixels of the UCI repository (Alpaydin and Kaynak, 1998; CC BY 4.0), as
scikit-learn packages them, scaled to [0, 1] and split 1437 : 360.
"""
import pathlib

import numpy
import torch
from sklearn.datasets import load_digits

here = pathlib.Path(__file__).parent


def block(inputs, outputs):
    return [
        torch.nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        torch.nn.BatchNorm2d(outputs),
        torch.nn.ReLU(),
        torch.nn.Dropout(0.1),
    ]


def main():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        *block(1, 16), *block(16, 32), torch.nn.MaxPool2d(2), *block(32, 64),
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(64, 10),
    )
    before = {k: v.clone() for k, v in model.state_dict().items()}
    with torch.no_grad():
        model.train()
        path = here / "cnn.onnx"
        torch.onnx.export(
            model, (torch.zeros(4, 1, 8, 8),), path, dynamo=False, opset_version=17,
            training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False,
            input_names=["image"], output_names=["logits"],
            dynamic_axes={"image": {0: "batch"}, "logits": {0: "batch"}},
        )
    # The trace steps the running statistics: put the initial ones back.
    import onnx
    from onnx import numpy_helper

    exported = onnx.load(path)
    for tensor in exported.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(before[tensor.name].numpy(), tensor.name))
    onnx.save(exported, path)

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
