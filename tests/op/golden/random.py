# SPDX-License-Identifier: Apache-2.0
"""Philox-4x32-10 with Python's integers, and the uniform numbers, normal numbers and dropout masks that follow from it."""
import numpy as np

SEED, STREAM, STEP = 0x0123456789ABCDEF, 0xC0FFEE42, 0x80000007


def philox(counter, key):
    c, k = list(counter), list(key)
    for _ in range(10):
        p, q = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(q >> 32) ^ c[1] ^ k[0], q & 0xFFFFFFFF, (p >> 32) ^ c[3] ^ k[1], p & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def quad(element):
    q = element // 4
    return philox([q & 0xFFFFFFFF, q >> 32, STREAM, STEP], [SEED & 0xFFFFFFFF, SEED >> 32])


def uniform(element):
    return (quad(element)[element % 4] >> 8) / 2.0**24


def normal(element):
    a, b = quad(element)[element % 4 // 2 * 2 :][:2]
    radius, angle = np.sqrt(-2 * np.log(((a >> 8) + 1) / 2.0**24)), 2 * np.pi * (b >> 8) / 2.0**24
    return radius * (np.sin(angle) if element % 2 else np.cos(angle))


def signed(word):
    return word - 2**32 if word >= 2**31 else word


def cases(golden):
    x = golden.held(golden.random((23,)), "f32")
    golden.add("x", x)
    for name, first in (("0", 0), ("3", 3), ("carry", 2**34 - 9)):  # "carry": the low word of the counter overflows
        words = [SEED & 0xFFFFFFFF, SEED >> 32, STEP, 0, first & 0xFFFFFFFF, first >> 32, 0, 0]
        golden.add("state_" + name, np.array([signed(w) for w in words], np.int32))
        u = np.array([uniform(first + e) for e in range(23)])
        golden.add("uniform_" + name, u)
        golden.add("normal_" + name, np.array([normal(first + e) for e in range(23)]))
        golden.add("dropout_" + name, np.where(u >= np.float32(0.3), x * np.float64(np.float32(1 / (1 - 0.3))), 0))
