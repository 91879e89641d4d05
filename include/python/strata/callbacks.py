# SPDX-License-Identifier: Apache-2.0
"""Callbacks of fit, evaluate and predict, with the names of Keras. `logs` is a dict of numbers: loss, accuracy and metrics,
and those of the validation data with the prefix val_."""
import csv
import json
import math
import os
import shutil
import sys
import time

from ._native import Handle, ctype, lib, locked


class Callback:
    """The base class of callbacks. Override the methods that you need.

    `model` is set before the training begins. model.stop_training = True ends the training after the epoch. `state` is a
    dict of numbers and texts that the callback needs to continue a training. Checkpoints contain it. fit empties it before
    a training begins, and restores it when the training continues from a checkpoint with the same number of callbacks."""
    model, state = None, None

    def on_train_begin(self, logs=None): ...
    def on_train_end(self, logs=None): ...
    def on_epoch_begin(self, epoch, logs=None): ...
    def on_epoch_end(self, epoch, logs=None): ...
    def on_train_batch_begin(self, batch, logs=None): ...
    def on_train_batch_end(self, batch, logs=None): ...
    def on_test_begin(self, logs=None): ...
    def on_test_end(self, logs=None): ...
    def on_predict_begin(self, logs=None): ...
    def on_predict_end(self, logs=None): ...


def wants_batches(callback):
    """Whether the callback overrides on_train_batch_begin or on_train_batch_end, which cost a call of Python in each step."""
    return any(getattr(getattr(callback, name), "__func__", None) is not getattr(Callback, name)
               for name in ("on_train_batch_begin", "on_train_batch_end"))


class LambdaCallback(Callback):
    """LambdaCallback(on_epoch_end=lambda epoch, logs: ...)"""

    def __new__(cls, **functions):
        for name in functions:
            if not hasattr(Callback, name):
                raise TypeError(f"there is no callback {name!r}")
        methods = {name: (lambda f: lambda self, *arguments: f(*arguments))(function) for name, function in functions.items()}
        return object.__new__(type(cls.__name__, (cls,), methods))

    def __init__(self, **functions): ...


class _Monitor(Callback):
    """The base class of callbacks that watch a number. What it remembers is in `state`, so it is restored from checkpoints."""

    def _watch(self, monitor, mode, min_delta=0.0):
        more = any(word in monitor for word in ("acc", "auc", "precision", "recall")) if mode == "auto" else mode == "max"
        self.monitor, self.sign, self.min_delta = monitor, 1 if more else -1, abs(min_delta)

    def _improves(self, logs):
        if self.monitor not in logs:
            raise ValueError(f"{self.monitor!r} is not measured: there are {', '.join(logs)}; val_ needs validation data")
        value, best = logs[self.monitor], self.state.get("best")
        if math.isnan(value):
            return False
        if best is not None and not self.sign * value > self.sign * best + self.min_delta:
            return False
        self.state["best"] = value
        return True

    @property
    def best(self):
        return self.state.get("best")


class EarlyStopping(_Monitor):
    """Ends the training when `monitor` has not improved for `patience` epochs.

    With restore_best_weights the model has the best weights afterwards. If `monitor` is val_loss, checkpoints contain these
    weights, and a training that continues from a checkpoint can restore them. For other values of `monitor` it can only
    restore the best weights of the epochs after the checkpoint."""
    fit_keeps = False  # the library keeps the best weights (its option restore_best)

    def __init__(self, monitor="val_loss", min_delta=0.0, patience=0, mode="auto", restore_best_weights=False):
        self._watch(monitor, mode, min_delta)
        self.patience, self.restore = patience, restore_best_weights

    def ask_fit(self, options, validates):
        """Makes fit keep the best weights if it can, because checkpoints then contain them."""
        self.fit_keeps = validates and self.restore and self.monitor == "val_loss" and self.sign < 0 and \
            not {"restore_best", "patience", "min_delta"} & set(options)
        options.update(dict(restore_best=True, min_delta=self.min_delta) if self.fit_keeps else {})

    def on_train_begin(self, logs=None):
        self.stopped_epoch, self.weights = None, None

    def on_epoch_end(self, epoch, logs=None):
        if self._improves(logs):
            self.state["waited"] = 0
            self.weights = self.model.get_weights() if self.restore and not self.fit_keeps else None
        else:
            self.state["waited"] = self.state.get("waited", 0) + 1
            if self.state["waited"] >= self.patience:
                self.stopped_epoch, self.model.stop_training = epoch, True

    def on_train_end(self, logs=None):
        if self.weights is not None:
            self.model.set_weights(self.weights)


class ModelCheckpoint(_Monitor):
    """Saves the model after each epoch, or only when `monitor` is better than before. The path may contain {epoch} and
    {val_loss:.3f}."""

    def __init__(self, filepath, monitor="val_loss", save_best_only=False, mode="auto"):
        self.filepath, self.best_only = str(filepath), save_best_only
        self._watch(monitor, mode)

    def on_epoch_end(self, epoch, logs=None):
        if not self.best_only or self._improves(logs):
            self.model.save(self.filepath.format(epoch=epoch + 1, **logs))


class CSVLogger(Callback):
    """Writes a row with the numbers of each epoch."""

    def __init__(self, filename, separator=",", append=False):
        self.filename, self.separator, self.append = filename, separator, append

    def on_train_begin(self, logs=None):
        self.file, self.writer = open(self.filename, "a" if self.append else "w", newline=""), None

    def on_epoch_end(self, epoch, logs=None):
        if self.writer is None:
            self.writer = csv.DictWriter(self.file, ["epoch", *logs], delimiter=self.separator)
            if not self.file.tell():
                self.writer.writeheader()
        self.writer.writerow({"epoch": epoch, **logs})
        self.file.flush()

    def on_train_end(self, logs=None):
        self.file.close()


class Events(Handle):
    """An event file of TensorBoard (strata/events.h) in the folder of a run."""
    _destroy = "events_destroy"

    def __init__(self, folder):
        super().__init__(lib.events_create(folder))

    @locked
    def scalar(self, tag, step, value): lib.events_scalar(self, tag, step, value)
    @locked
    def histogram(self, tag, step, values): lib.events_histogram(self, tag, step, values)
    @locked
    def image(self, tag, step, picture): lib.events_image(self, tag, step, picture)
    @locked
    def text(self, tag, step, text): lib.events_text(self, tag, step, text)

    @locked
    def hyperparameters(self, parameters: dict, metrics=()):
        """parameters: texts and numbers by name. metrics: the tags of the scalars by which runs are compared."""
        given = (ctype("strata_hyperparameter") * max(1, len(parameters)))()
        for one, (name, value) in zip(given, parameters.items()):
            one.name = name.encode()
            if isinstance(value, (int, float)):
                one.number = value
            else:
                one.text = str(value).encode()
        lib.events_hyperparameters(self, list(given[:len(parameters)]), list(metrics))

    @locked
    def flush(self):
        """Waits until everything is in the file."""
        lib.events_flush(self)


class TensorBoard(Callback):
    """Writes event files for `tensorboard --logdir log_dir`: the numbers of each epoch to log_dir/train and
    log_dir/validation, and the model as text. update_freq=N also writes the numbers of every N-th batch, and
    histogram_freq=N histograms of the weights in every N-th epoch."""

    def __init__(self, log_dir="logs", histogram_freq=0, update_freq="epoch"):
        self.log_dir, self.histogram_freq, self.update_freq, self.batch = str(log_dir), histogram_freq, update_freq, 0
        if update_freq != "epoch":
            self.on_train_batch_end = self.write_batch

    def on_train_begin(self, logs=None):
        self.runs = {"train": Events(os.path.join(self.log_dir, "train"))}
        self.runs["train"].text("model", 0, "```json\n" + json.dumps(json.loads(self.model.to_json()), indent=2) + "\n```")

    def write_batch(self, batch, logs):
        if self.batch % self.update_freq == 0:
            for name, value in logs.items():
                self.runs["train"].scalar(f"batch_{name}", self.batch, value)
        self.batch += 1

    def on_epoch_end(self, epoch, logs=None):
        for name, value in logs.items():
            run, name = ("validation", name[4:]) if name.startswith("val_") else ("train", name)
            if run not in self.runs:
                self.runs[run] = Events(os.path.join(self.log_dir, run))
            self.runs[run].scalar(f"epoch_{name}", epoch, value)
        if self.histogram_freq and epoch % self.histogram_freq == 0:
            for name, value in self.model.weights.items():
                self.runs["train"].histogram(name, epoch, value)

    def on_train_end(self, logs=None):
        for run in self.runs.values():
            run.flush()
            run.close()


class LearningRateScheduler(Callback):
    """Sets the learning rate of each epoch to schedule(epoch, rate), where rate is the current one."""

    def __init__(self, schedule):
        self.schedule = schedule

    def on_epoch_begin(self, epoch, logs=None):
        self.model.learning_rate = float(self.schedule(epoch, self.model.learning_rate))


class ReduceLROnPlateau(_Monitor):
    """Multiplies the learning rate by `factor` when `monitor` has not improved for `patience` epochs."""

    def __init__(self, monitor="val_loss", factor=0.1, patience=10, mode="auto", min_delta=1e-4, cooldown=0, min_lr=0.0):
        self._watch(monitor, mode, min_delta)
        self.factor, self.patience, self.cooldown, self.min_lr = factor, patience, cooldown, min_lr

    def on_epoch_end(self, epoch, logs=None):
        state = self.state
        state["resting"] = max(0, state.get("resting", 0) - 1)
        if self._improves(logs):
            state["waited"] = 0
        elif not state["resting"]:
            state["waited"] = state.get("waited", 0) + 1
            if state["waited"] >= self.patience and self.model.learning_rate > self.min_lr:
                self.model.learning_rate = max(self.min_lr, self.model.learning_rate * self.factor)
                state["waited"], state["resting"] = 0, self.cooldown


class TerminateOnNaN(Callback):
    """Ends the training when the loss is not finite. (The library itself ends it with an error that names the first such
    value.)"""

    def on_epoch_end(self, epoch, logs=None):
        if not math.isfinite(logs["loss"]):
            self.model.stop_training = True


def _notebook():
    try:
        return get_ipython().has_trait("kernel")  # IPython defines the name
    except NameError:
        return False


class Progress(Callback):
    """verbose 1: a progress bar that is redrawn on its line. verbose 2: a line for each epoch."""
    seconds = 0.2  # between two updates of the bar

    def __init__(self, verbose="auto"):
        self.bar = sys.stdout.isatty() or _notebook() if verbose == "auto" else verbose == 1
        self.width = 0 if _notebook() else shutil.get_terminal_size().columns

    def draw(self, epoch, epochs, step, steps, logs, seconds, end):
        numbers = "  ".join(f"{k}: {v:.4f}" for k, v in logs.items())
        total = f"/{steps}" if steps else ""
        bar = f"  [{'=' * round(20 * step / steps):20}]" if steps and not end else ""
        line = f"Epoch {epoch + 1}/{epochs}  {step}{total}{bar}  {seconds:.1f} s  {numbers}"
        if self.bar and self.width:
            line = line[:self.width - 1].ljust(self.width - 1)
        sys.stdout.write(("\r" if self.bar else "") + line + ("\n" if end else ""))
        sys.stdout.flush()
        self.drawn = time.monotonic()

    def on_train_begin(self, logs=None):
        self.drawn = time.monotonic()
