# SPDX-License-Identifier: Apache-2.0
"""Loads libstrata and libstrata_interchange, and calls their functions. The declarations in the headers (_headers.py) determine
how arguments are converted.

    lib.model_read_json("m.json")                   strata_model_read_json(path, &out_model, &err)   ->  the handle
    lib.dataset_from_arrays(x, y, 0)                numpy arrays where C takes a strata_array *
    lib.model_fit(model, data, struct("fit_options", epochs=2))

These parameters are left out in calls from Python: parameters out_..., whose values are returned (several as a tuple);
`err`, since an error raises the exception of its status; and a count n_x after a list x, which is the list's length. ctypes
releases the GIL while a function runs.

Threads: any thread may call any function. Objects that only one thread may use at a time (models, strategies) have a lock,
which their methods take (@locked). Devices and datasets are shared (strata/device.h)."""
import atexit
import ctypes
import ctypes.util
import functools
import itertools
import json
import os
import pathlib
import re
import signal
import sys
import _thread
import threading
import time
import weakref

import numpy

try:
    import _signal  # signal.signal converts to enums, which takes longer than a small prediction may
except ImportError:
    _signal = signal

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
    packaged = next(_here.glob("libstrata.so.*"), None)
    path = named or (str(packaged) if packaged else ctypes.util.find_library("strata"))
    if not path:
        raise ImportError("libstrata.so was not found: install the package by pip, or name the library in STRATA_LIBRARY")
    name = pathlib.Path(path).name
    other = str(pathlib.Path(path).with_name(name.replace("libstrata", "libstrata_interchange", 1)))  # beside it
    try:
        return path, ctypes.CDLL(path), ctypes.CDLL(other)
    except OSError as error:
        raise ImportError(f"{path} and {other} cannot be loaded: {error}") from None


_table = json.loads((_here / "_api.json").read_text()) if (_here / "_api.json").exists() else \
    _headers.read(_here.parents[1] / "strata")
constants = _table["constants"]
_path, _c, _interchange = _load()
_libc = ctypes.CDLL(None)
_libc.free.argtypes = [ctypes.c_void_p]

_BASIC = {"void": None, "bool": ctypes.c_bool, "char": ctypes.c_char, "int": ctypes.c_int, "unsigned": ctypes.c_uint,
          "double": ctypes.c_double, "float": ctypes.c_float, "size_t": ctypes.c_size_t, "va_list": ctypes.c_void_p,
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

# ---- threads and forks -----------------------------------------------------------------------------------------------------
class Lock:
    """A lock that one thread may take several times. In a child of fork it fails if another thread of the parent had taken
    it, since that thread does not exist there."""
    forks = 0  # of the process
    of_models = weakref.WeakSet()  # and of strategies

    def __init__(self, of_model=False):
        self.lock, self.forks = threading.RLock(), Lock.forks
        if of_model:
            Lock.of_models.add(self)

    def __enter__(self):
        if self.forks != Lock.forks:
            if not self.lock.acquire(blocking=False):
                raise UnavailableError("another thread used this object when the process was forked; start processes by spawn: "
                                       'multiprocessing.get_context("spawn")')
            self.lock.release()
            self.forks = Lock.forks
        self.lock.acquire()

    def __exit__(self, *error):
        self.lock.release()


def locked(method):
    """A method during which no other thread is in such a method of the same object."""
    @functools.wraps(method)
    def run(self, *given, **named):
        with self._lock:
            return method(self, *given, **named)
    return run


def _after_fork():
    global _lock
    Lock.forks += 1
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


# ---- signals ---------------------------------------------------------------------------------------------------------------
class _Signals:
    """Python runs the handlers of signals in the main thread, between two instructions of Python code. While a function of the
    library runs there, the next such code is the entry of a callback, and ctypes drops what is raised at that place: a Ctrl-C
    would be lost. So handlers are put off while the library runs: until a callback has begun, or until the function returns.
    In the code of a callback, signals are handled at once."""
    numbers = [getattr(_signal, n) for n in ("SIGINT", "SIGTERM", "SIGALRM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGBREAK")
               if hasattr(_signal, n)]

    def __init__(self):
        self.depth, self.in_callback, self.pending, self.handlers = 0, False, [], {}
        self.put_off = self.handle  # one object, which can be compared with

    def handle(self, number, frame):
        if self.in_callback or not self.depth:
            return self.handlers[number](number, frame)
        self.pending.append((number, frame))

    def deliver(self):
        while self.pending:
            number, frame = self.pending.pop(0)
            self.handlers[number](number, frame)

    def replace(self):
        try:
            for number in self.numbers:
                handler = _signal.getsignal(number)
                if callable(handler) and handler is not self.put_off:
                    self.handlers[number] = handler
                    _signal.signal(number, self.put_off)
        except BaseException:
            self.restore()
            raise

    def restore(self):
        for number, handler in self.handlers.items():
            if _signal.getsignal(number) is self.put_off:
                _signal.signal(number, handler)


_signals = _Signals()
_local = threading.local()  # later: an exception of a callback that cannot return one


def _is_main():
    return threading.get_ident() == threading.main_thread().ident


class _PutOff:
    """While it is entered in the main thread, signals are put off."""
    outer = None

    def __enter__(self):
        if _is_main():
            if not _signals.depth:
                _signals.replace()
            self.outer, _signals.in_callback = _signals.in_callback, False
            _signals.depth += 1

    def __exit__(self, *error):
        if self.outer is None:
            return
        _signals.depth -= 1
        _signals.in_callback = self.outer
        if not _signals.depth:
            _signals.restore()
        self.pass_on()

    def pass_on(self):
        if not _signals.depth or self.outer:
            _signals.deliver()


put_off_signals = _PutOff


class _PutOffFurther(_PutOff):
    """As _PutOff, in a finalizer: Python drops what is raised there, so the signals are sent again soon after it."""

    def pass_on(self):
        while not _signals.depth and _signals.pending:
            _send_soon(_signals.pending.pop(0)[0])


def _send_soon(number):
    def send():
        time.sleep(0.002)
        signal.pthread_kill(main, number) if hasattr(signal, "pthread_kill") else signal.raise_signal(number)
    main = threading.main_thread().ident
    _thread.start_new_thread(send, ())


class Finalizer(weakref.finalize):
    __slots__ = ()
    abandons = False  # the process ends while other threads use objects, so none is destroyed

    def __call__(self, _=None):
        while True:
            if Finalizer.abandons:
                return self.detach() and None
            try:
                with _PutOffFurther():
                    return super().__call__()  # a second call does nothing
            except KeyboardInterrupt:  # just before or after the signals were put off
                _send_soon(signal.SIGINT)


class QuickFinalizer(Finalizer):
    """For what ends with each prediction: it costs less, and of the signals only a Ctrl-C is not lost."""
    __slots__ = ()

    def __call__(self, _=None):
        try:
            if not Finalizer.abandons:
                return weakref.finalize.__call__(self)
            self.detach()
        except KeyboardInterrupt:
            weakref.finalize.__call__(self)
            _send_soon(signal.SIGINT)


def _at_exit():
    """Before all finalizers: no other thread begins to use a model any more. If one uses it now (a daemon), nothing is
    destroyed."""
    Finalizer.abandons = not all([one.lock.acquire(blocking=False) for one in list(Lock.of_models)])


weakref.finalize(_signals, lambda: None)  # registers weakref's own function, which runs after what is registered later
atexit.register(_at_exit)


def _raise_later():
    error, _local.later = getattr(_local, "later", None), None
    if error is not None:
        raise error


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
    return ctype(name)(lambda *arguments: guarded(function, arguments[-1], *arguments[:-1]))


def guarded(function, err, *arguments):
    """Calls the function of a callback, and signals' handlers before it. Returns a status; an exception becomes the error
    `err`. err None: the callback cannot fail, and the exception is raised when the library has returned."""
    is_main = _signals.depth and _is_main()
    try:
        if is_main:
            _signals.in_callback = True
            _signals.deliver()
        _raise_later()
        function(*arguments)
        return 0
    except BaseException as exception:  # KeyboardInterrupt too
        if is_main:
            _signals.in_callback = False
        if err is None:
            _local.later = exception
            return 0
        return _report(exception, err)
    finally:
        if is_main:
            _signals.in_callback = False


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
    raise _error_class(_c_status_name(status).decode(), message)(_python_names(message))


# Functions that messages name and whose work has another name in Python
_RENAMED = {"model_predict_all": "Model.predict", "dataset_set_weights": "sample_weight",
            "strategy_enter": "Strategy.scope", "strategy_exit": "Strategy.scope", "fit_end": "the end of the loop over steps",
            "model_create_functional": "strata.Model(inputs=..., outputs=...)", "model_input": "strata.Input",
            "model_output": "strata.Model(outputs=...)", "fit_options": "fit", "compile_options": "compile",
            "model_epoch_steps": "Model.load_checkpoint", "tensor": "strata.Tensor"}


def _python_names(message):
    """Replaces the names of C functions and options in a message by those that a Python program uses."""
    def replace(match):
        function, option = match[1], match[2]
        kind, _, name = function.partition("_")
        owner = getattr(sys.modules[__package__], kind.title(), None) if kind in ("model", "dataset", "strategy") else None
        if option and function.endswith("_options"):
            return f"{option[1:]}="
        if function in _RENAMED:
            return _RENAMED[function]
        if owner is not None and hasattr(owner, name):
            return f"{kind.title()}.{name}"
        call = _table["functions"].get(f"strata_{function}")
        return f"strata.ops.{function}" if call and call[0] == "strata_tensor*" else match[0]
    return re.sub(r"\bstrata_([a-z0-9_]+)(\.[a-z0-9_]+)?", replace, message)


# Messages of the system, and Python's own classes of such errors
_SYSTEM = {"No such file or directory": FileNotFoundError, "Permission denied": PermissionError,
           "it is a folder, not a file": IsADirectoryError}


@functools.lru_cache(maxsize=None)
def _system_class(own, system):
    return type(own.__name__, (own, system), {"__doc__": own.__doc__, "__module__": "strata", "__str__": lambda self:
                                              str(self.args[0])})


def _error_class(name, message):
    own = _errors.get(name, Error)
    system = next((error for text, error in _SYSTEM.items() if message.endswith(text)), None)
    return own if system is None else _system_class(own, system)


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


def _described(array):
    """"words ('cat', ...)", "of objects (None, ...)": the type of an array without numbers, and its first element."""
    first = array.flat[0] if array.size else None
    kinds = {"U": "words", "S": "bytes", "M": "dates", "m": "durations", "c": "complex numbers", "V": "records"}
    first = f" ({getattr(first, 'item', lambda: first)()!r}, ...)" if array.size else ""
    return f"{kinds.get(array.dtype.kind, f'of type {array.dtype}')}{first}"


def host_array(value, what="an array"):
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
            first = array.flat[0] if array.size else None
            advice = ("Give each word a number (numpy.unique(words, return_inverse=True), or pandas.get_dummies for columns of "
                      "words); the command `strata train FILE` does this for a table by itself"
                      if isinstance(first, (str, bytes)) else
                      'Convert it, for example by astype("float32"); missing values (None) must be filled before')
            raise InvalidError(f"{what} is {_described(array)}: numbers are needed. {advice}")
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
        QuickFinalizer(memory, _libc.free, c_array.owned)
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
        if isinstance(value, Handle) and value._as_parameter_ is None:
            raise InvalidError(value._why_absent())
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
           "distributed_batches_options": ("global_batch",), "strategy_options": ("bytes_per_pack", "microbatches")}
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


# The functions that may call Python code: a generator's, a callback's.
_CALLING = {f"strata_{name}" for name in
            "model_fit fit_begin fit_step fit_end model_evaluate model_predict model_get_gradients model_save_checkpoint "
            "model_watch_checkpoints model_compile model_build model_placement iterator_create iterator_next strategy_run "
            "distributed_batches_create distributed_batches_next dataset_from_generator dataset_map dataset_shuffle "
            "dataset_cache dataset_split dataset_prefetch dataset_batch".split()}


class _Call:
    """A function of the library, which can be called from Python."""

    def __init__(self, name):
        self.result, self.parameters = _table["functions"][name]
        self.function = getattr(_c if hasattr(_c, name) else _interchange, name)
        self.function.restype = ctype(self.result)
        self.function.argtypes = [ctypes.POINTER(ctype(t)) if d else ctype(t) for t, _, d in self.parameters]
        self.name, self.calls_back = name, name in _CALLING
        self.counts = {i for i, p in enumerate(self.parameters) if i and p[1] == f"n_{self.parameters[i - 1][1]}"}
        self.n_given = sum(not self.is_out(p) for p in self.parameters) - len(self.counts)

    @staticmethod
    def is_out(parameter):
        kind, name, _ = parameter
        return name == "err" or ((name.startswith("out_") or name == "out") and (kind.endswith("*") or parameter[2]))

    def __call__(self, *given):
        if not self.calls_back:
            return self.run(given)
        with _PutOff():
            result = self.run(given)
            _raise_later()
            return result

    def run(self, given):
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
    with _PutOff():
        _check(call.function(model._as_parameter_, data._as_parameter_, batch, arrays, ctypes.byref(error)), error)
        _raise_later()
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
    _lock = None
    _finalizer_of = Finalizer

    def __init__(self, handle, *keep):
        self._as_parameter_ = handle
        self._lock = self._lock or Lock()
        self._keep = keep  # objects that must outlive it
        self._finalizer = self._finalizer_of(self, self._end, getattr(lib, self._destroy), handle, keep)

    @staticmethod
    def _end(destroy, handle, keep):
        destroy(handle)

    def _why_absent(self):
        return f"this {type(self).__name__} was closed"

    def close(self):
        """Destroys the object, which cannot be used any more."""
        self._finalizer()
        self._as_parameter_ = None
