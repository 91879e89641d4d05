# SPDX-License-Identifier: Apache-2.0
"""The library and the command of the build that is tested: STRATA_BUILD_DIR, or build/tests."""
import json
import os
import pathlib
import subprocess
import sys

root = pathlib.Path(__file__).resolve().parents[2]
build = pathlib.Path(os.environ.get("STRATA_BUILD_DIR") or root / "build" / "tests").resolve()
os.environ["STRATA_LIBRARY"] = str(build / "libstrata.so")
sys.path.insert(0, str(root / "include" / "python"))

import strata  # noqa: E402
from strata import _native  # noqa: E402

lib, struct, ctype = _native.lib, _native.struct, _native.ctype


class Failed(Exception):
    """The command ended with another exit code than 0. The text is its stderr."""


def command(*arguments, env=None, code=0, input=None):
    """Runs the command `strata` and returns its standard output."""
    done = subprocess.run([build / "strata", *map(str, arguments)], stdin=None if input else subprocess.DEVNULL, text=True,
                          encoding="utf-8", input=input, capture_output=True, env={**os.environ, **(env or {})})
    if done.returncode != code:
        raise Failed(f"strata {' '.join(map(str, arguments))}: exit code {done.returncode}: {done.stderr.strip()[:600]}")
    return done.stdout


def last_json(text):
    return json.loads(text.strip().splitlines()[-1])
