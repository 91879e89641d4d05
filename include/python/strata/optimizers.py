# SPDX-License-Identifier: Apache-2.0
"""Optimizers and learning rate schedules. strata/optimizers.h describes their settings."""
from ._native import lib, struct

_kept = {}  # texts to which the library keeps pointers


def _name(text):
    return _kept.setdefault(text, text.encode())


def optimizer(value, **settings):
    """Makes the library's struct of an optimizer from its name and settings. A setting that is 0 is 0; one that is None or left
    out has its default. A struct is returned as it is."""
    if not isinstance(value, str):
        return value
    rate = settings.get("learning_rate")
    if isinstance(rate, dict):  # the result of schedule()
        settings = {**settings, "learning_rate": rate["initial"],
                    "schedule": struct("schedule", **{k: v for k, v in rate.items() if k != "initial"})}
    return struct("optimizer", name=_name(value), **settings)


def schedule(name: str, initial: float, **settings) -> dict:
    """A learning rate that changes from update to update: schedule("cosine", 0.1, steps=1000, warmup_steps=100). The names
    are step, exponential, cosine and polynomial. boundaries and values are lists."""
    for field in ("boundaries", "values"):
        if field in settings:
            numbers = list(settings[field])
            settings[field] = struct("numbers", n=len(numbers))
            settings[field].values[:len(numbers)] = numbers
    return {"name": _name(name), "initial": initial, **settings}


def _maker(name):
    def make(learning_rate=None, **settings):
        return optimizer(name, learning_rate=learning_rate, **settings)
    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"The optimizer {name}. learning_rate None: {lib.optimizer_default_rate(_name(name))}; or a schedule()."
    return make


SGD, Adam, AdamW, RMSprop, Adagrad, LARS, LAMB = (_maker(n) for n in "sgd adam adamw rmsprop adagrad lars lamb".split())
