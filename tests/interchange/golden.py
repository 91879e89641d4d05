#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the files of golden/ for files_test.c: small models of other programs, each with an input x and what the other program
answers, y.

    python3 tests/interchange/golden.py onnx      with onnx and onnxruntime
    python3 tests/interchange/golden.py torch     with PyTorch
    python3 tests/interchange/golden.py keras     with Keras 3"""

import json
import pathlib
import sys

import numpy

FOLDER = pathlib.Path(__file__).resolve().parent / "golden"
random = numpy.random.RandomState(1)


def numbers(*shape):
    return random.normal(size=shape).astype("f4")


def make_onnx():
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    def save(name, nodes, weights, x, inputs, outputs, opset=17, run=True):
        weights = [numpy_helper.from_array(numpy.asarray(a), n) for n, a in weights.items()]
        graph = helper.make_graph(nodes, "g", inputs, outputs, weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
        onnx.save(model, FOLDER / f"{name}.onnx")
        if run:
            session = onnxruntime.InferenceSession(str(FOLDER / f"{name}.onnx"))
            names = [o.name for o in session.get_outputs()]
            numpy.savez(FOLDER / f"{name}.npz", **x, **dict(zip(names, session.run(names, x))))

    value, node = helper.make_tensor_value_info, helper.make_node
    x, w = numbers(3, 4), numbers(4, 3)
    batch = dict(inputs=[value("x", 1, ["N", 4])], outputs=[value("y", 1, ["N", 3])])
    inf, nan = numpy.float32("inf"), numpy.float32("nan")
    product = node("MatMul", ["x", "w"], ["c"])
    half = numpy.float32(0.5)
    save("clip_below", [product, node("Clip", ["c", "", "high"], ["y"])], {"w": w, "high": half}, {"x": x}, **batch)
    save("clip_above", [product, node("Clip", ["c", "low"], ["y"])], {"w": w, "low": numpy.float32(-0.5)}, {"x": x}, **batch)
    save("clip_open", [product, node("Clip", ["c"], ["y"])], {"w": w}, {"x": x}, **batch)
    bounds = {"w": w, "low": -inf, "high": inf}
    save("clip_infinite", [product, node("Clip", ["c", "low", "high"], ["y"])], bounds, {"x": x}, **batch)
    masked = [product, node("Less", ["c", "zero"], ["m"]), node("Where", ["m", "low", "c"], ["d"]),
              node("Softmax", ["d"], ["e"]), node("Add", ["e", "zero"], ["y"])]
    save("mask", masked, {"w": abs(w), "zero": numpy.float32(0), "low": -inf}, {"x": abs(x)}, **batch)
    odd = numpy.array([nan, inf, -inf], "f4")
    save("nan", [product, node("Min", ["c", "n"], ["y"])], {"w": w, "n": odd}, {"x": x}, **batch)
    save("elu_infinite", [product, node("Elu", ["c"], ["y"], alpha=float("inf"))], {"w": w}, {"x": x}, **batch)
    padded = dict(inputs=[value("x", 1, ["N", 4])], outputs=[value("y", 1, ["N", 5])])
    pads = {"w": w, "pads": numpy.array([0, 1, 0, 1], "i8"), "v": -inf}
    save("pad_infinite", [product, node("Pad", ["c", "pads", "v"], ["y"])], pads, {"x": x}, **padded)

    # As PyTorch's exporters write an LSTM: the first states are zeros, whose size depends on the batch.
    tokens = random.randint(0, 6, size=(3, 4)).astype("i8")
    for kind, gates in (("LSTM", 4), ("GRU", 3)):
        weights = {"e": numbers(6, 3), "W": numbers(1, gates * 2, 3), "R": numbers(1, gates * 2, 2), "B": numbers(1, gates * 4),
                   "o": numbers(2, 2), "one": numpy.array([1], "i8"), "units": numpy.array([2], "i8"), "last": numpy.int64(-1),
                   "axis": numpy.int64(0)}
        states = ["h0", "h0"] if kind == "LSTM" else ["h0"]
        more = {} if kind == "LSTM" else {"linear_before_reset": 1}
        nodes = [node("Gather", ["e", "x"], ["v"]), node("Shape", ["v"], ["s"]), node("Gather", ["s", "axis"], ["n"], axis=0),
                 node("Unsqueeze", ["n", "start"], ["n1"]), node("Concat", ["one", "n1", "units"], ["size"], axis=0),
                 node("ConstantOfShape", ["size"], ["h0"]), node("Transpose", ["v"], ["t"], perm=[1, 0, 2]),
                 node(kind, ["t", "W", "R", "B", "", *states], ["Y", ""], hidden_size=2, **more),
                 node("Squeeze", ["Y", "one"], ["q"]), node("Transpose", ["q"], ["b"], perm=[1, 0, 2]),
                 node("Gather", ["b", "last"], ["h"], axis=1), node("MatMul", ["h", "o"], ["y"])]
        weights["start"] = numpy.array([0], "i8")
        ports = dict(inputs=[value("x", 7, ["batch", 4])], outputs=[value("y", 1, ["batch", 2])])
        save(f"{kind.lower()}_states", nodes, weights, {"x": tokens}, **ports)
        # The same with a constant that is expanded to the size of the batch.
        weights["zeros"] = numpy.zeros((1, 1, 2), "f4")
        nodes[5] = node("Expand", ["zeros", "size"], ["h0"])
        save(f"{kind.lower()}_expanded", nodes, weights, {"x": tokens}, **ports)

    # Messages.
    to = dict(inputs=[value("x", 1, ["N", 4])], outputs=[value("y", TensorProto.FLOAT8E4M3FN, ["N", 4])])
    save("float8", [node("Cast", ["x"], ["y"], to=TensorProto.FLOAT8E4M3FN)], {}, {}, opset=19, run=False, **to)
    large = dict(inputs=[value("x", 1, ["N", 12, 24])], outputs=[value("y", 1, [288])])
    save("no_batch", [node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)], {"axes": numpy.array([0], "i8")},
         {"x": numbers(2, 12, 24)}, inputs=[value("x", 1, [2, 12, 24])], outputs=[value("y", 1, [12, 24])])
    save("multiple", [node("Reshape", ["x", "shape"], ["r"]), node("MatMul", ["r", "w"], ["y"])],
         {"shape": numpy.array([288], "i8"), "w": numbers(288, 1)}, {}, run=False, inputs=large["inputs"],
         outputs=[value("y", 1, [1])])
    # Nothing in it is a weight, its outputs are integers, and its shape depends on an input.
    nodes = [node("Reshape", ["a", "shape"], ["r"]), node("Shape", ["r"], ["s"]), node("Not", ["flag"], ["not"])]
    save("weightless", nodes, {},
         {"a": numbers(2, 6), "shape": numpy.array([3, -1], "i8"), "flag": numpy.array([True, False])},
         [value("a", 1, [2, 6]), value("shape", 7, [2]), value("flag", 9, [2])],
         [value("r", 1, [3, 4]), value("s", 7, [2]), value("not", 9, [2])])


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, array in tensors.items():
        kind = {"f": "F32", "i": "I64"}[array.dtype.kind]
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def make_torch():
    import torch

    torch.manual_seed(1)
    for name, cls in (("lstm", torch.nn.LSTM), ("gru", torch.nn.GRU)):
        layer, dense = cls(3, 2, batch_first=True, bidirectional=True), torch.nn.Linear(4, 2)
        tensors = {f"r.{k}": v.numpy() for k, v in layer.state_dict().items()}
        tensors |= {f"o.{k}": v.numpy() for k, v in dense.state_dict().items()}
        tensors["steps"] = numpy.array(7)
        write_safetensors(FOLDER / f"{name}.safetensors", tensors)
        x = torch.randn(3, 4, 3)
        h = layer(x)[0]
        y = dense(torch.cat([h[:, -1, :2], h[:, 0, 2:]], -1))
        numpy.savez(FOLDER / f"{name}.npz", x=x.numpy(), y=y.detach().numpy())


def make_keras():
    import keras

    keras.utils.set_random_seed(1)
    tokens = random.randint(0, 5, size=(3, 4))
    model = keras.Sequential([keras.layers.Embedding(5, 2), keras.layers.Flatten(), keras.layers.Dense(2)])
    y = model.predict(tokens.astype("f4"), verbose=0)  # the input of the file is float32
    model.save(FOLDER / "tokens.keras")
    numpy.savez(FOLDER / "tokens.npz", x=tokens.astype("i4"), y=y)
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.ReLU(max_value=float("inf")), keras.layers.Dense(2)])
    x = numbers(3, 4)
    model.save(FOLDER / "infinite.keras")
    numpy.savez(FOLDER / "infinite.npz", x=x, y=model.predict(x, verbose=0))
    model = keras.Sequential([keras.layers.Input((4, 4, 1)), keras.layers.Conv2D(2, 3, name="first"),
                              keras.layers.Permute((2, 1, 3), name="turned")])
    model.save(FOLDER / "permute.keras")
    model = keras.Sequential([keras.layers.Input((1, 4, 4)),
                              keras.layers.Conv2D(2, 3, data_format="channels_first", name="turned")])
    model.save(FOLDER / "channels.keras")
    x = numbers(3, 4, 3)
    start = keras.layers.Input((4, 3))
    both = keras.layers.Bidirectional(keras.layers.LSTM(2, return_sequences=True))(start)
    normal = keras.layers.BatchNormalization()(keras.layers.Dense(4, use_bias=False)(both))
    model = keras.Model(start, keras.layers.GlobalAveragePooling1D()(keras.layers.Add()([both, normal])))
    model.set_weights([abs(numbers(*w.shape)) / 2 for w in model.get_weights()])
    model.save(FOLDER / "legacy.h5")
    numpy.savez(FOLDER / "legacy.npz", x=x, y=model.predict(x, verbose=0))


FOLDER.mkdir(exist_ok=True)
{"onnx": make_onnx, "torch": make_torch, "keras": make_keras}[sys.argv[1]]()
