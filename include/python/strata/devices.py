# SPDX-License-Identifier: Apache-2.0
"""Devices of this machine (strata/device.h)."""
import ctypes
import typing

from . import _native
from ._native import Handle, lib, struct


_TEXTS = ("id", "backend", "name", "vendor", "driver", "skipped", "matrix_units")


class DeviceInfo(typing.NamedTuple("DeviceInfo", [*((text, str) for text in (*_TEXTS, "device_class")), ("memory_bytes", int),
                                                  ("compute_units", int)])):
    """A row of the list of devices. `skipped` is the reason why the device cannot be opened, or "". strata/device.h
    describes `matrix_units`."""

    @classmethod
    def of(cls, info):
        text = {f: getattr(info, f).decode(errors="replace") for f in _TEXTS}
        return cls(device_class=lib.device_class_name(info.device_class), memory_bytes=info.memory_bytes,
                   compute_units=info.compute_units, **text)


def devices() -> "list[DeviceInfo]":
    """Lists all devices of all backends, including those that cannot be opened."""
    listed, n = lib.devices_list()
    found = [DeviceInfo.of(listed[i]) for i in range(n)]
    lib.devices_free(listed)
    return found


def load_plugin(text: str) -> None:
    """Loads a vendor's plugin, "FILE[,key=value]". Its devices are then listed like all others."""
    lib.plugin_load(text)


def device_options(on_print=lambda printed: print(printed.text.decode()), **options):
    """Makes a strata_device_options. on_print is called with a strata_printed for each value of the layers `print`. None:
    they report nothing."""
    def show(printed, user):
        _native.guarded(on_print, None, printed[0])
    take = on_print and _native.ctype("strata_print_callback")(show)
    return struct("device_options", on_print=take, **options)


class Device(Handle):
    """An open device: Device("opencl:0"), Device("radeon"), or Device() for the best one. Options: those of device_options."""
    _destroy = "device_close"

    def __init__(self, which: "str | None" = None, **options):
        given = device_options(**options)
        super().__init__(lib.device_open(which, given), given)

    @property
    def info(self) -> DeviceInfo:
        return DeviceInfo.of(ctypes.cast(lib.device_get_info(self), ctypes.POINTER(_native.ctype("strata_device_info")))[0])


_opened, _opening = {}, _native.Lock()


def opened(which=None) -> Device:
    """Returns the device of this name. A process opens it only once; a child of fork opens its own."""
    with _opening:
        key = (_native.Lock.forks, which)
        if key not in _opened:
            _opened[key] = Device(which)
        return _opened[key]


def device(value) -> Device:
    return value if isinstance(value, Device) else opened(value)
