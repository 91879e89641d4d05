# SPDX-License-Identifier: Apache-2.0
"""Models: compile, fit, evaluate, predict and save. Methods that do the same as in Keras have Keras' names."""
import ctypes
import itertools
import json
import os
import tempfile
import time
import typing

import numpy

from . import _native, callbacks as _callbacks, layers as _layers, optimizers
from ._native import Handle, InvalidError, Lock, callback, lib, locked, struct
from .data import Dataset, dataset, is_array
from .devices import device as _device
from .distribute import Tensor, current_replica, current_strategy


_STATE_BYTES = 4096


class History:
    """The results of fit. `history` has, for each name, a list with a number for each epoch. `epoch` has the numbers of the
    epochs, from 0."""

    def __init__(self):
        self.history, self.epoch = {"loss": []}, []
        self.steps, self.first_step_seconds, self.epoch_seconds, self.stopped = 0, 0.0, [], False


    def latest(self) -> dict:
        """Returns the last number of each name."""
        return {name: values[-1] for name, values in self.history.items() if values}


class Step(typing.NamedTuple):
    """An event of Model.steps: a finished step, or the end of an epoch."""
    loss: float
    epoch: int
    step: int
    learning_rate: float
    epoch_end: bool
    logs: dict


class Model(Handle):
    """A model of layers. Several threads may use one model: their calls wait for each other, and a call waits until a fit is
    over; in a loop over steps, other calls take place between two steps. So a callback may call the model itself, and must not
    wait for another thread that calls it. Several models may use one device. Without input_shape the first fit builds the model
    and takes the shape from its data.

        model = strata.Sequential([layers.dense(128, activation="relu"), layers.dense(10)])
        model.compile("adam", "sparse_categorical_crossentropy")
        model.fit(x, y, epochs=5, batch_size=64)

    The losses sparse_categorical_crossentropy, categorical_crossentropy and binary_crossentropy take logits. If the model
    ends in softmax or sigmoid, this is moved into the loss, as in Keras, and else predict applies it: predictions are
    probabilities in both cases. A model that was not compiled, or was loaded from another program's file, has no loss, and
    predict returns its outputs."""
    _destroy = "model_destroy"
    _one_accuracy = _run = None  # known after compile; the last fit
    _settings = _inputs = _outputs = None  # arguments of compile; names of a functional model
    _compiled = _built = stop_training = False  # compile and build have created the parameters
    _where = None, None  # the device and the strategy of compile or build; before, of the scope in which the model was created
    _first_step = 0  # the step of an epoch at which the next fit begins

    def __init__(self, layers=None, input_shape=None, input_dtype=None, name: str = "", *, inputs=None, outputs=None):
        if inputs is None and isinstance(layers[0] if isinstance(layers, (list, tuple)) and layers else layers, _layers.Value):
            layers, inputs, outputs, input_shape = None, layers, input_shape, None  # Model(inputs, outputs), as in Keras
        if inputs is not None:  # a functional model: layers.Input(...), and the values that calls of layers return
            spec, self._inputs, self._outputs = _layers.describe(_list(inputs), _list(outputs))
            self._spec = {"label": name, **spec}
        else:
            self._spec = {"label": name, "layers": list(layers), **({"input_dtype": input_dtype} if input_dtype else {})}
        self._as_parameter_ = self._finalizer = None
        self._lock, self._where = Lock(True), (None, current_strategy())
        if input_shape is not None:
            self._create(input_shape, input_dtype)

    @classmethod
    def _of(cls, handle):
        model = cls.__new__(cls)
        model._lock, model._where = Lock(True), (None, current_strategy())
        Handle.__init__(model, handle)
        return model

    @classmethod
    def from_json(cls, text: "str | dict", source: str = "JSON") -> "Model":
        """Makes a model from JSON, given as a text or a dict. core/README.md describes the format."""
        text = text if isinstance(text, str) else json.dumps(text)
        return cls._of(lib.model_from_json(text, len(text.encode()), source))

    @classmethod
    def read_json(cls, path) -> "Model":
        return cls._of(lib.model_read_json(path))

    @locked
    def to_json(self) -> str:
        return lib.model_to_json(self)

    def _why_absent(self):
        if self._finalizer is not None:
            return super()._why_absent()
        if self._inputs is not None:
            return "the model is not created yet: compile, build or fit it first"
        return "the model has no input shape yet: give Sequential input_shape=, or fit it first"

    def _create(self, input_shape, input_dtype=None):
        spec = dict(self._spec)
        if self._inputs is None:
            shape = [input_shape] if isinstance(input_shape, int) else list(input_shape)
            spec["input"] = [int(d) for d in shape]
            if self._input_dtype(input_dtype) == "i32":
                spec["input_dtype"] = "i32"
        else:
            spec.setdefault("outputs", [{"name": o} for o in self._outputs])
        text = json.dumps(spec)
        Handle.__init__(self, lib.model_from_json(text, len(text.encode()), self._spec["label"] or "model"))

    def _input_dtype(self, given=None):
        """The type of a sequential model's input: as given, else i32 (tokens) if the first layer that computes is an
        embedding."""
        given = given or self._spec.get("input_dtype")
        if given is not None:
            return "i32" if _native.dtype_of(_native.dtype(given)).kind == "i" else "f32"
        return "i32" if _layers.takes_tokens(self._spec["layers"]) else "f32"

    @property
    def _input_dtypes(self):
        """"f32" or "i32" (tokens) for each input."""
        if self._as_parameter_ is not None:
            dtypes = [lib.model_input_port(self, i).dtype for i in range(lib.model_n_inputs(self))]
            return ["i32" if _native.dtype_of(d).kind == "i" else "f32" for d in dtypes]
        if self._inputs is None:
            return [self._input_dtype()]
        return ["f32" if i.get("dtype", "f32") == "f32" else "i32" for i in self._spec["inputs"]]

    # ---- compile ----
    @locked
    def compile(self, optimizer=None, loss: "str | dict | None" = None, metrics=None, *, device=None, strategy=None,
                loss_weights=None, precision: str = "f32", seed: int = 0, gradient_norm: bool = False,
                recompute: "str | list | None" = None) -> "Model":
        """Sets how the model is trained. If optimizer, loss or metrics are None, those of the model's JSON are used, or
        else adam, and binary_crossentropy if the model ends in sigmoid, or else sparse_categorical_crossentropy. loss: a
        name, or {"name": "huber", "delta": 2}. device: its id, or a Device. strategy: the model is trained on its devices;
        None: the strategy in whose scope (Strategy.scope) the model is compiled or was created, if there is one. A model with
        several outputs takes loss and loss_weights as dicts with the outputs' names, or one loss for all. recompute: names of
        layers whose values the backward pass computes again instead of keeping them in memory, or "auto", which chooses as many
        as the device's memory needs, or "auto:512M"."""
        device, strategy = self._place("compile", device, strategy)
        if self._outputs is not None and self._as_parameter_ is None:
            losses = loss if isinstance(loss, dict) and "name" not in loss else {self._outputs[0]: loss}
            weights = loss_weights or {}
            self._spec["outputs"] = [{"name": o, **({"loss": losses[o]} if losses.get(o) else {}),
                                      **({"weight": weights[o]} if o in weights else {})} for o in self._outputs]
            loss = None
            self._create(None)
        loss_options = None
        if isinstance(loss, dict) and "name" not in loss:  # a model that exists: JSON, or a loaded file
            if loss_weights or not all(isinstance(one, str) for one in loss.values()):
                raise InvalidError("compile: the outputs of this model take only names of losses")
            loss = ",".join(f"{output}={one}" for output, one in loss.items())
        if isinstance(loss, dict):
            loss, loss_options = loss["name"], struct("loss_options", **{k: v for k, v in loss.items() if k != "name"})
        if strategy is not None:  # its models share its devices
            self._lock = strategy._lock
        names = None if metrics is None else ",".join(m for m in metrics if m != "accuracy")
        recompute = recompute if recompute is None or isinstance(recompute, str) else ",".join(recompute)
        where = None if strategy is not None else _device(device)
        self._settings = (where,
                          struct("compile_options", optimizer=None if optimizer is None else optimizers.optimizer(optimizer),
                                 loss=loss, loss_options=loss_options, metrics=names or None, seed=seed, precision=precision,
                                 gradient_norm=gradient_norm, recompute=recompute,
                                 strategy=None if strategy is None else strategy))
        if self._as_parameter_ is not None:
            self._build()
        self._where = where, strategy
        return self

    def _place(self, method, device, strategy):
        """Returns the device and the strategy, one of them None: as given, else those of the scope or the model."""
        scope, (placed, own) = current_strategy(), self._where
        if device is not None and (strategy or scope or own):
            raise InvalidError(f"{method}: the devices are those of the strategy {(strategy or scope or own).name}"
                               f"{'' if strategy else ', in whose scope this is' if scope else ', which the model has'}; "
                               "leave device out")
        strategy = strategy or scope or own
        if scope not in (None, strategy):
            raise InvalidError(f"{method}: this is the scope of another strategy, {scope.name}; leave strategy out")
        if own not in (None, strategy):
            raise InvalidError(f"{method}: the model was created or built for another strategy, {own.name}")
        return placed if strategy is None and device is None else device, strategy

    def _in_scope(self):
        """Fails in the scope of a strategy that is not the model's."""
        scope, (device, own) = current_strategy(), self._where
        if scope not in (None, own):
            other = f"another strategy, {own.name}" if own else f"the device {device.info.id}"
            raise InvalidError(f"this is the scope of the strategy {scope.name}, and the model was compiled for {other}; "
                               "compile it in the scope, or leave the scope before")

    def _build(self):
        if self._compiled:
            raise InvalidError("compile: this model is compiled already; load or make another one")
        where, options = self._settings
        lib.model_compile(self, where, options)
        self._state = ctypes.create_string_buffer(_STATE_BYTES)  # the state of Python callbacks as JSON
        lib.model_add_callback(self, struct("callback", state=ctypes.addressof(self._state), state_bytes=_STATE_BYTES))
        self._poll()
        self._compiled, self._keep = True, (*self._keep, where, options)
        self._finalizer.detach()  # the model must now be destroyed before the device or the strategy
        Handle.__init__(self, self._as_parameter_, where, options)

    def _poll(self):
        """Lets handlers of signals run while the library trains and predicts: a Ctrl-C raises KeyboardInterrupt."""
        self._interrupt = callback("strata_poll_callback", lambda user: None)
        lib.model_set_poll(self, self._interrupt, None)

    def _ready(self, data=None, trains=False):
        """Creates the parameters. trains: an optimizer and a loss are needed, so a model without settings is compiled."""
        if trains and self._settings is None:
            self.compile()
        if self._as_parameter_ is None:
            if data is None and self._inputs is None:
                raise InvalidError(self._why_absent())
            self._create(data.element_shape if self._inputs is None else None)
        if self._settings is None and not self._built:
            self.build()
        elif self._settings is not None and not self._compiled:
            self._build()
        if data is not None:
            self._in_scope()

    # ---- training ----
    @locked
    def fit(self, x, y=None, *, batch_size: "int | None" = None, epochs: int = 1, verbose="auto", callbacks=(),
            validation_split: float = 0.0, validation_data=None, shuffle: bool = True, class_weight=None, sample_weight=None,
            initial_epoch: int = 0, seed: int = 0, **options) -> History:
        """Trains on arrays, a Dataset or a loader of batches. validation_split uses the last examples for validation, as
        Keras does. verbose: 0 prints nothing, 1 a progress bar, 2 a line for each epoch. options: further fields of
        strata_fit_options, such as patience=3, or checkpoint={"folder": "ck", "every_steps": 500, "keep": 2}."""
        run, data, given = self._prepare(x, y, batch_size=batch_size, epochs=epochs, verbose=verbose, callbacks=callbacks,
                                         validation_split=validation_split, validation_data=validation_data,
                                         shuffle=shuffle, class_weight=class_weight, sample_weight=sample_weight,
                                         initial_epoch=initial_epoch, seed=seed, **options)
        run.begin(initial_epoch)
        try:
            stats = lib.model_fit(self, data, given)
        finally:
            run.end()
        return run.finish(stats)

    def steps(self, x, y=None, *, initial_epoch: int = 0, verbose=0, **as_fit):
        """Trains like fit, with the same arguments, but as an iterator, so that the caller runs the loop: `for step in
        model.steps(x, y, epochs=2)`. It returns a Step for each step, with the loss of that step in step.loss, and after each
        epoch, where step.epoch_end is True and step.logs has the metrics. Leaving the loop ends the training. On the host, and
        on all devices with wait_each_step=True, no later step was begun. Otherwise a few later steps may be running already,
        so that the device does not wait for the loop."""
        with self._lock:
            run, data, given = self._prepare(x, y, initial_epoch=initial_epoch, verbose=verbose,
                                             **{"steps_per_execution": None, **as_fit})
            run.begin(initial_epoch)
        fit = None
        try:
            with self._lock, _native.put_off_signals():
                fit = lib.fit_begin(self, data, given)
                # At the end of the process it is called before the model is destroyed. Until then it keeps the model.
                end = _native.Finalizer(run, lambda fit, model: lib.fit_end(fit), fit, self)
            while True:
                with self._lock:
                    progress = lib.fit_step(fit)
                if not progress:
                    return
                p = progress[0]
                yield Step(p.loss, p.epoch, p.step, p.learning_rate, bool(p.epoch_end),
                           run.history.latest() if p.epoch_end else {})
        finally:
            with self._lock:
                try:
                    if fit and end.detach():
                        run.finish(lib.fit_end(fit))
                finally:
                    run.end()

    def _prepare(self, x, y, *, batch_size=None, epochs=1, verbose="auto", callbacks=(), validation_split=0.0,
                 validation_data=None, shuffle=True, class_weight=None, sample_weight=None, initial_epoch=0, seed=0,
                 **options):
        if validation_split:
            x, y, sample_weight, validation_data = _hold_back(x, y, sample_weight, validation_split)
        data = self._data(x, y, sample_weight)
        if validation_data is not None and not isinstance(validation_data, Dataset):
            parts = validation_data if isinstance(validation_data, (tuple, list)) else (validation_data,)
            validation_data = self._data(*parts)
        self._ready(data, trains=True)
        if isinstance(class_weight, dict):
            n = max([data.n_classes, *(c + 1 for c in class_weight)])
            class_weight = [class_weight.get(i, 1) for i in range(n)]
        weights = None if class_weight is None else [float(w) for w in class_weight]
        callbacks = list(callbacks)
        for one in callbacks:
            if isinstance(one, _callbacks.EarlyStopping):
                one.ask_fit(options, validation_data is not None)
        if epochs < 0:
            raise InvalidError(f"fit: epochs is {epochs}; it must be at least 0")
        first, self._first_step = options.setdefault("first_step", self._first_step), 0
        run = _Run(self, callbacks, verbose, epochs, initial_epoch or first)
        epochs = epochs or _native.constants["STRATA_NO_EPOCHS"]
        given = struct("fit_options", epochs=epochs, first_epoch=initial_epoch,
                       batch=_native.given("batch_size", batch_size) or None, seed=seed,
                       no_shuffle=not shuffle, class_weights=weights, n_class_weights=len(weights or ()),
                       validation=validation_data, on_progress=callback("strata_progress_callback", run.progress),
                       metrics_seconds=run.metrics_seconds, **{"steps_per_execution": run.steps_per_call, **options})
        self.stop_training = False
        return run, data, given

    @locked
    def evaluate(self, x, y=None, *, batch_size: "int | None" = None, sample_weight=None, callbacks=()) -> dict:
        """Returns {"loss": ..., "accuracy": ..., ...} for all examples."""
        data = self._data(x, y, sample_weight)
        self._ready(data, trains=True)
        _each(callbacks, "on_test_begin", {})
        logs = self._logs(lib.model_evaluate(self, data, _native.given("batch_size", batch_size)))
        _each(callbacks, "on_test_end", logs)
        return logs

    @locked
    def predict(self, x, *, batch_size: "int | None" = None, callbacks=()) -> numpy.ndarray:
        """Returns the outputs, f32 (n, ...), as probabilities if the loss is a crossentropy. A model with several outputs
        returns a dict with their names."""
        data = self._data(x)
        self._ready(data)
        _each(callbacks, "on_predict_begin", {})
        outputs, batch = self._ports[1], _native.given("batch_size", batch_size)
        if len(outputs) > 1:
            predictions = dict(zip(outputs, _native.predict_all(self, data, batch, len(outputs))))
        else:
            predictions = lib.model_predict(self, data, batch)
        _each(callbacks, "on_predict_end", {})
        return predictions

    def _data(self, x, y=None, sample_weight=None):
        """Lists of arrays are in the order of the inputs and outputs."""
        inputs, outputs = self._ports
        if (isinstance(x, dict) or len(inputs) + len(outputs) > 2) and not isinstance(x, Dataset):
            x, y = _by_name("inputs", inputs, x), _by_name("outputs", outputs, y)
        dtypes = self._input_dtypes
        if isinstance(x, dict):
            by_name = dict(zip(inputs, dtypes)) if len(inputs) > 1 else {}
            x = {name: _as_input(array, by_name.get(name, dtypes[0]), f"input {name!r}") for name, array in x.items()}
        elif is_array(x):
            x = _as_input(x, dtypes[0], "x")
        return dataset(x, y, sample_weight, lambda batch: _of_loader(batch, dtypes[0]))

    @property
    def _ports(self):
        """The names of inputs and outputs. A sequential model without a shape has none."""
        if self._as_parameter_ is None:
            return self._inputs or [], self._outputs or []
        return tuple([port(self, i).name.decode() for i in range(n(self))] for n, port in (
            (lib.model_n_inputs, lib.model_input_port), (lib.model_n_outputs, lib.model_output_port)))

    @property
    @locked
    def learning_rate(self) -> float:
        """The learning rate of the next step. It may be set between fits, and by callbacks in on_epoch_begin and
        on_epoch_end."""
        self._ready(trains=True)
        return lib.model_learning_rate(self)

    @learning_rate.setter
    @locked
    def learning_rate(self, rate: float) -> None:
        self._ready(trains=True)
        lib.model_set_learning_rate(self, rate)

    def _logs(self, metrics, prefix=""):
        logs = {f"{prefix}loss": metrics.loss}
        if self._classifies:
            logs[f"{prefix}accuracy"] = metrics.accuracy
        for i in range(metrics.n):
            logs[prefix + metrics.more[i].name.decode()] = metrics.more[i].value
        return logs

    @property
    def _classifies(self):
        """Whether the model has one accuracy. With several outputs the accuracies are among the metrics."""
        if self._one_accuracy is None:
            spec = json.loads(self.to_json())
            loss = spec.get("loss") or next(iter(spec.get("outputs") or [{}])).get("loss") or "crossentropy"
            name = loss["name"] if isinstance(loss, dict) else loss
            self._one_accuracy = len(spec.get("outputs") or "1") == 1 and "crossentropy" in name
        return self._one_accuracy

    # ---- weights and files ----
    @property
    @locked
    def weights(self) -> dict:
        """Returns copies of parameters and states by name, for example "dense/kernel"."""
        return {lib.model_parameter(self, i).name.decode(): w for i, w in enumerate(self.get_weights())}

    @locked
    def get_weights(self) -> list:
        self._ready()
        values = []
        for i in range(lib.model_n_parameters(self)):
            value = numpy.empty(_native.dims(lib.model_parameter(self, i).shape), numpy.float32)
            lib.model_get_parameter(self, i, value)
            values.append(value)
        return values

    @locked
    def set_weights(self, weights) -> None:
        """weights: a list in the order of get_weights, or a dict by name, from which names may be missing."""
        self._ready()
        names = [lib.model_parameter(self, i).name.decode() for i in range(lib.model_n_parameters(self))]
        given = dict(weights) if isinstance(weights, dict) else dict(zip(names, weights))
        unknown = [n for n in given if n not in names]
        if unknown or (not isinstance(weights, dict) and len(weights) != len(names)):
            raise InvalidError(f"set_weights: {unknown[0]!r} is no parameter" if unknown else
                               f"set_weights: {len(weights)} arrays for {len(names)} parameters")
        for name, value in given.items():
            index = names.index(name)
            value = numpy.ascontiguousarray(value, numpy.float32)
            expected = _native.dims(lib.model_parameter(self, index).shape)
            if value.shape != expected:
                raise InvalidError(f"set_weights: {name} is {expected}, not {value.shape}")
            lib.model_set_parameter(self, index, value)

    @locked
    def save(self, path) -> None:
        """Saves the model as a safetensors file that contains the model's JSON. A path that ends in .onnx or .keras becomes
        a file of that format."""
        self._ready()
        ending = os.path.splitext(path)[1]
        if ending in (".h5", ".hdf5"):
            raise InvalidError(f"save: {path} would be Keras' old format, which is only read; give a name that ends in .keras")
        {".onnx": lib.model_save_onnx, ".keras": lib.model_save_keras}.get(ending, lib.model_save)(self, path)

    @locked
    def save_checkpoint(self, path, epochs: int) -> None:
        """Saves the model with the optimizer's slots, so that a training can continue from it after load_checkpoint."""
        if self._run:
            self._run.keep_states()
        lib.model_save_checkpoint(self, epochs, path)

    @locked
    def load_checkpoint(self, path) -> int:
        """Loads a checkpoint from a file, or from the folder of fit(checkpoint={"folder": ...}). Returns how many epochs
        are done; 0 if there is no checkpoint. fit(initial_epoch=...) then continues the training. If the checkpoint was
        written within an epoch, it continues within the epoch."""
        self._ready(trains=True)
        epochs, self._first_step = lib.model_load_checkpoint(self, path), lib.model_epoch_steps(self)
        return epochs

    def __reduce__(self):
        """A pickled model consists of its file and the id of its device."""
        with tempfile.TemporaryDirectory() as folder:
            self.save(os.path.join(folder, "model"))
            with open(os.path.join(folder, "model"), "rb") as file:
                device = self._where[0]
                return _unpickled, (file.read(), device.info.id if device else None, self._compiled)

    @property
    @locked
    def sha256(self) -> str:
        """The hash of all parameters. Two models with the same hash have the same bits."""
        self._ready()
        return lib.model_sha256(self)

    @locked
    def summary(self, batch_size: "int | None" = None) -> None:
        """Prints the layers, their output shapes and their numbers of parameters."""
        self._ready()
        summary = lib.model_summarize(self, _native.given("batch_size", batch_size))
        rows = [(s.name.decode(), s.kind.decode(), str((None, *_native.dims(s.output)[1:])), f"{s.parameters:,}")
                for s in summary.layers[:summary.n_layers]]
        rows.insert(0, ("layer", "kind", "output", "parameters"))
        widths = [max(len(r[c]) for r in rows) for c in range(4)]
        for row in rows:
            print("  ".join(cell.rjust(w) if c == 3 else cell.ljust(w) for c, (cell, w) in enumerate(zip(row, widths))))
        flops = summary.step_flops / max(1, summary.batch) / 1e6
        step = f"; a training step takes {flops:,.2f} million FLOPs an example" if self._compiled else ""
        print(f"{summary.parameters:,} parameters{step}")
        lib.model_summary_finish(summary)

    def __call__(self, x, training: bool = False):
        """Returns the model's outputs for a Tensor. Only in the function of a replica."""
        return Tensor(lib.model_apply(self, current_replica(), x, training))

    @property
    def trainable_variables(self):
        return lib.model_variables(self)

    @locked
    def build(self, input_shape=None, *, strategy=None, device=None, seed: int = 0) -> "Model":
        """Creates the parameters on the devices, without an optimizer and a loss, for predictions and custom training loops.
        The model may be compiled later, and keeps its parameters."""
        device, strategy = self._place("build", device, strategy)
        if self._as_parameter_ is None:
            self._create(input_shape)
        where = None if strategy is not None else _device(device)
        options = struct("compile_options", seed=seed, strategy=strategy)
        lib.model_build(self, where, options)
        self._poll()
        self._where, self._built = (where, strategy), True
        self._lock = self._lock if strategy is None else strategy._lock
        self._finalizer.detach()
        Handle.__init__(self, self._as_parameter_, where, options)
        return self


Sequential = Model


class OnnxGraph(Handle):
    """An ONNX graph that is evaluated as it is, without an axis of examples. The host computes it with the references of the
    ops, so it is slow; nothing of it is trained."""
    _destroy = "onnx_graph_destroy"

    def predict(self, x) -> dict:
        """Evaluates the graph. x: an array for each input, as a dict with the inputs' names, as a list in their order, or one
        array. Returns a dict with the outputs' names, whose arrays have the types of the file."""
        names = list(itertools.takewhile(lambda n: n is not None,
                                         (lib.onnx_graph_input(self, i) for i in itertools.count())))
        for name, array in _by_name("inputs", names, x).items():
            lib.onnx_graph_set(self, name, _native.host_array(array))
        lib.onnx_graph_run(self)
        outputs = {}
        for i in itertools.count():
            result = lib.onnx_graph_output(self, i)
            if result.name is None:
                return outputs
            array = _native.from_array(result.array, self).copy()
            kind = _ONNX_TYPES.get(result.type.decode(), array.dtype)
            outputs[result.name.decode()] = array.astype(kind, copy=False)


_ONNX_TYPES = {"FLOAT": "f4", "DOUBLE": "f8", "FLOAT16": "f2", "BOOL": "?", "INT8": "i1", "INT16": "i2", "INT32": "i4",
               "INT64": "i8", "UINT8": "u1", "UINT16": "u2", "UINT32": "u4", "UINT64": "u8"}


def load(path, *, whole: bool = False) -> "Model | OnnxGraph":
    """Loads a model from a file of save or of the command `strata`, or from another program's .onnx, .keras or .h5 file. Its
    outputs are those of the file. Training it compiles it with the settings of the file; compile sets others, such as the loss
    of a model of another program. whole: an ONNX file whose inputs have no axis of examples; the result is an OnnxGraph, and
    predict({input: array}) returns a dict with the outputs. `strata convert --whole` makes a model of such a file, which can be
    trained."""
    ending = os.path.splitext(path)[1]
    if whole:
        return OnnxGraph(lib.onnx_graph_open(path))
    if ending == ".onnx":
        return Model._of(lib.model_load_onnx(path, _native.struct("onnx_options")))
    return Model._of((lib.model_load_keras if ending in (".keras", ".h5", ".hdf5") else lib.model_load)(path))


def _as_input(array, dtype, what):
    """Converts integers to floats where a model takes floats, as Keras does, and whole floats to tokens."""
    array = _native.host_array(array, what)
    if dtype == "f32":
        return array.astype(numpy.float32) if array.dtype.kind in "iu" and array.dtype != numpy.uint8 else array
    if array.dtype.kind == "f":
        tokens = array.astype(numpy.int64)
        if not numpy.array_equal(tokens, array):
            first = array[tokens != array].flat[0]
            raise InvalidError(f"{what}: the model takes tokens, which are whole numbers; there is {first}")
        return tokens
    return array.astype(numpy.int32) if array.dtype.itemsize == 1 else array


def _of_loader(batch, dtype):
    """As _as_input; bytes are converted too, since a stream of them has no scale."""
    array = _as_input(batch, dtype, "a batch")
    return array.astype(numpy.float32) if dtype == "f32" and array.dtype.kind in "ub" else array


def _list(values):
    return list(values) if isinstance(values, (list, tuple)) else [values]


def _by_name(what, names, values):
    """Returns a dict by name of arrays that are in the order of the model's inputs or outputs. A dict or None is returned
    as it is."""
    if values is None or isinstance(values, dict):
        return values
    values = _list(values)
    if len(values) != len(names):
        raise InvalidError(f"{len(values)} arrays are given for the {what} {', '.join(names)}")
    return dict(zip(names, values))


def _unpickled(content, device, compiled=True):
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "model"), "wb") as file:
            file.write(content)
        model, device = load(os.path.join(folder, "model")), None if current_strategy() else device
        return model.compile(device=device) if compiled else model.build(device=device)


def _hold_back(x, y, sample_weight, fraction):
    """Divides the arrays and returns the last examples separately, as Keras does."""
    if isinstance(x, Dataset) or y is None:
        raise InvalidError("validation_split divides arrays; Dataset.split divides a dataset")
    first = x
    while isinstance(first, (dict, list, tuple)):  # a model with several inputs
        first = next(iter(first.values() if isinstance(first, dict) else first))
    n = int(len(first) * (1 - fraction))
    given = x, y, sample_weight
    return (*(_cut(v, slice(n)) for v in given), tuple(_cut(v, slice(n, None)) for v in given))


def _cut(values, part):
    if isinstance(values, dict):
        return {name: array[part] for name, array in values.items()}
    if isinstance(values, (list, tuple)) and isinstance(values[0], numpy.ndarray):
        return [array[part] for array in values]
    return None if values is None else values[part]


def _each(callbacks, method, *arguments):
    for one in callbacks:
        getattr(one, method)(*arguments)


class _Run:
    """One fit. It passes the library's reports to the callbacks and the progress bar."""

    def __init__(self, model, callbacks, verbose, epochs, goes_on):
        self.model, self.callbacks, self.epochs, self.history, model._run = model, callbacks, epochs, History(), self
        self.bar = _callbacks.Progress(verbose) if verbose not in (0, False) else None
        self.batches = [c for c in callbacks if _callbacks.wants_batches(c)]
        # A call of Python costs a few percent of a small step. Without callbacks for batches it is called only every 16
        # steps.
        self.steps_per_call = None if self.batches else 16
        self.metrics_seconds = None if not (self.batches or (self.bar and self.bar.bar)) else _callbacks.Progress.seconds
        states = json.loads(model._state.value or "[]") if goes_on else []
        for one, state in itertools.zip_longest(callbacks, states if len(states) == len(callbacks) else []):
            one.model, one.state = model, state or {}

    def keep_states(self):
        text = json.dumps([one.state for one in self.callbacks]).encode()
        if len(text) >= _STATE_BYTES:
            raise InvalidError(f"the callbacks' states are {len(text)} bytes of JSON; a checkpoint keeps {_STATE_BYTES - 1}")
        self.model._state.value = text

    def begin(self, epoch):
        _each(self.callbacks, "on_train_begin", {})
        if self.bar:
            self.bar.on_train_begin()
        if epoch < self.epochs:
            self.start_epoch(epoch)

    def start_epoch(self, epoch):
        _each(self.callbacks, "on_epoch_begin", epoch, {})
        _each(self.batches, "on_train_batch_begin", 0, {})

    def end(self):
        _each(self.callbacks, "on_train_end", self.history.latest())

    def finish(self, stats):
        history = self.history
        history.steps, history.first_step_seconds, history.stopped = stats.n_steps, stats.first_step_seconds, stats.stopped
        history.epoch_seconds = stats.epoch_seconds[:stats.n_epochs]
        lib.history_finish(stats)
        return history

    def progress(self, progress, user):
        p = progress[0]
        if not p.epoch_end:
            if self.batches:
                _each(self.batches, "on_train_batch_end", p.step - 1, {"loss": p.loss, "learning_rate": p.learning_rate})
                if not p.steps or p.step < p.steps:
                    _each(self.batches, "on_train_batch_begin", p.step, {})
            if self.bar and self.bar.bar and time.monotonic() - self.bar.drawn > self.bar.seconds:
                logs = self.model._logs(p.metrics) if p.metrics.examples else {"loss": p.loss}
                self.bar.draw(p.epoch, self.epochs, p.step, p.steps, logs, p.epoch_seconds, False)
        else:
            self.end_epoch(p)
        self.keep_states()
        p.stop[0] = p.stop[0] or self.model.stop_training

    def end_epoch(self, p):
        logs = self.model._logs(p.metrics)
        if p.validation.examples:
            logs.update(self.model._logs(p.validation, "val_"))
        self.history.epoch.append(p.epoch)
        for name, value in logs.items():
            self.history.history.setdefault(name, []).append(value)
        if self.bar:
            self.bar.draw(p.epoch, self.epochs, p.steps or p.step, p.steps, logs, p.epoch_seconds, True)
        _each(self.callbacks, "on_epoch_end", p.epoch, logs)
        if p.epoch + 1 < self.epochs and not self.model.stop_training and not p.stop[0]:
            self.start_epoch(p.epoch + 1)
