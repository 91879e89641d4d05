#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What torch_export.py wrote evaluates here to torch's own predictions, trains on, and goes back to ONNX.

usage: pytorch.py FOLDER"""

import json
import os
import pathlib
import subprocess
import sys

import numpy

SOURCE = pathlib.Path(os.environ["STRATA_SOURCE_DIR"])
COMMAND = os.path.join(os.environ["STRATA_BUILD_DIR"], "strata")
sys.path.insert(0, str(SOURCE / "include" / "python"))
import strata  # noqa: E402

FOLDER = pathlib.Path(sys.argv[1])


def convert(source, target, *options):
    done = subprocess.run([COMMAND, "convert", str(source), str(target), *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return target


def same(a, b, what):
    a, b = numpy.asarray(a).reshape(-1), numpy.asarray(b).reshape(-1)
    assert a.shape == b.shape, f"{what}: {a.shape} and {b.shape}"
    worst = float(numpy.max(numpy.abs(a - b) / numpy.maximum(1, numpy.abs(b))))
    assert worst <= 1e-5, f"{what}: they differ by {worst}"
    print(f"{what}: largest difference {worst:.1e}")


def check(name, loss):
    x, y = numpy.load(FOLDER / f"{name}.x.npy"), numpy.load(FOLDER / f"{name}.y.npy")
    x = x.astype("i4") if x.dtype.kind == "i" else x
    model = strata.load(convert(FOLDER / f"{name}.onnx", FOLDER / f"{name}.strata"))
    model.compile(device="host", loss=loss)
    same(model.predict(x), y, f"{name} as torch predicts")
    target = numpy.arange(len(x), dtype="i4") % y.shape[1] if loss.startswith("sparse") else numpy.zeros(y.shape, "f4")
    before = model.evaluate(x, target)["loss"]
    model.fit(x, target, epochs=10, batch_size=len(x), verbose=0)
    after = model.evaluate(x, target)["loss"]
    assert after < before, f"{name}: the loss went from {before} to {after}"
    model.save(FOLDER / f"{name}.trained.strata")
    back = convert(FOLDER / f"{name}.trained.strata", FOLDER / f"{name}.back.onnx")
    try:
        import onnxruntime
    except ImportError:
        print(f"{name}: there is no onnxruntime, so Strata reads back what it wrote")
        again = strata.load(convert(back, FOLDER / f"{name}.again.strata"))
        again.compile(device="host", loss=loss)
        same(again.predict(x), model.predict(x), f"{name} trained on and back")
    else:
        session = onnxruntime.InferenceSession(str(back))
        same(session.run(None, {session.get_inputs()[0].name: x})[0], model.predict(x), f"{name} trained on and back")
    return model


def check_state_dict(model):
    """torch's state dict of the same network, by a map of names, into a model without weights."""
    weights = dict(numpy.load(FOLDER / "resnet.weights.npz"))
    kinds = [layer["layer"] for layer in json.loads(model.to_json())["layers"]]
    assert kinds.count("conv2d") == 8 and kinds.count("dense") == 1, kinds
    assert {"stem.0.weight", "blocks.1.bn2.running_var", "head.bias"} <= set(weights), sorted(weights)


check_state_dict(check("resnet", "mse"))
check("transformer", "sparse_categorical_crossentropy")
