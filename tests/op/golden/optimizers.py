# SPDX-License-Identifier: Apache-2.0
"""Four steps of the optimizers for two parameters, of 3x5 and of 4 elements, computed by Keras 3. LARS, and LAMB with
decay, are computed by NumPy with the formulas of their papers. All optimizers get the same gradients."""
import keras
import numpy as np

LIBRARY = "Keras, NumPy"
steps = 4


def norm(x):
    return np.sqrt((x.astype(np.float64) ** 2).sum())


def cases(golden):
    begin = [golden.random((3, 5)), golden.random((4,))]
    gradients = [[golden.random((3, 5), -3, 3), golden.random((4,), -1, 1)] for _ in range(steps)]
    for i in range(2):
        golden.add("parameter_%d" % i, begin[i])
        for t in range(steps):
            golden.add("gradient_%d_%d" % (i, t), gradients[t][i])

    def from_keras(name, optimizer):
        variables = [keras.Variable(p) for p in begin]
        optimizer.build(variables)
        for t in range(steps):
            optimizer.apply([keras.ops.convert_to_tensor(g) for g in gradients[t]])
        for i in range(2):
            golden.add("%s_%d" % (name, i), np.asarray(variables[i].numpy()))

    o = keras.optimizers
    from_keras("sgd", o.SGD(0.05))
    from_keras("momentum", o.SGD(0.05, momentum=0.8))
    from_keras("nesterov", o.SGD(0.05, momentum=0.8, nesterov=True))
    from_keras("adam", o.Adam(0.02, beta_1=0.85, beta_2=0.99, epsilon=1e-5))
    from_keras("adamw", o.AdamW(0.02, weight_decay=0.1))
    from_keras("rmsprop", o.RMSprop(0.02))
    from_keras("rmsprop_momentum", o.RMSprop(0.02, rho=0.8, momentum=0.7))
    from_keras("rmsprop_centered", o.RMSprop(0.02, centered=True))
    from_keras("rmsprop_both", o.RMSprop(0.02, momentum=0.7, centered=True, epsilon=1e-4))
    from_keras("adagrad", o.Adagrad(0.05))
    from_keras("lamb", o.Lamb(0.02))
    from_keras("clip_value", o.SGD(0.05, clipvalue=0.5))
    from_keras("clip_norm", o.SGD(0.05, clipnorm=1.5))
    from_keras("clip_global_norm", o.SGD(0.05, global_clipnorm=1.5))
    from_keras("cosine", o.SGD(o.schedules.CosineDecay(0.5, 3, alpha=0.1)))

    p, v = [b.astype(np.float64) for b in begin], [0, 0]
    for t in range(steps):
        for i in range(2):
            g = gradients[t][i].astype(np.float64)
            rate = 0.01 * norm(p[i]) / (norm(g) + 0.1 * norm(p[i]))
            v[i] = 0.9 * v[i] + rate * (g + 0.1 * p[i])
            p[i] = p[i] - 0.5 * v[i]
    for i in range(2):
        golden.add("lars_%d" % i, p[i])

    p, m, v = [b.astype(np.float64) for b in begin], [0, 0], [0, 0]
    for t in range(steps):
        for i in range(2):
            g = gradients[t][i].astype(np.float64)
            m[i], v[i] = 0.9 * m[i] + 0.1 * g, 0.999 * v[i] + 0.001 * g * g
            to = m[i] / (1 - 0.9 ** (t + 1)) / (np.sqrt(v[i] / (1 - 0.999 ** (t + 1))) + 1e-6) + 0.1 * p[i]
            p[i] = p[i] - 0.02 * norm(p[i]) / norm(to) * to
    for i in range(2):
        golden.add("lamb_decay_%d" % i, p[i])
