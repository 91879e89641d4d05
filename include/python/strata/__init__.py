# SPDX-License-Identifier: Apache-2.0
"""Strata trains neural networks on any accelerator: OpenCL, Vulkan, vendors' plugins, and many of them together.

    import strata
    from strata import layers

    model = strata.Sequential([layers.dense(128, activation="relu"), layers.dense(10)])
    model.compile("adam", "sparse_categorical_crossentropy", device="opencl:0")
    model.fit(x, y, epochs=5, batch_size=64, validation_split=0.1)
    print(model.evaluate(x_test, y_test))
    model.save("digits.strata")"""
from . import callbacks, layers, optimizers
from ._native import Error, _errors, lib
from .data import Dataset
from .devices import Device, DeviceInfo, configure_drivers, devices, load_plugin
from .layers import Input
from .distribute import (Function, Optimizer, PerReplica, Strategy, Tensor, Variable, all_reduce, average_loss, example_losses,
                         gradients, ops, replica_id, strategy_names)
from .model import History, Model, OnnxGraph, Sequential, load
from .optimizers import schedule

globals().update({error.__name__: error for error in _errors.values()})
__version__ = lib.version()
