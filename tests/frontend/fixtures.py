# SPDX-License-Identifier: Apache-2.0
"""Writes the programs of tests/frontend/programs: fixtures.py FOLDER. Each NAME.mlir.bc is what jaxlib sends to a PJRT plugin.
NAME.txt has a line for each operation, made by jaxlib's own reader: its name, types of operands and results, and attributes.
NAME.values has the bytes of the arguments, and of the results that jaxlib computes on the CPU."""

import pathlib
import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jaxlib.mlir import ir
from jax._src.interpreters import mlir
from jax._src.lib import _jax
from jaxlib.mlir.dialects import stablehlo

VERSION = "1.13.0"


def mlp(w, v, x):
    return jax.grad(lambda w: jnp.sum(jax.nn.relu(x @ w) @ v))(w)


def conv(x, k):
    return jax.lax.conv_general_dilated(x, k, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def embedding(table, ids):
    return jax.grad(lambda t: jnp.sum(jnp.tanh(t[ids])))(table)


def scan(x):
    return jax.lax.scan(lambda c, v: (c * 2 + v, c), x[0], x)


def cond(i, x):
    return jax.lax.switch(i, [jnp.sin, jnp.cos, lambda x: x], x)


def sort(x):
    return jnp.sort(x), jnp.argsort(x)


def random(key):
    return jax.random.uniform(key, (3, 4))


def reduce(x):
    return jnp.argmax(x, 1), jnp.sum(x), jnp.any(x > 0, 0), jnp.max(x, 1)


def window(x):
    return jnp.cumsum(x, 0), jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (2, 2), (1, 1), "SAME")


def slices(x, i):
    return jax.lax.dynamic_update_slice(x, jax.lax.dynamic_slice(x, (i, 0), (1, 2)), (0, i)), x[::-1, ::2], jnp.pad(x, 1)


def kinds(x, u):
    mask = jnp.array([True, False, True, True, False, False, True, False, True])
    return x.astype(jnp.bfloat16), u ^ jnp.uint32(7), jnp.ones((9,), bool) & mask, jax.lax.bitcast_convert_type(u, jnp.float32)


def large(x):
    return x + np.arange(600, dtype=np.float32)


def unary(x):
    return (jnp.abs(x), -x, jnp.sign(x), jnp.exp(x), jnp.sqrt(x), jnp.tanh(x), jnp.sin(x), jnp.cos(x), jax.lax.rsqrt(x),
            jnp.log(x), jax.lax.logistic(x), jnp.floor(x), jnp.ceil(x),
            jax.lax.round(x, jax.lax.RoundingMethod.TO_NEAREST_EVEN),
            jax.lax.round(x, jax.lax.RoundingMethod.AWAY_FROM_ZERO), jnp.isfinite(x), jnp.log1p(x), jnp.expm1(x),
            jax.lax.erf(x), jax.lax.reduce_precision(x, 8, 7))


def tangent(x):
    return jax.lax.tan(x)


def half(x):
    return jnp.floor(x), jnp.expm1(x), x * x - x, jnp.maximum(x, 0), jnp.sum(x), x.astype(jnp.float16), x.astype(jnp.float32)


def binary(a, b):
    return (a + b, a - b, a * b, a / b, a**b, jnp.maximum(a, b), jnp.minimum(a, b), jnp.maximum(a, 0), jnp.minimum(a, 0.0),
            jnp.minimum(-0.0, a), jnp.maximum(a, -0.0), jax.lax.clamp(-1.0, a, 0.0), jax.lax.clamp(b, a, b), a < b, a <= b,
            a > b, a >= b, a == b, a != b, jnp.where(a < 0, a, b))


def integers(i, k, b, c):
    return (i + k, i - k, i * k, -i, jnp.abs(i), jnp.sign(i), jnp.maximum(i, k), jnp.minimum(i, 3), jnp.clip(i, -2, 2), i < k,
            b & c, b | c, b ^ c, ~b, i.astype(jnp.float32), (k * 0.7).astype(jnp.int32), b.astype(jnp.int32), i.astype(bool),
            b.astype(jnp.float32), b.astype(jnp.uint8), jnp.where(b, i, k), jnp.maximum(b, c), b * c)


def constants(x):
    mask = jnp.array([True, False, True, True, False, False, True, False, True])
    return (jnp.where(mask, x, 2.0), jnp.full((2, 3), 7, jnp.int32), jax.lax.broadcasted_iota(jnp.float32, (2, 9), 1),
            jnp.arange(9) * 2, jnp.ones((9,), bool) & mask, jnp.array([1.5, -0.0, np.nan], jnp.bfloat16), jnp.zeros((0, 4)),
            jnp.array([3, 250], jnp.uint8), x[:0].sum(), jnp.full((8,), True))


def shapes(x, v):
    y = x.reshape(3, 2, 4)
    return (y.transpose(2, 0, 1), jax.lax.broadcast_in_dim(x, (4, 2, 6), (2, 0)), jnp.concatenate([x, x + 1, x], 1),
            x[1:4, ::2], x[::3, 1::2], x[::-1, ::-1], jnp.pad(x, ((1, 0), (2, 3)), constant_values=v),
            jax.lax.pad(x, 2.5, ((1, -1, 2), (-1, 0, 0))), jax.lax.pad(x, v, ((0, 1, 1), (-2, 2, 0))), jnp.tile(x, (2, 1)),
            jnp.squeeze(x[:, 1:2]), x[:, 3], x.T.ravel(), jnp.broadcast_to(v, (3, 2)).T)


def reductions(x, i, b):
    return (jnp.sum(x, (0, 2)), jnp.max(x, 1), jnp.min(x, (0, 1)), jnp.prod(x, 2), jnp.prod(x), jnp.sum(i), jnp.max(i, 0),
            jnp.min(i), jnp.prod(i, 1), jnp.any(b, 1), jnp.all(b, 0), jnp.argmax(x, 1), jnp.argmin(x, 2), jnp.argmax(i, 1),
            jnp.argmin(i, 0), jnp.max(x, initial=1.5), jnp.mean(x), jax.nn.softmax(x), jnp.max(x, 2), jnp.min(-x, 2))


def windows(x, y, i):
    pool = jax.lax.reduce_window
    return (jnp.cumsum(x, 1), jnp.cumsum(x, 0, dtype=jnp.float32)[::-1], jnp.cumprod(x, 1), jnp.cumsum(i), jax.lax.cummax(x, 0),
            jax.lax.cummin(x, 1, reverse=True), pool(y, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"),
            pool(y, -jnp.inf, jax.lax.max, (1, 3, 2, 1), (1, 2, 1, 1), "SAME"),
            pool(y, 0.0, jax.lax.add, (1, 2, 3, 1), (1, 1, 2, 1), "SAME"),
            pool(y, jnp.inf, jax.lax.min, (1, 1, 3, 1), (1, 1, 1, 1), ((0, 0), (0, 0), (2, 1), (0, 0))),
            pool(y, -jnp.inf, jax.lax.max, (1, 2, 2, 2), (1, 1, 1, 1), "VALID"),
            pool(i, -2**31, jax.lax.max, (3,), (2,), "SAME"),
            pool(x, 0.0, jax.lax.add, (2, 2), (1, 1), "VALID", window_dilation=(1, 3)))


def pool_gradients(x, y):
    def pool(x, size, stride, padding):
        return jnp.sum(jnp.sin(jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, size, stride, padding)))
    return (jax.grad(pool)(x, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"), jax.grad(pool)(x, (1, 3, 2, 1), (1, 2, 1, 1), "SAME"),
            jax.grad(pool)(y, (2, 2), (1, 2), "SAME"))


def dots(a, b, v, s):
    dot = jax.lax.dot_general
    return (a @ b, a[0] @ v, jnp.dot(v, v), s * s, dot(a, b, (((0, 1), (0, 2)), ((), ()))),
            dot(a, b, (((2,), (1,)), ((0,), (0,)))), jnp.einsum("bij,bkj->ikb", a, a), jnp.tensordot(v, a[1], ((0,), (1,))),
            jnp.outer(v, v), jnp.dot(s, s), dot(a.astype(jnp.bfloat16), b.astype(jnp.bfloat16), (((2,), (1,)), ((0,), (0,))),
            preferred_element_type=jnp.float32))


def convs(x, k, g, s, t):
    def conv(x, k, strides=(1, 1), padding="SAME", numbers=("NHWC", "HWIO", "NHWC"), **more):
        return jax.lax.conv_general_dilated(x, k, strides, padding, dimension_numbers=numbers, **more)
    strided = lambda x, k: conv(x, k, (2, 2))
    return (conv(x, k), conv(x, k, (2, 1), "VALID", rhs_dilation=(2, 1)), conv(x, g, feature_group_count=2),
            conv(x.transpose(0, 3, 1, 2), k.transpose(3, 2, 0, 1), numbers=("NCHW", "OIHW", "NCHW")),
            conv(x, k, (1, 1), ((0, -1), (2, -1))), jax.lax.conv_transpose(x, k, (2, 2), "SAME"),
            conv(x, g, (1, 1), ((2, 1), (1, 1)), lhs_dilation=(2, 3), feature_group_count=2),
            jax.grad(lambda x: jnp.sum(jnp.sin(strided(x, k))))(x), jax.grad(lambda k: jnp.sum(jnp.sin(strided(x, k))))(k),
            jax.lax.conv_general_dilated(s, t, (2,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")),
            jax.lax.conv_transpose(s, t, (2,), "VALID", dimension_numbers=("NWC", "WIO", "NWC")))


def gathers(x, i, k, j):
    return (x[i], x[:, i], x[i, k], x[i[0], :, k[1]], jnp.take(x, i, 1, mode="clip"), jnp.take(x, i, 0, mode="fill"),
            jnp.take_along_axis(x, j, 1), jax.vmap(lambda x, i: x[i])(x[:2], i),
            jax.lax.dynamic_slice(x, (i[0, 0], k[0, 0], 1), (2, 2, 2)),
            jax.vmap(lambda j: jax.lax.dynamic_slice(x, (j, 1, 0), (2, 3, 2)))(i[0]),
            x[i[1, 1]], x[1, i], jax.lax.dynamic_update_slice(x, x[:2, :3] + 1, (i[0, 1], k[0, 1], 0)),
            jax.lax.dynamic_index_in_dim(x, i[0, 0], 2))


def scatters(x, i, k, u):
    return (x.at[i].add(1.5), x.at[:, k].add(u[0, 0, 0]), x.at[i, k].set(u), jnp.zeros_like(x).at[i, k].add(u),
            x.at[2].set(7.0),
            x.at[:, 1:3].set(0.5), x.at[i[0], :, 1].add(2.0, mode="drop"), jax.grad(lambda x: jnp.sum(jnp.sin(x[i, k])))(x),
            x.astype(jnp.int32).at[i[0, 0]].set(3), jax.vmap(lambda x, k: x.at[k].add(1.0))(x[:1], k))


def nested(x):
    @jax.jit
    def inner(x):
        return jax.nn.gelu(jax.jit(jnp.cos)(x))
    return inner(x) + inner(x + 1), jax.lax.optimization_barrier(x), x


def donated(x, y):
    return y + 1, x * y


def refused(x):
    return jnp.fft.fft(x)


RNG = np.random.RandomState(5)
SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, -0.5, 1.5, 2.5, -2.5, 0.49999997, 8388609.0, 1e-4, -1e-4, 3.7]


def f32(*shape):
    return RNG.uniform(-2, 2, shape).astype(np.float32)


def u32(*shape):
    return RNG.randint(0, 2**31, shape).astype(np.uint32)


def i32(*shape, low=-5, high=6):
    return RNG.randint(low, high, shape).astype(np.int32)


def flags(*shape):
    return RNG.randint(0, 2, shape).astype(bool)


def special(pairs):
    """Numbers for which functions are defined by cases; with pairs, each with each in two arrays."""
    values = np.array(SPECIAL[:10], np.float32)
    return (np.repeat(values, 10), np.tile(values, 10)) if pairs else np.array(SPECIAL, np.float32)


def zeros_and(x):
    """A row with zeros of both signs as its largest elements, and one with NaN. (Along the axes before the last one, jaxlib
    gives such zeros any sign.)"""
    x = x.copy()
    x[0, 0], x[0, 1], x[1, 1, 2] = [-0.0, 0.0, -1.0, -0.0], [-0.0, -3.0, -1.0, -2.0], np.nan
    return x


def nan_in(x):
    x = x.copy()
    x[0, 2] = x[2, 1] = np.nan
    return x


LARGE = np.array([2**31 - 1, -2**31, 5, -3], np.int32)
X = f32(3, 4, 5)
PROGRAMS = [
    (mlp, f32(4, 8), f32(8, 2), f32(3, 4)), (conv, f32(1, 8, 8, 3), f32(3, 3, 3, 4)), (embedding, f32(10, 4), i32(5)),
    (scan, f32(6)), (cond, i32(), f32(4)), (sort, f32(7)), (random, u32(2)), (reduce, f32(3, 5)), (window, f32(4, 4)),
    (slices, f32(4, 4), i32()), (kinds, f32(9), u32(9)), (large, f32(600)), (unary, special(False)), (tangent, f32(7)),
    (half, f32(9).astype(jnp.bfloat16)), (binary, *special(True)),
    (integers, np.append(i32(5), LARGE), np.append(i32(5), LARGE[::-1]), flags(9), flags(9)), (constants, f32(9)),
    (shapes, f32(6, 4), f32()), (reductions, zeros_and(f32(3, 3, 4)), i32(3, 5), flags(4, 5)),
    (windows, f32(5, 7), np.round(f32(2, 5, 6, 2)) * 1.0, i32(7)),
    (pool_gradients, np.round(f32(2, 5, 6, 2)), nan_in(f32(3, 6))), (dots, f32(2, 3, 4), f32(2, 4, 3), f32(4), f32()),
    (convs, f32(1, 6, 5, 2), f32(3, 2, 2, 3), f32(3, 2, 1, 4), f32(2, 7, 2), f32(3, 2, 3)),
    (gathers, X, i32(2, 3, low=-3, high=4), i32(2, 3, low=0, high=4), i32(3, 2, 5, low=-4, high=4)),
    (scatters, X, np.array([[0, 2, 9]], np.int32), np.array([[1, 3, 0]], np.int32), f32(1, 3, 5)), (nested, f32(6)),
    (donated, f32(5), f32(5)), (refused, f32(4)),
]


def tensor(match):
    """The bytes of a constant tensor in hexadecimal digits; i1 as bits."""
    attribute = ir.DenseElementsAttr(ir.Attribute.parse(match[1]))
    element, is_splat = str(attribute.type.element_type), attribute.is_splat
    if element == "bf16":
        return "*"
    array = np.array(attribute).ravel()[:1 if is_splat else None]
    data = np.packbits(array, bitorder="little") if element == "i1" else array
    digits = "ff" if element == "i1" and is_splat and array[0] and np.prod(attribute.type.shape) > 1 else data.tobytes().hex()
    return f"{'splat' if is_splat else 'dense'} {digits} : {match[2]}"


def value(name, attribute):
    """An attribute of vhlo as strata_program_print writes it. "*" stands for what is not compared."""
    text = str(attribute)
    if name in ("function_type", "result_accuracy"):
        return "*"
    text = re.sub(r"#vhlo\.tensor_v1<(dense<[^>]*> : (tensor<[^>]*>))>", tensor, text)
    text = re.sub(r"#vhlo<\w+_v1 (\w+)>", r"\1", text)
    text = re.sub(r"#vhlo\.(?:integer|string|bool)_v1<([^<>]*)>", r"\1", text)
    text = text.replace("#vhlo.type_v1<!vhlo.none_v1>", "none")
    return re.sub(r"([\]}])>", r"\1", re.sub(r"#vhlo\.(?:array|dict)_v1<", "", text))


def lines(op, encoded, out):
    """op and encoded: an operation in stablehlo, and in vhlo."""
    types = [", ".join(str(value.type) for value in values) for values in (op.operands, op.results)]
    attributes = [f"{name} = {value(name, encoded.attributes[name])}" for name in sorted(encoded.attributes)]
    attributes = attributes if encoded.name.startswith("vhlo") or not attributes else ["*"]
    suffix = f" {{{', '.join(attributes)}}}" if attributes else ""
    out.append(f"{op.name} ({types[0]}) -> ({types[1]}){suffix}")
    for region, other in zip(op.regions, encoded.regions, strict=True):
        for block, other_block in zip(region, other, strict=True):
            for inner, other_inner in zip(block, other_block, strict=True):
                lines(inner.operation, other_inner.operation, out)


def main():
    folder = pathlib.Path(sys.argv[1])
    jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")
    for function, *arguments in PROGRAMS:
        traced = jax.jit(function, donate_argnums=1 if function is donated else ()).trace(*arguments)
        module = traced.lower(lowering_platforms=("cpu",)).compiler_ir("stablehlo")
        data = _jax.mlir.serialize_portable_artifact(module.operation.get_asm(enable_debug_info=True), VERSION, True)
        (folder / f"{function.__name__}.mlir.bc").write_bytes(data)
        context = mlir.make_ir_context()
        with context:
            again = stablehlo.deserialize_portable_artifact(context, data)
            out = []
            lines(again.operation, ir.Module.parse(data).operation, out)
        (folder / f"{function.__name__}.txt").write_text("\n".join(out) + "\n")
        results = jax.tree.leaves(jax.jit(lambda *x, f=function: f(*x))(*arguments))
        (folder / f"{function.__name__}.values").write_bytes(b"".join(np.asarray(x).tobytes() for x in [*arguments, *results]))


if __name__ == "__main__":
    main()
