# SPDX-License-Identifier: Apache-2.0
"""Strategies and training loops of one's own, with the words of tf.distribute (strata/distribute.h).

    strategy = strata.Strategy("mirrored", ["opencl:0", "vulkan:0"])
    model.compile("adam", strategy=strategy)                     # fit, evaluate and predict over the devices

    with strategy.scope():                                       # the same, as TensorFlow's users write it
        model.compile("adam")

    model.build(strategy=strategy)                               # or a loop:
    with strategy.scope():
        optimizer = strata.Optimizer("adam", learning_rate=1e-3)

    @strategy.function
    def step(x, y):                                              # traced once for each replica and shape, then replayed
        loss = strata.average_loss(strata.example_losses("mse", model(x, training=True), y))
        optimizer.minimize(loss, model.trainable_variables)
        return loss

    for batch in strategy.batches(data, 64):
        print(step(*batch).sum())"""
import contextlib
import ctypes
import json
import threading

import numpy

from . import _native, optimizers
from ._native import Handle, InvalidError, callback, constants, ctype, lib, locked, struct
from .data import Dataset
from .devices import device_options as _device_options

_local = threading.local()


def current_replica():
    """The context of the replica whose function is being traced in this thread."""
    replica = getattr(_local, "replica", None)
    if replica is None:
        raise InvalidError("this is for functions of a strategy (strategy.function), while they are traced")
    return replica


# ---- graphs: tensors and ops -----------------------------------------------------------------------------------------------
class Tensor:
    """A value of a graph. It has no numbers before the graph runs. Arithmetic operators combine tensors and numbers."""

    def __init__(self, handle):
        self._as_parameter_ = handle

    shape = property(lambda self: _native.dims(lib.tensor_shape(self)))
    dtype = property(lambda self: _native.dtype_of(lib.tensor_dtype(self)))

    def _with(self, other):
        if isinstance(other, Tensor):
            return other
        graph = lib.tensor_graph(self)
        if numpy.ndim(other):
            return Tensor(lib.constant(graph, numpy.asarray(other, self.dtype)))
        return Tensor(lib.scalar(graph, lib.tensor_dtype(self), float(other)))

    def __neg__(self):
        return Tensor(lib.neg(self))

    def __matmul__(self, other):
        return Tensor(lib.matmul(self, other, False, False))

    def sum(self, axes=None, keep_dims=False):
        return Tensor(lib.reduce_sum(self, list(range(len(self.shape))) if axes is None else axes, keep_dims))

    def mean(self, axes=None, keep_dims=False):
        return Tensor(lib.reduce_mean(self, list(range(len(self.shape))) if axes is None else axes, keep_dims))


for _symbol, _op in {"add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "pow": "pow"}.items():
    setattr(Tensor, f"__{_symbol}__", lambda a, b, op=_op: Tensor(getattr(lib, op)(a, a._with(b))))
    setattr(Tensor, f"__r{_symbol}__", lambda a, b, op=_op: Tensor(getattr(lib, op)(a._with(b), a)))


class _Ops:
    """The functions of strata/ops.h, without the prefix strata_: ops.matmul(a, b, False, False), ops.concat([a, b], 0)."""

    def __getattr__(self, name):
        call = getattr(lib, name)
        if call.result != "strata_tensor*":
            raise AttributeError(f"{name} is no op")
        return lambda *arguments: Tensor(call(*arguments))


ops = _Ops()


def example_losses(name: str, outputs: Tensor, labels: Tensor, **options) -> Tensor:
    """Returns the loss of each example, (n)."""
    return Tensor(lib.example_losses(name, struct("loss_options", **options), outputs, labels))


def average_loss(losses: Tensor) -> Tensor:
    """Returns the sum of this replica's losses, divided by the number of examples in the global batch."""
    return Tensor(lib.replica_average_loss(current_replica(), losses))


def all_reduce(x: Tensor, reduction: str = "sum") -> Tensor:
    """Returns the sum or mean of x over all replicas, which is the same on all of them."""
    return Tensor(lib.replica_all_reduce(current_replica(), x, _reduction(reduction)))


def gradients(loss: Tensor, variables) -> list:
    found = lib.replica_gradients(current_replica(), loss, _variables(variables))
    return [Tensor(found[i]) for i in range(_variables(variables).n)]


def replica_id() -> int:
    return lib.replica_id(current_replica())


def _reduction(name):
    try:
        return constants[f"STRATA_REDUCE_{name.upper()}"]
    except (KeyError, AttributeError):
        raise InvalidError(f"{name!r} is no reduction: sum or mean") from None


def _variables(variables):
    if not isinstance(variables, (list, tuple)):
        return variables
    items = (ctypes.c_void_p * len(variables))(*(v._as_parameter_ for v in variables))
    return struct("variables", items=items, n=len(variables))


# ---- strategies ------------------------------------------------------------------------------------------------------------
class PerReplica(list):
    """An array for each replica of this worker."""

    def sum(self):
        return sum(self)


class Strategy(Handle):
    """A strategy on these devices: Strategy("mirrored", ["opencl:0", "host"]). strategy_names() lists the names. Options
    are the fields of strata_strategy_options; device_options is a dict with the options of devices.device_options. layout,
    for "model_parallel", is JSON or what becomes JSON: {"dense.*kernel": [None, "tensor"]}."""
    _destroy = "strategy_destroy"

    def __init__(self, name: str = "default", devices=None, device_options=None, layout=None, **options):
        self._lock = _native.Lock(True)
        device = _device_options(**(device_options or {}))
        layout = layout if layout is None or isinstance(layout, str) else json.dumps(layout)
        options = struct("strategy_options", devices=devices, n_devices=len(devices or ()), device_options=device,
                         layout=layout, **options)
        super().__init__(lib.strategy_create(name, options), device)

    num_replicas_in_sync = property(lambda self: lib.strategy_num_replicas_in_sync(self))
    name = property(lambda self: lib.strategy_name(self))
    choice = property(lambda self: lib.strategy_choice(self))
    is_chief = property(lambda self: lib.strategy_is_chief(self))

    @contextlib.contextmanager
    def scope(self):
        """Models that this thread makes, compiles or builds in the scope use the strategy."""
        lib.strategy_enter(self)
        outer, _local.strategy = current_strategy(), self
        try:
            yield self
        finally:
            _local.strategy = outer
            lib.strategy_exit(self)

    def function(self, body):
        """A decorator. body builds the step of a replica. The result is called with arrays, or with the values of
        batches()."""
        return Function(self, body)

    def batches(self, data: Dataset, batch_size: int = 32, shuffle: bool = False, seed: int = 0, epoch: int = 0):
        """Iterates over the batches of an epoch. Each is divided among the replicas, and is a tuple for a function of the
        strategy."""
        options = struct("distributed_batches_options", global_batch=batch_size, shuffle=shuffle, seed=seed, epoch=epoch)
        with self._lock:
            walk = _Batches(lib.distributed_batches_create(self, data, options), self, data)
        n_parts = 2 if lib.dataset_has_labels(data) else 1
        while True:
            values = (ctype("strata_per_replica") * 2)()
            with self._lock:
                if not lib.distributed_batches_next(walk, values):
                    return
            yield tuple(values[:n_parts])

    @locked
    def reduce(self, reduction: str, values: PerReplica, axis: "int | None" = None) -> numpy.ndarray:
        """Combines the replicas' values to one array. With several workers all of them must call it."""
        held = [_native.host_array(v) for v in values]
        arrays = (ctype("strata_array") * len(held))(*(_native.view(h) for h in held))
        given = struct("per_replica", n=len(held))
        given.arrays = ctypes.cast(arrays, ctypes.POINTER(ctype("strata_array")))
        return lib.strategy_reduce(self, given, _reduction(reduction), constants["STRATA_NO_AXIS"] if axis is None else axis)


def current_strategy() -> "Strategy | None":
    """The strategy whose scope this thread has entered."""
    return getattr(_local, "strategy", None)


def strategy_names() -> list:
    return _native.names("strategy_names")


class _Batches(Handle):
    _destroy = "distributed_batches_destroy"


class Function(Handle):
    """A step of all replicas. It returns the outputs of the body, each as a PerReplica."""
    _destroy = "function_destroy"

    def __init__(self, strategy, body):
        self.body, self.n_inputs, self.n_outputs, self.single = body, 0, None, True
        self._lock = strategy._lock
        run = callback("strata_replica_function", self._trace)
        super().__init__(lib.function_create(strategy, run, None), strategy, run)

    def _trace(self, replica, inputs, user):
        before, _local.replica = getattr(_local, "replica", None), replica
        try:
            results = self.body(*(Tensor(inputs[i]) for i in range(self.n_inputs)))
        finally:
            _local.replica = before
        self.single = not isinstance(results, (tuple, list))
        results = [] if results is None else [results] if self.single else list(results)
        for value in results:
            lib.replica_return(replica, value)
        lib.graph_check(lib.replica_graph(replica))
        self.n_outputs = len(results)

    @locked
    def __call__(self, *inputs):
        self.n_inputs, kept = len(inputs), []
        given = (ctype("strata_per_replica") * max(1, len(inputs)))()
        for i, value in enumerate(inputs):
            if not isinstance(value, ctype("strata_per_replica")):  # an array that all replicas share
                array = _native.host_array(value)
                shared = (ctype("strata_array") * 1)(_native.view(array))
                kept += [array, shared]
                value = struct("per_replica", n=1)
                value.arrays = ctypes.cast(shared, ctypes.POINTER(ctype("strata_array")))
            given[i] = value
        given = list(given[:len(inputs)])
        if self.n_outputs is None:  # a run with too many outputs fails after the body was traced, which sets n_outputs
            try:
                lib.strategy_run(self, given, (ctype("strata_per_replica") * 1000)())
            except InvalidError:
                if self.n_outputs is None:
                    raise
        outputs = (ctype("strata_per_replica") * self.n_outputs)()
        lib.strategy_run(self, given, outputs)
        results = [PerReplica(_native.from_array(o.arrays[r], owner=o).copy() for r in range(o.n)) for o in outputs]
        for o in outputs:
            lib.per_replica_finish(o)
        return None if not results else results[0] if self.single else tuple(results)


class Optimizer(Handle):
    """An optimizer for a training loop. It must be created in the scope of the strategy."""
    _destroy = "distributed_optimizer_destroy"

    def __init__(self, optimizer="adam", **settings):
        super().__init__(lib.distributed_optimizer_create(optimizers.optimizer(optimizer, **settings)))

    def minimize(self, loss: Tensor, variables) -> None:
        lib.optimizer_minimize(current_replica(), self, loss, _variables(variables))

    def apply(self, gradients: list, variables) -> None:
        lib.optimizer_apply(current_replica(), self, gradients, _variables(variables))


class Variable(Handle):
    """A value with a copy on each replica's device. It must be created in the scope of the strategy."""
    _destroy = "distributed_destroy"

    def __init__(self, name: str, value, synchronization: str = "on_write", aggregation: str = "none"):
        value = _native.host_array(value)
        options = struct("distributed_options", synchronization=constants[f"STRATA_{synchronization.upper()}"],
                         aggregation=constants[f"STRATA_AGGREGATION_{aggregation.upper()}"])
        super().__init__(lib.distributed_create(name, value.dtype, value.shape, options), value)
        self.shape, self.dtype = value.shape, value.dtype
        lib.distributed_set(self, value)

    @locked
    def numpy(self) -> numpy.ndarray:
        value = numpy.empty(self.shape, self.dtype)
        lib.distributed_get(self, value)
        return value

    def read(self) -> Tensor:
        return Tensor(lib.replica_read(current_replica(), self))

    def assign(self, value: Tensor) -> None:
        lib.replica_assign(current_replica(), self, value)
