# SPDX-License-Identifier: Apache-2.0
"""Ops that move elements of x (2,3,4,5) i32, computed by NumPy."""
import numpy as np


def cases(golden):
    x = golden.integers((2, 3, 4, 5), -1000, 1000)
    golden.add("x", x)
    golden.add("transpose_2031", np.transpose(x, (2, 0, 3, 1)))
    golden.add("transpose_reversed", np.transpose(x))
    row = golden.integers((3, 1, 5), -9, 9)
    golden.add("row", row)
    golden.add("row_to_2x3x4x5", np.broadcast_to(row, (2, 3, 4, 5)))
    golden.add("slice", x[1:2, 0:2, 1:4, 2:5])
    golden.add("pad", np.pad(x, ((0, 1), (2, 0), (1, 1), (0, 3)), constant_values=-7))
    tail = golden.integers((2, 3, 2, 5), -1000, 1000)
    golden.add("tail", tail)
    golden.add("concat_2", np.concatenate([x, tail, x], axis=2))
    indices = golden.integers((2, 3), 0, 4)
    golden.add("indices", indices)
    golden.add("gather_2", np.take(x, indices, axis=2))
    golden.add("gather_0", np.take(x, indices % 2, axis=0))
    golden.add("indices_0", indices % 2)
    golden.add("one_hot_4", np.eye(4, dtype=np.int32)[indices])
    condition = golden.integers((3, 1, 1), 0, 2) > 0
    golden.add("condition", condition)
    golden.add("where", np.where(condition, x, row))
    golden.add("tile_1213", np.tile(x, (1, 2, 1, 3)))
    golden.add("stack_0", np.stack([x, x + 1, x], axis=0))
    golden.add("stack_last", np.stack([x, x + 1, x], axis=-1))
    for i, part in enumerate(np.split(x, 2, axis=2)):
        golden.add("split_2_%d" % i, part)
