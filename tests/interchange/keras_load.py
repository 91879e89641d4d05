#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Keras loads the .keras files of keras_files.py, predicts the same (1e-5), and saves them again, and models of its own.

usage: keras_load.py FOLDER"""

import os
import pathlib
import sys

os.environ["KERAS_BACKEND"] = "numpy"
os.environ["JAX_PLATFORMS"] = "cpu"
import keras  # noqa: E402
import numpy  # noqa: E402

FOLDER = pathlib.Path(sys.argv[1])
random = numpy.random.default_rng(0)


def check(path):
    name = path.name[: -len(".keras")]
    model = keras.models.load_model(path)
    x, y = numpy.load(FOLDER / f"{name}.x.npz"), numpy.load(FOLDER / f"{name}.y.npz")
    inputs = [x[k] for k in x.files]
    found = model(inputs if len(inputs) > 1 else inputs[0], training=False)
    found = [numpy.asarray(v) for v in (found if isinstance(found, (list, tuple)) else [found])]
    assert len(found) == len(y.files), f"{len(found)} outputs"
    for a, k in zip(found, y.files):
        assert a.size == y[k].size, f"{a.shape} and {y[k].shape}"
        worst = numpy.max(numpy.abs(a.reshape(-1) - y[k].reshape(-1)) / numpy.maximum(1, numpy.abs(y[k].reshape(-1))))
        assert worst <= 1e-5, f"output {k} differs by {worst}"
    model.save(FOLDER / f"{name}.saved.keras")


def made():
    """Models of Keras' own, which Strata reads."""
    L = keras.layers
    x = keras.Input((16, 16, 3))
    y = L.Rescaling(1 / 127.5, offset=-1.0)(x)
    y = L.Conv2D(8, 3, strides=2, use_bias=False)(L.ZeroPadding2D(((0, 1), (0, 1)))(y))
    y = L.ReLU(6.0)(L.BatchNormalization(axis=3, momentum=0.9)(y))
    z = L.LeakyReLU(negative_slope=0.1)(L.DepthwiseConv2D(3, padding="same")(y))
    y = L.GlobalAveragePooling2D()(L.Add()([y, L.Conv2D(8, 1, groups=2)(z)]))
    yield "made of images", keras.Model(x, L.Softmax()(L.Dense(5)(y))), random.uniform(0, 255, (4, 16, 16, 3))

    data = random.normal(size=(50, 6)) * [1, 20, 0.1, 5, 5, 1] + [0, 100, 1, -50, 3, 2]
    scale = L.Normalization()
    scale.adapt(data)
    yield (
        "made of numbers",
        keras.Sequential([keras.Input((6,)), scale, L.Dense(8, "relu"), L.Dense(3), L.Activation("softmax")]),
        data[:7],
    )

    both = [
        keras.Input((7, 4)),
        L.ZeroPadding1D((2, 1)),
        L.Normalization(axis=None, mean=2.0, variance=9.0),
        L.LSTM(3),
        L.Dense(1),
    ]
    yield "made of a sequence", keras.Sequential([*both, L.Rescaling([3.0], offset=10)]), random.normal(size=(5, 7, 4)) * 3 + 2

    x = keras.Input((6,), dtype="int32")
    y = L.Embedding(12, 4, mask_zero=True)(x)
    y = L.MultiHeadAttention(2, 3)(y, y, use_causal_mask=True)
    y = L.Add()([y, L.LSTM(4, return_sequences=True, activation="linear")(y)])
    tokens = random.integers(0, 12, (8, 6)).astype("int32")
    yield "made of tokens", keras.Model(x, L.Dense(1, "sigmoid")(L.GlobalAveragePooling1D()(y))), tokens

    net = keras.applications.MobileNetV2((32, 32, 3), alpha=0.35, weights=None, classes=5)
    yield "made by applications", net, random.uniform(-1, 1, (2, 32, 32, 3))


def save_made():
    for name, model, x in made():
        model.set_weights(
            [w + random.normal(size=w.shape) * 0.02 + 0.01 if w.dtype.kind == "f" else w for w in model.get_weights()]
        )
        x = x if x.dtype.kind == "i" else x.astype("float32")
        numpy.savez(FOLDER / f"{name}.x.npz", x)
        model.save(FOLDER / f"{name}.saved.keras")
        model = keras.models.load_model(FOLDER / f"{name}.saved.keras")  # Normalization takes its new weights then
        numpy.savez(FOLDER / f"{name}.y.npz", numpy.asarray(model(x, training=False)))


def main():
    save_made()
    paths = sorted(p for p in FOLDER.glob("*.keras") if not p.name.endswith(".saved.keras"))
    failed = 0
    for path in paths:
        try:
            check(path)
        except Exception as error:  # noqa: BLE001  each file is shown, whatever is wrong with it
            failed += 1
            print("FAILED", path.name, str(error)[:600])
    print(f"Keras {keras.__version__}: {len(paths)} files, {failed} failed")
    sys.exit(1 if failed or len(paths) < 40 else 0)


if __name__ == "__main__":
    main()
