#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Models as .keras files: written, read back, refused; and later what Keras made of them (keras_load.py).

usage: keras_files.py FOLDER write    writes NAME.keras, NAME.x.npz (inputs) and NAME.y.npz (what predict gives)
       keras_files.py FOLDER read     reads what Keras saved again, and what Keras made itself"""

import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import zipfile

import numpy

SOURCE = pathlib.Path(os.environ["STRATA_SOURCE_DIR"])
COMMAND = os.path.join(os.environ["STRATA_BUILD_DIR"], "strata")
sys.path.insert(0, str(SOURCE / "include" / "python"))
import checks  # noqa: E402
import strata  # noqa: E402

FOLDER = pathlib.Path(sys.argv[1])
TO = ("--device", "host", "--to", FOLDER / "out.csv")
random = numpy.random.default_rng(0)


# ---- helpers ---------------------------------------------------------------------------------------------------------------
def run(*arguments, **options):
    return subprocess.run([COMMAND, *map(str, arguments)], capture_output=True, text=True, **options)


def convert(source, target, fails=None):
    """Runs the command; with `fails` it must fail, with these words on stderr, and leave no file."""
    done = run("convert", source, target)
    if fails is None:
        assert done.returncode == 0, done.stderr
    else:
        assert 0 < done.returncode < 128, f"exit code {done.returncode} for {source}"
        for words in [fails] if isinstance(fails, str) else fails:
            assert words in done.stderr, f"{words!r} is not in {done.stderr!r}"
        assert not pathlib.Path(target).exists()
    return target


def compiled(model):
    text = json.loads(model.to_json())
    if "loss" in text or any("loss" in output for output in text.get("outputs", [])):
        return model.compile(device="host", seed=3) or model
    return model.compile(device="host", loss="mse", seed=3) or model


def inputs_of(model, n=4):
    text = json.loads(model.to_json())
    given = text.get("inputs") or [{"name": "x", "shape": text["input"], "dtype": text.get("input_dtype", "f32")}]
    out = {}
    for one in given:
        shape = (n, *one["shape"])
        if one.get("dtype") == "i32":
            out[one["name"]] = random.integers(1, 12, size=shape).astype("i4")
            out[one["name"]][0, shape[1] // 2 :] = 0  # padding, where it is left out
        else:
            out[one["name"]] = random.normal(size=shape).astype("f4")
    return out


def predict(model, inputs):
    """A list with each output's numbers."""
    y = model.predict(inputs if len(inputs) > 1 else next(iter(inputs.values())))
    if isinstance(y, dict):
        return list(y.values())
    return list(y) if isinstance(y, (list, tuple)) else [y]


def disturb(model):
    """Parameters and states that are not what they begin as: means of 0, scales of 1."""
    model.set_weights([v + random.normal(size=v.shape).astype("f4") * 0.1 + 0.05 for v in model.get_weights()])


def there_and_back(name, model):
    """Writes a model with its predictions; what is read back has the same bits."""
    disturb(compiled(model))
    inputs = inputs_of(model)
    expected = predict(model, inputs)
    model.save(FOLDER / f"{name}.strata")
    convert(FOLDER / f"{name}.strata", FOLDER / f"{name}.keras")
    numpy.savez(FOLDER / f"{name}.x.npz", *inputs.values())
    numpy.savez(FOLDER / f"{name}.y.npz", *expected)
    back = compiled(strata.load(convert(FOLDER / f"{name}.keras", FOLDER / f"{name}.back.strata")))
    again = predict(back, inputs)
    assert len(again) == len(expected)
    for a, b in zip(again, expected):
        assert a.tobytes() == b.tobytes(), f"{name}: what was read back predicts other numbers"
    again = FOLDER / f"{name}.again.keras"
    model.save(again)
    assert again.read_bytes() == (FOLDER / f"{name}.keras").read_bytes(), f"{name}: two files of one model differ"
    again.unlink()
    return back


def chain(shape, *layers, loss="mse", dtype=None):
    text = {"input": shape, "layers": list(layers), "loss": loss}
    if dtype:
        text["input_dtype"] = dtype
    return strata.Model.from_json(text)


def layer(kind, **options):
    return {"layer": kind, **options}


# ---- models ----------------------------------------------------------------------------------------------------------------
def check_samples():
    paths = sorted((SOURCE / "samples").glob("*/model.json"))
    assert len(paths) >= 8
    for path in paths:
        model = strata.Model.read_json(path)
        back = there_and_back(path.parent.name, model)
        before, after = json.loads(model.to_json()), json.loads(back.to_json())
        assert after["label"] == before["label"]
        assert after.get("loss", after.get("outputs", [{}])[0].get("loss")) == before["loss"]
        if "input" in after:
            layers = [{k: v for k, v in one.items() if not k.endswith("_initializer")} for one in before["layers"]]
            if "crossentropy" in before["loss"]:  # Keras' model ends in what the loss applies to logits
                layers[-1]["activation"] = "sigmoid" if "binary" in before["loss"] else "softmax"
            assert after["layers"] == layers, path


IMAGE, SEQUENCE, FUNCTIONS = [9, 8, 4], [10, 4], "relu tanh sigmoid softmax gelu silu leaky_relu elu softplus softsign".split()
CHAINS = {
    "conv": (
        IMAGE,
        [
            layer("conv2d", filters=6, kernel_size=3, groups=2, activation="gelu", kernel_l1=1e-3, kernel_l2=1e-4),
            layer("conv2d", filters=4, kernel_size=[3, 2], dilation=[2, 1], padding="same", no_bias=True, activation="silu"),
            layer("batch_norm", activation="elu"),
            layer("conv2d", filters=5, kernel_size=3, stride=2, padding="same"),
            layer("batch_norm", no_average=True),
            layer("batch_norm", momentum=0.9, epsilon=1e-4),
            layer("global_average_pool"),
            layer("dense", units=3, activation="leaky_relu"),
        ],
    ),
    "depthwise": (
        IMAGE,
        [
            layer("depthwise_conv2d", kernel_size=3, depth_multiplier=2, padding="same", activation="softplus"),
            layer("separable_conv2d", filters=6, kernel_size=[3, 3], depth_multiplier=2, stride=2, padding="same"),
            layer("group_norm", groups=3),
            layer("avg_pool2d", size=2, stride=1, padding="same"),
            layer("group_norm", groups=-1),
            layer("max_pool2d", size=[2, 2]),
            layer("flatten"),
            layer("reshape", shape=[2, -1]),
            layer("rms_norm"),
        ],
    ),
    "transposed": (
        IMAGE,
        [
            layer("conv2d_transpose", filters=5, kernel_size=3, stride=2, padding="same", activation="softsign"),
            layer("conv2d_transpose", filters=3, kernel_size=3, stride=2, output_padding=1, no_bias=True),
            layer("global_max_pool"),
        ],
    ),
    "sequence": (
        SEQUENCE,
        [
            layer("conv1d", filters=6, kernel_size=3, dilation=2, groups=2, padding="same", activation="tanh"),
            layer("max_pool1d", size=2, stride=1),
            layer("avg_pool1d", size=2, padding="same"),
            layer("layer_norm", epsilon=1e-5),
            layer("dropout", rate=0.5),
            layer("lstm", units=5, return_sequences=True, dropout=0.1, no_unit_forget_bias=True),
            layer("gru", units=4, return_sequences=True, go_backwards=True, recurrent_activation="relu"),
            layer("gru", units=4, return_sequences=True, no_reset_after=True, no_bias=True, recurrent_dropout=0.2),
            layer("lstm", units=3, activation="linear", no_bias=True),
            layer("dense", units=1),
        ],
        "binary_crossentropy",
    ),
    "both": (
        SEQUENCE,
        [
            layer("lstm", units=3, return_sequences=True, bidirectional="concat"),
            layer("gru", units=6, return_sequences=True, bidirectional="sum"),
            layer("dense", units=4),
            layer("lstm", units=2, return_sequences=True, bidirectional="mul"),
            layer("gru", units=3, bidirectional="ave", no_reset_after=True),
            layer("dense", units=3),
        ],
        "categorical_crossentropy",
    ),
    "attention": (
        SEQUENCE,
        [
            layer("multi_head_attention", heads=2),
            layer("multi_head_attention", heads=3, key_dim=5, causal=True, no_bias=True),
            layer("global_average_pool"),
            layer("dense", units=3, activation="relu"),
        ],
        "sparse_categorical_crossentropy",
    ),
    "residual": (
        SEQUENCE,
        [
            layer("dense", units=4),
            layer(
                "residual",
                activation="relu",
                layers=[
                    layer("dense", units=6),
                    layer("residual", layers=[layer("dense", units=5), layer("dense", units=6)]),
                    layer("dense", units=3),
                ],
                shortcut=[layer("dense", units=3)],
            ),
            layer("dense", units=2),
            layer("flatten"),
            layer("dense", units=3, activation="softmax"),
        ],
    ),
    "functions": (SEQUENCE, [part for f in FUNCTIONS for part in (layer("activation", function=f), layer("dense", units=4))]),
    "ends with softmax": (
        SEQUENCE,
        [layer("flatten"), layer("dense", units=3), layer("batch_norm")],
        "sparse_categorical_crossentropy",
    ),
    "ends with two": (
        SEQUENCE,
        [layer("flatten"), layer("dense", units=3, activation="softmax")],
        "sparse_categorical_crossentropy",
    ),
    "ends with sigmoid": (SEQUENCE, [layer("flatten"), layer("dense", units=2, activation="sigmoid")], "mse"),
}


def check_layers():
    for name, (shape, layers, *loss) in CHAINS.items():
        there_and_back(name, chain(shape, *layers, loss=loss[0] if loss else "mse"))


def check_an_average_that_is_switched_off_stays_so():
    back = there_and_back("no average", chain([4], layer("batch_norm", no_average=True), layer("dense", units=2)))
    assert '"momentum":0' in back.to_json(), back.to_json()


def check_padding():
    embedding = layer("embedding", vocabulary=12, units=4, mask_zero=True)
    for name, rest in {
        "padding mean": [layer("dense", units=3, activation="relu"), layer("dropout", rate=0.1), layer("global_average_pool")],
        "padding recurrent": [layer("lstm", units=3, return_sequences=True), layer("layer_norm"), layer("gru", units=2)],
        "padding both": [layer("lstm", units=3, bidirectional="concat", return_sequences=True), layer("global_average_pool")],
        "padding attention": [layer("multi_head_attention", heads=2), layer("layer_norm"), layer("global_average_pool")],
        "padding conv": [layer("conv1d", filters=3, kernel_size=2), layer("global_max_pool"), layer("dense", units=2)],
        "padding flatten": [layer("dense", units=2), layer("flatten"), layer("dense", units=2)],
        "padding residual": [layer("residual", layers=[layer("dense", units=4)]), layer("global_average_pool")],
    }.items():
        there_and_back(name, chain([6], embedding, *rest, dtype="i32"))
    there_and_back("padding sum", strata.Model.from_json({
        "inputs": [{"name": "words", "shape": [6], "dtype": "i32"}],
        "layers": [
            layer("embedding", vocabulary=12, units=4, mask_zero=True, name="e", inputs=["words"]),
            layer("dense", units=4, name="d", inputs=["e"]), layer("add", name="s", inputs=["e", "d"]),
            layer("lstm", units=4, return_sequences=True, name="l", inputs=["s"]),
            layer("multiply", name="m", inputs=["l", "s"]), layer("gru", units=3, name="y", inputs=["m"])],
        "outputs": [{"name": "y", "loss": "mse"}],
    }))  # fmt: skip
    for rest in ([layer("global_max_pool")], [layer("rms_norm"), layer("global_average_pool")]):
        compiled(model := chain([6], embedding, *rest, dtype="i32")).save(FOLDER / "refused.strata")
        kind = json.loads(model.to_json())["layers"][1]["layer"]
        convert(
            FOLDER / "refused.strata", FOLDER / "refused.keras", fails=f"{kind} ({kind}): behind an embedding with mask_zero"
        )


def check_softmax_has_its_axis():
    """Keras writes no build_config for a Softmax, which has no weights."""
    compiled(chain([3, 2], layer("dense", units=2), layer("activation", function="softmax"))).save(FOLDER / "axis.keras")
    with zipfile.ZipFile(FOLDER / "axis.keras") as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    refused = "config.axis: is not what a layer here has: -1"
    for axis, inbound, fails in ((-1, [], None), (1, [], refused), (2, [], refused), ([1, 2], [], refused),
                                 (1, [None, 3, 2], refused), (2, [None, 3, 2], None)):  # fmt: skip
        config = json.loads(files["config.json"])
        last = config["config"]["layers"][-1]
        last.update(class_name="Softmax", config={"name": last["config"]["name"], "axis": axis})
        last.pop("build_config", None)
        if inbound:
            last["inbound_nodes"] = [{"args": [{"class_name": "__keras_tensor__", "config": {"shape": inbound}}]}]
        with zipfile.ZipFile(FOLDER / "axis.keras", "w") as archive:
            for name, content in files.items():
                archive.writestr(name, json.dumps(config) if name == "config.json" else content)
        target = FOLDER / "axis.strata"
        target.unlink(missing_ok=True)
        convert(FOLDER / "axis.keras", target, fails)
    (FOLDER / "axis.keras").unlink()


def check_calls():
    there_and_back("several", strata.Model.from_json({
        "inputs": [{"name": "left", "shape": [5]}, {"name": "right", "shape": [5]},
                   {"name": "words", "shape": [3], "dtype": "i32"}],
        "layers": [
            layer("dense", units=4, name="side", inputs=["left"]),
            {"call": "side", "name": "other side", "inputs": ["right"]},
            layer("embedding", vocabulary=12, units=4, name="table", inputs=["words"]),
            layer("reshape", shape=[1, 4], name="row", inputs=["other side"]),
            layer("concat", axis=1, name="rows", inputs=["table", "row"]),
            layer("global_average_pool", name="mean", inputs=["rows"]),
            layer("multiply", name="both", inputs=["side", "mean"]),
            layer("concat", name="all", inputs=["both", "side", "other side"]),
            layer("batch_norm", name="norm", activation="relu", inputs=["all"]),
            {"call": "norm", "name": "norm again", "inputs": ["norm"]},
            layer("dense", units=3, name="class", inputs=["norm again"]),
            layer("dense", units=1, name="yes", inputs=["class"]),
            layer("dense", units=2, name="number", inputs=["both"]),
        ],
        "outputs": [{"name": "class", "loss": "sparse_categorical_crossentropy"},
                    {"name": "yes", "loss": "binary_crossentropy"},
                    {"name": "number", "loss": "mse", "weight": 0.5}],
    }))  # fmt: skip


def check_groups_of_weights_have_keras_order():
    """Nets of layers of one class, whose weights fit each other's places: only their order tells them apart."""
    for k in range(24):
        layers, values, unused = [], ["x"], set()
        for i in range(12):
            taken = [values[j] for j in random.integers(max(0, len(values) - 4), len(values), size=2)]
            name = f"v{i}"
            if i > 2 and random.random() < 0.35 and taken[0] != taken[1]:
                layers.append(layer("add", name=name, inputs=taken))
            elif i > 2 and random.random() < 0.2:
                shared = [one["name"] for one in layers if one.get("layer") == "dense"]
                layers.append({"call": shared[random.integers(len(shared))], "name": name, "inputs": taken[:1]})
            else:
                layers.append(layer("dense", units=4, activation="tanh", name=name, inputs=taken[:1]))
            unused = (unused | {name}) - set(layers[-1]["inputs"])
            values.append(name)
        ends = sorted(unused)
        random.shuffle(ends)
        there_and_back(f"order{k}", strata.Model.from_json({
            "inputs": [{"name": "x", "shape": [4]}], "layers": layers,
            "outputs": [{"name": end, "loss": "mse"} for end in ends[:8]],
        }) if len(ends) <= 8 else chain([4], layer("dense", units=4)))  # fmt: skip


# ---- data of one's own -----------------------------------------------------------------------------------------------------
def train(name, data, *options):
    done = run("train", data, "--epochs", "1", "--device", "host", "--save", FOLDER / f"{name}.strata", *options)
    assert done.returncode == 0, done.stderr


def check_tables():
    numbers = random.normal(size=(60, 3)) * [3, 100, 0.01] + [1, -500, 7]
    for name, labels in (("table classes", None), ("table number", numbers[:, 0] * 40 + numbers[:, 1] + 1000)):
        rows = ["a,b,c,label"]
        for i, row in enumerate(numbers):
            rows.append(
                ",".join(f"{v:.6g}" for v in row) + "," + (("yes", "no")[i % 2] if labels is None else f"{labels[i]:.6g}")
            )
        (FOLDER / f"{name}.csv").write_text("\n".join(rows))
        train(name, FOLDER / f"{name}.csv")
        (FOLDER / "new.csv").write_text("\n".join(r.rsplit(",", 1)[0] for r in rows))
        options = ["--probabilities"] if labels is None else []
        done = run("predict", FOLDER / f"{name}.strata", FOLDER / "new.csv", *TO, *options)
        assert done.returncode == 0, done.stderr
        given = [line.split(",") for line in (FOLDER / "out.csv").read_text().splitlines()[1:]]
        expected = numpy.array([[float(v) for v in line if v not in ("yes", "no")] for line in given], "f4")
        x = numpy.array([[float(v) for v in r.split(",")[:3]] for r in rows[1:]], "f4")
        numpy.savez(FOLDER / f"{name}.x.npz", x)
        numpy.savez(FOLDER / f"{name}.y.npz", expected[:, -2:] if labels is None else expected[:, -1:])
        convert(FOLDER / f"{name}.strata", FOLDER / f"{name}.keras")
        back = convert(FOLDER / f"{name}.keras", FOLDER / f"{name}.back.strata")
        first = (FOLDER / "out.csv").read_bytes()
        done = run("predict", back, FOLDER / "new.csv", *TO, *options)
        assert done.returncode == 0 and (FOLDER / "out.csv").read_bytes() == first, done.stderr
    (FOLDER / "mixed.csv").write_text("size,colour,day,label\n" + "".join(
        f"{'' if i == 3 else i},{('red', 'green')[i % 2]},2024-01-{1 + i % 28:02},{i % 3}\n" for i in range(60)))  # fmt: skip
    train("mixed", FOLDER / "mixed.csv")
    convert(FOLDER / "mixed.strata", FOLDER / "mixed.keras", fails=[
        "the column (size): numbers, some of which are missing", "the column (colour): words",
        "the column (day): dates"])  # fmt: skip


def check_arrays():
    x = (random.normal(size=(40, 6, 3)) * 20 + 90).astype("f4")
    y = (numpy.arange(40) % 2).astype("i4")
    numpy.savez(FOLDER / "arrays.npz", x=x, y=y)
    train("arrays", FOLDER / "arrays.npz")
    numpy.save(FOLDER / "arrays.x.npy", x)
    done = run(
        "predict",
        FOLDER / "arrays.strata",
        FOLDER / "arrays.x.npy",
        "--device",
        "host",
        "--to",
        FOLDER / "out.csv",
        "--probabilities",
    )
    assert done.returncode == 0, done.stderr
    rows = [line.split(",") for line in (FOLDER / "out.csv").read_text().splitlines()[1:]]
    numpy.savez(FOLDER / "arrays.x.npz", x)
    numpy.savez(FOLDER / "arrays.y.npz", numpy.array([[float(v) for v in row[-2:]] for row in rows], "f4"))
    convert(FOLDER / "arrays.strata", FOLDER / "arrays.keras")
    convert(FOLDER / "arrays.keras", FOLDER / "arrays.back.strata")


# ---- what is refused -------------------------------------------------------------------------------------------------------
def check_all_that_has_no_counterpart_is_named():
    edge = layer("conv2d", filters=2, kernel_size=3, padding="explicit", explicit_padding=[1, 1, 0, 2], name="edge")
    model = chain([8, 8, 2], edge,
                  layer("group_norm", groups=1, no_center=True), layer("activation", function="gelu_tanh"),
                  layer("op", op="exp", name="power"), layer("flatten"), layer("dense", units=2))  # fmt: skip
    compiled(model).save(FOLDER / "refused.strata")
    convert(FOLDER / "refused.strata", FOLDER / "refused.keras", fails=[
        "conv2d (edge): padding explicit", "group_norm (group_norm): no_center", "activation (activation): function gelu_tanh",
        "op (power)"])  # fmt: skip


def check_a_full_disk_leaves_the_old_file():
    def little():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))

    (FOLDER / "full.keras").write_text("old")
    before = sorted(os.listdir(FOLDER))
    done = run("convert", FOLDER / "mnist.strata", FOLDER / "full.keras", preexec_fn=little)
    assert done.returncode and "full.keras" in done.stderr and "make room" in done.stderr, done.stderr
    assert (FOLDER / "full.keras").read_text() == "old" and sorted(os.listdir(FOLDER)) == before
    (FOLDER / "full.keras").unlink()


def check_the_archive_is_in_order():
    with zipfile.ZipFile(FOLDER / "mnist.keras") as archive:
        assert archive.testzip() is None and archive.namelist() == ["metadata.json", "config.json", "model.weights.h5"]
        assert json.loads(archive.read("config.json"))["registered_name"] == "Sequential"


# ---- what Keras saved ------------------------------------------------------------------------------------------------------
def check_read_what_keras_saved():
    paths = sorted(FOLDER.glob("*.saved.keras"))
    assert len(paths) > 40, paths
    for path in paths:
        name = path.name[: -len(".saved.keras")]
        y = numpy.load(FOLDER / f"{name}.y.npz")
        model = compiled(strata.load(convert(path, FOLDER / f"{name}.saved.strata")))
        inputs = numpy.load(FOLDER / f"{name}.x.npz")
        names = [one["name"] for one in json.loads(model.to_json()).get("inputs", [{"name": "x"}])]
        found = predict(model, {name: inputs[k] for name, k in zip(names, inputs.files, strict=True)})
        for a, k in zip(found, y.files, strict=True):
            worst = numpy.max(numpy.abs(a.reshape(-1) - y[k].reshape(-1)) / numpy.maximum(1, numpy.abs(y[k].reshape(-1))))
            assert worst <= 1e-5, f"{path.name}: they differ by {worst}"


def main():
    reads = sys.argv[2] == "read"
    checks.run({n: check for n, check in globals().items() if n.startswith("check_") and n.startswith("check_read") == reads})


if __name__ == "__main__":
    main()
