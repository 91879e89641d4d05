# SPDX-License-Identifier: Apache-2.0
"""Reductions of x (3,4,5,2) over neighbouring axes, over axes with others between them, over all axes, and over all but
one; and argmax along each axis."""
import numpy as np

axes = {"0": (0,), "1": (1,), "3": (3,), "12": (1, 2), "02": (0, 2), "13": (1, 3), "023": (0, 2, 3), "all": (0, 1, 2, 3)}
folds = [("sum", np.sum), ("mean", np.mean), ("max", np.max), ("min", np.min)]


def cases(golden):
    for dtype in ("f32", "f16", "bf16"):
        x = golden.held(golden.random((3, 4, 5, 2)), dtype)
        golden.add("x_" + dtype, x, dtype=dtype)
        for fold, f in folds:
            for name, axis in axes.items():
                golden.add("%s_%s_%s" % (fold, name, dtype), f(x, axis=axis), dtype=dtype)
        for axis in range(4):
            golden.add("argmax_%d_%s" % (axis, dtype), np.argmax(x, axis=axis).astype(np.int32))
    for dtype, kind in (("i32", np.int32), ("i64", np.int64)):
        least, most = np.iinfo(kind).min // 4, np.iinfo(kind).max // 4
        x = golden.integers((3, 4, 5, 2), least, most, kind)  # sums of 30 and more elements overflow
        golden.add("x_" + dtype, x)
        for fold, f in folds:
            if fold == "mean":
                continue
            more = {"dtype": kind} if fold == "sum" else {}
            for name, axis in axes.items():
                golden.add("%s_%s_%s" % (fold, name, dtype), np.asarray(f(x, axis=axis, **more), kind))
        for axis in range(4):
            golden.add("argmax_%d_%s" % (axis, dtype), np.argmax(x, axis=axis).astype(np.int32))
