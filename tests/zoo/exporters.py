"""Gradients of models that other exporters than PyTorch's wrote, beside those of the framework that they come from.

    exporters.py keras EBB     # by tf2onnx: needs tensorflow, tf2onnx, safetensors
    exporters.py flax EBB      # by jax2onnx: needs flax, jax2onnx, safetensors

Each model has weights that differ from their initial ones. A line says whether the loss is the framework's, of how many
of its parameters the gradient is (in any order of axes, and of an LSTM's gates), and what ebb trains beyond them. It
exits with 1 where a loss differs, a gradient is missing or something else is trained.
"""
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy
from safetensors.numpy import load_file

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
drawn = numpy.random.default_rng(1)


def normal(*shape):
    return drawn.normal(size=shape).astype(numpy.float32)


# ---- Keras ----


def keras_models(keras):
    layers = keras.layers

    def stack(shape, *parts, dtype="float32"):
        return keras.Sequential([keras.Input(shape, dtype=dtype), *parts])

    def transformer():
        x = keras.Input((6, 8))
        h = layers.LayerNormalization(epsilon=1e-5)(x)
        h = x + layers.MultiHeadAttention(2, 4)(h, h)
        z = layers.Dense(16, activation="gelu")(layers.LayerNormalization()(h))
        h = h + layers.Dense(8)(z)
        return keras.Model(x, layers.Dense(3)(layers.GlobalAveragePooling1D()(h)))

    def unet():
        x = keras.Input((8, 8, 2))
        a = layers.Conv2D(4, 3, padding="same", activation="elu")(x)
        b = layers.Conv2D(8, 3, padding="same", activation="elu")(layers.MaxPooling2D()(a))
        up = [a, layers.Conv2DTranspose(4, 2, 2)(b), layers.UpSampling2D(interpolation="bilinear")(b)]
        return keras.Model(x, layers.Conv2D(2, 1)(layers.Concatenate()(up)))

    return {
        "dense": (stack((10,), layers.Dense(16, "relu"), layers.Dense(16, "gelu"), layers.Dense(3)), normal(4, 10)),
        "convolutions": (
            stack((12, 12, 3), layers.Conv2D(8, 3, padding="same", use_bias=False), layers.BatchNormalization(),
                  layers.ReLU(), layers.MaxPooling2D(), layers.DepthwiseConv2D(3), layers.GroupNormalization(4),
                  layers.GlobalAveragePooling2D(), layers.Dense(5)), normal(4, 12, 12, 3)),
        "embedding": (
            stack((7,), layers.Embedding(11, 6), layers.Conv1D(8, 3, padding="causal", activation="swish"),
                  layers.GlobalMaxPooling1D(), layers.Dense(2), dtype="int32"),
            drawn.integers(0, 11, (3, 7)).astype(numpy.int32)),
        "lstm": (stack((7, 5), layers.LSTM(6, return_sequences=True), layers.LSTM(6), layers.Dense(2)), normal(3, 7, 5)),
        "gru": (stack((7, 5), layers.GRU(6, return_sequences=True), layers.GRU(6), layers.Dense(2)), normal(3, 7, 5)),
        "bidirectional": (stack((7, 5), layers.Bidirectional(layers.GRU(6)), layers.Dense(2)), normal(3, 7, 5)),
        "simple_rnn": (stack((7, 5), layers.SimpleRNN(6), layers.Dense(2)), normal(3, 7, 5)),
        "transformer": (transformer(), normal(3, 6, 8)),
        "unet": (unet(), normal(2, 8, 8, 2)),
    }


def keras_cases(path):
    import keras
    import tensorflow
    import tf2onnx

    for name, (model, x) in keras_models(keras).items():
        for weight in model.trainable_variables:
            weight.assign(weight + 0.05 * normal(*weight.shape))
        for training in (True, False) if name != "convolutions" else (True,):  # the other one folds the batch norm
            call = tensorflow.function(lambda a, m=model, t=training: m(a, training=t))
            tf2onnx.convert.from_function(call, [tensorflow.TensorSpec(x.shape, x.dtype)], opset=17, output_path=path)
            with tensorflow.GradientTape() as tape:
                y = model(x, training=training)
                target = normal(*y.shape)
                loss = tensorflow.reduce_mean((y - target) ** 2)
            found = tape.gradient(loss, model.trainable_variables)
            gradients = {v.path: tensorflow.convert_to_tensor(g).numpy() for v, g in zip(model.trainable_variables, found)}
            yield f"{name}, {'training' if training else 'inference'}", x, target, float(loss), gradients


# ---- Flax ----


def flax_models(nnx):
    class Dense(nnx.Module):
        def __init__(self, r):
            self.a, self.b = nnx.Linear(10, 16, rngs=r), nnx.Linear(16, 3, rngs=r)

        def __call__(self, x):
            return self.b(nnx.gelu(self.a(x)))

    class Block(nnx.Module):
        def __init__(self, r):
            self.before, self.between = nnx.LayerNorm(8, rngs=r), nnx.LayerNorm(8, rngs=r)
            self.heads = nnx.MultiHeadAttention(2, 8, qkv_features=8, decode=False, rngs=r)
            self.a, self.b = nnx.Linear(8, 16, rngs=r), nnx.Linear(16, 8, rngs=r)

        def __call__(self, x):
            x = x + self.heads(self.before(x))
            return x + self.b(nnx.gelu(self.a(self.between(x)), approximate=False))

    class Table(nnx.Module):
        def __init__(self, r):
            self.table, self.norm, self.out = nnx.Embed(11, 6, rngs=r), nnx.RMSNorm(6, rngs=r), nnx.Linear(6, 2, rngs=r)

        def __call__(self, x):
            return self.out(self.norm(self.table(x)))

    rows = drawn.integers(0, 11, (2, 3)).astype(numpy.int32)
    return {"dense": (Dense, normal(4, 10)), "block": (Block, normal(2, 6, 8)), "embedding": (Table, rows)}


def flax_cases(path):
    import jax
    import onnx
    from flax import nnx
    from jax2onnx import to_onnx

    for name, (make, x) in flax_models(nnx).items():
        model = make(nnx.Rngs(0))
        nnx.update(model, jax.tree.map(lambda a: a + 0.05 * normal(*a.shape), nnx.state(model, nnx.Param)))
        onnx.save(to_onnx(model, [jax.ShapeDtypeStruct(x.shape, x.dtype)]), path)
        target = normal(*model(x).shape)
        graph, weights, rest = nnx.split(model, nnx.Param, ...)

        def loss_of(w):
            return jax.numpy.mean((nnx.merge(graph, w, rest)(x) - target) ** 2)

        loss, found = jax.value_and_grad(loss_of)(weights)
        leaves = jax.tree_util.tree_leaves_with_path(found)
        yield name, x, target, float(loss), {jax.tree_util.keystr(p): numpy.asarray(g) for p, g in leaves}


# ---- ebb ----


def ebb_gradients(ebb, folder, path, x, target):
    step, data, out = folder / "step.onnx", folder / "data.npz", folder / "out.safetensors"
    subprocess.run([ebb, "grad", path, "-o", step, "--loss", "mse", "--optimizer", "none"], check=True, stdout=subprocess.DEVNULL)
    numpy.savez(data, x=x, target=target)
    first = subprocess.run([ebb, "inspect", path, "--json"], check=True, capture_output=True, text=True)
    name = json.loads(first.stdout)["inputs"][0]["name"]
    subprocess.run([ebb, "run", step, "--data", data, "--map", f"x={name}", "--save", out], check=True, stdout=subprocess.DEVNULL)
    return load_file(out)


def forms(g):
    """A gradient in the orders that exporters store it in: axes, and the gates of an LSTM (ONNX: i o f c)."""
    gates = numpy.split(g, 4, -1) if g.shape[-1] % 4 == 0 else None
    for whole in [g] + ([numpy.concatenate([gates[0], gates[3], gates[1], gates[2]], -1)] if gates else []):
        for order in itertools.permutations(range(whole.ndim)):
            yield whole.transpose(order).reshape(-1)


def is_in(want, have):
    size = numpy.abs(want).max()
    return any(numpy.abs(have.reshape(-1)[: f.size] - f).max() <= 2e-4 * size for f in forms(want) if f.size <= have.size)


def main(kind, ebb):
    good = True
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        path = str(folder / "model.onnx")
        for case, x, target, loss, want in {"keras": keras_cases, "flax": flax_cases}[kind](path):
            have = ebb_gradients(ebb, folder, path, x, target)
            near = abs(float(have.pop("loss")) - loss) <= 1e-5 * abs(loss)
            seen = {k: g for k, g in want.items() if numpy.abs(g).max() > 1e-7}
            missing = [k for k, g in seen.items() if not any(is_in(g, h) for h in have.values())]
            more = len(have) - len(want)
            good &= near and not missing and more <= 0
            print(f"{case}: loss {'as theirs' if near else 'DIFFERS'}, {len(seen) - len(missing)} of {len(seen)} gradients"
                  + (f", MISSING {missing}" if missing else "") + (f", {more} MORE are trained" if more > 0 else ""), flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("keras", "flax"):
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
