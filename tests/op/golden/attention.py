# SPDX-License-Identifier: Apache-2.0
"""layer_norm, attention and their gradients in float64, computed by PyTorch. Needs PyTorch: run make.py attention with a
Python that has it."""
import numpy as np
import torch
from torch.nn import functional as F

LIBRARY = "PyTorch"


def cases(golden):
    def tensor(x):
        return torch.tensor(x.astype(np.float64), requires_grad=True)

    x, scale, shift, dy = golden.random((4, 5, 7)), golden.random((7,)), golden.random((7,)), golden.random((4, 5, 7))
    t = [tensor(v) for v in (x, scale, shift)]
    y = F.layer_norm(t[0], (7,), t[1], t[2], eps=1e-3)
    y.backward(torch.tensor(dy.astype(np.float64)))
    for name, value in (("x", x), ("scale", scale), ("shift", shift), ("dy", dy), ("layer_norm", y.detach().numpy())):
        golden.add(name, value)
    for i in range(3):
        golden.add("layer_norm_grad_%d" % i, t[i].grad.numpy())

    q, k, v, dout = golden.random((2, 3, 4)), golden.random((2, 5, 4)), golden.random((2, 5, 6)), golden.random((2, 3, 6))
    mask = golden.integers((2, 3, 5), 0, 2).astype(bool)
    mask[..., 0] = True
    for name, value in (("q", q), ("k", k), ("v", v), ("dout", dout), ("mask", mask)):
        golden.add(name, value)
    for kind, m in (("plain", None), ("masked", torch.tensor(mask))):
        t = [tensor(v) for v in (q, k, v)]
        y = F.scaled_dot_product_attention(*t, attn_mask=m)
        y.backward(torch.tensor(dout.astype(np.float64)))
        golden.add("attention_" + kind, y.detach().numpy())
        for i in range(3):
            golden.add("attention_%s_grad_%d" % (kind, i), t[i].grad.numpy())
