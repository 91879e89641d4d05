#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Models of other programs and for them: ONNX by onnxruntime, Keras' files, PyTorch's weights.

usage: models.py FOLDER [WORD]    a folder for the files that are written; only checks with the word in their name

Each check is a function called check_...; a failed one is shown, and the exit code is 1 then."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

SOURCE = pathlib.Path(os.environ["STRATA_SOURCE_DIR"])
COMMAND = os.path.join(os.environ["STRATA_BUILD_DIR"], "strata")
sys.path.insert(0, str(SOURCE / "include" / "python"))
import checks  # noqa: E402
import strata  # noqa: E402

FOLDER = pathlib.Path(sys.argv[1])
DATA = SOURCE / "tests" / "interchange" / "data"
random = numpy.random.default_rng(0)


# ---- helpers ---------------------------------------------------------------------------------------------------------------
def convert(source, target, *options, fails=None):
    """Runs the command; with `fails` it must fail, with these words on stderr."""
    done = subprocess.run([COMMAND, "convert", str(source), str(target), *options], capture_output=True, text=True)
    if fails is None:
        assert done.returncode == 0, done.stderr
    else:
        assert 0 < done.returncode < 128, f"exit code {done.returncode} for {source}"
        assert fails in done.stderr, f"{fails!r} is not in {done.stderr!r}"
        assert not pathlib.Path(target).exists()
    return target


def by_onnx(path, x):
    session = onnxruntime.InferenceSession(str(path))
    return session.run(None, {session.get_inputs()[0].name: x})[0]


def example_input(path, n):
    port = onnxruntime.InferenceSession(str(path)).get_inputs()[0]
    shape = [n, *port.shape[1:]]
    if port.type == "tensor(float)":
        return random.normal(size=shape).astype("f4")
    return random.integers(1, 20, size=shape).astype("i8" if "64" in port.type else "i4")


def load(path):
    return strata.load(path).build(device="host")


def same(a, b, what):
    a, b = numpy.asarray(a).reshape(-1), numpy.asarray(b).reshape(-1)
    assert a.shape == b.shape, f"{what}: {a.shape} and {b.shape}"
    worst = numpy.max(numpy.abs(a - b) / numpy.maximum(1, numpy.abs(b)))
    assert worst <= 1e-5, f"{what}: they differ by {worst}"


def there_and_back(path, name, loss="mse"):
    """An ONNX file becomes a model without a loss, which predicts the same, trains on, and goes back."""
    model_file = convert(path, FOLDER / f"{name}.strata")
    x = example_input(path, 4)
    model = load(model_file)
    own = x.astype("i4") if x.dtype.kind == "i" else x
    expected = by_onnx(path, x)
    same(model.predict(own), expected, f"{name} imported")
    if '"loss"' not in model.to_json():
        model.compile(loss=loss)
    target = numpy.zeros(4, "i4") if '"loss":"sparse' in model.to_json() else numpy.zeros(expected.shape, "f4")
    before = model.evaluate(own, target)["loss"]
    model.fit(own, target, epochs=8, batch_size=4, verbose=0)
    after = model.evaluate(own, target)["loss"]
    assert after < before, f"{name}: the loss went from {before} to {after}"
    model.save(FOLDER / f"{name}.trained.strata")
    back = convert(FOLDER / f"{name}.trained.strata", FOLDER / f"{name}.back.onnx")
    same(by_onnx(back, own), model.predict(own), f"{name} trained and exported")
    return model


class Graph:
    """An ONNX file that is written node by node, with weights as exporters name them."""

    def __init__(self):
        self.nodes, self.weights, self.count = [], [], 0

    def add(self, op, *inputs, outputs=1, **attributes):
        self.count += 1
        names = [f"/{op}_{self.count}_output_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, name=f"/{op}_{self.count}", **attributes))
        return names[0] if outputs == 1 else names

    def weight(self, name, *shape, scale=0.3):
        value = (random.normal(size=shape) * scale).astype("f4")
        self.weights.append(numpy_helper.from_array(value, name))
        return name

    def constant(self, value):
        return self.add("Constant", value=numpy_helper.from_array(numpy.asarray(value)))

    def save(self, path, x, y, opset=17, functions=()):
        graph = helper.make_graph(self.nodes, "main_graph", [x], [y], self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
        onnx.checker.check_model(model)
        onnx.save(model, str(path))
        return path


def value(name, kind, *shape):
    return helper.make_tensor_value_info(name, kind, list(shape))


# ---- ONNX ------------------------------------------------------------------------------------------------------------------
def check_samples_are_exported_and_come_back():
    names = sorted(p.parent.name for p in (SOURCE / "samples").glob("*/model.json"))
    assert len(names) >= 8, names
    for name in names:
        model = strata.Model.read_json(SOURCE / "samples" / name / "model.json")
        model.compile(device="host", seed=3)
        model.save(FOLDER / f"{name}.strata")
        exported = convert(FOLDER / f"{name}.strata", FOLDER / f"{name}.onnx")
        onnx.checker.check_model(str(exported))
        model = load(FOLDER / f"{name}.strata")
        x = example_input(exported, 3)
        expected = model.predict(x)
        same(by_onnx(exported, x), expected, f"{name} exported")
        same(load(convert(exported, FOLDER / f"{name}.back.strata")).predict(x), expected, f"{name} imported")


def check_every_layer_is_exported():
    images = [
        {"layer": "conv2d_transpose", "filters": 4, "kernel_size": 3, "stride": 2, "padding": "same", "output_padding": 1},
        {"layer": "depthwise_conv2d", "kernel_size": 3, "depth_multiplier": 2, "padding": "same", "activation": "silu"},
        {"layer": "separable_conv2d", "filters": 4, "kernel_size": 3, "stride": 2, "activation": "gelu"},
        {"layer": "conv2d", "filters": 6, "kernel_size": 3, "groups": 2, "padding": "same", "stride": 2, "activation": "elu"},
        {"layer": "avg_pool2d", "size": 3, "stride": 1, "padding": "same"},
        {"layer": "group_norm", "groups": 3},
        {"layer": "activation", "function": "gelu_tanh"},
        {"layer": "rms_norm"},
        {"layer": "residual", "activation": "softsign", "layers": [{"layer": "dense", "units": 6}]},
        {"layer": "batch_norm", "activation": "softmax"},
        {"layer": "global_max_pool"},
        {"layer": "dense", "units": 3},
    ]
    steps = [
        {"layer": "conv1d", "filters": 8, "kernel_size": 3, "padding": "same", "activation": "leaky_relu"},
        {"layer": "multi_head_attention", "heads": 2, "causal": True},
        {"layer": "layer_norm"},
        {"layer": "lstm", "units": 4, "return_sequences": True, "bidirectional": "concat"},
        {"layer": "max_pool1d", "size": 2},
        {"layer": "gru", "units": 3, "activation": "relu"},
        {"layer": "reshape", "shape": [3, 1]},
        {"layer": "flatten"},
        {"layer": "dropout", "rate": 0.5},
        {"layer": "print", "every": 3},
        {"layer": "dense", "units": 2, "activation": "softplus"},
    ]
    for name, shape, layers in (("images", [8, 8, 3], images), ("steps", [6, 5], steps)):
        model = strata.Model.from_json({"input": shape, "layers": layers, "loss": "mse"})
        model.compile(device="host", seed=1)
        model.save(FOLDER / f"{name}.strata")
        exported = convert(FOLDER / f"{name}.strata", FOLDER / f"{name}.onnx")
        x = example_input(exported, 2)
        same(by_onnx(exported, x), load(FOLDER / f"{name}.strata").predict(x), f"{name} exported")
        there_and_back(exported, name)


def check_a_residual_network_as_pytorch_exports_it():
    g = Graph()

    def conv(x, name, channels, filters, size=3, stride=1, norm=True):
        x = g.add(
            "Conv",
            x,
            g.weight(f"{name}.weight", filters, channels, size, size),
            g.weight(f"{name}.bias", filters),
            kernel_shape=[size, size],
            strides=[stride] * 2,
            pads=[size // 2] * 4,
            dilations=[1, 1],
            group=1,
        )
        if not norm:
            return x
        return g.add(
            "BatchNormalization",
            x,
            g.weight(f"{name}.bn.weight", filters),
            g.weight(f"{name}.bn.bias", filters),
            g.weight(f"{name}.bn.running_mean", filters),
            positive(g, f"{name}.bn.running_var", filters),
            epsilon=1e-5,
            momentum=0.9,
        )

    x = g.add("Relu", conv("input", "conv1", 3, 8))
    x = g.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=0)
    for i, (channels, filters, stride) in enumerate(((8, 8, 1), (8, 16, 2))):
        y = g.add("Relu", conv(x, f"layer{i}.0.conv1", channels, filters, stride=stride))
        y = conv(y, f"layer{i}.0.conv2", filters, filters, norm=i == 0)
        short = x if stride == 1 else conv(x, f"layer{i}.0.downsample", channels, filters, 1, stride)
        x = g.add("Relu", g.add("Add", y, short))
    x = g.add("GlobalAveragePool", x)
    x = g.add("Flatten", x, axis=1)
    g.nodes.append(helper.make_node("Gemm", [x, g.weight("fc.weight", 5, 16), g.weight("fc.bias", 5)], ["output"], transB=1))
    path = g.save(
        FOLDER / "resnet.onnx",
        value("input", TensorProto.FLOAT, "batch", 3, 16, 16),
        value("output", TensorProto.FLOAT, "batch", 5),
    )
    model = there_and_back(path, "resnet")
    kinds = [layer["layer"] for layer in json.loads(model.to_json())["layers"]]
    assert kinds.count("conv2d") == 6 and kinds.count("batch_norm") == 5 and "dense" in kinds, kinds
    # Channels are moved behind at the beginning, and to the front for the flatten.
    assert sum("transpose" == layer.get("op") for layer in json.loads(model.to_json())["layers"]) <= 2


def positive(g, name, n):
    g.weights.append(numpy_helper.from_array(random.uniform(0.5, 2, n).astype("f4"), name))
    return name


def check_a_transformer_as_pytorch_exports_it():
    """nn.Embedding, positions, and an encoder layer, whose attention joins batch and heads in one axis by sizes that the graph
    computes, as the tracing exporter writes it."""
    g = Graph()
    width, heads, steps = 12, 3, 6
    x = g.add("Gather", g.weight("embed.weight", 20, width), "tokens")
    x = g.add("Add", x, g.weight("position", 1, steps, width))
    t = g.add("Transpose", x, perm=[1, 0, 2])
    sizes = [g.add("Gather", g.add("Shape", t), g.constant(numpy.array(i)), axis=0) for i in range(3)]
    joined = g.add("Mul", sizes[1], g.constant(numpy.array(heads)))
    depth = g.add("Div", sizes[2], g.constant(numpy.array(heads)))
    qkv = g.add("MatMul", t, g.weight("attn.in_proj.weight", width, 3 * width))
    qkv = g.add("Add", g.weight("attn.in_proj.bias", 3 * width), qkv)
    parts = []
    for part in g.add("Split", qkv, g.constant(numpy.array([width] * 3)), outputs=3, axis=-1):
        shape = g.add(
            "Concat", *(g.add("Unsqueeze", s, g.constant(numpy.array([0]))) for s in (sizes[0], joined, depth)), axis=0
        )
        parts.append(g.add("Transpose", g.add("Reshape", part, shape), perm=[1, 0, 2]))
    q = g.add("Mul", parts[0], g.constant(numpy.array((width / heads) ** -0.5, "f4")))
    scores = g.add("MatMul", q, g.add("Transpose", parts[1], perm=[0, 2, 1]))
    mask = numpy.triu(numpy.full((steps, steps), -1e9, "f4"), 1)
    scores = g.add("Softmax", g.add("Add", scores, g.constant(mask)), axis=-1)
    y = g.add("Transpose", g.add("MatMul", scores, parts[2]), perm=[1, 0, 2])
    flat = g.add(
        "Concat",
        g.add("Unsqueeze", g.add("Mul", sizes[0], sizes[1]), g.constant(numpy.array([0]))),
        g.add("Unsqueeze", sizes[2], g.constant(numpy.array([0]))),
        axis=0,
    )
    y = g.add(
        "Gemm",
        g.add("Reshape", y, flat),
        g.weight("attn.out_proj.weight", width, width),
        g.weight("attn.out_proj.bias", width),
        transB=1,
    )
    y = g.add("Reshape", y, g.add("Shape", t))
    x = g.add("Add", x, g.add("Transpose", y, perm=[1, 0, 2]))
    x = g.add("LayerNormalization", x, g.weight("norm1.weight", width), g.weight("norm1.bias", width), axis=-1, epsilon=1e-5)
    y = g.add("Add", g.add("MatMul", x, g.weight("linear1.weight", width, 24)), g.weight("linear1.bias", 24))
    erf = g.add("Erf", g.add("Div", y, g.constant(numpy.array(2**0.5, "f4"))))
    y = g.add("Mul", g.add("Mul", y, g.add("Add", erf, g.constant(numpy.array(1, "f4")))), g.constant(numpy.array(0.5, "f4")))
    y = g.add("Add", g.add("MatMul", y, g.weight("linear2.weight", 24, width)), g.weight("linear2.bias", width))
    x = g.add(
        "LayerNormalization", g.add("Add", x, y), g.weight("norm2.weight", width), g.weight("norm2.bias", width), axis=-1
    )
    x = g.add("Gather", x, g.constant(numpy.array(-1)), axis=1)
    x = g.add("Gemm", x, g.weight("head.weight", 4, width), g.weight("head.bias", 4), transB=1)
    g.nodes.append(helper.make_node("Softmax", [x], ["probabilities"], axis=-1))
    path = g.save(
        FOLDER / "transformer.onnx",
        value("tokens", TensorProto.INT64, "batch", steps),
        value("probabilities", TensorProto.FLOAT, "batch", 4),
    )
    assert "loss" not in json.loads(load(convert(path, FOLDER / "transformer.strata")).to_json()).keys()
    model = there_and_back(path, "transformer", "sparse_categorical_crossentropy")
    names = [name for name in model.weights if not name.endswith("moving_mean")]
    for expected in ("embed/embeddings", "attn.in_proj/kernel", "attn.in_proj/bias", "norm1/gamma", "linear2/kernel"):
        assert expected in names, names
    assert '"op":"softmax"' in model.to_json() and '"loss":"sparse_categorical_crossentropy"' in model.to_json()


def check_constants_with_infinities_stay_as_they_are():
    for how in ("initializer", "constant", "folded"):
        g = Graph()
        mask = "mask" if how == "initializer" else g.constant(numpy.array([0, -numpy.inf, 0], "f4"))
        if how == "initializer":
            g.weights.append(numpy_helper.from_array(numpy.array([0, -numpy.inf, 0], "f4"), mask))
        if how == "folded":
            mask = g.add("Unsqueeze", mask, g.constant(numpy.array([0])))
        scores = g.add("Softmax", g.add("Add", g.add("MatMul", "x", g.weight("score.weight", 4, 3)), mask), axis=-1)
        g.nodes.append(helper.make_node("MatMul", [scores, g.weight("head.weight", 3, 2)], ["y"]))
        x, y = value("x", TensorProto.FLOAT, "batch", 4), value("y", TensorProto.FLOAT, "batch", 2)
        path = g.save(FOLDER / f"infinite_{how}.onnx", x, y)
        states = there_and_back(path, f"infinite_{how}").weights
        assert not any(numpy.isnan(state).any() for state in states.values()), states
        assert sum(numpy.isneginf(state).sum() for state in states.values()) == 1, states


def check_a_transpose_that_is_undone_leaves_its_input_as_it_is():
    """The second convolution moves back the axes that the Transpose has moved. The result of the first one, which another
    node takes, must keep the order of its axes."""
    g = Graph()
    first = g.add("Conv", "x", g.weight("first.weight", 3, 3, 1, 1))
    moved = g.add("Transpose", first, perm=[0, 3, 1, 2])
    second = g.add("Conv", moved, g.weight("second.weight", 4, 4, 1, 1))
    means = g.add("ReduceMean", second, axes=[2, 3], keepdims=0)
    y = g.add("Add", means, g.add("ReduceMax", first, axes=[1, 2], keepdims=0))
    path = g.save(
        FOLDER / "undone.onnx", value("x", TensorProto.FLOAT, "batch", 3, 4, 4), value(y, TensorProto.FLOAT, "batch", 4)
    )
    there_and_back(path, "undone")


def check_reductions_without_axes_perform_their_other_ops():
    for op in ("ReduceSum", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp"):
        g = Graph()
        x = g.add("MatMul", "x", g.weight("a.weight", 4, 4))
        x = g.add("Softplus", x) if op == "ReduceLogSum" else x
        y = g.add(op, x, noop_with_empty_axes=1)
        x, y = value("x", TensorProto.FLOAT, "batch", 4), value(y, TensorProto.FLOAT, "batch", 4)
        path = g.save(FOLDER / f"{op}.onnx", x, y, opset=18)
        x = example_input(path, 3)
        same(load(convert(path, FOLDER / f"{op}.strata")).predict(x), by_onnx(path, x), op)


def check_files_of_other_exporters():
    folder = pathlib.Path(os.environ.get("STRATA_TEST_DATA", "")) / "interop"
    if not (folder / "mnist_pytorch.onnx").exists():
        print("skipped: no interop/mnist_pytorch.onnx in STRATA_TEST_DATA")
        return
    for name in ("mnist_pytorch", "mnist_cntk_opt"):
        path = folder / f"{name}.onnx"
        x = random.uniform(size=(1, 1, 28, 28)).astype("f4")
        same(load(convert(path, FOLDER / f"{name}.strata")).predict(x), by_onnx(path, x), name)


# ---- what is refused -------------------------------------------------------------------------------------------------------
def check_wrong_files_are_refused():
    f, i = TensorProto.FLOAT, TensorProto.INT64
    target = FOLDER / "refused.strata"

    def write(name, nodes, weights=(), inputs=None, outputs=None, opset=17, change=None):
        graph = helper.make_graph(
            nodes, "g", inputs or [value("x", f, "n", 4)], outputs or [value("y", f, "n", 4)], list(weights)
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
        if change:
            change(model)
        path = FOLDER / f"{name}.onnx"
        path.write_bytes(model.SerializeToString())
        return path

    node = helper.make_node
    w = numpy_helper.from_array(numpy.ones((4, 4), "f4"), "w")
    path = write(
        "ops",
        [
            node("MatMul", ["x", "w"], ["h"]),
            node("If", ["h"], ["a"], name="branch"),
            node("NonZero", ["a"], ["b"]),
            node("FusedGelu", ["b"], ["y"], domain="com.microsoft", name="fused"),
        ],
        [w],
    )
    convert(path, target, fails="3 nodes Strata has no op for: If (branch), NonZero (b), com.microsoft.FusedGelu (fused)")
    path = write(
        "cycle",
        [node("Add", ["x", "b"], ["a"], name="first"), node("MatMul", ["a", "w"], ["b"]), node("Relu", ["b"], ["y"])],
        [w],
    )
    convert(path, target, fails='Add (node "first"): its input "b" is given by this node or one behind it')
    convert(write("missing", [node("MatMul", ["x", "nowhere"], ["y"])]), target, fails='there is no "nowhere"')
    convert(write("twice", [node("Relu", ["x"], ["y"]), node("Tanh", ["x"], ["y"])]), target, fails="gives already")
    convert(
        write(
            "shapes",
            [node("MatMul", ["x", "w"], ["y"], name="product")],
            [numpy_helper.from_array(numpy.ones((3, 4), "f4"), "w")],
        ),
        target,
        fails='MatMul (node "product")',
    )
    ints = numpy_helper.from_array(numpy.ones((4,), "i8"), "k")
    convert(
        write("types", [node("Add", ["x", "k"], ["y"], name="sum")], [ints]),
        target,
        fails="f32 and i64; they must be of one type",
    )
    huge = TensorProto(name="w", data_type=f, dims=[1 << 40, 1 << 40], raw_data=b"1234")
    convert(write("huge", [node("MatMul", ["x", "w"], ["y"])], [huge]), target, fails='tensor "w"')
    large = TensorProto(name="w", data_type=f, dims=[1 << 20, 1 << 20], raw_data=b"1234")
    convert(
        write("large", [node("MatMul", ["x", "w"], ["y"])], [large]),
        target,
        fails="has 4 bytes; its shape (1048576,1048576) needs",
    )
    negative = TensorProto(name="w", data_type=f, dims=[-4, 4], raw_data=b"")
    convert(write("negative", [node("MatMul", ["x", "w"], ["y"])], [negative]), target, fails='tensor "w"')
    mixed = TensorProto(name="w", data_type=i, dims=[50000, 4], float_data=[1] * 200000, int64_data=[1])
    convert(write("mixed", [node("MatMul", ["x", "w"], ["y"])], [mixed]), target, fails="has elements of several types")
    silent = [node("Transpose", ["x"], [], perm=[0, 1]), node("Transpose", ["p"], [""], perm=[0, 2, 1])]
    pictures = [value("x", f, "n", 4), value("p", f, "n", 4, 4)]
    convert(
        write("silent", [*silent, node("MatMul", ["x", "w"], ["y"])], [w], inputs=pictures),
        target,
        fails='nothing depends on the input "p"',
    )
    text = TensorProto(name="w", data_type=TensorProto.STRING, dims=[1], string_data=[b"a"])
    convert(write("text", [node("MatMul", ["x", "w"], ["y"])], [text]), target, fails="element type STRING")
    convert(
        write("open", [node("MatMul", ["x", "w"], ["y"])], [w], inputs=[value("x", f, "n", "width")]),
        target,
        fails="its axis 1 has no size (width)",
    )
    convert(write("opset", [node("MatMul", ["x", "w"], ["y"])], [w], opset=6), target, fails="its opset is 6; at least 7")
    convert(write("weightless", [node("Relu", ["x"], ["y"])]), target, fails="no layer has parameters")
    convert(
        write("scalar", [node("ReduceSum", ["x"], ["y"], keepdims=0)], outputs=[value("y", f)]),
        target,
        fails="its axis 0 must be the batch",
    )
    convert(write("output", [node("MatMul", ["x", "w"], ["z"])], [w]), target, fails='no node gives the output "y"')

    def outside(location, **more):
        tensor = TensorProto(name="w", data_type=f, dims=[4, 4], data_location=TensorProto.EXTERNAL)
        for key, text in {"location": location, **more}.items():
            tensor.external_data.add(key=key, value=text)
        return write("external", [node("MatMul", ["x", "w"], ["y"])], [tensor])

    for location in ("../secret.bin", "/etc/passwd", "a/../../b", ""):
        convert(outside(location), target, fails="only files in the model's own folder are read")
    convert(outside("nowhere.bin"), target, fails="which cannot be opened")
    (FOLDER / "short.bin").write_bytes(b"0" * 60)
    convert(outside("short.bin"), target, fails="ends before the data")
    convert(outside("short.bin", length="60"), target, fails="has 60 bytes of data; its shape and type need 64")
    convert(outside("short.bin", offset="x"), target, fails="is no number")
    with tempfile.TemporaryDirectory() as other:
        (pathlib.Path(other) / "secret.bin").write_bytes(b"0" * 64)
        (FOLDER / "file.bin").symlink_to(pathlib.Path(other) / "secret.bin")
        (FOLDER / "folder").symlink_to(other)
        for location in ("file.bin", "folder/secret.bin"):
            convert(outside(location), target, fails="a link to outside of the model's own folder")
    weights = random.normal(size=(4, 4)).astype("f4")
    (FOLDER / "weights.bin").write_bytes(b"1234" + weights.tobytes())
    x = numpy.ones((1, 4), "f4")
    same(
        load(convert(outside("weights.bin", offset="4", length="64"), FOLDER / "external.strata")).predict(x),
        x @ weights,
        "external",
    )

    (FOLDER / "no.onnx").write_bytes(b"\xff\xff no model")
    convert(FOLDER / "no.onnx", target, fails="not a model file")
    whole = (FOLDER / "resnet.onnx").read_bytes() if (FOLDER / "resnet.onnx").exists() else path.read_bytes()
    for n in (0, 10, len(whole) // 2, len(whole) - 1):
        (FOLDER / "cut.onnx").write_bytes(whole[:n])
        convert(FOLDER / "cut.onnx", target, fails="cut.onnx")
    convert(FOLDER / "nothing.onnx", target, fails="nothing.onnx")
    convert(FOLDER / "cut.onnx", FOLDER / "refused.txt", fails="it must end in .strata, .onnx, .keras or .safetensors")


def check_a_cast_that_onnx_has_not_is_refused():
    for dtype, fails in (("u8", "a cast to another type"), ("i32", None)):
        x = {"layer": "dense", "units": 2, "name": "d", "inputs": ["x"]}
        whole = {"layer": "op", "op": "cast", "dtype": dtype, "name": "whole", "inputs": ["d"]}
        y = {"layer": "op", "op": "cast", "dtype": "f32", "name": "y", "inputs": ["whole"]}
        text = {"inputs": [{"name": "x", "shape": [3]}], "layers": [x, whole, y], "outputs": [{"name": "y", "loss": "mse"}]}
        model = strata.Model.from_json(text)
        model.compile(device="host", seed=3)
        model.save(FOLDER / "cast.strata")
        path = convert(FOLDER / "cast.strata", FOLDER / f"cast_{dtype}.onnx", fails=fails)
        x = random.normal(size=(4, 3)).astype("f4") * 9
        if not fails:
            same(by_onnx(path, x), model.predict(x), dtype)


def check_numbers_of_ops_have_the_type_that_onnx_wants():
    rows = [
        ("clip", {"op": "clip", "numbers": [-1, 2]}, None),
        ("pad", {"op": "pad", "numbers": [0, 1, 1, 0, 0, 2], "value": 3}, None),
        ("back", {"op": "transpose", "numbers": [0, -1, 1]}, None),
        ("large", {"op": "clip", "numbers": [-1, 1e9]}, "numbers that are not f32"),
    ]
    for name, op, fails in rows:
        layers = [
            {"layer": "dense", "units": 3, "name": "d", "inputs": ["x"]},
            {"layer": "op", "op": "cast", "dtype": "i32", "name": "whole", "inputs": ["d"]},
            {"layer": "op", "name": "op", "inputs": ["whole"], **op},
            {"layer": "op", "op": "cast", "dtype": "f32", "name": "y", "inputs": ["op"]},
        ]
        inputs, outputs = [{"name": "x", "shape": [4, 3]}], [{"name": "y", "loss": "mse"}]
        model = strata.Model.from_json({"inputs": inputs, "layers": layers, "outputs": outputs})
        model.compile(device="host", seed=3)
        model.save(FOLDER / "typed.strata")
        path = convert(FOLDER / "typed.strata", FOLDER / f"typed_{name}.onnx", fails=fails)
        x = random.normal(size=(4, 4, 3)).astype("f4") * 4
        if not fails:
            same(by_onnx(path, x), model.predict(x), name)


def check_absurd_sizes_are_refused():
    """Sizes that nodes ask for, in a file of some hundred bytes."""
    node, target = helper.make_node, FOLDER / "refused.strata"
    weight = numpy_helper.from_array(numpy.ones((4, 4), "f4"), "w")

    def fails(words, nodes, **constants):
        arrays = [numpy_helper.from_array(numpy.array(value, "i8"), name) for name, value in constants.items()]
        inputs, outputs = ([value(name, TensorProto.FLOAT, "n", 4)] for name in "xy")
        graph = helper.make_graph([node("MatMul", ["x", "w"], ["h"]), *nodes], "g", inputs, outputs, [weight, *arrays])
        path = FOLDER / "absurd.onnx"
        path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
        convert(path, target, fails=words)

    added = node("Add", ["h", "k"], ["y"])
    filled = [node("ConstantOfShape", ["s"], ["k"]), added]
    fails("ConstantOfShape", filled, s=[1 << 40, 4])
    fails("ConstantOfShape", filled, s=[1 << 62, 1 << 62])
    fails("a size of -5", filled, s=[-5, 4])
    fails("Tile", [node("Tile", ["w", "s"], ["k"]), node("MatMul", ["h", "k"], ["y"])], s=[1 << 40, 1 << 40])
    fails("Tile", [node("Tile", ["h", "s"], ["y"])], s=[1, 1 << 61])
    ranged = [node("Range", ["a", "b", "c"], ["r"]), node("Cast", ["r"], ["k"], to=TensorProto.FLOAT), added]
    fails("Range", ranged, a=0, b=1 << 60, c=1)
    fails("Range", ranged, a=0, b=5, c=0)
    fails("Pad", [node("Pad", ["h", "s"], ["y"])], s=[0, 1 << 62, 0, 1 << 62])
    fails("Expand", [node("Expand", ["h", "s"], ["y"])], s=[1, 1 << 50, 1 << 50, 4])
    fails("Reshape", [node("Reshape", ["h", "s"], ["y"])], s=[-1, 1 << 40])
    fails("TopK", [node("TopK", ["h", "s"], ["y", "i"])], s=[1 << 40])


def check_the_whole_of_the_inputs_is_one_example_where_asked_for():
    g = Graph()
    g.nodes.append(helper.make_node("MatMul", [g.weight("w", 5, 3), "x"], ["y"]))
    path = g.save(FOLDER / "whole.onnx", value("x", TensorProto.FLOAT, 3, 2), value("y", TensorProto.FLOAT, 5, 2))
    convert(path, FOLDER / "refused.strata", fails="MatMul")
    model = load(convert(path, FOLDER / "whole.strata", "--whole"))
    x = random.normal(size=(3, 2)).astype("f4")
    same(model.predict(x[None], batch_size=1), by_onnx(path, x), "whole")


# ---- Keras and PyTorch -----------------------------------------------------------------------------------------------------
def check_keras_files_predict_what_keras_did():
    stored = numpy.load(DATA / "keras.npz")
    for name in ("images", "sequences"):
        done = subprocess.run(
            [COMMAND, "convert", str(DATA / f"{name}.keras"), str(FOLDER / f"{name}.k.strata")],
            capture_output=True,
            text=True,
        )
        if "there is no libhdf5" in done.stderr:
            print("skipped: there is no libhdf5 (libhdf5-dev)")
            return
        assert done.returncode == 0, done.stderr
        model = load(FOLDER / f"{name}.k.strata")
        same(model.predict(stored[f"{name}_x"]), stored[f"{name}_y"], f"{name}.keras")
        exported = convert(FOLDER / f"{name}.k.strata", FOLDER / f"{name}.k.onnx")
        same(by_onnx(exported, stored[f"{name}_x"]), stored[f"{name}_y"], f"{name}.keras as ONNX")


def check_a_keras_file_without_weights_takes_those_of_the_safetensors_file():
    import zipfile

    path, beside = FOLDER / "apart.keras", FOLDER / "apart.safetensors"
    layers = [
        {"class_name": "InputLayer", "config": {"batch_shape": [None, 4], "dtype": "float32", "name": "in"}},
        {"class_name": "Dense", "config": {"name": "dense", "units": 3, "activation": "linear", "use_bias": True}},
    ]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", json.dumps({"class_name": "Sequential", "config": {"layers": layers}}))
    kernel, bias, x = (random.normal(size=size).astype("f4") for size in ((4, 3), (3,), (5, 4)))
    write_safetensors(beside, {"layers/dense/vars/0": kernel, "layers/dense/vars/1": bias})
    model = load(convert(path, FOLDER / "apart.strata"))
    same(model.predict(x), x @ kernel + bias, "weights next to the file")
    write_safetensors(beside, {"layers/dense/vars/0": kernel})
    convert(path, FOLDER / "refused.strata", fails="layers/dense/vars/1")
    beside.write_bytes(b"no tensors")
    convert(path, FOLDER / "refused.strata", fails="apart.")
    beside.unlink()
    # Weights in the file are preferred where there is libhdf5.
    shutil.copy(DATA / "images.keras", path)
    beside.write_bytes(b"no tensors")
    done = subprocess.run([COMMAND, "convert", str(path), str(FOLDER / "apart.strata")], capture_output=True, text=True)
    if done.returncode:
        assert "apart.keras: " in done.stderr and "is no safetensors" in done.stderr, done.stderr
        print("skipped: there is no libhdf5 (libhdf5-dev)")
        return
    stored = numpy.load(DATA / "keras.npz")
    same(load(FOLDER / "apart.strata").predict(stored["images_x"]), stored["images_y"], "weights in the file")


def check_wrong_keras_files_are_refused():
    import zipfile

    def write(config, name="wrong.keras"):
        with zipfile.ZipFile(FOLDER / name, "w") as archive:
            archive.writestr("config.json", config if isinstance(config, str) else json.dumps(config))
        return FOLDER / name

    def sequential(*layers):
        return {
            "class_name": "Sequential",
            "config": {
                "layers": [
                    {"class_name": "InputLayer", "config": {"batch_shape": [None, 4], "dtype": "float32", "name": "in"}},
                    *layers,
                ]
            },
        }

    target = FOLDER / "refused.strata"
    dense = {"class_name": "Dense", "config": {"name": "dense", "units": 3, "activation": "linear", "use_bias": True}}
    convert(write(sequential(dense)), target, fails="it has no model.weights.h5")
    unknown = {"class_name": "Lambda", "config": {"name": "odd"}}
    convert(
        write(sequential(dense, unknown, {"class_name": "Own", "config": {"name": "mine"}})),
        target,
        fails="there are no layers for: Lambda (odd), Own (mine)",
    )
    convert(write({"class_name": "Subclass", "config": {}}), target, fails="it must be Sequential or Functional")
    convert(write("{"), target, fails="wrong.keras")
    convert(
        write(sequential({"class_name": "Dense", "config": {"name": "d", "units": 3, "activation": {"class_name": "f"}}})),
        target,
        fails="wrong.keras",
    )
    norm = {"class_name": "LayerNormalization", "config": {"name": "norm", "axis": -1, "epsilon": 0.0}}
    convert(write(sequential(norm, dense)), target, fails="it has no model.weights.h5")  # an epsilon of 0 is one
    forward = {"class_name": "LSTM", "config": {"name": "f", "units": 3, "activation": "tanh", "go_backwards": False}}
    backward = {"class_name": "LSTM", "config": {"name": "b", "units": 3, "activation": "relu", "go_backwards": True}}
    both = {"name": "both", "merge_mode": "concat", "layer": forward, "backward_layer": backward}
    convert(
        write(sequential({"class_name": "Bidirectional", "config": both})),
        target,
        fails="backward_layer.config.activation: is not that of the forward layer",
    )

    def call(name):
        tensor = {"class_name": "__keras_tensor__", "config": {"keras_history": [name, 0, 0]}}
        return [{"args": [tensor], "kwargs": {}}]

    steps = {"class_name": "InputLayer", "config": {"batch_shape": [None, 5, 4], "name": "in"}, "name": "in"}
    steps["inbound_nodes"] = []
    lstm = {"class_name": "LSTM", "config": {**forward["config"], "name": "lstm", "return_state": True}, "name": "lstm"}
    lstm["inbound_nodes"] = call("in")
    functional = {"layers": [steps, lstm], "input_layers": [["in", 0, 0]], "output_layers": [["lstm", 0, 2]]}
    convert(
        write({"class_name": "Functional", "config": functional}),
        target,
        fails="takes result 2 of lstm; a layer here has only the first one",
    )
    (FOLDER / "no.keras").write_bytes(b"PK no zip")
    convert(FOLDER / "no.keras", target, fails="no.keras")
    whole = (DATA / "images.keras").read_bytes()
    (FOLDER / "cut.keras").write_bytes(whole[: len(whole) // 2])
    convert(FOLDER / "cut.keras", target, fails="cut.keras")


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, array in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def read_safetensors(path):
    content = path.read_bytes()
    n = int.from_bytes(content[:8], "little")
    head = json.loads(content[8 : 8 + n])
    head.pop("__metadata__", None)
    return {
        name: numpy.frombuffer(content[8 + n :][slice(*tensor["data_offsets"])], "f4").reshape(tensor["shape"])
        for name, tensor in head.items()
    }


def check_weights_of_pytorch_are_taken_by_a_map():
    tensors = {
        "conv.weight": random.normal(size=(5, 2, 3, 3)),
        "conv.bias": random.normal(size=5),
        "fc.weight": random.normal(size=(4, 5)),
        "fc.bias": random.normal(size=4),
    }
    tensors = {name: array.astype("f4") for name, array in tensors.items()}
    write_safetensors(FOLDER / "torch.safetensors", tensors)
    (FOLDER / "net.json").write_text(
        '{"input": [6, 6, 2], "loss": "mse", "layers": [{"layer": "conv2d", "filters": 5, "kernel_size": 3},'
        '{"layer": "global_average_pool"}, {"layer": "dense", "units": 4}]}'
    )
    lines = [
        "# the layers of the network",
        "",
        "conv.weight conv2d/kernel conv2d",
        "conv.bias conv2d/bias",
        "fc.weight dense/kernel",
        "fc.bias dense/bias same",
    ]
    (FOLDER / "map.txt").write_text("\n".join(lines))
    options = ["--model", str(FOLDER / "net.json"), "--map", str(FOLDER / "map.txt")]
    model = load(convert(FOLDER / "torch.safetensors", FOLDER / "torch.strata", *options))
    x = random.normal(size=(2, 6, 6, 2)).astype("f4")
    windows = numpy.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))  # (N, OH, OW, C, 3, 3)
    y = numpy.einsum("nhwcij,fcij->nhwf", windows, tensors["conv.weight"]) + tensors["conv.bias"]
    same(model.predict(x), y.mean((1, 2)) @ tensors["fc.weight"].T + tensors["fc.bias"], "PyTorch's weights")
    for order in ("conv2d", ""):  # what the map says, and what four axes say by themselves
        (FOLDER / "back.txt").write_text("\n".join(lines).replace(" conv2d\n", f" {order}\n"))
        back = convert(FOLDER / "torch.strata", FOLDER / "back.safetensors", "--map", str(FOLDER / "back.txt"))
        assert back.read_bytes()[8:] and read_safetensors(back).keys() == tensors.keys()
        for name, array in read_safetensors(back).items():
            assert array.shape == tensors[name].shape and (array == tensors[name]).all(), name
    (FOLDER / "back.safetensors").unlink()
    convert(FOLDER / "torch.strata", FOLDER / "back.safetensors", fails="give --map, which contains the names")
    target = FOLDER / "refused.strata"
    for changed, words in (
        (lines[:-1], 'no line gives the parameter "dense/bias"'),
        (lines + ["fc.bias dense/bias"], "map.txt:7: "),
        (lines[:-1] + ["fc.bias dense/b"], 'map.txt:6: the model has no parameter "dense/b"'),
        (lines[:-1] + ["none dense/bias"], 'has no "none"'),
        (lines[:-1] + ["fc.weight dense/bias"], "does not become"),
        (lines[:-1] + ["fc.bias dense/bias odd"], "is no order of axes"),
        (lines + ["a"], "map.txt:7: a line has two names"),
    ):
        (FOLDER / "map.txt").write_text("\n".join(changed))
        convert(FOLDER / "torch.safetensors", target, *options, fails=words)
    convert(FOLDER / "torch.safetensors", target, fails="--model names the model")


def main():
    checks.run({n: check for n, check in globals().items() if n.startswith("check_") and "".join(sys.argv[2:]) in n})


if __name__ == "__main__":
    main()
