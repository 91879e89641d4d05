# SPDX-License-Identifier: Apache-2.0
"""Strata's devices as the platform "strata" of JAX, for programs that ask for it by JAX_PLATFORMS=strata,cpu. JAX calls
initialize(), the entry point of the package, in all programs; the others stay as they are."""
import os
import pathlib


def _library():
    named = os.environ.get("STRATA_LIBRARY")
    folder = pathlib.Path(named).parent if named else pathlib.Path(__file__).resolve().parents[1] / "strata"
    return folder / "libstrata_pjrt.so"


def initialize():
    import jax
    from jax._src import xla_bridge
    from jax._src.interpreters import mlir

    if "strata" not in (jax.config.jax_platforms or "").split(","):
        return
    xla_bridge.register_plugin("strata", priority=400, library_path=str(_library()))
    # JAX drops the donation of arguments on platforms that are not in this list.
    donating = getattr(mlir, "_platforms_with_donation", None)
    if donating is not None and "strata" not in donating:
        donating.append("strata")
