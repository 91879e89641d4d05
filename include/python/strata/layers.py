# SPDX-License-Identifier: Apache-2.0
"""Layers, under their names in a model's JSON and under Keras' names.

    layers.dense(128, activation="relu")        {"layer": "dense", "units": 128, "activation": "relu"}
    layers.Dense(128, activation="relu")        the same, with Keras' names of arguments

The options are the fields of the structs in strata/layers.h, whose comments describe them; `strata help layers` lists them.
The same layer may be passed to several models. Each model then has its own parameters."""
import inspect

from . import _native


class Value:
    """A value of a functional model: an input, or the output of a call such as layers.dense(8)(x)."""

    def __init__(self, layer, inputs, name=None, shape=None, dtype=None):
        self.layer, self.inputs, self.name, self.shape, self.dtype = layer, inputs, name, shape, dtype


def Input(shape, name=None, dtype=None) -> Value:
    """An input of a functional model. shape: the shape of one example. dtype: "i32" for tokens."""
    return Value(None, [], name, [shape] if isinstance(shape, int) else list(shape), dtype)


def describe(inputs, outputs):
    """Returns the JSON of a functional model, and the names of its inputs and outputs."""
    names, taken, rows, first = {}, set(), [], {}

    def name_of(value, wanted):
        name, n = wanted, 0
        while name in taken:
            n += 1
            name = f"{wanted}_{n}"
        taken.add(name)
        names[id(value)] = name
        return name

    def visit(value):
        if id(value) in names:
            return
        for one in value.inputs:
            visit(one)
        if value.layer is None:
            raise _native.InvalidError("an input that a layer takes is not among the model's inputs")
        called = first.get(id(value.layer))
        name = name_of(value, value.layer.get("name") or (f"{called}_again" if called else value.layer["layer"]))
        row = {"call": called} if called else dict(value.layer)
        rows.append({**row, "name": name, "inputs": [names[id(i)] for i in value.inputs]})
        first.setdefault(id(value.layer), name)
    spec = [{"name": name_of(i, i.name or "input"), "shape": i.shape, **({"dtype": i.dtype} if i.dtype else {})}
            for i in inputs]
    for output in outputs:
        visit(output)
    for one in spec:  # an input of an embedding has tokens
        if "dtype" not in one and any(row.get("layer") == "embedding" and one["name"] in row["inputs"] for row in rows):
            one["dtype"] = "i32"
    return {"inputs": spec, "layers": rows}, [s["name"] for s in spec], [names[id(o)] for o in outputs]


def takes_tokens(layers) -> bool:
    """Whether the first of the layers that computes is an embedding."""
    moves = ("reshape", "flatten", "permute", "transpose")
    first = next((one for one in layers if one["layer"] not in moves), {})
    return first.get("layer") == "embedding"


class Layer(dict):
    """A layer in the form of a model's JSON. Calling it with values adds it to a functional model; all its calls share its
    parameters."""

    def __call__(self, *inputs) -> Value:
        return Value(self, list(inputs[0]) if len(inputs) == 1 and isinstance(inputs[0], (list, tuple)) else list(inputs))

    def __init__(self, layer, **options):
        super().__init__(layer=layer, **{k: v for k, v in options.items() if v is not None})

    def __repr__(self):
        return f"{self['layer']}({', '.join(f'{k}={v!r}' for k, v in self.items() if k != 'layer')})"


def _plain(value):
    """Converts tuples and numpy numbers to types that JSON has."""
    if isinstance(value, (tuple, list)):
        return [_plain(v) for v in value]
    return value.item() if hasattr(value, "item") else value


def _maker(kind, names):
    def make(*values, **options):
        if len(values) > len(names):
            raise TypeError(f"{kind}() takes at most {len(names)} arguments, not {len(values)}")
        options = {**dict(zip(names, values)), **options}
        return Layer(kind, **{k: _plain(v) for k, v in options.items()})
    make.__name__ = make.__qualname__ = kind
    make.__doc__ = f"The layer {kind}; its options are those of strata_{kind}_options in strata/layers.h: {', '.join(names)}."
    make.__signature__ = inspect.Signature([inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None)
                                            for n in names])
    return make


_kinds = {}
for _function in list(_native._table["functions"]):
    _kind = _function.removeprefix("strata_model_add_")
    _struct = _native._table["functions"][_function][1][1][0] if _kind != _function else ""
    if _struct.endswith("_options"):  # strata_model_add_layer, for registered layers, has no such options
        _fields = _native._table["structs"][_native._table["aliases"].get(_struct, _struct)]
        _kinds[_kind] = _maker(_kind, [f for _, f, _ in _fields])
globals().update(_kinds)


def residual(layers, shortcut=None, activation=None, name=None):
    """activation(layers(x) + shortcut(x)). Without a shortcut x itself is added."""
    shortcut = list(shortcut) if shortcut else None
    return Layer("residual", layers=list(layers), shortcut=shortcut, activation=activation, name=name)


# Keras' name: the name of the layer here, and the arguments that may be positional
_KERAS = {
    "Dense": "dense units activation", "Activation": "activation function", "Dropout": "dropout rate", "Flatten": "flatten",
    "Reshape": "reshape shape", "Embedding": "embedding vocabulary units", "BatchNormalization": "batch_norm",
    "LayerNormalization": "layer_norm", "GroupNormalization": "group_norm groups", "Add": "add", "Multiply": "multiply",
    "Conv1D": "conv1d filters kernel_size stride", "Conv2D": "conv2d filters kernel_size stride",
    "Conv2DTranspose": "conv2d_transpose filters kernel_size stride", "DepthwiseConv2D": "depthwise_conv2d kernel_size stride",
    "SeparableConv2D": "separable_conv2d filters kernel_size stride", "MaxPooling1D": "max_pool1d size stride",
    "MaxPooling2D": "max_pool2d size stride", "AveragePooling1D": "avg_pool1d size stride",
    "AveragePooling2D": "avg_pool2d size stride", "GlobalAveragePooling1D": "global_average_pool",
    "GlobalAveragePooling2D": "global_average_pool", "GlobalMaxPooling1D": "global_max_pool",
    "GlobalMaxPooling2D": "global_max_pool", "MultiHeadAttention": "multi_head_attention heads key_dim",
    "Concatenate": "concat axis", "LSTM": "lstm units", "GRU": "gru units"}


# Arguments that have another name in Keras: Keras' name, and the name here
_RENAMED = {"activation": "function", "target_shape": "shape", "input_dim": "vocabulary", "output_dim": "units",
            "embeddings_initializer": "initializer", "strides": "stride", "dilation_rate": "dilation", "pool_size": "size",
            "num_heads": "heads"}


# Flags of Keras that are True by default, and the option with the opposite meaning here
_NEGATED = {"use_bias": "no_bias", "unit_forget_bias": "no_unit_forget_bias", "reset_after": "no_reset_after",
            "center": "no_center", "scale": "no_scale"}


def _keras(name, kind, *names):
    own = _kinds[kind].__signature__.parameters

    def make(*values, **options):
        options = {k if k in own else _RENAMED.get(k, k): v for k, v in {**dict(zip(names, values)), **options}.items()}
        for given, negated in _NEGATED.items():
            if not options.pop(given, True):
                options[negated] = True
        if kind == "multi_head_attention" and options.pop("dropout", 0):
            raise _native.InvalidError(f"{name}: there is no dropout of attention weights; leave dropout out, and add a "
                                       "Dropout layer where you need one")
        if options.get("activation") == "linear":
            del options["activation"]
        return _kinds[kind](**options)
    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"Keras' {name}: {kind}(), with Keras' names of arguments."
    return make


for _name, _row in _KERAS.items():
    if _row.split()[0] in _kinds:
        globals()[_name] = _keras(_name, *_row.split())
