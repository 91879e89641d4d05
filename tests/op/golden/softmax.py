# SPDX-License-Identifier: Apache-2.0
"""softmax, log_softmax and the cross-entropies, with their gradients, for logits (3,4,7). Row 0 is shifted by 60 and row 1
by -60, where a plain exponential would overflow or vanish in f16."""
import numpy as np


def log_softmax(x):
    shifted = x - x.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def cases(golden):
    for dtype in ("f32", "f16", "bf16"):

        def held(array):
            return golden.held(array, dtype)

        def add(name, array):
            golden.add(name + "_" + dtype, array, dtype=dtype)

        x = golden.random((3, 4, 7), -4, 4)
        x[0] += 60
        x[1] -= 60
        x = held(x)
        dy, per_row = held(golden.random((3, 4, 7))), held(golden.random((3, 4)))
        labels = held(golden.random((3, 4, 7), 0, 1))
        classes = golden.integers((3, 4), 0, 7, np.int64)
        one_hot = (classes[..., None] == np.arange(7)).astype(np.float64)
        log_p, p = log_softmax(x), np.exp(log_softmax(x))
        add("x", x)
        add("dy", dy)
        add("labels", labels)
        add("per_row", per_row)
        golden.add("classes_" + dtype, classes)
        add("softmax", p)
        add("log_softmax", log_p)
        y = held(p.astype(np.float32))
        add("softmax_y", y)
        add("softmax_grad", y * (dy - (y * dy).sum(axis=-1, keepdims=True)))
        y = held(log_p.astype(np.float32))
        add("log_softmax_y", y)
        add("log_softmax_grad", dy - np.exp(y) * dy.sum(axis=-1, keepdims=True))
        add("dense", -(labels * log_p).sum(axis=-1))
        add("dense_grad", per_row[..., None] * (p * labels.sum(axis=-1, keepdims=True) - labels))
        add("dense_labels_grad", -per_row[..., None] * log_p)
        add("sparse", -(one_hot * log_p).sum(axis=-1))
        add("sparse_grad", per_row[..., None] * (p - one_hot))
