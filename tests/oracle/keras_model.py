# SPDX-License-Identifier: Apache-2.0
"""A model in Strata's JSON, computed and trained by Keras: with its layers, its functions where no layer has an option of
Strata, its losses and its optimizers. No formula of Strata is used, except for what Keras lacks (Written).

Keras runs without compilation, on TensorFlow or on PyTorch (KERAS_BACKEND), in float64 as the reference and in float32 to
measure what rounding does to a training."""
import functools
import itertools
import os

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
import warnings  # noqa: E402
import keras  # noqa: E402
import numpy  # noqa: E402
from keras import ops  # noqa: E402

warnings.filterwarnings("ignore", module="keras")
keras.config.disable_traceback_filtering()
TENSORFLOW = keras.backend.backend() == "tensorflow"
if TENSORFLOW:
    import tensorflow
    tensorflow.debugging.disable_traceback_filtering()
    tensorflow.config.threading.set_intra_op_parallelism_threads(1)
    tensorflow.config.threading.set_inter_op_parallelism_threads(1)
else:
    import torch
    from keras.src.backend.common import dtypes
    dtypes.BIT64_TO_BIT32_DTYPE["float64"] = "float64"  # else Keras computes in float32, whatever the dtype of its layers
    torch.set_num_threads(1)

ACTIVATIONS = {
    None: lambda x: x, "linear": lambda x: x, "gelu": lambda x: keras.activations.gelu(x, approximate=False),
    "gelu_tanh": lambda x: keras.activations.gelu(x, approximate=True), "swish": keras.activations.silu,
    "leaky_relu": lambda x: ops.where(x > 0, x, 0.2 * x),  # JAX's slope at 0 is 1, that of the others 0.2
    "softmax": lambda x: ops.softmax(x, axis=-1),
    **{name: getattr(keras.activations, name) for name in ("relu", "tanh", "sigmoid", "silu", "elu", "softplus", "softsign")}}


class Unable(Exception):
    """Keras fails at what this draw needs."""


def two(value):
    return list(value) if isinstance(value, (list, tuple)) else [value, value]


def borders(row, sizes, window, stride):
    """The elements before and behind each axis of a window: none, as TensorFlow's SAME, or explicit."""
    padding = row.get("padding", "valid")
    if padding == "explicit":
        given = row.get("explicit_padding", 0)
        given = given if isinstance(given, (list, tuple)) else [given] * (2 * len(sizes))
        return [(given[2 * i], given[2 * i + 1]) for i in range(len(sizes))]
    if padding == "valid":
        return [(0, 0)] * len(sizes)
    missing = [max((-(-n // s) - 1) * s + k - n, 0) for n, k, s in zip(sizes, window, stride)]
    return [(m // 2, m - m // 2) for m in missing]


def pad(x, by, value=0.0):
    return ops.pad(x, [(0, 0), *by, (0, 0)], constant_values=value) if any(a or b for a, b in by) else x


def without_mask(x):
    """Masks are passed as arguments here, so that each layer gets the one that Strata documents."""
    if getattr(x, "_keras_mask", None) is not None:
        x._keras_mask = None
    return x


class BatchNormalization(keras.layers.BatchNormalization):
    """Without the 1e-7 that Keras adds to the number of positions: a value that is alone in its channel becomes exactly 0.
    rounded: what is done to the mean, whose gradient takes away most of another one."""

    def _moments(self, inputs, mask):
        mean, variance = self._exact_moments(inputs, mask)
        return self.rounded(mean), variance

    def _exact_moments(self, inputs, mask):
        if mask is None:
            return super()._moments(inputs, mask)
        used = ops.cast(mask, inputs.dtype)[..., None]
        axes = tuple(range(len(inputs.shape) - 1))
        count = ops.maximum(ops.sum(used), 1)
        mean = ops.sum(inputs * used, axis=axes) / count
        return mean, ops.sum(ops.square(inputs - mean) * used, axis=axes) / count


class Part:
    """One layer. `variables` are those of Keras in the order of Strata's parameters."""

    def __init__(self, row, dtype):
        self.row, self.dtype, self.layer, self.own, self.trainable, self.children = row, dtype, None, [], True, []

    @property
    def variables(self):
        return self.layer.weights if self.layer is not None else self.own

    @property
    def trained(self):
        if not self.trainable:
            return []
        return self.layer.trainable_weights if self.layer is not None else [v for v in self.own if v.trainable]

    def keras(self, make, x):
        """The Keras layer, which is made with its variables at the first call."""
        if self.layer is None:
            self.layer = make()
            self.layer.trainable = self.trainable
        return self.layer

    def variable(self, shapes):
        if not self.own:
            self.own = [keras.Variable(numpy.zeros(s), dtype=self.dtype) for s in shapes]
        return self.own

    def penalty(self):
        l1, l2 = self.row.get("kernel_l1", 0), self.row.get("kernel_l2", 0)
        if not (l1 or l2) or not self.trainable:
            return 0.0
        kernel = ops.convert_to_tensor(self.variables[0])
        return l1 * ops.sum(ops.abs(kernel)) + l2 * ops.sum(ops.square(kernel))


class Net:
    def __init__(self, spec, dtype, frozen=(), rounded=lambda y: y):
        """rounded: what is done to the output of each layer."""
        self.spec, self.dtype, self.frozen, self.parts, self.logits = spec, dtype, set(frozen), {}, None
        self.rounded = rounded
        keras.config.set_floatx(dtype)
        keras.config.set_dtype_policy(dtype)

    # ---- variables ----
    def set(self, weights):
        """weights: a list of (name, array) with Strata's names."""
        by_layer = {}
        for name, array in weights:
            by_layer.setdefault(name.rpartition("/")[0], []).append(array)
        for path, arrays in by_layer.items():
            variables = self.parts[path].variables
            assert len(variables) == len(arrays), f"{path}: Keras has {[v.path for v in variables]}, Strata {len(arrays)}"
            for v, a in zip(variables, arrays):
                v.assign(ops.convert_to_tensor(numpy.asarray(a, "float64").reshape(v.shape), dtype=self.dtype))

    def get(self, weights):
        """The values of these names, with the shapes of `weights`."""
        position, found = {}, []
        for name, array in weights:
            path = name.rpartition("/")[0]
            k = position[path] = position.get(path, -1) + 1
            found.append(ops.convert_to_numpy(self.parts[path].variables[k].value).astype("float64").reshape(array.shape))
        return found

    @property
    def trained(self):
        return [v for part in self.parts.values() for v in part.trained]

    def penalty(self):
        return sum((part.penalty() for part in self.parts.values()), 0.0)

    # ---- the forward pass ----
    def __call__(self, inputs, training):
        """inputs: a dict with arrays. Returns a dict with the values of the outputs, and one with their logits: where an output
        ends in the softmax or sigmoid of its loss, Keras' loss takes the input of this function, too."""
        values, before = {}, {}
        for one in self.spec["inputs"]:
            tokens = one.get("dtype") == "i32"
            values[one["name"]] = (ops.convert_to_tensor(inputs[one["name"]], dtype="int32" if tokens else self.dtype), None)
        for row in self.spec["layers"]:
            name = row.get("call", row.get("name"))
            part = self.part(name, row)
            values[row["name"]] = self.apply(part, [values[i] for i in row["inputs"]], training, name)
            before[row["name"]] = self.logits
        outputs = {o["name"]: o.get("value", o["name"]) for o in self.spec["outputs"]}
        return {k: values[v][0] for k, v in outputs.items()}, {k: before[v] for k, v in outputs.items()}

    def part(self, path, row):
        if path not in self.parts:
            self.parts[path] = Part(row, self.dtype)
            self.parts[path].trainable = not any(path == f or path.startswith(f + "/") for f in self.frozen)
        return self.parts[path]

    def apply(self, part, inputs, training, path):
        y, mask = getattr(self, part.row["layer"])(part, inputs, training, path)
        return self.rounded(without_mask(y)), mask

    def chain(self, rows, value, training, path, numbers):
        for row in rows:
            kind = row["layer"]
            name = row.get("name") or (kind if kind not in numbers else f"{kind}_{numbers[kind]}")
            numbers[kind] = numbers.get(kind, 0) + 1
            value = self.apply(self.part(f"{path}/{name}", row), [value], training, f"{path}/{name}")
        return value

    # ---- layers: each returns its output and the mask of padding ----
    def dense(self, part, inputs, training, path):
        (x, mask), r = inputs[0], part.row
        layer = part.keras(lambda: keras.layers.Dense(r["units"], use_bias=not r.get("no_bias"), dtype=self.dtype), x)
        self.logits = without_mask(layer(x))
        return ACTIVATIONS[r.get("activation")](self.logits), mask

    def activation(self, part, inputs, training, path):
        self.logits = inputs[0][0]
        return ACTIVATIONS[part.row["function"]](self.logits), inputs[0][1]

    def dropout(self, part, inputs, training, path):
        assert not (training and part.row["rate"]), "dropout is random"
        return inputs[0]

    def print(self, part, inputs, training, path):
        return inputs[0]

    def flatten(self, part, inputs, training, path):
        x = inputs[0][0]
        return ops.reshape(x, (x.shape[0], int(numpy.prod(x.shape[1:])))), None

    def reshape(self, part, inputs, training, path):
        x = inputs[0][0]
        return ops.reshape(x, (x.shape[0], *part.row["shape"])), None

    def embedding(self, part, inputs, training, path):
        x, r = inputs[0][0], part.row
        layer = part.keras(lambda: keras.layers.Embedding(r["vocabulary"], r["units"], dtype=self.dtype), x)
        return layer(x), (ops.not_equal(x, 0) if r.get("mask_zero") else None)

    def batch_norm(self, part, inputs, training, path):
        (x, mask), r = inputs[0], part.row
        momentum = 0.0 if r.get("no_average") else r.get("momentum", 0.99)
        layer = part.keras(lambda: BatchNormalization(momentum=momentum, epsilon=r.get("epsilon", 1e-3), dtype=self.dtype), x)
        layer.rounded = self.rounded
        y = layer(x, training=training and part.trainable, mask=mask)
        return ACTIVATIONS[r.get("activation")](without_mask(y)), mask

    def layer_norm(self, part, inputs, training, path):
        (x, mask), r = inputs[0], part.row
        return part.keras(lambda: keras.layers.LayerNormalization(epsilon=r.get("epsilon", 1e-3), dtype=self.dtype), x)(x), mask

    def group_norm(self, part, inputs, training, path):
        (x, mask), r = inputs[0], part.row
        flat = len(x.shape) == 2  # Keras takes no axis without positions
        layer = part.keras(lambda: keras.layers.GroupNormalization(
            groups=r.get("groups", 32), epsilon=r.get("epsilon", 1e-3), scale=not r.get("no_scale"),
            center=not r.get("no_center"), dtype=self.dtype), x)
        return layer(x[:, None])[:, 0] if flat else layer(x), mask

    def rms_norm(self, part, inputs, training, path):
        (x, mask), r = inputs[0], part.row
        if r.get("no_scale"):
            return x / ops.sqrt(ops.mean(ops.square(x), axis=-1, keepdims=True) + r.get("epsilon", 1e-6)), mask
        return part.keras(lambda: keras.layers.RMSNormalization(epsilon=r.get("epsilon", 1e-6), dtype=self.dtype), x)(x), mask

    @staticmethod
    def taps(row, x, size, axes, stride=None):
        """Yields (place, values): for each place in a window, the elements of the padded x that all windows have there."""
        stride = row.get("stride", 1) if stride is None else stride
        stride = [stride] if axes == 1 else two(stride)
        dilation = [row.get("dilation", 1)] if axes == 1 else two(row.get("dilation", 1))
        window = [(k - 1) * d + 1 for k, d in zip(size, dilation)]
        by = borders(row, x.shape[1:-1], window, stride)
        n_out = [(n + a + b - w) // s + 1 for n, (a, b), w, s in zip(x.shape[1:-1], by, window, stride)]

        def taken(value):
            padded = pad(x, by, value)
            for place in itertools.product(*(range(k) for k in size)):
                first = [p * d for p, d in zip(place, dilation)]
                yield place, padded[(slice(None), *(slice(f, f + (n - 1) * s + 1, s) for f, n, s in zip(first, n_out, stride)))]
        return taken

    def conv_nd(self, part, inputs, axes):
        x, r, groups = inputs[0][0], part.row, part.row.get("groups", 1)
        stride = [r.get("stride", 1)] if axes == 1 else two(r.get("stride", 1))
        dilation = [r.get("dilation", 1)] if axes == 1 else two(r.get("dilation", 1))
        if TENSORFLOW and groups == 1 and r.get("padding") != "explicit" and len(set(stride)) == 1 and 1 in (
                max(stride), max(dilation)):
            kind = keras.layers.Conv1D if axes == 1 else keras.layers.Conv2D
            layer = part.keras(lambda: kind(r["filters"], r["kernel_size"], strides=stride, padding=r.get("padding", "valid"),
                                            dilation_rate=dilation, use_bias=not r.get("no_bias"), dtype=self.dtype), x)
            y = layer(x)
        else:  # Keras has no such options, or PyTorch no gradient for them
            size = [r["kernel_size"]] if axes == 1 else two(r["kernel_size"])
            own = part.variable([(*size, x.shape[-1] // groups, r["filters"])] +
                                ([] if r.get("no_bias") else [(r["filters"],)]))
            kernels, y = ops.split(ops.convert_to_tensor(own[0]), groups, axis=-1), 0
            for place, values in self.taps(r, x, size, axes)(0.0):
                y = y + ops.concatenate([ops.matmul(v, k[place]) for v, k in zip(ops.split(values, groups, axis=-1), kernels)],
                                        axis=-1)
            if len(own) > 1:
                y = y + own[1]
        return ACTIVATIONS[r.get("activation")](without_mask(y)), None

    def conv1d(self, part, inputs, training, path):
        return self.conv_nd(part, inputs, 1)

    def conv2d(self, part, inputs, training, path):
        return self.conv_nd(part, inputs, 2)

    def depthwise(self, row, x, kernel):
        y = 0
        for place, values in self.taps(row, x, two(row["kernel_size"]), 2)(0.0):
            y = y + values[..., None] * kernel[place]
        return ops.reshape(y, (*y.shape[:-2], y.shape[-2] * y.shape[-1]))

    def depthwise_conv2d(self, part, inputs, training, path):
        x, r = inputs[0][0], part.row
        size, m = two(r["kernel_size"]), r.get("depth_multiplier", 1)
        own = part.variable([(*size, x.shape[-1], m)] + ([] if r.get("no_bias") else [(x.shape[-1] * m,)]))
        y = self.depthwise(r, x, ops.convert_to_tensor(own[0]))
        return ACTIVATIONS[r.get("activation")](y + own[1] if len(own) > 1 else y), None

    def separable_conv2d(self, part, inputs, training, path):
        x, r = inputs[0][0], part.row
        size, c, m = two(r["kernel_size"]), x.shape[-1], r.get("depth_multiplier", 1)
        own = part.variable([(*size, c, m), (1, 1, c * m, r["filters"])] + ([] if r.get("no_bias") else [(r["filters"],)]))
        y = ops.matmul(self.depthwise(r, x, ops.convert_to_tensor(own[0])), ops.convert_to_tensor(own[1])[0, 0])
        return ACTIVATIONS[r.get("activation")](y + own[2] if len(own) > 2 else y), None

    def conv2d_transpose(self, part, inputs, training, path):
        x, r = inputs[0][0], part.row
        out, dilation = r.get("output_padding"), two(r.get("dilation", 1))
        if TENSORFLOW and max(dilation) > 1:  # TensorFlow has no such kernel; the stride is 1
            size = two(r["kernel_size"])
            own = part.variable([(*size, r["filters"], x.shape[-1])] + ([] if r.get("no_bias") else [(r["filters"],)]))
            wide = [(k - 1) * d for k, d in zip(size, dilation)]
            around = [(w - w // 2, w // 2) if r.get("padding") == "same" else (w, w) for w in wide]
            row = {"padding": "explicit", "explicit_padding": [n for pair in around for n in pair], "dilation": dilation}
            kernel, y = ops.convert_to_tensor(own[0]), 0
            for place, values in self.taps(row, x, size, 2)(0.0):
                flipped = tuple(k - 1 - p for k, p in zip(size, place))
                y = y + ops.matmul(values, ops.transpose(kernel[flipped]))
            return ACTIVATIONS[r.get("activation")](y + own[1] if len(own) > 1 else y), None
        layer = part.keras(lambda: keras.layers.Conv2DTranspose(
            r["filters"], r["kernel_size"], strides=r.get("stride", 1), padding=r.get("padding", "valid"),
            output_padding=tuple(two(out)) if out and any(two(out)) else None, dilation_rate=r.get("dilation", 1),
            use_bias=not r.get("no_bias"), dtype=self.dtype), x)
        return ACTIVATIONS[r.get("activation")](without_mask(layer(x))), None

    def pool(self, part, inputs, axes, largest):
        x, r = inputs[0][0], part.row
        size = [r["size"]] if axes == 1 else two(r["size"])
        taps = self.taps(r, x, size, axes, r.get("stride", r["size"]))
        stack = ops.stack([v for _, v in taps(-numpy.inf if largest else 0.0)], axis=0)
        if largest:
            return ops.max(stack, axis=0), None
        inside = self.taps(r, ops.ones_like(x), size, axes, r.get("stride", r["size"]))
        return ops.sum(stack, axis=0) / ops.sum(ops.stack([v for _, v in inside(0.0)], axis=0), axis=0), None

    def plain_pool(self, part, inputs, axes, largest):
        r = part.row
        stride = r.get("stride", r["size"])
        if r.get("padding") == "explicit" or not TENSORFLOW:  # Keras on PyTorch repeats the border's elements in averages
            return self.pool(part, inputs, axes, largest)
        kind = getattr(keras.layers, f"{'Max' if largest else 'Average'}Pooling{axes}D")
        layer = part.keras(lambda: kind(r["size"], strides=stride, padding=r.get("padding", "valid"), dtype=self.dtype), None)
        return layer(inputs[0][0]), None

    def max_pool1d(self, part, inputs, training, path):
        return self.plain_pool(part, inputs, 1, True)

    def avg_pool1d(self, part, inputs, training, path):
        return self.plain_pool(part, inputs, 1, False)

    def max_pool2d(self, part, inputs, training, path):
        return self.plain_pool(part, inputs, 2, True)

    def avg_pool2d(self, part, inputs, training, path):
        return self.plain_pool(part, inputs, 2, False)

    def global_average_pool(self, part, inputs, training, path):
        x, mask = inputs[0]
        axes = tuple(range(1, len(x.shape) - 1))
        if mask is None:
            return ops.mean(x, axis=axes), None
        held = ops.cast(mask, self.dtype)[..., None]
        return ops.sum(x * held, axis=axes) / ops.maximum(ops.sum(held, axis=axes), 1), None

    def global_max_pool(self, part, inputs, training, path):
        x, mask = inputs[0]
        axes = tuple(range(1, len(x.shape) - 1))
        if mask is None:
            return ops.max(x, axis=axes), None
        largest = ops.max(ops.where(mask[..., None], x, ops.full_like(x, -1e30)), axis=axes)
        return ops.where(ops.any(mask, axis=axes)[..., None], largest, ops.zeros_like(largest)), None

    def residual(self, part, inputs, training, path):
        numbers = {}  # of the kinds of layers in both branches, from which the default names are made
        main, kept = self.chain(part.row["layers"], inputs[0], training, path, numbers)
        other, kept_too = self.chain(part.row.get("shortcut") or [], inputs[0], training, path, numbers)
        mask = inputs[0][1] if kept is not None and kept_too is not None else None
        return ACTIVATIONS[part.row.get("activation")](main + other), mask

    def multi_head_attention(self, part, inputs, training, path):
        (x, mask), r = inputs[0], part.row
        layer = part.keras(lambda: keras.layers.MultiHeadAttention(
            r["heads"], r.get("key_dim") or x.shape[-1] // r["heads"], use_bias=not r.get("no_bias"), dtype=self.dtype), x)
        causal, t = bool(r.get("causal")), x.shape[1]
        if TENSORFLOW and t == r["heads"] and layer.key_dim == 1 and not r.get("no_bias"):
            raise Unable("on TensorFlow keras.ops.add adds a bias of (heads, 1) along the places if there are as many")
        if mask is None:
            return layer(x, x, use_causal_mask=causal), None
        keys = numpy.broadcast_to(ops.convert_to_numpy(mask)[:, None, :], (x.shape[0], t, t))
        y = without_mask(layer(x, x, attention_mask=ops.convert_to_tensor(keys), use_causal_mask=causal))
        # A query without a key: Keras' answer is another on each backend, Strata's is 0, as that of PyTorch's attention.
        any_key = ops.convert_to_tensor((keys & (numpy.tri(t, dtype=bool) if causal else True)).any(-1)[..., None])
        none = ops.zeros_like(y) if r.get("no_bias") else ops.zeros_like(y) + layer._output_dense.bias
        return ops.where(any_key, y, none), mask

    def recurrent(self, part, inputs, kind):
        (x, mask), r = inputs[0], part.row
        options = {"reset_after": not r.get("no_reset_after")} if kind is keras.layers.GRU else {}

        def make():
            layer = kind(r["units"], activation=r.get("activation") or "tanh", unroll=TENSORFLOW,
                         recurrent_activation=r.get("recurrent_activation") or "sigmoid", use_bias=not r.get("no_bias"),
                         return_sequences=bool(r.get("return_sequences")), go_backwards=bool(r.get("go_backwards")),
                         dtype=self.dtype, **options)
            return keras.layers.Bidirectional(layer, r["bidirectional"]) if r.get("bidirectional") else layer
        layer = part.keras(make, x)
        if r.get("bidirectional") and TENSORFLOW:  # unrolled, Keras zeroes the padding of the other direction at wrong steps
            layer.forward_layer.unroll = layer.backward_layer.unroll = mask is None
        y = layer(x, mask=mask)
        return y, mask if r.get("return_sequences") and not r.get("go_backwards") else None

    def lstm(self, part, inputs, training, path):
        return self.recurrent(part, inputs, keras.layers.LSTM)

    def gru(self, part, inputs, training, path):
        return self.recurrent(part, inputs, keras.layers.GRU)

    @staticmethod
    def common(inputs):
        return inputs[0][1] if all(m is inputs[0][1] for _, m in inputs) else None

    def add(self, part, inputs, training, path):
        return functools.reduce(ops.add, [x for x, _ in inputs]), self.common(inputs)

    def multiply(self, part, inputs, training, path):
        return functools.reduce(ops.multiply, [x for x, _ in inputs]), self.common(inputs)

    def concat(self, part, inputs, training, path):
        return ops.concatenate([x for x, _ in inputs], axis=part.row.get("axis") or -1), None


# ---- losses ----------------------------------------------------------------------------------------------------------------
def example_losses(loss, y, labels, logits):
    """The loss of each example. logits: the outputs are logits; else they are probabilities (of a final softmax or sigmoid)."""
    loss = {"name": loss} if isinstance(loss, str) else loss
    name, smoothing = loss["name"], loss.get("label_smoothing", 0)
    n = y.shape[0]
    if name in ("mse", "mae", "huber", "binary_crossentropy"):
        y, labels = ops.reshape(y, (n, -1)), ops.reshape(ops.cast(labels, y.dtype), (n, -1))
        if name == "mse":
            return keras.losses.mean_squared_error(labels, y)
        if name == "mae":
            return keras.losses.mean_absolute_error(labels, y)
        if name == "huber":
            return keras.losses.huber(labels, y, delta=loss.get("delta", 1.0))
        return keras.losses.binary_crossentropy(labels, y, from_logits=logits, label_smoothing=smoothing)
    if name == "sparse_categorical_crossentropy" or len(labels.shape) < 2:
        labels = ops.one_hot(ops.cast(ops.reshape(labels, (n,)), "int32"), y.shape[-1], dtype=y.dtype)
    return keras.losses.categorical_crossentropy(ops.cast(labels, y.dtype), y, from_logits=logits, label_smoothing=smoothing)


# ---- optimizers ------------------------------------------------------------------------------------------------------------
class Written:
    """What Keras lacks: lars, and lamb with a decay in the direction, which scale each parameter's step by norms (You et al.
    2017, 2020); and PyTorch's SGD with momentum, whose velocity is that of the gradients, without the learning rate."""

    def __init__(self, name, o, random):
        """random: for a run with noise. A gradient that is 0 but for rounding may be exactly 0 in one program and not in
        another, for which lars has different formulas. Such a run uses one of them for all."""
        self.name, self.o, self.slots, self.t = name, o, {}, 0
        self.least, self.zero = (0, True) if random is None else (1e-6, random.random() < 0.5)

    def apply(self, rate, grads, variables):
        o, self.t = self.o, self.t + 1
        clip, norm, whole = o.get("clip_value"), o.get("clip_norm"), o.get("clip_global_norm")
        grads = [ops.convert_to_numpy(g) for g in grads]
        every = numpy.sqrt(sum((g * g).sum() for g in grads))
        for v, g in zip(variables, grads):
            w = ops.convert_to_numpy(v.value)
            if clip:
                g = numpy.clip(g, -clip, clip)
            if norm:
                g = g * (norm / max(numpy.sqrt((g * g).sum()), norm))
            if whole:
                g = g * (whole / max(every, whole))
            m, s = self.slots.get(id(v), (numpy.zeros_like(w), numpy.zeros_like(w)))
            size = numpy.sqrt((w * w).sum())
            if self.name == "lars":
                decay, of_g = o.get("weight_decay", 1e-4), numpy.sqrt((g * g).sum())
                zero = self.zero if of_g <= self.least * every else of_g == 0
                down = of_g + decay * size
                local = 1 if zero or size == 0 or down == 0 else o.get("trust", 0.001) * size / down
                m = o.get("momentum", 0.9) * m + local * (g + decay * w)
                w = w - rate * m
            elif self.name == "sgd":
                m = o["momentum"] * m + g
                w = w - rate * (g + o["momentum"] * m if o.get("nesterov") else m)
            else:
                b1, b2 = o.get("beta1", 0.9), o.get("beta2", 0.999)
                m, s = m + (1 - b1) * (g - m), s + (1 - b2) * (g * g - s)  # as Keras' Adam
                with numpy.errstate(all="ignore"):
                    d = (m / (1 - b1 ** self.t)) / (numpy.sqrt(s / (1 - b2 ** self.t)) + o.get("epsilon", 1e-7))
                d = d + o.get("weight_decay", 0) * w
                of_d = numpy.sqrt((d * d).sum())
                w = w - rate * (size / of_d if size > 0 and of_d > 0 else 1) * d
            self.slots[id(v)] = m, s
            v.assign(ops.convert_to_tensor(w, dtype=v.dtype))


class OfKeras:
    def __init__(self, name, o):
        K = keras.optimizers
        clips = {keras_name: o[own] for own, keras_name in (("clip_value", "clipvalue"), ("clip_norm", "clipnorm"),
                                                            ("clip_global_norm", "global_clipnorm")) if o.get(own)}
        get = {k: float(o[k]) for k in ("momentum", "rho", "epsilon", "weight_decay") if k in o}
        get.update({k: o[k] for k in ("nesterov", "centered") if k in o})
        if name in ("adam", "adamw"):
            get.update({"beta_1": o.get("beta1", 0.9), "beta_2": o.get("beta2", 0.999)})
        if name == "adagrad":
            get["initial_accumulator_value"] = o.get("accumulator", 0.1)
        if not TENSORFLOW and 0 in (get.get("beta_2"), get.get("rho")):
            raise Unable("on PyTorch Keras computes beta2 v + (1 - beta2) g^2, which has other rounding for beta2 0")
        kind = {"sgd": K.SGD, "adam": K.Adam, "adamw": K.AdamW, "rmsprop": K.RMSprop, "adagrad": K.Adagrad}[name]
        self.optimizer = kind(learning_rate=0.1, **get, **clips)

    def apply(self, rate, grads, variables):
        if not self.optimizer.built:
            self.optimizer.build(variables)
        self.optimizer.learning_rate.assign(rate)
        self.optimizer.apply(grads, variables)


DEFAULT_RATE = {"sgd": 0.01, "lars": 0.01}


def schedule(o):
    """The learning rate as a function of the number of the update, from 0."""
    given = o.get("learning_rate", DEFAULT_RATE.get(o["name"], 0.001))
    if not isinstance(given, dict):
        return lambda t: given
    S, s, rate = keras.optimizers.schedules, given, given["initial"]
    base = {"step": lambda: S.PiecewiseConstantDecay(s["boundaries"], [float(v) for v in (rate, *s["values"])]),
            "exponential": lambda: S.ExponentialDecay(rate, s["steps"], s["factor"], s.get("staircase", False)),
            "cosine": lambda: S.CosineDecay(rate, s["steps"], s.get("end", 0)),
            "polynomial": lambda: S.PolynomialDecay(rate, s["steps"], s.get("end", 0), s.get("power", 1), s.get("cycle", False))
            }[s["schedule"]]()
    w, begin = s.get("warmup_steps", 0), s.get("warmup_from", 0)
    return lambda t: begin + (rate - begin) * t / w if t < w else float(ops.convert_to_numpy(base(float(t - w))))


# ---- training --------------------------------------------------------------------------------------------------------------
def gradients(loss_of, variables):
    """The gradients of loss_of() with respect to the variables (None: zeros), and its value."""
    if TENSORFLOW:
        with tensorflow.GradientTape(watch_accessed_variables=False) as tape:
            values = [v.value for v in variables]
            tape.watch(values)
            loss = loss_of()
        grads = tape.gradient(loss, values, unconnected_gradients=tensorflow.UnconnectedGradients.ZERO)
        return [tensorflow.convert_to_tensor(g) for g in grads], float(loss)
    for v in variables:
        v.value.grad = None
    loss = loss_of()
    try:
        if loss.requires_grad:
            loss.backward()
    except RuntimeError as error:  # PyTorch's transposed convolutions with filters of one element a row
        if "needs to be contiguous" not in str(error):
            raise
        raise Unable(str(error)) from None
    return [torch.zeros_like(v.value) if v.value.grad is None else v.value.grad for v in variables], float(loss.detach())


def has_ending(spec, output):
    """Whether the output ends in the softmax or sigmoid of its loss, so that it has probabilities."""
    rows = {r["name"]: r for r in spec["layers"]}
    row = rows[output.get("value", output["name"])]
    row = {**rows.get(row.get("call"), row)}
    function = {"categorical_crossentropy": "softmax", "sparse_categorical_crossentropy": "softmax",
                "binary_crossentropy": "sigmoid"}.get(loss_name(output))
    return function is not None and function in (row.get("function"), row.get("activation"))


def loss_name(output):
    loss = output["loss"]
    return loss if isinstance(loss, str) else loss["name"]


class Trainer:
    """Trains as case["train"] says. noise: before each step, variables are moved by this share of themselves, and in each step
    all layers' outputs, which shows what rounding does."""

    def __init__(self, case, weights, dtype, noise=0.0, seed=0):
        self.case, self.dtype, self.noise, self.random = case, dtype, noise, numpy.random.default_rng(seed)
        self.net = Net(case["spec"], dtype, case["train"].get("freeze", ()), self.rounded)
        self.weights, data = weights, case["data"]
        self.x = {k: self.moved(v) for k, v in data["x"].items()}
        self.net({k: v[:1] for k, v in self.x.items()}, False)
        self.net.set([(n, self.moved(a)) for n, a in weights])
        self.labels = data["y"]
        o = case["train"]["optimizer"]
        self.rate = schedule(o)
        written = o["name"] in ("lars", "lamb") or (o["name"] == "sgd" and o.get("momentum"))
        self.optimizer = Written(o["name"], o, self.random if noise else None) if written else OfKeras(o["name"], o)

    def moved(self, a):
        if a.dtype.kind != "f" or not self.noise:
            return a
        return a * (1 + self.noise * self.random.uniform(-1, 1, a.shape))

    def rounded(self, y):
        if not self.noise:
            return y
        return y * ops.convert_to_tensor(self.moved(numpy.ones(y.shape)).astype(self.dtype))

    def losses(self, y, logits, rows):
        """The sum over outputs of the weighted losses of these examples."""
        total = 0.0
        for o in self.case["spec"]["outputs"]:
            labels = ops.convert_to_tensor(self.labels[o["name"]][rows])
            ends = has_ending(self.case["spec"], o)
            each = example_losses(o["loss"], (logits if ends else y)[o["name"]], labels, ends or self.is_logits(o))
            total = total + o.get("weight", 1) * each
        return total

    def is_logits(self, o):
        loss = o["loss"]
        return not (has_ending(self.case["spec"], o) or (isinstance(loss, dict) and loss.get("from_probabilities")))

    def mean(self, rows, weights):
        """The loss of a step with these examples."""
        y, logits = self.net({k: v[rows] for k, v in self.x.items()}, True)
        if self.noise:  # gradients of examples or places that cancel in double do not in f32
            y, logits = [{k: None if v is None else self.rounded(v) for k, v in each.items()} for each in (y, logits)]
        total = self.losses(y, logits, rows)
        if weights is not None:
            total = total * ops.convert_to_tensor(weights[rows].astype(self.dtype))
        return ops.sum(total) / len(rows) + self.net.penalty()

    def fit(self):
        train, n = self.case["train"], self.case["n"]
        group = train["batch"] * train["optimizer"].get("gradient_accumulation_steps", 1)
        weights, t, steps, epochs = self.fit_weights(), 0, [], []
        variables = self.net.trained
        for _ in range(train["epochs"]):
            total = 0.0
            for first in range(0, n, group):
                rows = numpy.arange(first, min(first + group, n))
                if self.noise and t:
                    for v in variables:
                        v.assign(ops.convert_to_tensor(self.moved(ops.convert_to_numpy(v.value)), dtype=self.dtype))
                grads, loss = gradients(lambda: self.mean(rows, weights), variables)
                self.optimizer.apply(self.rate(t), grads, variables)
                total, t = total + loss * len(rows), t + 1
                steps.append(loss)
            epochs.append(total / n)
        return steps, epochs

    def fit_weights(self):
        train, data = self.case["train"], self.case["data"]
        weights = data.get("weights")
        if train.get("class_weight"):
            labels = numpy.asarray(self.labels[self.case["spec"]["outputs"][0]["name"]])
            labels = labels.argmax(-1) if labels.ndim > 1 and labels.shape[-1] > 1 else labels.reshape(-1)
            of_class = numpy.array([train["class_weight"][int(c)] for c in labels])
            weights = of_class if weights is None else weights * of_class
        return None if weights is None else numpy.asarray(weights, "float64")

    def look(self):
        """The predictions, and the loss of evaluate."""
        weights = self.case["data"].get("weights")
        y, logits = self.net(self.x, False)
        total = self.losses(y, logits, numpy.arange(self.case["n"]))
        if weights is not None:
            total = total * ops.convert_to_tensor(numpy.asarray(weights, self.dtype))
        found = {}
        for o in self.case["spec"]["outputs"]:
            value = y[o["name"]]
            if self.is_logits(o):
                name = loss_name(o)
                value = (ops.sigmoid(value) if name == "binary_crossentropy" else
                         ops.softmax(value, axis=-1) if "categorical" in name else value)
            found[o["name"]] = ops.convert_to_numpy(value).astype("float64")
        loss = ops.sum(total) / self.case["n"] + self.net.penalty()
        return found, numpy.array([float(ops.convert_to_numpy(loss))])

    def run(self):
        before, evaluated = self.look()
        result = {"before": before}
        if self.case["train"]["epochs"]:
            steps, epochs = self.fit()
            after, evaluated = self.look()
            result.update({"steps": numpy.array(steps), "epochs": numpy.array(epochs), "after": after})
            result["weights"] = {n: a for (n, _), a in zip(self.weights, self.net.get(self.weights))}
        result["evaluate"] = evaluated
        return result
