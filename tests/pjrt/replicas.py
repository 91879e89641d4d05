# SPDX-License-Identifier: Apache-2.0
"""The training step of four replicas against that of one, both run by jaxlib's CPU client.

    python replicas.py ONE.mlir FOUR.mlir

ONE is the step of a batch on one device, FOUR that of a quarter of it on each of four, with all_reduce inside (`strata compile
--strategy tpu`). Every parameter of FOUR is ONE's, or has a quarter of its rows. Besides, if the model has a penalty, a replica
has two numbers: its examples, and its share of the penalty, which is one of ONE's step words. All four must leave the same
values, and those that ONE leaves.
"""

import os
import re
import sys

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxlib import xla_client

TYPES = {"f32": np.float32, "i32": np.int32}


SHARE, BATCH = 4, 8  # the place of the penalty's share among the step words; the examples of a batch


def parameters(text):
    """(shape, dtype, the number of the result that replaces it, or "") of each parameter."""
    signature = text[: text.index(") -> (")]
    found = []
    for dims, kind, result in re.findall(r"%arg\d+: tensor<((?:\d+x)*)(\w+)>(?: {tf.aliasing_output = (\d+))?", signature):
        found.append(([int(d) for d in dims.split("x")[:-1]], TYPES[kind], result))
    return found


def pairs(whole, quarter):
    """For each parameter of FOUR the index of ONE's: the first that is left, has the shape or four times the rows, and is
    replaced by the same result. Numbers have none."""
    left, found = list(range(len(whole))), []
    for shape, dtype, result in quarter:
        fitting = [k for k in left if (dtype, result) == whole[k][1:] and shape and
                   whole[k][0] in (shape, [4 * shape[0]] + shape[1:])]
        if shape and not fitting:
            sys.exit(f"{shape} of four replicas has no counterpart in the parameters {[whole[k][0] for k in left]} of one")
        found.append(fitting[0] if shape else None)
        if shape:
            left.remove(fitting[0])
    if left:
        sys.exit(f"four replicas lack the parameters {[whole[k][0] for k in left]} of one")
    return found


def run(text, n, arguments):
    """The results of each replica; arguments[i][r] is what replica r gets."""
    devices = jax.devices("cpu")[:n]
    options = xla_client.CompileOptions()
    options.num_replicas = n
    executable = jax.devices("cpu")[0].client.compile_and_load(text, xla_client.DeviceList(tuple(devices)), options)
    mesh = Mesh(np.array(devices), ("r",))
    arrays = []
    for parts in arguments:
        parts = [np.asarray(part) for part in parts]
        shape = (n * parts[0].shape[0],) + parts[0].shape[1:] if parts[0].ndim else ()
        shards = [jax.device_put(part, device) for part, device in zip(parts, devices)]
        sharding = NamedSharding(mesh, PartitionSpec("r") if shape else PartitionSpec())  # numbers are the same on all replicas
        arrays.append(jax.make_array_from_single_device_arrays(shape, sharding, shards))
    results = executable.execute_sharded(arrays).disassemble_into_single_device_arrays()
    return [[np.asarray(result[r]) for result in results] for r in range(n)]


def main():
    one, four = (open(path).read() for path in sys.argv[1:3])
    whole, quarter = parameters(one), parameters(four)
    rng, alone = np.random.default_rng(1), []
    for shape, dtype, _ in whole:
        if dtype == np.int32:
            value = rng.integers(0, 10, shape, dtype=dtype)
        else:
            value = np.abs(rng.normal(size=shape)).astype(dtype) * dtype(0.1)  # slots of optimizers are not negative
        alone.append([value])
    words = next((value for [value], (shape, _, _) in zip(reversed(alone), reversed(whole)) if shape == [8]), None)
    numbers, apart = [np.float32(BATCH / 4), words is not None and words[SHARE] / 4], []
    for k, (shape, _, _) in zip(pairs(whole, quarter), quarter):
        if k is None:
            apart.append([np.float32(numbers.pop(0))] * 4)
        else:
            apart.append([alone[k][0]] * 4 if whole[k][0] == shape else np.split(alone[k][0], 4))
    want, got = run(one, 1, alone)[0], run(four, 4, apart)
    for k, value in enumerate(want):
        for r in range(4):
            if not np.array_equal(got[r][k], got[0][k]):
                sys.exit(f"result {k} of replica {r} is not that of replica 0")
        np.testing.assert_allclose(got[0][k], value, rtol=2e-4, atol=2e-5, err_msg=f"result {k}")
    print(f"{len(want)} results of four replicas are those of one")


main()
