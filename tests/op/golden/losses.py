# SPDX-License-Identifier: Apache-2.0
"""The losses of 7 examples, and the gradients of their sum, computed by PyTorch 2 on the CPU in double precision."""
import numpy as np
import torch
import torch.nn.functional as F

LIBRARY = "PyTorch"


def cases(golden):
    outputs, numbers = golden.random((7, 3)), golden.random((7, 3))
    shares = golden.random((7, 3), 0.05, 0.95)
    distribution = (shares / shares.sum(1, keepdims=True)).astype(np.float32)
    classes, yes = golden.integers((7,), 0, 3), golden.integers((7, 3), 0, 2).astype(np.float32)
    probabilities = golden.random((7, 3), 0.05, 0.95)
    golden.add("outputs", outputs)
    golden.add("numbers", numbers)
    golden.add("distribution", distribution)
    golden.add("classes", classes)
    golden.add("yes", yes)
    golden.add("probabilities", probabilities)

    def add(name, x, loss):
        x = torch.tensor(x, dtype=torch.float64, requires_grad=True)
        each = loss(x)
        each = each.mean(1) if each.dim() == 2 else each
        each.sum().backward()
        golden.add(name, each.detach().numpy())
        golden.add(name + "_grad", x.grad.numpy())

    def t(array):
        return torch.tensor(array, dtype=torch.float64)

    add("mse", outputs, lambda x: F.mse_loss(x, t(numbers), reduction="none"))
    add("mae", outputs, lambda x: F.l1_loss(x, t(numbers), reduction="none"))
    add("huber", outputs, lambda x: F.huber_loss(x, t(numbers), reduction="none", delta=0.75))
    add("bce", outputs, lambda x: F.binary_cross_entropy_with_logits(x, t(yes), reduction="none"))
    add("bce_smooth", outputs, lambda x: F.binary_cross_entropy_with_logits(x, t(yes) * 0.8 + 0.1, reduction="none"))
    add("bce_probabilities", probabilities, lambda x: F.binary_cross_entropy(x, t(yes), reduction="none"))
    labels = torch.tensor(classes, dtype=torch.int64)
    add("sparse", outputs, lambda x: F.cross_entropy(x, labels, reduction="none"))
    add("sparse_smooth", outputs, lambda x: F.cross_entropy(x, labels, reduction="none", label_smoothing=0.2))
    add("dense", outputs, lambda x: F.cross_entropy(x, t(distribution), reduction="none"))
    add("dense_smooth", outputs, lambda x: F.cross_entropy(x, t(distribution), reduction="none", label_smoothing=0.2))
