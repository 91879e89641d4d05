# SPDX-License-Identifier: Apache-2.0
"""Steps of SGD (rate 0.5) for a linear classifier on 6 examples in batches of 4 and 2. The losses are weighted like Keras'
sample_weight and class_weight (reduction "sum_over_batch_size"): loss = sum_i w_i c_(y_i) l_i / n. The formulas are written
out in NumPy; no framework is used."""
import numpy as np


def softmax(z):
    e = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def cases(golden):
    x, w = golden.random((6, 5)), golden.random((5, 3), -0.5, 0.5)
    y, weights = golden.integers((6,), 0, 3), golden.random((6,), 0, 3)
    by_class = np.array([0.5, 2, 1.25], np.float32)
    golden.add("x", x)
    golden.add("y", y)
    golden.add("w", w)
    golden.add("weights", weights)
    golden.add("class_weights", by_class)
    for name, each in (("examples", weights), ("classes", by_class[y]), ("both", weights.astype(float) * by_class[y])):
        v, losses = w.astype(float), []
        for rows in (slice(0, 4), slice(4, 6)):
            a, b, c = x[rows].astype(float), y[rows], each[rows].astype(float)
            p = softmax(a @ v)
            n = len(b)
            losses.append((c * -np.log(p[np.arange(n), b])).sum() / n)
            p[np.arange(n), b] -= 1
            v = v - 0.5 * a.T @ (p * c[:, None]) / n
        golden.add(name + "_losses", np.array(losses))
        golden.add(name + "_w", v)
        p = softmax(x.astype(float) @ v)
        loss = -np.log(p[np.arange(6), y])
        golden.add(name + "_evaluated", np.array([(loss * weights).mean(), loss.mean()]))
