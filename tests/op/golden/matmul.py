# SPDX-License-Identifier: Apache-2.0
"""Matrix products with every transpose, with a batch, with one operand that the whole batch shares, and with epilogues.
Sizes are odd, and K is long enough for several panels."""
import numpy as np


def cases(golden):
    for dtype in ("f32", "f16", "bf16"):
        a, b = golden.held(golden.random((7, 19)), dtype), golden.held(golden.random((19, 37)), dtype)
        golden.add("a_" + dtype, a, dtype=dtype)
        golden.add("at_" + dtype, a.T, dtype=dtype)
        golden.add("b_" + dtype, b, dtype=dtype)
        golden.add("bt_" + dtype, b.T, dtype=dtype)
        golden.add("ab_" + dtype, a @ b, dtype=dtype)

    # A batch of 2 x 3 products of (5,4) and (4,3).
    a, b = golden.held(golden.random((2, 3, 5, 4)), "f32"), golden.held(golden.random((2, 3, 4, 3)), "f32")
    golden.add("batch_a", a)
    golden.add("batch_b", b)
    golden.add("batch_at", a.swapaxes(-1, -2))
    golden.add("batch_bt", b.swapaxes(-1, -2))
    golden.add("batch_ab", a @ b)
    golden.add("one_a", a[0, 1])
    golden.add("one_at", a[0, 1].T)
    golden.add("one_b", b[1, 0])
    golden.add("one_bt", b[1, 0].T)
    golden.add("one_a_batch_b", a[0, 1] @ b)
    golden.add("batch_a_one_b", a @ b[1, 0])

    # Epilogues of the product of a (5,4) and b (4,3).
    a, b = a[0, 1], b[1, 0]
    bias, aux = golden.held(golden.random((3,)), "f32"), golden.held(golden.random((5, 3), -0.9, 0.9), "f32")
    v = a @ b
    golden.add("bias", bias)
    golden.add("aux", aux)
    golden.add("epilogue_bias", v + bias)
    golden.add("epilogue_relu", np.maximum(v + bias, 0))
    golden.add("epilogue_tanh", np.tanh(v + bias))
    golden.add("epilogue_sigmoid", 1 / (1 + np.exp(-(v + bias))))
    golden.add("epilogue_relu_grad", np.where(aux > 0, v, 0))
    golden.add("epilogue_tanh_grad", v * (1 - aux**2))
    golden.add("epilogue_sigmoid_grad", v * aux * (1 - aux))
    golden.add("epilogue_add", v + aux)
    golden.add("epilogue_all", np.maximum(v + bias, 0) + aux)
