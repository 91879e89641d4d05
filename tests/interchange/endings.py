#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A model that is written to any format and read back predicts the same: every layer, activation and loss, and every way in
which a model may end.

usage: endings.py FOLDER [WORD]    a folder for the files that are written; only models with the word in their name

CC is the compiler of C (cc). C files are not read back: they are compiled, all into one library, and called."""

import ctypes
import json
import os
import pathlib
import re
import subprocess
import sys
import urllib.request

import numpy

from checks import run

SOURCE = pathlib.Path(os.environ["STRATA_SOURCE_DIR"])
COMMAND = os.path.join(os.environ["STRATA_BUILD_DIR"], "strata")
sys.path.insert(0, str(SOURCE / "include" / "python"))
import strata  # noqa: E402

FOLDER = pathlib.Path(sys.argv[1])
WORD = sys.argv[2] if len(sys.argv) > 2 else ""
FORMATS = [".strata", ".onnx", ".keras"]
# What Keras has no counterpart of is refused by name; all else must be written.
NOT_IN_KERAS = {"op", "weights", "print", "gelu_tanh"}
random = numpy.random.default_rng(0)
exported = []


def layer(kind, **options):
    return {"layer": kind, **options}


def words_of(path, pattern):
    return re.findall(pattern, (SOURCE / path).read_text())


# ---- the models ------------------------------------------------------------------------------------------------------------
ROW, STEPS, IMAGE = [5], [6, 4], [6, 6, 2]
FLAT = [layer("flatten"), layer("dense", units=3)]
TOKENS = layer("embedding", vocabulary=9, units=4)

# Each layer, once or in several forms: the shape of the input, and the layers.
LAYERS = {
    "dense": (ROW, [layer("dense", units=3, no_bias=True)]),
    "activation": (ROW, [layer("dense", units=3), layer("activation", function="tanh")]),
    "dropout": (ROW, [layer("dense", units=3), layer("dropout", rate=0.5)]),
    "flatten": (STEPS, FLAT),
    "reshape": (ROW, [layer("dense", units=6), layer("reshape", shape=[2, 3])]),
    "embedding": ([4], [TOKENS, layer("dense", units=2)]),
    "batch_norm": (IMAGE, [layer("conv2d", filters=3, kernel_size=3), layer("batch_norm", activation="relu")]),
    "conv2d": (IMAGE, [layer("conv2d", filters=4, kernel_size=3, groups=2, stride=2, padding="same")]),
    "conv1d": (STEPS, [layer("conv1d", filters=3, kernel_size=2, dilation=2)]),
    "conv2d_transpose": (IMAGE, [layer("conv2d_transpose", filters=3, kernel_size=2, stride=2)]),
    "depthwise_conv2d": (IMAGE, [layer("depthwise_conv2d", kernel_size=3, depth_multiplier=2)]),
    "separable_conv2d": (IMAGE, [layer("separable_conv2d", filters=3, kernel_size=3, padding="same")]),
    "max_pool2d": (IMAGE, [layer("conv2d", filters=2, kernel_size=1), layer("max_pool2d", size=2)]),
    "avg_pool2d": (IMAGE, [layer("conv2d", filters=2, kernel_size=1), layer("avg_pool2d", size=3, stride=1, padding="same")]),
    "max_pool1d": (STEPS, [layer("dense", units=3), layer("max_pool1d", size=2)]),
    "avg_pool1d": (STEPS, [layer("dense", units=3), layer("avg_pool1d", size=2)]),
    "global_average_pool": (IMAGE, [layer("conv2d", filters=3, kernel_size=3), layer("global_average_pool")]),
    "global_max_pool": (STEPS, [layer("dense", units=3), layer("global_max_pool")]),
    "residual": (STEPS, [layer("residual", activation="relu", layers=[layer("dense", units=4)])]),
    "layer_norm": (STEPS, [layer("dense", units=4), layer("layer_norm")]),
    "group_norm": (IMAGE, [layer("conv2d", filters=4, kernel_size=1), layer("group_norm", groups=2)]),
    "rms_norm": (STEPS, [layer("dense", units=4), layer("rms_norm")]),
    "lstm": (STEPS, [layer("lstm", units=3, return_sequences=True, bidirectional="concat"), layer("lstm", units=2)]),
    "gru": (STEPS, [layer("gru", units=3, return_sequences=True), layer("gru", units=2, go_backwards=True)]),
    "multi_head_attention": (STEPS, [layer("multi_head_attention", heads=2)]),
    "op": (STEPS, [layer("dense", units=3), layer("op", op="transpose", numbers=[0, 2, 1])]),
    "print": (ROW, [layer("dense", units=3), layer("print", every=1000000000)]),
}
# Layers that take several inputs, or none.
CALLS = {
    "add": [layer("dense", units=5, name="a", inputs=["x"]), layer("add", name="y", inputs=["a", "x"])],
    "multiply": [layer("dense", units=5, name="a", inputs=["x"]), layer("multiply", name="y", inputs=["a", "x"])],
    "concat": [layer("dense", units=5, name="a", inputs=["x"]), layer("concat", name="y", inputs=["a", "x"])],
    "weights": [layer("weights", shape=[1, 5], name="w", inputs=["x"]), layer("dense", units=5, name="a", inputs=["x"]),
                layer("op", op="add", name="y", inputs=["a", "w"])],
}  # fmt: skip


def sequential(shape, layers, loss=None):
    tokens = layers[0]["layer"] == "embedding"
    return {"input": shape, "layers": layers, **({"input_dtype": "i32"} if tokens else {}), **({"loss": loss} if loss else {})}


def functional(shape, layers, **losses):
    outputs = [{"name": name, **({"loss": loss} if loss else {})} for name, loss in losses.items()]
    return {"inputs": [{"name": "x", "shape": shape}], "layers": layers, "outputs": outputs}


def models():
    """All models by name, as JSON."""
    for name, (shape, layers) in LAYERS.items():
        yield f"layer {name}", sequential(shape, layers)
    for name, layers in CALLS.items():
        yield f"layer {name}", functional([5], layers, y=None)
    for function in words_of("core/layer/activation.c", r'{"(\w+)", \w+}'):
        yield f"activation {function}", sequential(ROW, [layer("dense", units=3, activation=function), layer("dense", units=2)])
        yield f"ends in {function}", sequential(ROW, [layer("dense", units=3), layer("activation", function=function)])
    # Layers with an activation of their own at the end of a model without a loss, with a loss of numbers, and with the loss
    # into which the activation is moved.
    with_activation = {
        "dense": (ROW, layer("dense", units=3)), "steps": (STEPS, layer("dense", units=3)),
        "conv2d": (IMAGE, layer("conv2d", filters=3, kernel_size=3, padding="same")),
        "conv2d_transpose": (IMAGE, layer("conv2d_transpose", filters=3, kernel_size=2, stride=2)),
        "depthwise_conv2d": (IMAGE, layer("depthwise_conv2d", kernel_size=3)),
        "separable_conv2d": (IMAGE, layer("separable_conv2d", filters=3, kernel_size=3)),
        "conv1d": (STEPS, layer("conv1d", filters=3, kernel_size=2)),
        "residual": (STEPS, layer("residual", layers=[layer("dense", units=4)])),
        "batch_norm": (STEPS, layer("batch_norm")),
    }  # fmt: skip
    for name, (shape, last) in with_activation.items():
        before = [layer("dense", units=4)] if name == "batch_norm" else []
        for function in ("sigmoid", "softmax"):
            for loss in (None, "mse", "binary_crossentropy")[: 3 if function == "sigmoid" else 2]:
                yield (f"{name} with {function} and {loss}",
                       sequential(shape, [*before, {**last, "activation": function}], loss))  # fmt: skip
        yield f"{name} and binary_crossentropy", sequential(shape, [*before, last], "binary_crossentropy")
    # Each loss, for logits and for each ending that it takes.
    sigmoid, softmax = layer("activation", function="sigmoid"), layer("activation", function="softmax")
    flat = [layer("reshape", shape=[1, 3]), softmax, layer("flatten")]
    for loss in words_of("core/loss/losses.c", r"&strata_loss_(\w+)"):
        classes = "categorical" in loss
        endings = {"nothing": [], **({"softmax": [softmax], "softmax and views": flat} if classes else
                                     {"sigmoid": [sigmoid], "sigmoid and flatten": [sigmoid, layer("flatten")]})}  # fmt: skip
        for ending, last in endings.items():
            yield f"{loss} after {ending}", sequential(ROW, [layer("dense", units=3), *last], loss)
        yield f"{loss} of one input", functional(
            ROW, [layer("dense", units=3, name="y", activation="softmax" if classes else "sigmoid", inputs=["x"])], y=loss)
        yield f"{loss} of logits of one input", functional(ROW, [layer("dense", units=3, name="y", inputs=["x"])], y=loss)
    probabilities = {"name": "binary_crossentropy", "from_probabilities": True}
    for function in ("sigmoid", "softmax"):
        yield f"from_probabilities of {function}", sequential(
            ROW, [layer("dense", units=3, activation=function)], probabilities)
    yield "label_smoothing", sequential(
        ROW, [layer("dense", units=3)], {"name": "sparse_categorical_crossentropy", "label_smoothing": 0.1})
    # Probabilities that are not last: an own computation after them, in predictions only the dropout is without effect.
    yield "sigmoid and dropout", sequential(ROW, [layer("dense", units=3), sigmoid, layer("dropout", rate=0.5)])
    last = layer("dense", units=1)
    yield "softmax and dense", sequential(ROW, [layer("dense", units=3), softmax, last], "binary_crossentropy")
    yield "softmax and average", sequential(STEPS, [layer("dense", units=3), softmax, layer("global_average_pool")])
    # Several outputs: with all losses, with none, and an output that another layer takes.
    for own in ("", "softmax"):
        several = [layer("dense", units=3, name="kind", inputs=["x"], **({"activation": own} if own else {})),
                   layer("dense", units=1, name="yes", inputs=["kind"], activation="sigmoid"),
                   layer("dense", units=2, name="size", inputs=["x"])]  # fmt: skip
        yield f"three outputs, {own}", functional(
            ROW, several, kind="sparse_categorical_crossentropy", yes="binary_crossentropy", size="mse")
        yield f"three outputs without a loss, {own}", functional(ROW, several, kind=None, yes=None, size=None)


# ---- there and back --------------------------------------------------------------------------------------------------------
def kinds_of(spec):
    return {one["layer"] for one in spec["layers"] if "layer" in one} | {
        one.get(key) for one in spec["layers"] for key in ("function", "activation")}


def input_of(spec):
    shape = spec["input"] if "input" in spec else spec["inputs"][0]["shape"]
    if spec.get("input_dtype"):
        return random.integers(1, 9, size=(4, *shape)).astype("i4")
    return (2 * random.normal(size=(4, *shape))).astype("f4")


def side_by_side(predictions, n):
    parts = predictions.values() if isinstance(predictions, dict) else [predictions]
    return numpy.concatenate([part.reshape(n, -1) for part in parts], 1)


def predictions_of(model, x):
    return side_by_side(model.build(device="host").predict(x), len(x))


def same(a, b, what):
    assert a.shape == b.shape, f"{what}: {a.shape} and {b.shape}"
    worst = numpy.max(numpy.abs(a - b) / numpy.maximum(1, numpy.abs(b)))
    assert worst <= 1e-5, f"{what}: they differ by {worst}"


def losses_of(model):
    spec = model.to_json()
    return re.findall(r'"loss":({[^}]*}|"\w+")', spec)


def made(spec):
    """A model with random parameters, so that no activation is near its middle."""
    model = strata.Model.from_json(spec).build(device="host")
    model.set_weights([numpy.abs(w) + 0.1 if name.endswith("variance") else w + random.normal(size=w.shape).astype("f4") / 2
                       for name, w in model.weights.items()])  # fmt: skip
    return model


def has_hdf5():
    return subprocess.run("ldconfig -p | grep -q libhdf5", shell=True).returncode == 0


def check(number, name, spec):
    model, x, n = made(spec), input_of(spec), 0
    expected = predictions_of_built(model, x)
    refused = sorted(kinds_of(spec) & NOT_IN_KERAS)
    for ending in FORMATS:
        path = FOLDER / f"m{number}{ending}"
        if ending == ".keras" and refused:
            try:
                model.save(path)
            except strata.Error as error:
                assert refused[0] in str(error) or len(refused) > 1, f"{name}: {error}"
            else:
                assert False, f"{name}: {refused} is written to {path}"
            continue
        model.save(path)
        back = strata.load(path)
        same(predictions_of(back, x), expected, f"{name} {ending}")
        assert losses_of(back) == losses_of(model), f"{name} {ending}: {losses_of(back)}, not {losses_of(model)}"
        again = FOLDER / f"again{ending}"
        back.save(again)
        same(predictions_of(strata.load(again), x), expected, f"{name} {ending} {ending}")
        n += 1
    source = FOLDER / f"m{number}.c"
    command = [COMMAND, "export", FOLDER / f"m{number}.strata", "--c", "--to", source]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{name}: {done.stderr}"
    exported.append((number, name, spec, x, expected))
    return n


def predictions_of_built(model, x):
    return side_by_side(model.predict(x), len(x))


def check_c():
    """Compiles all exported files into one library."""
    library = FOLDER / "libendings.so"
    environment = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    sources = [FOLDER / f"m{number}.c" for number, *_ in exported]
    compiler = [os.environ.get("CC", "cc"), "-std=c99", "-O0", "-w", "-shared", "-fPIC"]
    done = subprocess.run([*compiler, "-o", library, *sources, "-lm"], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    functions = ctypes.CDLL(str(library))
    for number, name, spec, x, expected in exported:
        model = strata.load(FOLDER / f"m{number}.strata")
        widths = [part.reshape(len(x), -1).shape[1] for part in
                  (lambda p: p.values() if isinstance(p, dict) else [p])(model.build(device="host").predict(x))]
        rows = []
        for row in x:
            outputs = [numpy.full(width, numpy.nan, "f4") for width in widths]
            getattr(functions, f"m{number}_predict")(
                *(a.ctypes.data_as(ctypes.c_void_p) for a in (numpy.ascontiguousarray(row), *outputs)))
            rows.append(numpy.concatenate(outputs))
        same(numpy.array(rows), expected, f"{name} in C")


# ---- the commands, for models without a loss and without a preprocessing ----------------------------------------------------
def command(*words, code=0):
    done = subprocess.run([COMMAND, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == code, f"{words}: {done.returncode}: {done.stderr}"
    return done.stdout if not code else done.stderr


def save(name, spec, *weights):
    """A file as strata convert makes it: without a loss, an optimizer and a preprocessing."""
    model = strata.Model.from_json(spec).build(device="host")
    if weights:
        model.set_weights([numpy.array(w, "f4") for w in weights])
    model.save(FOLDER / name)
    assert "loss" not in model.to_json() and "optimizer" not in model.to_json()
    return model, FOLDER / name


def numbers_of(answer, several):
    return [*answer["a"], answer["b"]] if several else answer["value"] if "value" in answer else answer["values"]


def answers(*words):
    return [json.loads(line) for line in command("predict", *words, "--json", "--device", "host").splitlines()]


def check_evaluate_plot_predict_and_train_prepare_data_alike():
    """The classes of rows far from 0 are computed by weights for the numbers as they are: all are right, unless a command
    standardises the rows."""
    x = (random.normal(size=(60, 3)) * [1, 5, 20] + [10, -30, 100]).astype("f4")
    y = ((x[:, 0] - 10) + (x[:, 2] - 100) / 20 > 0).astype("i4")
    numpy.savez(FOLDER / "d.npz", x=x, y=y), numpy.save(FOLDER / "x.npy", x)
    rows = [",".join([*(repr(float(v)) for v in row), str(label)]) for row, label in zip(x, y)]
    (FOLDER / "d.csv").write_text("a,b,c,y\n" + "\n".join(rows) + "\n")
    kernel, bias = 5 * numpy.array([[0, 1], [0, 0], [0, 0.05]]), [0, -75]
    yes = kernel[:, 1:] - kernel[:, :1], [bias[1] - bias[0]]
    for name, function, units, weights in (("softmax", "softmax", 2, (kernel, bias)), ("none", None, 2, (kernel, bias)),
                                           ("sigmoid", "sigmoid", 1, yes)):  # fmt: skip
        last = layer("dense", units=units, **({"activation": function} if function else {}))
        model, file = save(f"{name}.strata", sequential([3], [last]), *weights)
        expected = model.predict(x)
        for data in ("d.csv", "d.npz"):
            said = json.loads(command("evaluate", file, FOLDER / data, "--json", "--device", "host"))
            assert said["accuracy"] == 1 and said["examples"] == 60, said
            assert "60 examples, accuracy 100.00 %" in command("plot", file, "--confusion", FOLDER / data, "--device", "host")
        for given in (["x.npy"], ["d.npz"], ["d.csv", "--columns", "a,b,c"]):
            said = answers(file, FOLDER / given[0], *given[1:], *(["--probabilities"] if function else []))
            got = [one["probabilities"] if function else one["values"] for one in said]
            wanted = expected if units == 2 else numpy.concatenate([1 - expected, expected], 1)
            same(numpy.array(got), wanted.astype("f8").round(6) if function else wanted, f"{name} {given}")
            assert not function or [one["class"] for one in said] == y.tolist()
        # The first step of a training has the loss of the rows as they are, by the formula of the cross-entropy.
        p = expected[numpy.arange(60), y] if units == 2 else numpy.where(y, expected[:, 0], 1 - expected[:, 0])
        if not function:
            p = 1 / (1 + numpy.exp(expected[numpy.arange(60), 1 - y] - expected[numpy.arange(60), y]))
        for data in ("d.csv", "d.npz"):
            said = json.loads(command("evaluate", file, FOLDER / data, "--json", "--device", "host"))
            assert abs(said["loss"] + numpy.log(p.astype("f8")).mean()) < 1e-5, said
            trained = FOLDER / f"{name}.trained.strata"
            command("train", "--from", file, FOLDER / data, "--epochs", 1, "--save", trained, "--device", "host")
            assert json.loads(command("evaluate", trained, FOLDER / data, "--json", "--device", "host"))["accuracy"] > 0.95
    said = command("train", "--from", FOLDER / "softmax.strata", FOLDER / "d.csv", "--loss", "binary_crossentropy", code=2)
    assert "the model ends in softmax" in said, said


def check_commands_take_any_outputs():
    """One output, pictures, sequences and several outputs, without a loss: predict prints the numbers of the file."""
    several = [layer("dense", units=2, name="a", inputs=["x"]), layer("dense", units=1, name="b", inputs=["x"])]
    for name, spec, x in (
        ("one", sequential([4], [layer("dense", units=1)]), random.normal(size=(3, 4))),
        ("picture", sequential([4, 4, 2], [layer("conv2d", filters=2, kernel_size=3)]), random.normal(size=(3, 4, 4, 2))),
        ("sequence", sequential([3, 2], [layer("dense", units=2, activation="softmax")]), random.normal(size=(3, 3, 2))),
        ("several", functional([4], several, a=None, b=None), random.normal(size=(3, 4))),
    ):
        x, (model, file) = x.astype("f4"), save(f"{name}.strata", spec)
        numpy.save(FOLDER / "x.npy", x), numpy.savez(FOLDER / "x.npz", x=x)
        expected = side_by_side(model.predict(x), 3)
        said = answers(file, FOLDER / ("x.npz" if name == "several" else "x.npy"))
        got = [numbers_of(one, name == "several") for one in said]
        same(numpy.array(got, "f4").reshape(3, -1), expected, name)
        assert spec["layers"][-1]["layer"] in command("graph", file)
        assert "parameters" in command("summary", file, "--device", "host")
        same(numpy.array(served(file, x, name == "several"), "f4").reshape(3, -1), expected, f"serve {name}")


def served(file, x, several):
    """The numbers that serve sends for x."""
    server = subprocess.Popen([COMMAND, "serve", file, "--port", "0", "--device", "host"], stdout=subprocess.PIPE, text=True)
    try:
        address = re.search(r"http://[\d.:]+", server.stdout.readline()).group()
        body = json.dumps({"inputs": x.tolist()}).encode()
        request = urllib.request.Request(f"{address}/predict", body, {"Content-Type": "application/json"})
        found = json.load(urllib.request.urlopen(request, timeout=200))["predictions"]
    finally:
        server.terminate()
        server.wait()
    return [numbers_of(one, several) for one in found]


def check_all_layers_activations_and_losses_are_here():
    text = repr(list(models()))
    for kind in words_of("core/layer/layers.def", r"STRATA_LAYER\((\w+)\)"):
        assert f"'layer': '{kind}'" in text, kind


chosen = [(number, name, spec) for number, (name, spec) in enumerate(models()) if WORD in name]
if not has_hdf5():
    FORMATS.remove(".keras")
    print("without .keras: there is no libhdf5 (libhdf5-dev)")
checks = {name: (lambda number=number, name=name, spec=spec: check(number, name, spec)) for number, name, spec in chosen}
assert len(checks) == len(chosen), "two models have one name"
run({"all layers, activations and losses are here": check_all_layers_activations_and_losses_are_here, **checks,
     "all of them in C": check_c, **{f.__name__: f for f in (
         check_evaluate_plot_predict_and_train_prepare_data_alike, check_commands_take_any_outputs)}})
