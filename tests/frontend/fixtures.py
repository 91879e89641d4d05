# SPDX-License-Identifier: Apache-2.0
"""Writes the programs of tests/frontend/programs: fixtures.py FOLDER. Each NAME.mlir.bc is what jaxlib sends to a PJRT plugin,
and NAME.txt has a line for each operation, made by jaxlib's own reader: name, types of operands, types of results."""

import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jaxlib.mlir import ir
from jax._src.interpreters import mlir
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


f32, i32, u32 = (lambda *s, t=t: jax.ShapeDtypeStruct(s, t) for t in (jnp.float32, jnp.int32, jnp.uint32))
PROGRAMS = [
    (mlp, f32(4, 8), f32(8, 2), f32(3, 4)), (conv, f32(1, 8, 8, 3), f32(3, 3, 3, 4)), (embedding, f32(10, 4), i32(5)),
    (scan, f32(6)), (cond, i32(), f32(4)), (sort, f32(7)), (random, u32(2)), (reduce, f32(3, 5)), (window, f32(4, 4)),
    (slices, f32(4, 4), i32()), (kinds, f32(9), u32(9)), (large, f32(600)),
]


def lines(op, out):
    types = [", ".join(str(value.type) for value in values) for values in (op.operands, op.results)]
    out.append(f"{op.name} ({types[0]}) -> ({types[1]})")
    for region in op.regions:
        for block in region:
            for inner in block:
                lines(inner.operation, out)


def main():
    folder = pathlib.Path(sys.argv[1])
    jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")
    for function, *arguments in PROGRAMS:
        module = jax.jit(function).trace(*arguments).lower(lowering_platforms=("cpu",)).compiler_ir("stablehlo")
        with module.context:
            data = stablehlo.serialize_portable_artifact(module, VERSION)
        (folder / f"{function.__name__}.mlir.bc").write_bytes(data)
        context = mlir.make_ir_context()
        with context:
            again = stablehlo.deserialize_portable_artifact(context, data)
            out = []
            lines(again.operation, out)
        (folder / f"{function.__name__}.txt").write_text("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
