#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Keras loads the .keras files of keras_files.py, predicts the same (1e-5), and saves them again.

usage: keras_load.py FOLDER"""

import os
import pathlib
import sys

os.environ["KERAS_BACKEND"] = "numpy"
os.environ["JAX_PLATFORMS"] = "cpu"
import keras  # noqa: E402
import numpy  # noqa: E402

FOLDER = pathlib.Path(sys.argv[1])


def check(path):
    name = path.name[: -len(".keras")]
    model = keras.models.load_model(path)
    x, y = numpy.load(FOLDER / f"{name}.x.npz"), numpy.load(FOLDER / f"{name}.y.npz")
    inputs = [x[k] for k in x.files]
    found = model(inputs if len(inputs) > 1 else inputs[0], training=False)
    found = [numpy.asarray(v) for v in (found if isinstance(found, (list, tuple)) else [found])]
    assert len(found) == len(y.files), f"{len(found)} outputs"
    for a, k in zip(found, y.files):
        assert a.size == y[k].size, f"{a.shape} and {y[k].shape}"
        worst = numpy.max(numpy.abs(a.reshape(-1) - y[k].reshape(-1)) / numpy.maximum(1, numpy.abs(y[k].reshape(-1))))
        assert worst <= 1e-5, f"output {k} differs by {worst}"
    model.save(FOLDER / f"{name}.saved.keras")


def main():
    paths = sorted(p for p in FOLDER.glob("*.keras") if not p.name.endswith(".saved.keras"))
    failed = 0
    for path in paths:
        try:
            check(path)
        except Exception as error:  # noqa: BLE001  each file is shown, whatever is wrong with it
            failed += 1
            print("FAILED", path.name, str(error)[:600])
    print(f"Keras {keras.__version__}: {len(paths)} files, {failed} failed")
    sys.exit(1 if failed or len(paths) < 40 else 0)


if __name__ == "__main__":
    main()
