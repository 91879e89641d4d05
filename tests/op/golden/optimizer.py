# SPDX-License-Identifier: Apache-2.0
"""Three steps of SGD (plain, with momentum, and Nesterov) and of Adam for 11 parameters. Each step is rounded to f32, the
type of the variables."""
import numpy as np


def f32(array):
    return np.asarray(array, np.float32).astype(np.float64)


def cases(golden):
    p0 = f32(golden.random((11,)))
    g = [f32(golden.random((11,), -1, 1)) for _ in range(3)]
    lr = f32(0.03)
    golden.add("parameters", p0)
    for t in range(3):
        golden.add("gradients_%d" % t, g[t])
    golden.add("learning_rate", lr)

    p = p0
    for t in range(3):
        p = f32(p - lr * g[t])
    golden.add("sgd", p)
    for name, nesterov in (("momentum", False), ("nesterov", True)):
        p, v = p0, np.zeros(11)
        for t in range(3):
            new_v = 0.9 * v + g[t]
            p = f32(p - lr * (g[t] + 0.9 * new_v if nesterov else new_v))
            v = f32(new_v)
        golden.add(name, p)
        golden.add(name + "_velocity", v)

    p, m, v = p0, np.zeros(11), np.zeros(11)
    beta1, beta2 = 0.9, 0.999
    for t in range(3):
        rate = f32(lr * np.sqrt(1 - beta2 ** (t + 1)) / (1 - beta1 ** (t + 1)))
        golden.add("adam_rate_%d" % t, rate)
        new_m, new_v = m + (1 - beta1) * (g[t] - m), v + (1 - beta2) * (g[t] * g[t] - v)
        p = f32(p - rate * new_m / (np.sqrt(new_v) + 1e-7))
        m, v = f32(new_m), f32(new_v)
    golden.add("adam", p)
    golden.add("adam_m", m)
    golden.add("adam_v", v)
