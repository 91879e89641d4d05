# SPDX-License-Identifier: Apache-2.0
"""Element-wise ops of two operands: a (3,1,5) and b (4,1) broadcast to (3,4,5). p is positive and the base of pow, e is its
exponent. Some elements of a equal those of b, for comparisons."""
import numpy as np


arithmetic = [("add", np.add), ("sub", np.subtract), ("mul", np.multiply), ("min", np.minimum), ("max", np.maximum)]
comparisons = [
    ("equal", np.equal),
    ("not_equal", np.not_equal),
    ("less", np.less),
    ("less_equal", np.less_equal),
    ("greater", np.greater),
    ("greater_equal", np.greater_equal),
]


def cases(golden):
    a, b = golden.random((3, 1, 5), -3, 3), golden.random((4, 1), -3, 3)
    b[2, 0] = a[1, 0, 3]
    p = golden.random((3, 1, 5), 0.1, 3)
    for dtype in ("f32", "f16", "bf16"):
        x, y, base = golden.held(a, dtype), golden.held(b, dtype), golden.held(p, dtype)
        golden.add("a_" + dtype, x, dtype=dtype)
        golden.add("b_" + dtype, y, dtype=dtype)
        golden.add("p_" + dtype, base, dtype=dtype)
        for name, f in arithmetic + [("div", np.divide)]:
            golden.add(name + "_" + dtype, f(x, y), dtype=dtype)
        golden.add("pow_" + dtype, np.power(base, y), dtype=dtype)
        for name, f in comparisons:
            golden.add(name + "_" + dtype, f(x, y))
    i, j = golden.integers((3, 1, 5), -2000000000, 2000000000), golden.integers((4, 1), -2000000000, 2000000000)
    j[1, 0] = i[2, 0, 0]
    golden.add("a_i32", i)
    golden.add("b_i32", j)
    for name, f in arithmetic + comparisons:
        with np.errstate(all="ignore"):
            golden.add(name + "_i32", f(i, j))
    u, v = golden.integers((3, 1, 5), 0, 4, np.uint8), golden.integers((4, 1), 0, 4, np.uint8)
    golden.add("a_u8", u)
    golden.add("b_u8", v)
    golden.add("a_bool", u > 1)
    golden.add("b_bool", v > 1)
    for name, f in comparisons:
        golden.add(name + "_u8", f(u, v))
        golden.add(name + "_bool", f(u > 1, v > 1))
    nan = np.array([np.nan, 1.0, np.nan, np.inf])
    one = np.array([1.0, np.nan, np.nan, np.inf])
    golden.add("a_nan", nan, dtype="f32")
    golden.add("b_nan", one, dtype="f32")
    for name, f in arithmetic:
        with np.errstate(all="ignore"):
            golden.add(name + "_nan", f(nan, one), dtype="f32")
    for name, f in comparisons:
        golden.add(name + "_nan", f(nan, one))
