# SPDX-License-Identifier: Apache-2.0
"""Devices of this machine (strata/device.h)."""
import ctypes
import os
import sys
import typing

from . import _native
from ._native import Handle, constants, lib, struct


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


_EXIT_CODES = {constants["STRATA_TIMEOUT"]: 163, constants["STRATA_DEVICE_LOST"]: 160}


def _end_process(status, message):
    """A call of a driver hangs, so the function of the library that made it never returns, and no exception can be raised."""
    try:
        sys.stderr.write(f"strata: {message}\n")
        sys.stderr.flush()
        sys.stdout.flush()
    finally:
        os._exit(_EXIT_CODES.get(status, 1))


def configure_drivers(seconds: float = None, on_failure=_end_process) -> None:
    """Sets what is done about drivers and plugins that hang, for the process. seconds: how long one may take to start, to list
    its devices, to open or to close a device (60). Device(..., stall_seconds=, compile_seconds=) has the other limits.
    on_failure(status, message) is called if a call hangs or has called exit, so that no exception can be raised; by default it
    prints the message and ends the process with the exit code 163, or 160 for exit. It must call nothing of this module. If
    it returns, the process goes on waiting."""
    global _on_failure
    given = {} if seconds is None else {"seconds": seconds}
    taken = _native.ctype("strata_driver_callback")(lambda status, message, user: on_failure(
        status, _native._python_names(message.decode(errors="replace"))))
    lib.drivers_configure(struct("driver_options", on_failure=taken, **given))
    _on_failure = taken  # the library calls it later


configure_drivers()


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
