# SPDX-License-Identifier: Apache-2.0
"""Runs small programs of JAX on the plugin, and compares with NumPy: JAX_PLATFORMS=strata,cpu plugin.py"""

import threading
import warnings

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import serialize_executable

multiply_add = jax.jit(lambda x, y: x * y + 1)
rng = np.random.default_rng(0)


def same(found, wanted):
    np.testing.assert_array_equal(np.asarray(found), wanted, strict=True)


def fails(function, *words):
    """The call raises an exception whose text contains the words."""
    try:
        jax.block_until_ready(function())
    except Exception as error:  # JAX has several classes
        missing = [word for word in words if word not in str(error)]
        assert not missing, f"{missing} not in: {error}"
    else:
        raise AssertionError(f"no exception that has {words}")


def arrays_and_scalars_are_computed():
    x, y = (rng.integers(-9, 9, (5, 7)).astype(np.float32) for _ in range(2))
    same(multiply_add(x, y), x * y + 1)
    same(multiply_add(np.float32(2), np.float32(3)), np.float32(7))
    same(multiply_add(x[:0], y[:0]), x[:0])
    same(multiply_add(multiply_add(x, y), y), (x * y + 1) * y + 1)


def arrays_with_any_strides_are_copied():
    x = rng.integers(-9, 9, (4, 6, 5)).astype(np.float32)
    one = np.ones(1, np.float32)
    for view in (x.T, x[::-1], x[:, ::-1, ::-2], x[1:, ::3], np.asfortranarray(x), x.transpose(2, 0, 1)[::-1],
                 np.broadcast_to(x[0], (3, 6, 5)), np.broadcast_to(one, (4, 3))[::-1]):
        same(jax.device_put(view), view)
        same(multiply_add(view, view[::-1]), view * view[::-1] + 1)


def copies_on_the_device_are_arrays_of_their_own():
    x = np.arange(6, dtype=np.float32)
    a = jax.device_put(x)
    b = jax.device_put(a, jax.devices()[0], may_alias=False)
    a.delete()
    same(b, x), same(jax.device_put(b, jax.devices("cpu")[0]), x)


def every_dtype_of_strata_is_stored():
    for dtype in (bool, np.uint8, np.int32, np.float16, jnp.bfloat16, np.float32):
        x = rng.integers(0, 2, (3, 4)).astype(dtype)
        same(jax.device_put(x.T), x.T)
    fails(lambda: jax.device_put(np.ones(3, np.complex64)), "complex64", "bfloat16")


def results_may_be_arguments_constants_or_nothing():
    x = np.arange(6, dtype=np.float32)
    a, b, two, product = jax.jit(lambda x: (x, x, jnp.float32(2), x * x))(x)
    same(a, x), same(b, x), same(two, np.float32(2)), same(product, x * x)
    assert jax.jit(lambda: ())() == ()
    same(jax.jit(lambda x, y: y + y, keep_unused=True)(np.zeros(3, np.float32), x), x + x)


def an_operation_without_a_rule_is_an_exception_that_names_it():
    x = np.eye(3, dtype=np.float32)
    solve = jax.jit(lambda a, b: jax.lax.linalg.triangular_solve(a, b, left_side=True))
    for _ in range(2):
        fails(lambda: solve(x, x), "UNIMPLEMENTED", "triangular_solve")
        same(multiply_add(x, x), x * x + 1)


def what_the_plugin_lacks_is_an_exception():
    x = jax.device_put(np.arange(6, dtype=np.float32))
    compiled = multiply_add.lower(x, x).compile()
    assert jax.devices()[0].memory_stats() is None and compiled.as_text() is None and compiled.cost_analysis() is None
    fails(x.unsafe_buffer_pointer, "UnsafePointer")
    fails(lambda: np.from_dlpack(x), "UNIMPLEMENTED")
    fails(lambda: serialize_executable.serialize(compiled), "Executable_Serialize")
    same(compiled(x, x), np.asarray(x) ** 2 + 1)


def donated_arguments_are_deleted():
    x = np.arange(6, dtype=np.float32)
    update = jax.jit(lambda x, y: (x * y + 1, y), donate_argnums=0)
    a, b = jax.device_put(x), jax.device_put(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # JAX warns of a donation that it does not use
        result, again = update(a, b)
    assert a.is_deleted() and not b.is_deleted()
    same(result, x * x + 1), same(again, x), same(b, x)
    fails(lambda: multiply_add(a, b), "deleted")
    for _ in range(3):
        result, again = update(result, b)
    wanted = x * x + 1
    for _ in range(3):
        wanted = wanted * x + 1
    same(result, wanted)
    b.delete()
    fails(lambda: multiply_add(b, x), "deleted")


def threads_run_programs_at_the_same_time():
    wrong = []

    def work(k):
        own = jax.jit(lambda x: x * x + np.float32(k))
        x = np.full((3, k + 1), k, np.float32)
        for _ in range(30):
            if not np.array_equal(multiply_add(x, x), x * x + 1) or not np.array_equal(own(x), x * x + k):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong


def main():
    device = jax.devices()[0]
    assert device.platform == "strata" and len(jax.devices()) == 1, jax.devices()
    print(f"{device} ({device.device_kind}), jax {jax.__version__}")
    for test in (arrays_and_scalars_are_computed, arrays_with_any_strides_are_copied,
                 copies_on_the_device_are_arrays_of_their_own, every_dtype_of_strata_is_stored,
                 results_may_be_arguments_constants_or_nothing, an_operation_without_a_rule_is_an_exception_that_names_it,
                 what_the_plugin_lacks_is_an_exception, donated_arguments_are_deleted, threads_run_programs_at_the_same_time):
        test()
        print(f"  {test.__name__}")


if __name__ == "__main__":
    main()
