# SPDX-License-Identifier: Apache-2.0
"""Activations and their gradients in float64, computed by PyTorch. Needs PyTorch: run make.py activation with a Python that
has it."""
import numpy as np
import torch
from torch.nn import functional as F

LIBRARY = "PyTorch"

FUNCTIONS = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "softplus": F.softplus,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.25),
    "elu": lambda x: F.elu(x, 1.5),
}


def cases(golden):
    x, dy = golden.random((5, 7), -6, 6), golden.random((5, 7))
    golden.add("x", x)
    golden.add("dy", dy)
    for name, f in FUNCTIONS.items():
        t = torch.tensor(x.astype(np.float64), requires_grad=True)
        y = f(t)
        y.backward(torch.tensor(dy.astype(np.float64)))
        golden.add(name, y.detach().numpy())
        golden.add(name + "_grad", t.grad.numpy())
