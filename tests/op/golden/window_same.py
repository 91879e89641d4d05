# SPDX-License-Identifier: Apache-2.0
"""Convolutions and pools with "same" padding in float64, computed by TensorFlow, whose rule determines on which side an odd
row or column of padding goes. Each case consists of x, (filter,) y."""
import os

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import tensorflow as tf

LIBRARY = "TensorFlow"

# height, width, window, stride, dilation
SHAPES = {
    "odd": (7, 5, (3, 3), (2, 2), (1, 1)),
    "even": (6, 8, (3, 3), (2, 2), (1, 1)),
    "wide": (5, 6, (2, 4), (1, 3), (1, 1)),
    "sparse": (3, 4, (1, 1), (2, 2), (1, 1)),
    "dilated": (6, 7, (3, 2), (1, 1), (2, 3)),
}


def cases(golden):
    for name, (height, width, window, stride, dilation) in SHAPES.items():
        x, f = golden.random((2, height, width, 3)), golden.random(window + (3, 4))
        wide = tf.constant(x, tf.float64)
        golden.add(name + "_x", x)
        golden.add(name + "_filter", f)
        y = tf.nn.convolution(wide, tf.constant(f, tf.float64), stride, "SAME", dilations=dilation)
        golden.add(name + "_conv", y.numpy(), dtype="f32")
        if dilation == (1, 1):
            golden.add(name + "_max", tf.nn.max_pool2d(wide, window, stride, "SAME").numpy(), dtype="f32")
            golden.add(name + "_avg", tf.nn.avg_pool2d(wide, window, stride, "SAME").numpy(), dtype="f32")
