# SPDX-License-Identifier: Apache-2.0
"""The training step of four replicas against that of one, both run by jaxlib's CPU client.

    python replicas.py ONE.mlir FOUR.mlir

ONE is the step of a batch on one device, FOUR that of a quarter of it on each of four, with all_reduce inside (`strata compile
--strategy tpu`). Every parameter of FOUR is ONE's, or has a quarter of its rows. All four must leave the same values, and those
that ONE leaves.
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


def parameters(text):
    signature = text[: text.index(") -> (")]
    found = []
    for dims, kind in re.findall(r"%arg\d+: tensor<((?:\d+x)*)(\w+)>", signature):
        found.append(([int(d) for d in dims.split("x")[:-1]], TYPES[kind]))
    return found


def run(text, n, arguments):
    """The results of each replica; arguments[i][r] is what replica r gets."""
    devices = jax.devices("cpu")[:n]
    options = xla_client.CompileOptions()
    options.num_replicas = n
    executable = jax.devices("cpu")[0].client.compile_and_load(text, xla_client.DeviceList(tuple(devices)), options)
    sharding = NamedSharding(Mesh(np.array(devices), ("r",)), PartitionSpec("r"))
    arrays = []
    for parts in arguments:
        shape = (n * parts[0].shape[0],) + parts[0].shape[1:]
        shards = [jax.device_put(part, device) for part, device in zip(parts, devices)]
        arrays.append(jax.make_array_from_single_device_arrays(shape, sharding, shards))
    results = executable.execute_sharded(arrays).disassemble_into_single_device_arrays()
    return [[np.asarray(result[r]) for result in results] for r in range(n)]


def main():
    one, four = (open(path).read() for path in sys.argv[1:3])
    whole, quarter = parameters(one), parameters(four)
    if len(whole) != len(quarter):
        sys.exit(f"the programs have {len(whole)} and {len(quarter)} parameters")
    rng, alone, apart = np.random.default_rng(1), [], []
    for (shape, dtype), (part, _) in zip(whole, quarter):
        if dtype == np.int32:
            value = rng.integers(0, 10, shape, dtype=dtype)
        else:
            value = np.abs(rng.normal(size=shape)).astype(dtype) * dtype(0.1)  # slots of optimizers are not negative
        alone.append([value])
        split = part != shape
        if split and (part[1:] != shape[1:] or 4 * part[0] != shape[0]):
            sys.exit(f"a parameter is {shape} in one program and {part} in the other")
        apart.append(np.split(value, 4) if split else [value] * 4)
    want, got = run(one, 1, alone)[0], run(four, 4, apart)
    for k, value in enumerate(want):
        for r in range(4):
            if not np.array_equal(got[r][k], got[0][k]):
                sys.exit(f"result {k} of replica {r} is not that of replica 0")
        np.testing.assert_allclose(got[0][k], value, rtol=2e-4, atol=2e-5, err_msg=f"result {k}")
    print(f"{len(want)} results of four replicas are those of one")


main()
