# SPDX-License-Identifier: Apache-2.0
"""Element-wise ops of one operand in each float dtype. x has both signs, p is positive, and special contains NaN,
infinities and zeros."""
import math

import numpy as np


def cases(golden):
    ops = [
        ("neg", "x", lambda x: -x),
        ("abs", "x", np.abs),
        ("sign", "x", np.sign),
        ("square", "x", np.square),
        ("exp", "x", np.exp),
        ("log", "p", np.log),
        ("sqrt", "p", np.sqrt),
        ("rsqrt", "p", lambda x: 1 / np.sqrt(x)),
        ("tanh", "x", np.tanh),
        ("sigmoid", "x", lambda x: 1 / (1 + np.exp(-x))),
        ("relu", "x", lambda x: np.maximum(x, 0)),
        ("erf", "x", np.vectorize(math.erf)),
        ("sin", "x", np.sin),
        ("cos", "x", np.cos),
    ]
    any_sign, positive = golden.random((5, 7), -4, 4), golden.random((5, 7), 0.01, 9)
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0])
    golden.add("special", special, dtype="f32")
    for name, _, f in ops:
        with np.errstate(all="ignore"):
            golden.add(name + "_special", f(special), dtype="f32")
    for dtype in ("f32", "f16", "bf16"):
        operands = {"x": golden.held(any_sign, dtype), "p": golden.held(positive, dtype)}
        for name, x in operands.items():
            golden.add(name + "_" + dtype, x, dtype=dtype)
        for name, operand, f in ops:
            golden.add(name + "_" + dtype, f(operands[operand]), dtype=dtype)
