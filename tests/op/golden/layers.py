# SPDX-License-Identifier: Apache-2.0
"""Outputs of layers in float64, computed by Keras 3, for tests/layer/keras_test.c. Needs Keras and JAX: run make.py layers
with a Python that has them. A case consists of the input x, all parameters p in one array, and the output y. The options of
each layer are in the test, under their names in Strata."""
import os

os.environ["KERAS_BACKEND"] = "jax"
os.environ["JAX_ENABLE_X64"] = "1"
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import keras
import numpy as np

keras.config.set_floatx("float64")
LIBRARY = "Keras"


def cases(golden):
    def weights(layer):
        """Sets random parameters, rounded to f32 because the file contains f32. Returns all of them in one array."""
        values = [golden.random(w.shape, -0.8, 0.8) for w in layer.weights]
        layer.set_weights([v.astype(np.float64) for v in values])
        return np.concatenate([v.ravel() for v in values])

    def case(name, x, layer, **call):
        layer(x.astype(np.float64), **call)
        p = weights(layer)
        golden.add(name + "_x", x)
        golden.add(name + "_p", p)
        golden.add(name + "_y", np.asarray(layer(x.astype(np.float64), **call)))

    L = keras.layers
    x = golden.random((3, 5, 4))
    for name, cell in (("lstm", L.LSTM), ("gru", L.GRU)):
        case(name, x, cell(3))
        case(name + "_sequences", x, cell(3, return_sequences=True))
        case(name + "_backwards", x, cell(3, return_sequences=True, go_backwards=True))
        case(name + "_functions", x, cell(3, activation="relu", recurrent_activation="tanh", use_bias=False))
        case(name + "_concat", x, L.Bidirectional(cell(2, return_sequences=True)))
        case(name + "_ave", x, L.Bidirectional(cell(2), merge_mode="ave"))
        # Rows with padding at the beginning, at the end, in between, everywhere and nowhere.
        tokens = np.array([[0, 0, 1, 2], [3, 1, 0, 0], [2, 0, 3, 1], [0, 0, 0, 0], [1, 2, 3, 3]], np.int32)
        for kind in ("last", "all"):
            model = keras.Sequential([L.Embedding(4, 3, mask_zero=True), cell(2, return_sequences=kind == "all")])
            model(tokens)
            golden.add("%s_masked_%s_x" % (name, kind), tokens)
            golden.add("%s_masked_%s_p" % (name, kind), weights(model))
            golden.add("%s_masked_%s_y" % (name, kind), np.asarray(model(tokens)))

    x = golden.random((3, 5, 4))
    case("gru_reset_before", x, L.GRU(3, reset_after=False))
    case("gru_reset_before_sequences", x, L.GRU(3, reset_after=False, return_sequences=True, go_backwards=True))
    case("gru_reset_before_functions", x, L.GRU(3, reset_after=False, activation="relu", use_bias=False))
    case("gru_reset_before_concat", x, L.Bidirectional(L.GRU(2, reset_after=False, return_sequences=True)))

    # Recurrent dropout, where all gates use the same factors. The file gets the operands of the op (z, matrix, bias), the
    # factors, and the output.
    for name, cell, options in (
        ("lstm", L.LSTM, {}),
        ("gru", L.GRU, {}),
        ("gru_reset_before", L.GRU, {"reset_after": False}),
    ):
        layer = cell(3, return_sequences=True, recurrent_dropout=0.5, implementation=1, **options)
        layer(x.astype(np.float64))
        weights(layer)
        kernel, matrix, bias = layer.get_weights()
        of_z, of_sum = bias if bias.ndim == 2 else (bias, bias * 0)
        factors = np.array([[2, 0, 2], [0, 2, 0], [0, 2, 2]], np.float32)
        layer.cell.get_recurrent_dropout_mask = lambda _, factors=factors: [factors.astype(np.float64)] * 4
        golden.add("factors_%s_z" % name, x.astype(np.float64) @ kernel + of_z)
        golden.add("factors_%s_matrix" % name, matrix)
        golden.add("factors_%s_bias" % name, of_sum)
        golden.add("factors_%s_factors" % name, factors)
        golden.add("factors_%s_y" % name, np.asarray(layer(x.astype(np.float64), training=True)))

    x = golden.random((2, 3, 4, 2))
    case("transpose", x, L.Conv2DTranspose(3, (3, 2)))
    case("transpose_valid", x, L.Conv2DTranspose(3, 3, strides=2, activation="relu"))
    case("transpose_same", x, L.Conv2DTranspose(3, 3, strides=2, padding="same"))
    case("transpose_small", x, L.Conv2DTranspose(2, 2, strides=3, use_bias=False))
    case("transpose_more", x, L.Conv2DTranspose(2, 3, strides=2, output_padding=1))
    case("transpose_more_of_one", x, L.Conv2DTranspose(2, (3, 2), strides=(2, 3), padding="same", output_padding=(0, 2)))
    case("transpose_dilated", x, L.Conv2DTranspose(2, (3, 2), dilation_rate=(2, 3)))
    case("transpose_dilated_same", x, L.Conv2DTranspose(2, 3, padding="same", dilation_rate=2))
    x = golden.random((2, 6, 5, 3))
    case("depthwise", x, L.DepthwiseConv2D(3))
    case("depthwise_same", x, L.DepthwiseConv2D((2, 3), strides=(2, 2), padding="same", depth_multiplier=2))
    case("depthwise_dilated", x, L.DepthwiseConv2D(2, dilation_rate=2, depth_multiplier=3, activation="tanh"))
    case("separable", x, L.SeparableConv2D(4, 3, depth_multiplier=2, padding="same"))
    x = golden.random((3, 2, 3, 6))
    case("group_norm", x, L.GroupNormalization(groups=2))
    case("instance_norm", x, L.GroupNormalization(groups=-1, epsilon=1e-2, scale=False))
    case("rms_norm", x, L.RMSNormalization())
