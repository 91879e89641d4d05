# SPDX-License-Identifier: Apache-2.0
"""Loads libstrata and calls its functions. The declarations in its headers (_headers.py) determine how arguments are
converted.

    lib.model_read_json("m.json")                   strata_model_read_json(path, &out_model, &err)   ->  the handle
    lib.dataset_from_arrays(x, y, 0)                numpy arrays where C takes a strata_array *
    lib.model_fit(model, data, struct("fit_options", epochs=2))

These parameters are left out in calls from Python: parameters out_..., whose values are returned (several as a tuple);
`err`, since an error raises the exception of its status; and a count n_x after a list x, which is the list's length. ctypes
releases the GIL while a function runs."""
import ctypes
import ctypes.util
import itertools
import json
import os
import pathlib
import re
import threading
import weakref

import numpy

from . import _headers

_here = pathlib.Path(__file__).parent


# ---- errors ----------------------------------------------------------------------------------------------------------------
class Error(Exception):
    """An error of the library. The text says what was wrong and what to do. `status` is the name of its status, such as
    "INVALID"."""
    status = "UNKNOWN"


_BASES = {"INVALID": (ValueError,), "DATA": (ValueError,), "UNAVAILABLE": (RuntimeError,), "UNSUPPORTED": (RuntimeError,),
          "OUT_OF_MEMORY": (MemoryError,), "OUT_OF_DISK": (OSError,), "DEVICE_LOST": (RuntimeError,),
          "PEER_LOST": (ConnectionError,), "TIMEOUT": (TimeoutError,), "INTERRUPTED": (RuntimeError,),
          "INTERNAL": (RuntimeError,)}
_errors = {status: type(status.title().replace("_", "") + "Error", (Error, *bases),
                        {"status": status, "__doc__": f"The library's status {status}.", "__module__": "strata"})
           for status, bases in _BASES.items()}


# ---- the library -----------------------------------------------------------------------------------------------------------
def _load():
    named = os.environ.get("STRATA_LIBRARY")
    packaged = _here / "libstrata.so"
    path = named or (str(packaged) if packaged.exists() else ctypes.util.find_library("strata"))
    if not path:
        raise ImportError("libstrata.so was not found: install the package by pip, or name the library in STRATA_LIBRARY")
    try:
        return path, ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(f"{path} cannot be loaded: {error}") from None


_table = json.loads((_here / "_api.json").read_text()) if (_here / "_api.json").exists() else \
    _headers.read(_here.parents[1] / "strata")
constants = _table["constants"]
_path, _c = _load()
_libc = ctypes.CDLL(None)
_libc.free.argtypes = [ctypes.c_void_p]

_BASIC = {"void": None, "bool": ctypes.c_bool, "char": ctypes.c_char, "int": ctypes.c_int, "double": ctypes.c_double,
          "float": ctypes.c_float, "size_t": ctypes.c_size_t, "va_list": ctypes.c_void_p,
          **{f"{u}int{n}_t": getattr(ctypes, f"c_{u}int{n}") for u in ("", "u") for n in (8, 16, 32, 64)}}
_structs = {}


def _callback(result, parameters):
    return ctypes.CFUNCTYPE(ctype(result), *(ctype(p) for p in parameters))


def ctype(name, dims=()):
    """Returns the ctypes type for a type of the declarations. Handles are void pointers, and texts are char pointers."""
    if dims:
        return ctype(name, dims[1:]) * dims[0]
    if isinstance(name, list):
        if name[0] == "callback":
            return _callback(name[1], name[2])
        return type("anonymous", (ctypes.Structure,), {"_fields_": [(f, ctype(t, d)) for t, f, d in name[1]]})
    if name in _BASIC:
        return _BASIC[name]
    if name in _table["aliases"]:
        return ctype(_table["aliases"][name])
    if name in _table["callbacks"]:
        return _callback(*_table["callbacks"][name])
    if name == "const char*":
        return ctypes.c_char_p
    if name.endswith("*"):
        target = re.sub(r"(const)?\*$", "", name)
        if target == "const char*":
            return ctypes.POINTER(ctypes.c_char_p)
        if target in _table["callbacks"]:
            return ctype(target)
        if target in ("void", "char") or (target in _table["structs"] and _table["structs"][target] is None):
            return ctypes.c_void_p
        return ctypes.POINTER(ctype(target))
    if name not in _structs:
        _structs[name] = type(name, (ctypes.Structure,), {})  # created before its fields, which may point to it
        _structs[name]._fields_ = [(f, ctype(t, d)) for t, f, d in _table["structs"][name]]
    return _structs[name]


_Error, _Array, _Shape = ctype("strata_error"), ctype("strata_array"), ctype("strata_shape")

# Exceptions of Python callbacks. A callback that fails stores its exception here under a number and puts this number into
# the library's message. The call that receives the message raises the exception.
_raised, _numbers, _lock = {}, itertools.count(1), threading.Lock()


def _report(exception, err):
    number = next(_numbers)
    with _lock:
        _raised[number] = exception
    err[0].status = constants["STRATA_INTERRUPTED"]
    err[0].message = f"a Python callback raised {type(exception).__name__}: {exception} [{number}]".encode()[:1000]
    return constants["STRATA_INTERRUPTED"]


def callback(name, function):
    """Returns a C callback of the declared type. The Python function gets the arguments of the C callback except the last
    one, err. If it raises an exception, the C callback fails, and the library call that ran the callback raises the
    exception again."""
    def run(*arguments):
        try:
            function(*arguments[:-1])
            return 0
        except BaseException as exception:  # KeyboardInterrupt too
            return _report(exception, arguments[-1])
    return ctype(name)(run)


def _check(status, error):
    if not status:
        return
    message = bytes(error.message).split(b"\0")[0].decode(errors="replace")
    number = re.search(r"a Python callback raised .*\[(\d+)\]", message, re.S)
    if number:
        with _lock:
            exception = _raised.pop(int(number[1]), None)
        if exception is not None:
            raise exception
    name = _c_status_name(status).decode()
    raise _errors.get(name, Error)(message)


# ---- arrays ----------------------------------------------------------------------------------------------------------------
_DTYPES = {"f32": numpy.float32, "f16": numpy.float16, "i32": numpy.int32, "i64": numpy.int64, "u8": numpy.uint8,
           "bool": numpy.bool_}
try:
    import ml_dtypes
    _DTYPES["bf16"] = ml_dtypes.bfloat16
except ImportError:
    _DTYPES["bf16"] = numpy.uint16  # the bits of bf16
_BY_NUMPY = {numpy.dtype(d): constants[f"STRATA_DTYPE_{n.upper()}"] for n, d in _DTYPES.items()}
_BY_NUMBER = {constants[f"STRATA_DTYPE_{n.upper()}"]: numpy.dtype(d) for n, d in _DTYPES.items()}


def dtype(name):
    """The number of an element type in strata_dtype. name: "f32", numpy.float32 or "float32"."""
    if name in _DTYPES:
        return constants[f"STRATA_DTYPE_{name.upper()}"]
    try:
        return _BY_NUMPY[numpy.dtype(name)]
    except (KeyError, TypeError):
        raise InvalidError(f"{name!r} is no element type of Strata: there are {', '.join(_DTYPES)}") from None


def dtype_of(number):
    return _BY_NUMBER[number]


def shape(dims):
    """Makes a strata_shape of a tuple, a list or a number."""
    dims = [dims] if isinstance(dims, int) else list(dims)
    if len(dims) > constants["STRATA_MAX_RANK"]:
        raise InvalidError(f"the shape {tuple(dims)} has {len(dims)} axes; at most {constants['STRATA_MAX_RANK']} are possible")
    return _Shape(len(dims), (ctypes.c_int64 * constants["STRATA_MAX_RANK"])(*dims))


def dims(c_shape):
    return tuple(c_shape.dims[:c_shape.rank])


def host_array(value):
    """Converts an array that numpy or DLPack can read (tensors of PyTorch and JAX, cuDF ...) to a row-major numpy array of
    a type that the library supports. It does not copy an array that is one already."""
    if not isinstance(value, numpy.ndarray) and hasattr(value, "__dlpack__"):
        try:
            value = numpy.from_dlpack(value.detach() if hasattr(value, "detach") else value)
        except (BufferError, RuntimeError, TypeError):
            pass  # the array is on another device; numpy.asarray copies it, or raises the reason why it cannot
    array = numpy.asarray(value)
    if array.dtype not in _BY_NUMPY:
        kinds = {"f": numpy.float32, "i": numpy.int64, "u": numpy.int64}
        if array.dtype.kind not in kinds:
            raise InvalidError(f"an array of {array.dtype} cannot be used: numbers are needed; words become numbers by "
                               "Preprocessing, or by a table that strata.Dataset.csv reads")
        array = array.astype(kinds[array.dtype.kind])
    return numpy.require(array, requirements=["C", "ALIGNED"])


def view(array):
    """Makes a strata_array that borrows the memory of a row-major numpy array."""
    return _Array(_BY_NUMPY[array.dtype], shape(array.shape), array.ctypes.data, None)


def from_array(c_array, owner=None):
    """Returns a numpy array with the memory of a strata_array. owner: an object that keeps the memory. None: the memory is
    freed with the numpy array."""
    size = int(numpy.prod(dims(c_array.shape), dtype=numpy.int64)) * _BY_NUMBER[c_array.dtype].itemsize
    memory = (ctypes.c_char * size).from_address(c_array.data) if size else (ctypes.c_char * 0)()
    if owner is None:
        weakref.finalize(memory, _libc.free, c_array.owned)
    else:
        memory.owner = owner
    return numpy.frombuffer(memory, _BY_NUMBER[c_array.dtype]).reshape(dims(c_array.shape))


# ---- structs and functions -------------------------------------------------------------------------------------------------
def _member(kind, value, keep):
    """Converts a Python value to a ctypes field or argument of the declared type. Objects to which it points are added to
    `keep`."""
    if isinstance(value, str) and kind == "const char*":
        return value.encode()
    if isinstance(value, os.PathLike) and kind == "const char*":
        return os.fsencode(value)
    if kind == "const char*const*" and value is not None:
        value = (ctypes.c_char_p * (len(value) + 1))(*(str(v).encode() for v in value), None)
        keep.append(value)
        return ctypes.cast(value, ctypes.POINTER(ctypes.c_char_p))
    if kind == "strata_shape" and not isinstance(value, _Shape):
        return shape(value)
    if kind == "strata_dtype" and not isinstance(value, int):
        return dtype(value)
    if kind == "strata_array*" and value is not None and not isinstance(value, (_Array, ctypes.Array, ctypes._Pointer)):
        value = host_array(value)
        keep.append(value)
        value = view(value)
    if isinstance(kind, str) and kind.endswith("*") and isinstance(value, (list, tuple)):
        target = re.sub(r"(const)?\*$", "", kind)
        value = (ctype(target) * max(1, len(value)))(*(_member(target, v, keep) for v in value))
    if hasattr(value, "_as_parameter_") and not isinstance(value, ctypes._SimpleCData):
        keep.append(value)
        return value._as_parameter_
    if isinstance(value, dict) and isinstance(kind, str):
        value = struct(kind.rstrip("*").replace("strata_", "", 1), **value)
    if isinstance(value, ctypes.Structure):
        keep.append(value)
        return ctypes.pointer(value) if isinstance(kind, str) and kind.endswith("*") else value
    if isinstance(value, ctypes.Array) and isinstance(kind, str) and kind.endswith("*"):
        keep.append(value)
        return ctypes.cast(value, ctype(kind))
    return value


# Counts for which 0 means a default, by struct. A 0 that is given is an error.
_COUNTS = {"optimizer": ("gradient_accumulation_steps",), "schedule": ("replicas", "steps"),
           "fit_options": ("batch", "steps_per_execution", "steps_per_epoch", "check_every"), "checkpoint_options": ("keep",),
           "distributed_batches_options": ("global_batch",), "strategy_options": ("bytes_per_pack",)}
_ZERO = -0.0  # STRATA_ZERO: the number 0 in a field where 0 means a default


def number(value):
    """Returns a number that a caller has given, or 0, which means its default, for None."""
    return 0 if value is None else float(value) or _ZERO


def given(name, value):
    """Returns a count that a caller has given, or 0, which means its default, for None."""
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, (int, numpy.integer)) or value < 1:
        raise InvalidError(f"{name} is {value!r}; it must be a whole number from 1 on")
    return int(value)


def struct(name, /, **fields):
    """Makes the struct strata_<name>, in which all fields but the given ones are zero. A field that is None is not given; a
    field that is 0 is 0. It owns the objects to which its fields point."""
    kinds = {f: (t, d) for t, f, d in _table["structs"][f"strata_{name}"]}
    value = ctype(f"strata_{name}")()
    value._kept = []
    for field, given in fields.items():
        if field not in kinds:
            raise InvalidError(f"{name} has no option {field!r}: there are {', '.join(kinds)}")
        if given is None:
            continue
        kind, declared = kinds[field]
        if kind == "double" and not declared and _is_zero(given):
            given = _ZERO
        if field in _COUNTS.get(name, ()) and _is_zero(given):
            raise InvalidError(f"{field} of {name} is 0; leave it out for its default")
        try:
            if declared:
                setattr(value, field, ctype(kind, declared)(*given))
            else:
                setattr(value, field, _member(kind, given, value._kept))
        except TypeError:
            raise InvalidError(f"{field} of {name} cannot be {given!r}") from None
    return value


def _is_zero(value):
    return isinstance(value, (int, float, numpy.number)) and value == 0


class _Call:
    """A function of the library, which can be called from Python."""

    def __init__(self, name):
        self.result, self.parameters = _table["functions"][name]
        self.function = getattr(_c, name)
        self.function.restype = ctype(self.result)
        self.function.argtypes = [ctypes.POINTER(ctype(t)) if d else ctype(t) for t, _, d in self.parameters]
        self.name = name
        self.counts = {i for i, p in enumerate(self.parameters) if i and p[1] == f"n_{self.parameters[i - 1][1]}"}
        self.n_given = sum(not self.is_out(p) for p in self.parameters) - len(self.counts)

    @staticmethod
    def is_out(parameter):
        kind, name, _ = parameter
        return name == "err" or ((name.startswith("out_") or name == "out") and (kind.endswith("*") or parameter[2]))

    def __call__(self, *given):
        if len(given) != self.n_given:
            raise TypeError(f"{self.name} takes {self.n_given} arguments, not {len(given)}")
        given, arguments, outs, keep, error = iter(given), [], [], [], None
        for i, parameter in enumerate(self.parameters):
            kind, name, declared = parameter
            if i in self.counts:
                arguments.append(0 if value is None else len(value))
            elif name == "err":
                error = _Error()
                arguments.append(ctypes.byref(error))
            elif self.is_out(parameter):
                out = ctype(kind, declared)() if declared else ctype(kind[:-1])()
                outs.append((kind, declared, out))
                arguments.append(out if declared else ctypes.byref(out))
            else:
                value = next(given)
                try:
                    arguments.append(_member(kind, value, keep))
                except TypeError:
                    raise InvalidError(f"{name} of {self.name} cannot be {value!r}") from None
        result = self.function(*arguments)
        if self.result == "strata_status":
            _check(result, error)
            results = [self.written(*o) for o in outs]
            return results[0] if len(results) == 1 else tuple(results) or None
        return result.decode() if isinstance(result, bytes) else result

    @staticmethod
    def written(kind, declared, out):
        if declared and kind == "char":
            return out.value.decode()
        if kind == "char**":  # a text that the caller must free
            text = ctypes.string_at(out.value).decode()
            _libc.free(out.value)
            return text
        if kind == "strata_array*":
            return from_array(out)
        return out.value if isinstance(out, ctypes._SimpleCData) else out


class _Library:
    """The functions of the library; their names are without strata_."""

    def __getattr__(self, name):
        try:
            call = _Call(f"strata_{name}")
        except (KeyError, AttributeError):
            raise AttributeError(f"{_path} has no function strata_{name}") from None
        setattr(self, name, call)
        return call


lib = _Library()
_c_status_name = _c.strata_status_name
_c_status_name.restype = ctypes.c_char_p
InvalidError, DataError, UnavailableError = _errors["INVALID"], _errors["DATA"], _errors["UNAVAILABLE"]


def names(array):
    """Returns the texts of strata_<array>, a NULL-terminated array of the library."""
    texts = (ctypes.c_char_p * 1000).in_dll(_c, f"strata_{array}")
    return [t.decode() for t in itertools.takewhile(lambda t: t is not None, texts)]


def predict_all(model, data, batch, n):
    """Calls strata_model_predict_all, whose out parameter is an array and not a single value."""
    call, arrays, error = _Call("strata_model_predict_all"), (_Array * n)(), _Error()
    _check(call.function(model._as_parameter_, data._as_parameter_, batch, arrays, ctypes.byref(error)), error)
    return [from_array(a) for a in arrays]


def _check_abi():
    """Checks that the library has the structs of the declarations. If their sizes differed, fields would be read at wrong
    places."""
    try:
        size = _c.strata_struct_bytes
    except AttributeError:
        raise ImportError(f"{_path} is older than this package") from None
    size.restype, size.argtypes = ctypes.c_size_t, [ctypes.c_char_p]
    for name, fields in _table["structs"].items():
        if fields is not None and size(name.encode()) != ctypes.sizeof(ctype(name)):
            _c.strata_version.restype = ctypes.c_char_p
            raise ImportError(f"{_path} (version {_c.strata_version().decode()}) has another {name} than this package: "
                              f"{size(name.encode())} bytes, not {ctypes.sizeof(ctype(name))}; install both from one source")


_check_abi()


def store(c_array, value):
    """Creates a strata_array with the elements of a numpy array. The library frees it."""
    value = host_array(value)
    error, kind = _Error(), _BY_NUMPY[value.dtype]
    _check(_c.strata_array_create(kind, shape(value.shape), ctypes.byref(c_array), ctypes.byref(error)), error)
    ctypes.memmove(c_array.data, value.ctypes.data, value.nbytes)


class Handle:
    """An object of the library, which is destroyed with the last Python object that refers to it."""
    _destroy = None  # the name in lib of the function that destroys it

    def __init__(self, handle, *keep):
        self._as_parameter_ = handle
        self._keep = keep  # objects that must outlive it
        self._finalizer = weakref.finalize(self, self._end, getattr(lib, self._destroy), handle, keep)

    @staticmethod
    def _end(destroy, handle, keep):
        destroy(handle)

    def close(self):
        """Destroys the object, which cannot be used any more."""
        self._finalizer()
        self._as_parameter_ = None
