# SPDX-License-Identifier: Apache-2.0
"""Convolutions with their gradients by input and filter, and max and average pools, in float64, computed by PyTorch.
PyTorch's arrays are NCHW and OIHW; the file's are NHWC and HWIO. Each case consists of x, (filter,) dy, y, dx, (dfilter)."""
import torch
import torch.nn.functional as F

LIBRARY = "PyTorch"

# x (N,H,W,C), filter (KH,KW,C/groups,K), stride, dilation, groups, padding (top, bottom, left, right)
CONVOLUTIONS = {
    "plain": ((2, 5, 6, 3), (3, 3, 3, 4), (1, 1), (1, 1), 1, (0, 0, 0, 0)),
    "padded": ((2, 5, 4, 3), (3, 2, 3, 5), (1, 1), (1, 1), 1, (1, 1, 0, 1)),
    "strided": ((2, 7, 8, 2), (3, 3, 2, 3), (2, 3), (1, 1), 1, (0, 2, 1, 1)),
    "dilated": ((1, 8, 9, 2), (3, 2, 2, 3), (1, 2), (2, 3), 1, (2, 0, 1, 2)),
    "grouped": ((2, 5, 5, 6), (3, 3, 2, 9), (1, 1), (1, 1), 3, (1, 1, 1, 1)),
    "depthwise": ((2, 5, 5, 5), (3, 3, 1, 10), (2, 1), (1, 1), 5, (1, 1, 1, 1)),
    "pointwise": ((1, 3, 3, 7), (1, 1, 7, 5), (1, 1), (1, 1), 1, (0, 0, 0, 0)),
}

# x, size, stride, padding. PyTorch's average pool needs equal padding on both sides; here it leaves padding out of the
# mean.
POOLS = {
    "halving": ((2, 4, 6, 3), (2, 2), (2, 2), (0, 0)),
    "overlapping": ((1, 7, 5, 2), (3, 2), (2, 1), (1, 1)),
    "gaps": ((1, 8, 8, 2), (2, 2), (3, 3), (0, 0)),
}


def tensor(array, axes):
    return torch.tensor(array.transpose(axes).astype("float64"), requires_grad=True)


def add(golden, name, array, axes):
    golden.add(name, array.detach().numpy().transpose(axes), dtype="f32")


def cases(golden):
    to_nhwc, to_nchw, to_hwio, to_oihw = (0, 2, 3, 1), (0, 3, 1, 2), (2, 3, 1, 0), (3, 2, 0, 1)
    for name, (x_shape, f_shape, stride, dilation, groups, (top, bottom, left, right)) in CONVOLUTIONS.items():
        x, f = tensor(golden.random(x_shape), to_nchw), tensor(golden.random(f_shape), to_oihw)
        y = F.conv2d(F.pad(x, (left, right, top, bottom)), f, None, stride, 0, dilation, groups)
        dy = tensor(golden.random(tuple(y.detach().numpy().transpose(to_nhwc).shape)), to_nchw)
        y.backward(dy)
        add(golden, name + "_x", x, to_nhwc)
        add(golden, name + "_filter", f, to_hwio)
        add(golden, name + "_dy", dy, to_nhwc)
        add(golden, name + "_y", y, to_nhwc)
        add(golden, name + "_dx", x.grad, to_nhwc)
        add(golden, name + "_dfilter", f.grad, to_hwio)
    for name, (shape, size, stride, padding) in POOLS.items():
        values = golden.integers(shape, -3, 4).astype("float64")  # with ties
        dy = None
        for kind, pool in (("max", F.max_pool2d), ("avg", F.avg_pool2d)):
            x = tensor(values, to_nchw)
            more = {"count_include_pad": False} if kind == "avg" else {}
            y = pool(x, size, stride, padding, **more)
            if dy is None:
                dy = tensor(golden.random(tuple(y.detach().numpy().transpose(to_nhwc).shape)), to_nchw)
                add(golden, name + "_x", x, to_nhwc)
                add(golden, name + "_dy", dy, to_nhwc)
            y.backward(dy)
            add(golden, name + "_" + kind, y, to_nhwc)
            add(golden, name + "_" + kind + "_dx", x.grad, to_nhwc)
