# SPDX-License-Identifier: Apache-2.0
"""Random models, trained by Strata and by Keras: losses, weights and predictions must agree. README.md describes the method;
draws.py has the options."""
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys

import numpy

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "include/python"))
os.environ.setdefault("STRATA_LIBRARY", str(ROOT / "build/tests/libstrata.so"))
os.environ.setdefault("STRATA_COMMAND", str(pathlib.Path(os.environ["STRATA_LIBRARY"]).with_name("strata")))
import strata  # noqa: E402
from strata._native import lib, struct  # noqa: E402

import draws  # noqa: E402
import keras_model  # noqa: E402
from draws import Differs  # noqa: E402

SIZES = [2, 3, 1, 4, 5, 7]
FUNCTIONS = ["relu", "tanh", "sigmoid", "softmax", "gelu", "gelu_tanh", "silu", "swish", "leaky_relu", "elu", "softplus",
             "softsign"]
INITIALIZERS = [None, "glorot_uniform", "glorot_normal", "he_uniform", "he_normal", "normal", "uniform", "ones"]


# ---- models ----------------------------------------------------------------------------------------------------------------
def function(c, one_in=2):
    return {"activation": c.one(FUNCTIONS)} if c.chance(one_in) else {}


def kernel(c):
    row = {}
    if c.chance(4):
        row["no_bias"] = True
    if c.chance(8):
        row[c.one(["kernel_l1", "kernel_l2"])] = c.one([0.01, 0.3, 0])
    name = c.one(INITIALIZERS) if c.chance(4) else None
    return {**row, **({"kernel_initializer": name} if name else {})}


def window(c, sizes, key, transposed=False):
    """The options of a window over these sizes, and the sizes of its output."""
    n = len(sizes)
    size = [c.one([1, 2, 3, 4]) for _ in sizes]
    if c.chance(2):
        size = size[:1] * n
    row = {key: size if n == 2 else size[0]}
    stride = [1] * n
    if c.chance(2):
        stride = [c.one([1, 2, 3]) for _ in sizes]
        row["stride"] = stride if n == 2 else stride[0]
    elif key == "size":
        stride = size
    dilation = [1] * n
    if key != "size" and c.chance(4):
        dilation = [c.one([1, 2, 3]) for _ in sizes]
        row["dilation"] = dilation if n == 2 else dilation[0]
    wide = [(k - 1) * d + 1 for k, d in zip(size, dilation)]
    if transposed:
        if max(stride) > 1 and max(dilation) > 1:  # Keras has no such layer
            row.pop("dilation")
            wide = size
        return row, size, stride, wide
    padding = c.one(["same", "valid", "explicit"])
    around = [(0, 0)] * n
    if padding == "explicit":
        most = [k - 1 if key == "size" else 3 for k in size]
        around = [(c.number(0, m), c.number(0, m)) for m in most]
        row["explicit_padding"] = [v for pair in around for v in pair]
    outs = [-(-s // t) for s, t in zip(sizes, stride)]
    if padding != "same":
        outs = [(s + a + b - w) // t + 1 if s + a + b >= w else 0 for s, (a, b), w, t in zip(sizes, around, wide, stride)]
    if min(outs) < 1:
        row.pop("explicit_padding", None)
        padding, outs = "same", [-(-s // t) for s, t in zip(sizes, stride)]
    if padding != "valid" or c.chance(2):
        row["padding"] = padding
    return row, outs


def dense(c, s, depth):
    units = c.one(SIZES)
    return {"layer": "dense", "units": units, **function(c), **kernel(c)}, (*s[:-1], units)


def activation(c, s, depth):
    return {"layer": "activation", "function": c.one(FUNCTIONS)}, s


def flatten(c, s, depth):
    return {"layer": "flatten"}, (int(numpy.prod(s)),)


def reshape(c, s, depth):
    n = int(numpy.prod(s))
    to = c.one([(n,), (1, n), (n, 1), (n // 2, 2) if n % 2 == 0 else (n,), (n // 3, 3) if n % 3 == 0 else (1, n, 1)])
    given = list(to)
    if c.chance(3):
        given[c.number(0, len(given) - 1)] = -1
    return {"layer": "reshape", "shape": given}, to


def dropout(c, s, depth):
    return {"layer": "dropout", "rate": 0}, s


def batch_norm(c, s, depth):
    row = {"layer": "batch_norm", **function(c, 3)}
    if c.chance(3):
        row["momentum"] = c.one([0.9, 0.5, 0])
    elif c.chance(6):
        row["no_average"] = True
    if c.chance(4):
        row["epsilon"] = c.one([0.01, 1e-5])
    return row, s


def layer_norm(c, s, depth):
    return {"layer": "layer_norm", **({"epsilon": c.one([0.01, 1e-5])} if c.chance(4) else {})}, s


def rms_norm(c, s, depth):
    return {"layer": "rms_norm", **({"epsilon": c.one([0.01, 1e-3])} if c.chance(4) else {}),
            **({"no_scale": True} if c.chance(4) else {})}, s


def group_norm(c, s, depth):
    groups = c.one([g for g in (1, 2, 3, 4, 5, 7) if s[-1] % g == 0] + [-1])
    row = {"layer": "group_norm", "groups": groups}
    for flag in ("no_scale", "no_center"):
        if c.chance(5):
            row[flag] = True
    return row, s


def residual(c, s, depth):
    if depth > 1:
        return dense(c, s, depth)
    rows, now = chain(c, s, depth + 1, c.number(1, 2))
    shortcut = []
    if now != s:
        if now[:-1] == s[:-1]:
            shortcut = [{"layer": "dense", "units": now[-1]}]
        else:
            to = {"layer": "reshape", "shape": list(now)}
            n = int(numpy.prod(now))
            shortcut = [{"layer": "flatten"}, {"layer": "dense", "units": n}, to]
    return {"layer": "residual", "layers": rows, **({"shortcut": shortcut} if shortcut else {}), **function(c)}, now


def conv1d(c, s, depth):
    row, outs = window(c, s[:1], "kernel_size")
    groups = c.one([g for g in (1, 2, 3) if s[-1] % g == 0]) if c.chance(3) else 1
    filters = groups * c.one([1, 2, 3])
    more = {"groups": groups} if groups > 1 else {}
    return {"layer": "conv1d", "filters": filters, **row, **more, **function(c), **kernel(c)}, (*outs, filters)


def conv2d(c, s, depth):
    row, outs = window(c, s[:2], "kernel_size")
    groups = c.one([g for g in (1, 2, 3) if s[-1] % g == 0]) if c.chance(3) else 1
    filters = groups * c.one([1, 2, 3])
    more = {"groups": groups} if groups > 1 else {}
    return {"layer": "conv2d", "filters": filters, **row, **more, **function(c), **kernel(c)}, (*outs, filters)


def depthwise_conv2d(c, s, depth):
    row, outs = window(c, s[:2], "kernel_size")
    m = c.one([1, 2, 3])
    return ({"layer": "depthwise_conv2d", **row, **({"depth_multiplier": m} if m > 1 else {}), **function(c),
             **({"no_bias": True} if c.chance(4) else {})}, (*outs, s[-1] * m))


def separable_conv2d(c, s, depth):
    row, outs = window(c, s[:2], "kernel_size")
    m, filters = c.one([1, 2]), c.one([1, 2, 3])
    return ({"layer": "separable_conv2d", "filters": filters, **row, **({"depth_multiplier": m} if m > 1 else {}),
             **function(c), **({"no_bias": True} if c.chance(4) else {})}, (*outs, filters))


def conv2d_transpose(c, s, depth):
    row, size, stride, wide = window(c, s[:2], "kernel_size", True)
    filters, padding = c.one([1, 2, 3]), c.one(["valid", "same"])
    out = [n * t + max(w - t, 0) if padding == "valid" else n * t for n, t, w in zip(s[:2], stride, wide)]
    if min(stride) > 1 and c.chance(3):
        extra = [c.number(0, t - 1) for t in stride]
        row["output_padding"] = extra
        larger = [(n - 1) * t + w + e - (2 * (w // 2) if padding == "same" else 0)
                  for n, t, w, e in zip(s[:2], stride, wide, extra)]
        # With the padding same, the convolution of the result must have the size of the input.
        if any(extra) and (padding == "valid" or [-(-o // t) for o, t in zip(larger, stride)] == list(s[:2])):
            out = larger
        else:
            del row["output_padding"]
    return ({"layer": "conv2d_transpose", "filters": filters, "padding": padding, **row, **function(c), **kernel(c)},
            (*out, filters))


def pool(kind, axes):
    def make(c, s, depth):
        row, outs = window(c, s[:axes], "size")
        return {"layer": kind, **row}, (*outs, s[-1])
    return make


def global_pool(kind):
    return lambda c, s, depth: ({"layer": kind}, (s[-1],))


def recurrent(kind):
    def make(c, s, depth):
        units = c.one([2, 1, 3])
        row = {"layer": kind, "units": units}
        if c.chance(3):
            row["activation"] = c.one(["tanh", "sigmoid", "relu", "linear"])
        if c.chance(3):
            row["recurrent_activation"] = c.one(["sigmoid", "tanh", "relu", "linear"])
        for flag, one_in in (("no_bias", 5), ("return_sequences", 2), ("go_backwards", 4), ("no_unit_forget_bias", 8),
                             ("no_reset_after", 3)):
            if c.chance(one_in) and (kind == "gru" or flag != "no_reset_after") and \
                    (kind == "lstm" or flag != "no_unit_forget_bias"):
                row[flag] = True
        width = units
        if not row.get("go_backwards") and c.chance(3):
            row["bidirectional"] = c.one(["concat", "sum", "mul", "ave"])
            width = 2 * units if row["bidirectional"] == "concat" else units
        return row, (s[0], width) if row.get("return_sequences") else (width,)
    return make


def attention(c, s, depth):
    heads = c.one([1, 2, 3])
    row = {"layer": "multi_head_attention", "heads": heads}
    if s[-1] % heads or c.chance(2):
        row["key_dim"] = c.one([1, 2, 3])
    for flag in ("causal", "no_bias"):
        if c.chance(3):
            row[flag] = True
    return row, s


ANY = [dense, activation, batch_norm, layer_norm, rms_norm, group_norm, residual, flatten, reshape, dropout]
BY_RANK = {1: ANY,
           2: [*ANY, conv1d, pool("max_pool1d", 1), pool("avg_pool1d", 1), global_pool("global_average_pool"),
               global_pool("global_max_pool"), recurrent("lstm"), recurrent("gru"), attention, recurrent("lstm"),
               recurrent("gru")],
           3: [*ANY, conv2d, depthwise_conv2d, separable_conv2d, conv2d_transpose, pool("max_pool2d", 2),
               pool("avg_pool2d", 2), global_pool("global_average_pool"), global_pool("global_max_pool"), conv2d]}
MOST = 400  # the most elements of a value of one example


def layer(c, s, depth):
    for _ in range(3):
        row, out = c.one(BY_RANK.get(len(s), ANY))(c, s, depth)
        if numpy.prod(out) <= MOST:
            return row, tuple(int(d) for d in out)
    return {"layer": "activation", "function": "tanh"}, s


def chain(c, s, depth, n):
    rows = []
    for _ in range(n):
        row, s = layer(c, s, depth)
        rows.append(row)
    return rows, s


class Builder:
    """A functional model that grows call by call."""

    def __init__(self, c):
        self.c, self.inputs, self.rows, self.shapes, self.used = c, [], [], {}, set()
        self.tokens, self.takes = {}, {}

    def input(self):
        c, name = self.c, f"in{len(self.inputs)}"
        rank = c.one([1, 2, 3, 0, 0])
        if rank:
            shape, one = tuple(c.one(SIZES) for _ in range(rank)), {}
        else:
            shape, one = tuple(c.one([3, 1, 2, 5, 6]) for _ in range(2 if c.chance(8) else 1)), {"dtype": "i32"}
            self.tokens[name] = c.one([4, 2, 9])
        self.inputs.append({"name": name, "shape": list(shape), **one})
        self.shapes[name] = shape

    def call(self, row, inputs, shape):
        name = f"v{len(self.rows)}"
        self.rows.append({**row, "name": name, "inputs": inputs})
        self.shapes[name] = tuple(shape)
        self.used.update(inputs)
        if "layer" in row and len(inputs) == 1:
            self.takes[name] = (self.shapes[inputs[0]], tuple(shape), inputs[0] in self.tokens)
        return name

    def root(self, name):
        """The layer whose call this is."""
        return next(r.get("call", name) for r in self.rows if r["name"] == name)

    def floats(self):
        return [n for n in self.shapes if n not in self.tokens]

    def embed(self, name):
        c, s = self.c, self.shapes[name]
        units = c.one([2, 3, 1, 4])
        row = {"layer": "embedding", "vocabulary": self.tokens[name], "units": units}
        if c.chance(2):
            row["mask_zero"] = True
        if c.chance(4):
            row["sparse"] = True  # and called once
        return self.call(row, [name], (*s, units))

    def step(self):
        c = self.c
        free = [n for n in self.shapes if n not in self.used]
        name = c.one(free) if free and not c.chance(4) else c.one(list(self.shapes))
        s, tokens = self.shapes[name], name in self.tokens
        sparse = {r["name"] for r in self.rows if r.get("sparse")}
        shared = [k for k, (i, _, t) in self.takes.items() if i == s and t == tokens and self.root(k) not in sparse]
        if shared and c.chance(4):
            first = self.root(c.one(shared))
            if not tokens or next(r for r in self.rows if r["name"] == first)["vocabulary"] >= self.tokens[name]:
                return self.call({"call": first}, [name], self.takes[first][1])
        if tokens:
            return self.embed(name)
        same = [n for n in self.floats() if self.shapes[n] == s]
        if len(same) > 1 and c.chance(2):
            taken = [name, *(c.one(same) for _ in range(c.number(1, 2)))]
            return self.call({"layer": c.one(["add", "multiply"])}, taken, s)
        near = [n for n in self.floats() if len(self.shapes[n]) == len(s) and self.shapes[n][:-1] == s[:-1]]
        if len(near) > 1 and c.chance(3):
            taken = [name, c.one(near)]
            row = {"layer": "concat", **({"axis": len(s)} if c.chance(2) else {})}
            return self.call(row, taken, (*s[:-1], sum(self.shapes[n][-1] for n in taken)))
        row, out = layer(c, s, 0)
        return self.call(row, [name], out)

    def flat(self, name):
        s = self.shapes[name]
        if len(s) == 1:
            return name
        row, out = self.c.one([flatten, global_pool("global_average_pool")])(self.c, s, 0)
        return self.call(row, [name], out)

    def output(self, name):
        c = self.c
        loss = c.one(["mse", "sparse_categorical_crossentropy", "binary_crossentropy", "categorical_crossentropy", "mae",
                      "huber"])
        spec = {"loss": loss}
        if "categorical" in loss:
            name = self.flat(name)
            classes = c.one([2, 3, 5])
            end = c.one(["none", "option", "layer"])
            name = self.call({"layer": "dense", "units": classes, **({"activation": "softmax"} if end == "option" else {})},
                             [name], (classes,))
            if end == "layer":
                name = self.call({"layer": "activation", "function": "softmax"}, [name], (classes,))
        elif loss == "binary_crossentropy":
            s = self.shapes[name]
            units, end = c.one([1, 2, 3]), c.one(["none", "option", "layer"])
            name = self.call({"layer": "dense", "units": units, **({"activation": "sigmoid"} if end == "option" else {})},
                             [name], (*s[:-1], units))
            if end == "layer":
                name = self.call({"layer": "activation", "function": "sigmoid"}, [name], self.shapes[name])
        elif c.chance(2):
            s, units = self.shapes[name], c.one([1, 2, 3])
            name = self.call({"layer": "dense", "units": units, **function(c, 4)}, [name], (*s[:-1], units))
        if "crossentropy" in loss and c.chance(3):
            spec["loss"] = {"name": loss, "label_smoothing": c.one([0.1, 0.5, 0])}
        if loss == "huber" and c.chance(2):
            spec["loss"] = {"name": loss, "delta": c.one([0.5, 2])}
        return {"name": name, **spec}


def draw_model(c):
    b = Builder(c)
    for _ in range(c.one([1, 1, 1, 2, 3])):
        b.input()
    for _ in range(c.number(1, 6)):
        b.step()
    for name in list(b.shapes):  # each input is taken, and nothing but the outputs stays free
        if name in b.tokens and name not in b.used:
            b.embed(name)
        elif name in [i["name"] for i in b.inputs] and name not in b.used:
            row, out = layer(c, b.shapes[name], 0)
            b.call(row, [name], out)
    free = [n for n in b.shapes if n not in b.used]
    while len(free) > 3:
        flat = [b.flat(n) for n in free[:2]]
        both = b.call({"layer": "concat"}, flat, (sum(b.shapes[n][0] for n in flat),))
        free = [both, *free[2:]]
    outputs = [b.output(n) for n in free]
    if len(outputs) > 1:
        for o in outputs:
            if c.chance(3):
                o["weight"] = c.one([0.5, 2, 0])
    spec = {"inputs": b.inputs, "layers": b.rows, "outputs": outputs}
    return spec, b


# ---- data and training -----------------------------------------------------------------------------------------------------
def draw_data(c, b, spec, n):
    r = numpy.random.default_rng(c.seed())
    x = {}
    for one in b.inputs:
        if one.get("dtype") == "i32":
            tokens = r.integers(0, b.tokens[one["name"]], (n, *one["shape"]))
            how = c.one(["any", "behind", "empty"])
            if how == "behind":
                length = r.integers(0, one["shape"][-1] + 1, (n, *one["shape"][:-1], 1))
                tokens = numpy.where(numpy.arange(one["shape"][-1]) < length, tokens, 0)
            if how == "empty":
                tokens[r.integers(0, n)] = 0
            x[one["name"]] = tokens.astype("int32")
        else:
            x[one["name"]] = (r.normal(size=(n, *one["shape"])) * c.one([1, 1, 3, 0.1])).astype("float32")
    y = {}
    for o in spec["outputs"]:
        s, loss = b.shapes[o["name"]], keras_model.loss_name(o)
        if loss == "sparse_categorical_crossentropy":
            y[o["name"]] = r.integers(0, s[0], n).astype(c.one(["int32", "int64", "uint8"]))
        elif loss == "categorical_crossentropy":
            if c.chance(3):
                y[o["name"]] = r.integers(0, s[0], n).astype("int32")
            else:
                soft = r.uniform(0.1, 1, (n, *s))
                y[o["name"]] = (soft / soft.sum(-1, keepdims=True)).astype("float32")
        elif loss == "binary_crossentropy":
            y[o["name"]] = (r.integers(0, 2, (n, *s)) if not c.chance(3) else r.uniform(0, 1, (n, *s))).astype("float32")
        else:
            y[o["name"]] = r.normal(size=(n, *s)).astype("float32")
    return {"x": x, "y": y}


def draw_optimizer(c, plain):
    """plain: the optimizer must treat all rows of a sparse table alike."""
    name = c.one(["sgd", "adagrad"] if plain else ["sgd", "adam", "rmsprop", "adagrad", "adamw", "lars", "lamb"])
    o = {"name": name}
    rate = c.one([None, 0.1, 0.01, 0])
    if c.chance(4):
        kind = c.one(["step", "exponential", "cosine", "polynomial"])
        rate = {"schedule": kind, "initial": c.one([0.1, 0.01])}
        if kind == "step":
            rate.update({"boundaries": [1, 3], "values": [0.05, c.one([0.2, 0])]})
        else:
            rate["steps"] = c.one([3, 1, 2, 10])
        if kind == "exponential":
            rate["factor"] = c.one([0.5, 0.9, 2])
            if c.chance(2):
                rate["staircase"] = True
        if kind in ("cosine", "polynomial") and c.chance(2):
            rate["end"] = c.one([0.01, 0.5])
        if kind == "polynomial":
            if c.chance(2):
                rate["power"] = c.one([2, 0.5])
            if c.chance(3):
                rate["cycle"] = True
        if c.chance(3):
            rate["warmup_steps"] = c.one([2, 1, 5])
            if c.chance(2):
                rate["warmup_from"] = 0.02
    if rate is not None:
        o["learning_rate"] = rate
    if name in ("sgd", "rmsprop", "lars") and not plain and c.chance(2):
        o["momentum"] = c.one([0.9, 0.5, 0])
        if name == "sgd" and o["momentum"] and c.chance(2):
            o["nesterov"] = True
    if name in ("adam", "adamw", "lamb"):
        for key, values in (("beta1", [0.5, 0, 0.99]), ("beta2", [0.9, 0.5, 0])):
            if c.chance(3):
                o[key] = c.one(values)
    if name not in ("sgd", "lars") and c.chance(3):
        o["epsilon"] = c.one([1e-3, 0.1, 1e-8])
    if o.get("beta2") == 0:  # a gradient is divided by itself, and only a large epsilon keeps that from enlarging its rounding
        o["epsilon"] = 0.1
    if name == "rmsprop":
        if c.chance(2):
            o["rho"] = c.one([0.5, 0.99, 0])
        if c.chance(3):
            o["centered"] = True
    if name == "adagrad" and c.chance(2):
        o["accumulator"] = c.one([0.5, 1])
    if name in ("adamw", "lars", "lamb") and c.chance(2):
        o["weight_decay"] = c.one([0.01, 0.1, 0])
    if name == "lars" and c.chance(3):
        o["trust"] = c.one([0.1, 1])
    if c.chance(4):
        key = c.one(["clip_value", "clip_global_norm", *([] if plain else ["clip_norm"])])
        o[key] = c.one([0.5, 0.01, 10])
    return o


def has_layer(rows, *kinds):
    return any(r.get("layer") in kinds or has_layer(r.get("layers", []) + (r.get("shortcut") or []), *kinds) for r in rows)


def has_parameters(row):
    return row.get("layer") in ("dense", "conv1d", "conv2d", "batch_norm", "lstm", "gru", "embedding") or (
        row.get("layer") == "residual" and any(has_parameters(inner) for inner in row["layers"]))


def draw_case(c):
    spec, b = draw_model(c)
    n = c.one([3, 1, 2, 4, 5, 8, 13])
    case = {"spec": spec, "n": n, "data": draw_data(c, b, spec, n)}
    sparse = any(r.get("sparse") for r in spec["layers"])
    o = draw_optimizer(c, sparse)
    train = {"batch": c.number(1, n + 1), "epochs": c.one([1, 2, 0]), "optimizer": o, "seed": c.seed()}
    if c.chance(4) and not has_layer(spec["layers"], "batch_norm"):
        o["gradient_accumulation_steps"] = c.one([2, 3])
    if c.chance(4):
        case["data"]["weights"] = numpy.random.default_rng(c.seed()).choice([0, 0.5, 1, 2, 3], n).astype("float32")
    classes = spec["outputs"][0]
    if len(spec["outputs"]) == 1 and "categorical" in keras_model.loss_name(classes) and c.chance(4):
        train["class_weight"] = [c.one([1, 0.5, 3, 0]) for _ in range(b.shapes[classes["name"]][0])]
    with_parameters = [r["name"] for r in spec["layers"] if has_parameters(r)]
    if len(with_parameters) > 1 and c.chance(6):
        train["freeze"] = [c.one(with_parameters[:-1])]
    for o in spec["outputs"]:
        metrics = draw_metrics(c, b, o)
        if metrics:
            o["metrics"] = metrics
    case["train"] = train
    case["path"] = draw_path(c, case)
    return case


def classification(o):
    return "crossentropy" in keras_model.loss_name(o)


def draw_metrics(c, b, o):
    """Metrics that this output can have."""
    name, s = keras_model.loss_name(o), b.shapes[o["name"]]
    known = ["mae"] if "categorical" not in name else [f"top_{k}_accuracy" for k in (1, 2) if k <= s[0]]
    if "categorical" in name or (name == "binary_crossentropy" and numpy.prod(s) == 1):
        known += ["precision", "recall"] + (["auc"] if name == "binary_crossentropy" else [])
    return [k for k in known if c.chance(3)]


STRATEGIES = [None, None, None, "mirrored", "one_device", "central_storage"]


def draw_path(c, case):
    """How Strata gets the model, where and how it trains. Each kind of path must give the results of the plain one."""
    train, layers = case["train"], case["spec"]["layers"]
    path = {"how": c.one(["json", "python", "c", "json"]), "batch": c.one([None, 1, 2, 7])}
    if train.get("freeze") and path["how"] == "python":
        path["how"] = "json"  # Python has no call for it before the losses are known
    ports = len(case["spec"]["inputs"]) + len(case["spec"]["outputs"])
    plain = case["data"].get("weights") is None and not train.get("freeze") and not train.get("class_weight")
    if c.chance(8) and ports > 2 and plain and train["epochs"]:
        whole_steps(case)  # the command shuffles, and a step with all examples does not depend on their order
        if c.chance(4):
            path["device"] = c.one(["opencl", "vulkan"])
        return {**path, **draw_precision(c, case), "how": "command"}
    if c.chance(3):
        path["file"] = c.one(["strata", "keras", "onnx"])
    if train["epochs"] and c.chance(4):
        path["resume"] = c.one(["epoch", "step", "folder"])
    elif c.chance(8):
        path["threads"] = 2
    strategy = c.one(STRATEGIES)
    if strategy and not has_layer(layers, "batch_norm") and "threads" not in path:
        path["strategy"] = strategy
    return {**path, **draw_precision(c, case)}


def whole_steps(case):
    case["train"]["batch"] = case["n"]
    case["train"]["optimizer"].pop("gradient_accumulation_steps", None)


def draw_precision(c, case):
    train = case["train"]
    if not c.chance(10):
        return {}
    precision = c.one(["bf16", "f16"])
    if train["epochs"] and precision == "f16":  # a gradient that is too large for f16 leaves the step out
        train["epochs"] = 1
        whole_steps(case)
    return {"precision": precision}


# ---- Strata ----------------------------------------------------------------------------------------------------------------
def python_layer(row):
    options = {k: v for k, v in row.items() if k not in ("layer", "inputs", "call")}
    for branch in ("layers", "shortcut"):
        if branch in options:
            options[branch] = [python_layer(r) for r in options[branch]]
    return getattr(strata.layers, row["layer"])(**options)


def python_model(spec):
    values, layers = {i["name"]: strata.Input(i["shape"], name=i["name"], dtype=i.get("dtype")) for i in spec["inputs"]}, {}
    for row in spec["layers"]:
        if "layer" in row:
            layers[row["name"]] = python_layer(row)
        values[row["name"]] = layers[row.get("call", row["name"])]([values[i] for i in row["inputs"]])
    return strata.Model(inputs=[values[i["name"]] for i in spec["inputs"]],
                        outputs=[values[o["name"]] for o in spec["outputs"]])


PAIRS = {"kernel_size": 2, "stride": 2, "size": 2, "dilation": 2, "output_padding": 2, "explicit_padding": 4}


def add_in_c(model, row):
    """Adds a layer with the functions of strata/layers.h."""
    kind, options = row["layer"], {k: v for k, v in row.items() if k not in ("layer", "layers", "shortcut", "inputs", "call")}
    if kind == "residual":
        lib.model_begin_residual(model, struct("residual_options", **options))
        for one in row["layers"]:
            add_in_c(model, one)
        if row.get("shortcut"):
            lib.model_begin_shortcut(model)
        for one in row.get("shortcut") or []:
            add_in_c(model, one)
        lib.model_end_residual(model)
        return
    aliases = strata._native._table["aliases"]
    name = aliases.get(f"strata_{kind}_options", f"strata_{kind}_options")[len("strata_"):]
    getattr(lib, f"model_add_{kind}")(model, struct(name, **options))


def c_model(spec):
    """The model made call by call with the functions of C."""
    model = lib.model_create_functional()
    values = {i["name"]: lib.model_input(model, i["name"], i["shape"], i.get("dtype", "f32")) for i in spec["inputs"]}
    for row in spec["layers"]:
        if "layer" in row:
            add_in_c(model, row)
        values[row["name"]] = lib.layer_call(model, row.get("call", row["name"]), [values[i] for i in row["inputs"]])
    for o in spec["outputs"]:
        loss = {"name": o["loss"]} if isinstance(o["loss"], str) else dict(o["loss"])
        options = {"name": o["name"], "loss": loss.pop("name"), "weight": o.get("weight"),
                   "metrics": ",".join(o.get("metrics", [])) or None}
        lib.model_output(model, values[o["name"]], struct("output_options", loss_options=struct("loss_options", **loss),
                                                          **options))
    return strata.Model._of(model)


def made(case):
    """The model, before compile."""
    spec, how = case["spec"], case["path"]["how"]
    return {"json": strata.Model.from_json, "command": strata.Model.from_json, "python": python_model, "c": c_model}[how](spec)


def optimizer_of(o):
    o = dict(o)
    rate = o.get("learning_rate")
    if isinstance(rate, dict):
        rate = dict(rate)
        o["learning_rate"] = strata.schedule(rate.pop("schedule"), rate.pop("initial"), **rate)
    return strata.optimizers.optimizer(**{"value": o.pop("name"), **o})


def compiled(case, model):
    spec, train, path = case["spec"], case["train"], case["path"]
    for name in train.get("freeze", []):
        if model._as_parameter_ is None:
            model._create(None)
        lib.model_freeze(model, name)
    options = {"seed": train["seed"], "precision": path.get("precision", "f32")}
    if path.get("strategy"):
        devices = ["host"] if path["strategy"] == "one_device" else ["host", "host"]
        options["strategy"] = strata.Strategy(path["strategy"], devices)
    else:
        options["device"] = "host"
    outputs = spec["outputs"]
    if path["how"] == "python" and model._outputs is not None and model._as_parameter_ is None:
        losses = {v: o["loss"] for v, o in zip(model._outputs, outputs)}
        weights = {v: o["weight"] for v, o in zip(model._outputs, outputs) if "weight" in o}
        options.update({"loss": losses, "loss_weights": weights})
        options["metrics"] = outputs[0].get("metrics") if len(outputs) == 1 else None
    return model.compile(optimizer_of(train["optimizer"]), **options)


def predictions(model, case):
    y = model.predict(case["data"]["x"] if len(case["data"]["x"]) > 1 else next(iter(case["data"]["x"].values())),
                      batch_size=case["path"]["batch"])
    names = [o["name"] for o in case["spec"]["outputs"]]
    if not isinstance(y, dict):
        y = {names[0]: y}
    return dict(zip(names, (numpy.array(v) for v in y.values())))


def through_file(case, model, folder):
    """Saves the model and loads it again. Returns the loaded model. Another program's file has no loss: it is only used for
    predictions, which must be the same."""
    kind = case["path"]["file"]
    file = os.path.join(folder, f"m.{kind}")
    try:
        model.save(file)
    except strata._native.InvalidError as error:
        return None, str(error)
    except strata._native._errors["UNSUPPORTED"] as error:
        return None, str(error)
    return strata.load(file), None


class Steps:
    """The losses of steps and epochs."""

    def __init__(self):
        self.steps, self.epochs = [], []

    def run(self, model, case, most=None, **options):
        """Trains, at most so many steps."""
        train, data = case["train"], case["data"]
        y = dict(zip(model._ports[1], (data["y"][o["name"]] for o in case["spec"]["outputs"])))
        x = data["x"]
        for step in model.steps(x, y, batch_size=train["batch"], shuffle=False, sample_weight=data.get("weights"),
                                class_weight=train.get("class_weight"), **{"epochs": train["epochs"], **options}):
            if step.epoch_end:
                self.epochs.append(step.logs["loss"])
            else:
                self.steps.append(step.loss)
                if len(self.steps) == most:
                    break
        return self


def trained(case, model, weights, folder):
    """Trains, perhaps with an interruption after which another model continues from a checkpoint. Returns the model that has
    been trained, and the losses."""
    train, how = case["train"], case["path"].get("resume")
    if how is None:
        return model, Steps().run(model, case)
    file, first = os.path.join(folder, "checkpoint"), Steps()
    if how == "folder":
        first.run(model, case, epochs=1, checkpoint={"folder": file})
    elif how == "epoch":
        first.run(model, case, epochs=1)
        model.save_checkpoint(file, 1)
    else:
        first.run(model, case, 1, wait_each_step=True)
        model.save_checkpoint(file, 0 if lib.model_epoch_steps(model) else 1)
    second = compiled(case, made(case))
    epochs = second.load_checkpoint(file)
    rest = Steps().run(second, case, initial_epoch=epochs)
    first.steps += rest.steps
    first.epochs += rest.epochs
    if how == "step" and len(first.steps) and len(first.epochs) < train["epochs"]:
        first.epochs = None  # the end of the epoch was not reached in the loop
    return second, first


def by_command(case, folder):
    """The model that `strata train` trains and saves."""
    train, data = case["train"], case["data"]
    file, arrays, saved = (os.path.join(folder, name) for name in ("m.json", "data.npz", "m.strata"))
    pathlib.Path(file).write_text(json.dumps({**case["spec"], "optimizer": train["optimizer"]}))
    numpy.savez(arrays, **{f"{k}_{part}": v for part in ("train", "test") for k, v in {**data["x"], **data["y"]}.items()})
    run = subprocess.run([os.environ["STRATA_COMMAND"], "train", file, "--data", arrays, "--save", saved,
                          "--epochs", str(train["epochs"]), "--batch", str(train["batch"]), "--seed", str(train["seed"]),
                          "--device", case["path"].get("device", "host"), "--no-tune",
                          "--precision", case["path"].get("precision", "f32")],
                         capture_output=True, text=True)
    if run.returncode == 4 and "device: there is no" in run.stderr and case["path"].get("device"):
        raise draws.Skip(run.stderr)
    if run.returncode:
        raise Differs("the command fails", f"exit code {run.returncode}: {run.stderr.strip()[-400:]}")
    return compiled(case, strata.load(saved))


def run_strata(case, folder):
    data, train, path = case["data"], case["train"], case["path"]
    model = compiled(case, made(case))
    model._ready()
    names = [lib.model_parameter(model, i).name.decode() for i in range(lib.model_n_parameters(model))]
    weights = [(n, a.copy()) for n, a in zip(names, model.get_weights())]
    result = {"before": predictions(model, case)}
    if path.get("file"):
        loaded, reason = through_file(case, model, folder)
        if loaded is not None and path["file"] == "strata":
            model = compiled(case, loaded)
            result["before"] = predictions(model, case)
        elif loaded is not None:
            if path["file"] == "keras" and loaded._ports[0] != list(data["x"]) and len(data["x"]) > 1:
                raise Differs("inputs", f"the file has the inputs {loaded._ports[0]}")
            inputs = dict(zip(loaded._ports[0], data["x"].values()))
            y = loaded.build(device="host").predict(inputs if len(inputs) > 1 else next(iter(inputs.values())))
            y = [y] if not isinstance(y, dict) else list(y.values())
            result["before"] = dict(zip(result["before"], y))
    if train["epochs"]:
        if path["how"] == "command":
            model, steps = by_command(case, folder), None
        elif path.get("threads"):
            others = [compiled(case, made(case)) for _ in range(path["threads"])]
            with concurrent.futures.ThreadPoolExecutor(len(others)) as pool:
                found = list(pool.map(lambda m: Steps().run(m, case), others))
            if len({m.sha256 for m in others}) != 1:
                raise Differs("threads", "two models that were trained at the same time have different weights")
            model, steps = others[0], found[0]
        else:
            model, steps = trained(case, model, weights, folder)
        if steps is not None:
            result["steps"] = numpy.array(steps.steps)
        if steps is not None and steps.epochs is not None:
            result["epochs"] = numpy.array(steps.epochs)
        result.update({"after": predictions(model, case), "weights": dict(zip(names, model.get_weights()))})
    y = dict(zip(model._ports[1], (data["y"][o["name"]] for o in case["spec"]["outputs"])))
    scores = model.evaluate(data["x"], y, sample_weight=data.get("weights"), batch_size=path["batch"])
    result["evaluate"] = numpy.array([scores["loss"]])
    return weights, result, scores


# ---- metrics ---------------------------------------------------------------------------------------------------------------
def auc(score, is_class):
    right = sum((a > b) + (a == b) / 2 for a in score[is_class] for b in score[~is_class])
    pairs = is_class.sum() * (~is_class).sum()
    return right / pairs if pairs else numpy.nan


def metrics_of(o, p, labels, near):
    """The metrics of these predictions p, which are probabilities for crossentropies. None: a prediction is not farther than
    `near` from the decision."""
    name, n = keras_model.loss_name(o), len(p)
    p, result = numpy.asarray(p, "float64"), {}
    labels = numpy.asarray(labels)
    if "categorical" in name:
        labels = labels.argmax(-1) if labels.ndim > 1 else labels.astype(int)
        best = numpy.sort(p, -1)
        if (numpy.abs(numpy.diff(best, axis=-1)) < near).any():
            return None
        answers, classes = p.argmax(-1), range(p.shape[-1])
        result["accuracy"] = (answers == labels).mean()
        for k in (1, 2):
            result[f"top_{k}_accuracy"] = numpy.mean([(v > v[l]).sum() < k for v, l in zip(p, labels)])
    else:
        flat_p, flat_y = p.reshape(n, -1), labels.reshape(n, -1).astype("float64")
        result["mae"] = numpy.abs(flat_p - flat_y).mean()
        if name != "binary_crossentropy":
            return result
        if (numpy.abs(flat_p - 0.5) < near).any() or (numpy.abs(flat_y - 0.5) < 1e-6).any():
            return None
        result["accuracy"] = ((flat_p > 0.5) == (flat_y > 0.5)).mean()
        if flat_p.shape[1] > 1:
            return result
        answers, labels, classes = flat_p[:, 0] > 0.5, flat_y[:, 0] > 0.5, [True]
        if near < 1e-3 or (numpy.diff(numpy.sort(flat_p[:, 0])) > near).all():
            result["auc"] = auc(flat_p[:, 0], labels)
    hits = {c: ((answers == c) & (labels == c)).sum() for c in classes}
    used = [c for c in classes if c is True or (answers == c).any() or (labels == c).any()]
    of = {"precision": answers, "recall": labels}
    for metric, whose in of.items():
        result[metric] = numpy.mean([hits[c] / max(1, (whose == c).sum()) for c in used])
    return result


def unit_of(case):
    """How much of itself a value between two layers may be rounded by; 0 for f32."""
    return {None: 0, "bf16": 2**-8, "f16": 2**-11}[case["path"].get("precision")]


def check_metrics(case, found, scores):
    outputs, unit = case["spec"]["outputs"], unit_of(case)
    last = found.get("after", found["before"]) if case["train"]["epochs"] or case["path"].get("file") != "onnx" else None
    for o in outputs if last is not None else []:
        expected = metrics_of(o, last[o["name"]], case["data"]["y"][o["name"]], max(1e-6, 2 * unit))
        prefix = "" if len(outputs) == 1 else o["name"] + "/"
        given = o.get("metrics", []) if case["path"]["how"] != "python" or len(outputs) == 1 else []
        for metric in ["accuracy"] * classification(o) + given:
            if expected is None or metric not in expected or not numpy.isfinite(last[o["name"]]).all():
                continue
            value = next((v for k, v in scores.items() if k == prefix + metric), None)
            if value is None:
                raise Differs(f"metric {metric}", f"{o['name']} has no {metric}: {scores}")
            if not numpy.isclose(value, expected[metric], rtol=1e-5 + 2 * unit, atol=2e-6 + 2 * unit, equal_nan=True):
                raise Differs(f"metric {metric}", f"{o['name']}: {metric} is {value} instead of {expected[metric]}")


# ---- comparison ------------------------------------------------------------------------------------------------------------
def flat(result):
    for key, value in result.items():
        for name, array in value.items() if isinstance(value, dict) else [("", value)]:
            yield f"{key} {name}".strip(), numpy.asarray(array, "float64")


def differences(found, reference, others):
    """The places where `found` is further from the reference than rounding explains. others: the reference with weights and
    data that were moved by rounding errors."""
    spread = {}
    for other in others:
        for key, a in flat(other):
            spread.setdefault(key, []).append(a)
    found = dict(flat(found))
    for key, expected in flat(reference):
        if key not in found:
            continue
        a = found[key]
        if a.size != expected.size:
            yield key, numpy.inf, f"{a.shape} and {expected.shape}"
            continue
        a = a.reshape(expected.shape)
        scale = max(1.0, float(numpy.max(numpy.abs(expected[numpy.isfinite(expected)]), initial=0)))
        allowed = numpy.full(expected.shape, 4e-6 * scale)
        with numpy.errstate(invalid="ignore"):
            moved = [numpy.abs(m.reshape(expected.shape) - expected) for m in spread.get(key, [])]
            for m in moved:  # what happens to one element may happen to another
                worst = float(numpy.max(m[numpy.isfinite(m)], initial=0))
                allowed += 2 * worst + 4 * numpy.where(numpy.isfinite(m), m, 0)
            apart = numpy.abs(a - expected)
            # In f32, a number that only double has is not finite.
            unlike = (numpy.isfinite(a) != numpy.isfinite(expected)) & all(numpy.isfinite(m).all() for m in moved)
            times = numpy.where(unlike, numpy.inf, numpy.nan_to_num(apart / allowed, nan=0, posinf=0))
        if (times > 1).any():
            at = numpy.unravel_index(numpy.argmax(times), expected.shape) if expected.ndim else ()
            yield key, times[at], f"{a[at]:.7g} instead of {expected[at]:.7g} (+- {allowed[at]:.2g}) at {at}"


def diverges(case):
    """Whether f32, or Keras' gradients, leave the range of numbers as well."""
    model = made({**case, "path": {"how": "json"}}).build(device="host", seed=case["train"]["seed"])
    names = [lib.model_parameter(model, i).name.decode() for i in range(lib.model_n_parameters(model))]
    weights, found = list(zip(names, model.get_weights())), []
    for dtype, noise in (("float64", 0), ("float64", 1e-6), ("float32", 0)):
        try:
            steps = keras_model.Trainer(case, weights, dtype, noise, 1).run().get("steps", numpy.zeros(1))
        except keras_model.Unable as error:
            raise draws.Skip(str(error)) from None
        found.append(numpy.abs(steps).max() if numpy.isfinite(steps).all() else numpy.inf)
    return max(found) > 1e8


def check(c, folder):
    case = draw_case(c)
    describe(c, case)
    try:
        weights, found, scores = run_strata(case, folder)
    except strata.Error as error:
        if "there is nothing to train" in str(error):
            raise draws.Skip(str(error)) from None
        if "loss is not finite" in str(error) and diverges(case):
            raise draws.Skip("the training diverges") from None
        raise Differs(f"refused: {type(error).__name__}", str(error)) from None
    try:
        reference = keras_model.Trainer(case, weights, "float64").run()
    except keras_model.Unable as error:
        raise draws.Skip(str(error)) from None
    check_metrics(case, found, scores)
    unit = unit_of(case)
    same = "weights" in found and all((found["weights"][n] == a).all() for n, a in weights)
    if same and case["path"].get("precision") == "f16":
        raise draws.Skip("the gradient is too large for f16")
    others, wrong = [], list(differences(found, reference, []))
    # What rounding may move is only computed where more differs than it always may: first by two runs, and then by more, since
    # a kink or a tiny gradient may be near, of which some have the rounding of f32 itself. An optimizer that divides a gradient
    # by itself (beta2 0, lars) makes much of little, and does so in few runs.
    stages = ([("float64", 1e-6)] * 2, [("float64", 1e-6), ("float64", 3e-6), ("float32", 0), ("float32", 2e-7),
                                        ("float32", 2e-7)], [("float32", 2e-7), ("float32", 6e-7)] * 6)
    if unit:
        stages = ([("float64", unit)] * 3, [("float32", unit)] * 5 + [("float32", 2 * unit)] * 4)
    for more in stages:
        if wrong:
            others += [keras_model.Trainer(case, weights, *one, len(others) + i + 1).run() for i, one in enumerate(more)]
            wrong = list(differences(found, reference, others))
    if wrong:
        raise Differs(wrong[0][0].split()[0], "; ".join(f"{key}: {text}" for key, _, text in wrong[:4]))


def describe(c, case):
    spec = case["spec"]
    c.note("inputs " + json.dumps(spec["inputs"]))
    for row in spec["layers"]:
        c.note(json.dumps(row))
    c.note("outputs " + json.dumps(spec["outputs"]))
    c.note(json.dumps({"n": case["n"], "path": case["path"], **case["train"]}))
    if case["data"].get("weights") is not None:
        c.note(f"weights {case['data']['weights'].tolist()}")


if __name__ == "__main__":
    draws.main("models", check, f"Keras {keras_model.keras.__version__} on {keras_model.keras.backend.backend()}")
