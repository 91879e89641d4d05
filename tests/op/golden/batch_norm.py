# SPDX-License-Identifier: Apache-2.0
"""moments, both forms of batch_norm, and its gradients in float64, computed by PyTorch, whose batch_norm expects the
channels as the second axis. Needs PyTorch: run make.py batch_norm with a Python that has it."""
import numpy as np
import torch

LIBRARY = "PyTorch"

EPSILON = 1e-3


def channels_second(x):
    return x.permute(0, 2, 1)


def cases(golden):
    x = golden.random((5, 4, 7)) + np.float32(3)
    scale, shift = golden.random((7,)), golden.random((7,))
    mean, variance = golden.random((7,), 2, 4), golden.random((7,), 0.5, 2)
    dy = golden.random((5, 4, 7))
    for name, value in (("x", x), ("scale", scale), ("shift", shift), ("mean", mean), ("variance", variance), ("dy", dy)):
        golden.add(name, value)
    flat = x.astype(np.float64).reshape(-1, 7)
    golden.add("moments", np.stack([flat.mean(axis=0), flat.var(axis=0)]))
    for training in (True, False):
        t = [torch.tensor(v.astype(np.float64), requires_grad=True) for v in (x, scale, shift)]
        running = [torch.tensor(v.astype(np.float64)) for v in (mean, variance)]
        y = torch.nn.functional.batch_norm(
            channels_second(t[0]), running[0], running[1], t[1], t[2], training=training, momentum=0.0, eps=EPSILON
        )
        y = channels_second(y)
        y.backward(torch.tensor(dy.astype(np.float64)))
        kind = "training" if training else "fixed"
        golden.add("y_" + kind, y.detach().numpy())
        for name, tensor in zip(("dx", "dscale", "dshift"), t):
            golden.add(name + "_" + kind, tensor.grad.numpy())
