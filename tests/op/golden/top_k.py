# SPDX-License-Identifier: Apache-2.0
"""The 3 largest elements of each row of x (2,5,7), with ties. The negated row is sorted by a stable sort, so of equal
elements the one with the lower index comes first."""
import numpy as np


def cases(golden):
    for dtype in ("f32", "f16", "bf16", "i32", "i64"):
        whole = golden.integers((2, 5, 7), -4, 5, np.int64 if dtype == "i64" else np.int32)
        x = golden.held(whole, dtype) if dtype[0] != "i" else whole
        indices = np.argsort(-x, axis=-1, kind="stable")[..., :3]
        golden.add("x_" + dtype, x, dtype=dtype)
        golden.add("indices_" + dtype, indices.astype(np.int32))
        golden.add("values_" + dtype, np.take_along_axis(x, indices, axis=-1), dtype=dtype)
