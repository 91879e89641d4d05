# SPDX-License-Identifier: Apache-2.0
"""Compiles and runs StableHLO text with jaxlib's CPU client, for tests/pjrt/plugin/jaxlib.c, which says what goes over the
pipes: requests come from file descriptor 0, answers go to 3."""

import os
import struct
import sys

os.environ["JAX_PLATFORMS"] = "cpu"
import jax
import ml_dtypes
import numpy as np
from jaxlib import xla_client

TYPES = [np.float32, np.float16, ml_dtypes.bfloat16, np.int32, np.int64, np.uint8, np.bool_, np.uint32, np.uint64]
jax.config.update("jax_enable_x64", True)
client = jax.devices("cpu")[0].client
programs = []
requests, answers = os.fdopen(0, "rb", 1 << 20), os.fdopen(3, "wb", 1 << 20)


def take(n):
    data = requests.read(n)
    if len(data) < n:
        sys.exit(0)
    return data


def number():
    return struct.unpack("<q", take(8))[0]


def compile_program():
    text = take(number()).decode()
    parameters = []
    for _ in range(number()):
        kind, rank = number(), number()
        parameters.append((np.dtype(TYPES[kind]), [number() for _ in range(rank)]))
    devices = xla_client.DeviceList(tuple(jax.devices("cpu")[:1]))
    programs.append((client.compile_and_load(text, devices, xla_client.CompileOptions()), parameters))
    return b""


def run_program():
    executable, parameters = programs[number()]
    arrays = []
    for dtype, shape in parameters:
        n = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        arrays.append(np.frombuffer(bytearray(take(n)), dtype=dtype).reshape(shape))
    n_bytes = number()
    results = executable.execute_sharded([jax.device_put(a, jax.devices("cpu")[0]) for a in arrays])
    data = b"".join(np.asarray(r[0]).tobytes() for r in results.disassemble_into_single_device_arrays())
    if len(data) != n_bytes:
        raise ValueError(f"results have {len(data)} bytes; {n_bytes} were expected")
    return data


while True:
    request = {ord("C"): compile_program, ord("R"): run_program}[number()]
    try:
        data, message = request(), b""
    except Exception as error:
        data, message = b"", str(error).encode() or b"failed"
    answers.write(struct.pack("<q", len(message)) + message + data)
    answers.flush()
