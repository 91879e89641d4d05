#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Models exported to C: each is compiled with warnings as errors, as C and as C++, and compared with predict.

usage: c_export.py FOLDER [WORD]    a folder for the files that are written; only checks with the word in their name

CC and CXX are the compilers (cc, c++). Each check is a function called check_...; a failed one is shown, and the exit code is 1
then."""

import ctypes
import json
import os
import pathlib
import shutil
import subprocess
import sys
import traceback

import numpy

SOURCE = pathlib.Path(os.environ["STRATA_SOURCE_DIR"])
COMMAND = os.path.join(os.environ["STRATA_BUILD_DIR"], "strata")
sys.path.insert(0, str(SOURCE / "include" / "python"))
import strata  # noqa: E402

FOLDER = pathlib.Path(sys.argv[1])
CC = os.environ.get("CC", "cc")
WARNINGS = ["-Wall", "-Wextra", "-Werror", "-pedantic"]
random = numpy.random.default_rng(0)
worst = 0.0


# ---- helpers ---------------------------------------------------------------------------------------------------------------
def run(*command, fails=None):
    # The compilers are programs of their own: a sanitizer's runtime of the library is not theirs.
    environment = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, env=environment)
    if fails is None:
        assert done.returncode == 0, f"{command}: {done.stderr}"
    else:
        assert 0 < done.returncode < 128 and fails in done.stderr, f"{fails!r} is not in {done.stderr!r}"
    return done.stdout


def export(model_file, name, *options, fails=None):
    target = FOLDER / f"{name}.c"
    target.unlink(missing_ok=True)
    run(COMMAND, "export", model_file, "--c", "--to", target, *options, fails=fails)
    assert target.exists() == (fails is None)
    return target


def compile_as(source, name, all_compilers=True):
    """The library for ctypes; and all compilers that are here accept the file as C99, C11 and C++."""
    library = FOLDER / f"lib{name}.so"
    run(CC, "-std=c99", "-O2", *WARNINGS, "-shared", "-fPIC", "-o", library, source, "-lm")
    for compiler, flags in (("gcc", "-std=c11"), ("clang", "-std=c99"), ("c++", "-xc++"), ("clang++", "-xc++")):
        if all_compilers and shutil.which(compiler):
            run(compiler, flags, *WARNINGS, "-fsyntax-only", source)
    return ctypes.CDLL(str(library))


def pointer(array):
    return array.ctypes.data_as(ctypes.c_void_p)


def same(a, b, what):
    global worst
    a, b = numpy.asarray(a).reshape(-1), numpy.asarray(b).reshape(-1)
    assert a.shape == b.shape, f"{what}: {a.shape} and {b.shape}"
    difference = float(numpy.max(numpy.abs(a - b) / numpy.maximum(1, numpy.abs(b))))
    assert difference <= 1e-5, f"{what}: they differ by {difference}"
    worst = max(worst, difference)


def predict_by_c(library, name, inputs, widths):
    """inputs: an array for each input of the model, whose axis 0 are examples. Returns the outputs side by side, as predict."""
    function = getattr(library, f"{name}_predict")
    rows = []
    for i in range(len(inputs[0])):
        outputs = [numpy.full(width, numpy.nan, "f4") for width in widths]
        function(*(pointer(numpy.ascontiguousarray(x[i])) for x in inputs), *map(pointer, outputs))
        rows.append(numpy.concatenate(outputs))
    return numpy.array(rows)


def sanitized(source, name, inputs, widths):
    """The file with both sanitizers, in a program that calls it with each example."""
    main = FOLDER / f"{name}_main.c"
    text = [f'#include "{source.name}"', "#include <stdio.h>", "#include <stdlib.h>", "int main(void) {"]
    names = []
    for i, x in enumerate(inputs):
        kind = "float" if x.dtype.kind == "f" else "int32_t"
        values = ", ".join(repr(float(v)) + "f" if kind == "float" else str(int(v)) for v in x[0].reshape(-1))
        text += [f"    {kind} *x{i} = malloc({x[0].size} * sizeof *x{i});", f"    static const {kind} v{i}[] = {{{values}}};"]
        text += [f"    memcpy(x{i}, v{i}, sizeof v{i});"]
        names.append(f"x{i}")
    for i, width in enumerate(widths):
        text += [f"    float *y{i} = malloc({width} * sizeof *y{i});"]
        names.append(f"y{i}")
    text += [f"    {name}_memory *memory = malloc(sizeof *memory);"]
    text += [f"    for (int i = 0; i < 2; i++) {name}_predict_in({', '.join(names)}, memory);"]
    for i, width in enumerate(widths):
        text += [f'    for (int i = 0; i < {width}; i++) printf("%.9g\\n", y{i}[i]);']
    text += [f"    {''.join(f'free({n}); ' for n in names)}free(memory);", "    return 0;", "}"]
    main.write_text("\n".join(text))
    program = FOLDER / f"{name}_main"
    run(CC, "-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-o", program, main, "-lm")
    return numpy.array([float(line) for line in run(program).split()], "f4")


def compare(model_file, name, inputs, widths, sanitize=True, names=None):
    model = strata.load(model_file)
    model.compile(device="host") if '"loss"' in model.to_json() else model.compile(device="host", loss="mse")
    source = export(model_file, name)
    data = strata.data.dataset(dict(zip(names, inputs))) if names else strata.data.dataset(inputs[0])
    parts = strata._native.predict_all(model, data, 0, len(widths)) if len(widths) > 1 else [model.predict(data)]
    expected = numpy.concatenate([numpy.asarray(part).reshape(len(inputs[0]), -1) for part in parts], 1)
    same(predict_by_c(compile_as(source, name, sanitize), name, inputs, widths), expected, name)
    if sanitize:  # small files: the others are the same loops with more numbers
        same(sanitized(source, name, inputs, widths), expected[0], f"{name} with sanitizers")
    return source


def example(shape, tokens, n=3):
    return random.integers(0, tokens, size=(n, *shape)).astype("i4") if tokens else random.normal(size=(n, *shape)).astype("f4")


def made(description, name, seed=3, scale=0):
    """scale: the parameters get random numbers of this size, so that each layer contributes to what predict gives."""
    model = strata.Model.from_json(description) if isinstance(description, dict) else strata.Model.read_json(description)
    model.compile(device="host", seed=seed)
    if scale:
        model.set_weights([random.normal(size=v.shape).astype("f4") * scale for v in model.get_weights()])
    model.save(FOLDER / f"{name}.strata")
    return FOLDER / f"{name}.strata"


# ---- checks ----------------------------------------------------------------------------------------------------------------
def check_every_sample():
    paths = sorted((SOURCE / "samples").glob("*/model.json"))
    assert len(paths) >= 8, paths
    for path in paths:
        name = path.parent.name
        description = json.loads(path.read_text())
        file = made(path, name)
        shape, width = description["input"], json.loads(path.read_text())["layers"][-1]["units"]
        first = description["layers"][0]
        x = example(shape, first["vocabulary"] if first["layer"] == "embedding" else 0)
        compare(file, name, [x], [width], sanitize=name in ("linear", "regression"))


def check_every_layer():
    images = [
        {"layer": "conv2d_transpose", "filters": 4, "kernel_size": 3, "stride": 2, "padding": "same", "output_padding": 1},
        {"layer": "depthwise_conv2d", "kernel_size": 3, "depth_multiplier": 2, "padding": "same", "activation": "silu"},
        {"layer": "separable_conv2d", "filters": 4, "kernel_size": 3, "stride": 2, "activation": "gelu"},
        {"layer": "conv2d", "filters": 6, "kernel_size": 3, "groups": 2, "padding": "same", "stride": 2, "activation": "elu"},
        {"layer": "avg_pool2d", "size": 3, "stride": 1, "padding": "same"},
        {"layer": "max_pool2d", "size": 3, "stride": 2, "padding": "same"},
        {"layer": "group_norm", "groups": 3},
        {"layer": "activation", "function": "gelu_tanh"},
        {"layer": "rms_norm"},
        {"layer": "residual", "activation": "softsign", "layers": [{"layer": "dense", "units": 6}]},
        {"layer": "batch_norm", "activation": "softmax"},
        {"layer": "global_max_pool"},
        {"layer": "dense", "units": 3, "activation": "leaky_relu"},
    ]
    steps = [
        {"layer": "conv1d", "filters": 8, "kernel_size": 3, "padding": "same", "dilation": 2, "activation": "tanh"},
        {"layer": "multi_head_attention", "heads": 2, "causal": True},
        {"layer": "layer_norm"},
        {"layer": "lstm", "units": 4, "return_sequences": True, "bidirectional": "concat"},
        {"layer": "max_pool1d", "size": 2},
        {"layer": "gru", "units": 3, "activation": "relu", "return_sequences": True},
        {"layer": "gru", "units": 4, "no_reset_after": True, "return_sequences": True, "bidirectional": "sum"},
        {"layer": "gru", "units": 3, "go_backwards": True},
        {"layer": "reshape", "shape": [3, 1]},
        {"layer": "flatten"},
        {"layer": "dropout", "rate": 0.5},
        {"layer": "print", "every": 3},
        {"layer": "dense", "units": 2, "activation": "softplus"},
    ]
    for loss in ("mse", "categorical_crossentropy"):
        for name, shape, layers, width in (("images", [8, 8, 3], images, 3), ("steps", [6, 5], steps, 2)):
            name = f"{name}_{loss[0]}"
            file = made({"input": shape, "layers": layers, "loss": loss}, name, seed=1)
            compare(file, name, [example(shape, 0)], [width], sanitize=loss == "mse")


def check_padding_of_texts_is_left_out():
    layers = [
        {"layer": "embedding", "vocabulary": 12, "units": 4, "mask_zero": True},
        {"layer": "lstm", "units": 3, "return_sequences": True},
        {"layer": "gru", "units": 3, "return_sequences": True},
        {"layer": "gru", "units": 4, "return_sequences": True, "no_reset_after": True},
        {"layer": "multi_head_attention", "heads": 1},
        {"layer": "global_average_pool"},
        {"layer": "dense", "units": 1},
    ]
    file = made({"input": [7], "input_dtype": "i32", "layers": layers, "loss": "binary_crossentropy"}, "masked", scale=1)
    tokens = example([7], 12)
    tokens[:, 4:] = 0
    tokens[0] = 0
    compare(file, "masked", [tokens], [1])


def check_casts_to_integers_are_limited():
    description = {
        "inputs": [{"name": "x", "shape": [5]}],
        "layers": [
            {"layer": "dense", "units": 1, "name": "d", "inputs": ["x"]},
            {"layer": "op", "op": "cast", "dtype": "i64", "name": "i64", "inputs": ["x"]},
            {"layer": "op", "op": "cast", "dtype": "i32", "name": "i32", "inputs": ["i64"]},
            {"layer": "op", "op": "cast", "dtype": "u8", "name": "u8", "inputs": ["x"]},
            {"layer": "op", "op": "cast", "dtype": "i32", "name": "own", "inputs": ["x"]},
            {"layer": "op", "op": "cast", "dtype": "f32", "name": "a", "inputs": ["i32"]},
            {"layer": "op", "op": "cast", "dtype": "f32", "name": "b", "inputs": ["u8"]},
            {"layer": "op", "op": "cast", "dtype": "f32", "name": "c", "inputs": ["own"]},
            {"layer": "concat", "name": "y", "inputs": ["a", "b", "c", "d"]},
        ],
        "outputs": [{"name": "y", "loss": "mse"}],
    }
    file = made(description, "casts")
    compare(file, "casts", [numpy.array([[1e10, -1e10, 3.7, -2.5, 300], [1e30, -1e30, 0, 255, 256]], "f4")], [16])


def check_several_inputs_and_outputs():
    description = {
        "inputs": [{"name": "for", "shape": [5], "dtype": "i32"}, {"name": "right.one", "shape": [4]}],
        "layers": [
            {"layer": "embedding", "vocabulary": 9, "units": 4, "inputs": ["for"]},
            {"layer": "global_max_pool", "name": "most"},
            {"layer": "dense", "name": "side", "units": 4, "inputs": ["right.one"]},
            {"layer": "add", "name": "sum", "inputs": ["side", "most"]},
            {"layer": "multiply", "name": "product", "inputs": ["side", "most", "sum"]},
            {"layer": "concat", "name": "all", "inputs": ["sum", "product"]},
            {"layer": "dense", "name": "kind", "units": 3, "inputs": ["all"]},
            {"layer": "dense", "name": "size", "units": 1, "inputs": ["all"]},
        ],
        "outputs": [{"name": "kind", "loss": "sparse_categorical_crossentropy"}, {"name": "size", "loss": "mse"}],
    }
    compare(made(description, "several"), "several", [example([5], 9), example([4], 0)], [3, 1],
            names=["for", "right.one"])


def check_a_table_with_its_columns():
    """Numbers with missing ones, words, dates and classes of one's own: the row as it is becomes the same probabilities."""
    rows, names = [], ("small", "large")
    for i in range(160):
        size, kind = float(random.normal(3, 2)), ["red", 'a "b"?', "", "gr\u00fcn"][int(random.integers(4))]
        day = 18000 + int(random.integers(900))
        date = numpy.datetime64(day, "D")
        rows.append((size, kind, str(date), day, names[int(size + (kind == "red") > 3)]))
    table = FOLDER / "table.csv"
    table.write_text(
        "the size,kind,when,class\n"
        + "".join(
            f"{'' if i % 9 == 4 else repr(s)},{chr(34) + k.replace(chr(34), chr(34) * 2) + chr(34)},{d},{c}\n"
            for i, (s, k, d, _, c) in enumerate(rows)
        )
    )
    file = FOLDER / "table.strata"
    run(COMMAND, "train", table, "--device", "host", "--epochs", "5", "--save", file)
    answers = FOLDER / "table.json"
    run(COMMAND, "predict", file, table, "--device", "host", "--probabilities", "--to", answers)
    expected = [json.loads(line) for line in answers.read_text().splitlines()]
    library = compile_as(export(file, "table"), "table")
    library.table_class.restype = ctypes.c_char_p
    classes = [library.table_class(i) for i in range(3)]
    assert classes[2] is None and set(classes[:2]) == {b"small", b"large"}, classes

    class Row(ctypes.Structure):
        _fields_ = [("size", ctypes.c_double), ("kind", ctypes.c_char_p), ("when", ctypes.c_double)]

    width = strata.load(file).input_shape[0] if hasattr(strata.load(file), "input_shape") else 64
    for i, (size, kind, _, day, _) in enumerate(rows):
        row = Row(numpy.nan if i % 9 == 4 else size, kind.encode() or None, day)
        x, y = numpy.zeros(max(width, 64), "f4"), numpy.zeros(2, "f4")
        library.table_features(ctypes.byref(row), pointer(x))
        library.table_predict(pointer(x), pointer(y))
        same(y, expected[i]["probabilities"], f"row {i}")


def check_a_label_that_is_a_number():
    table = FOLDER / "houses.csv"
    x = random.normal(size=(120, 2))
    table.write_text("a,b,price\n" + "".join(f"{a!r},{b!r},{1000 + 300 * a - 20 * b!r}\n" for a, b in x.tolist()))
    run(COMMAND, "train", table, "--device", "host", "--epochs", "20", "--save", FOLDER / "houses.strata")
    run(COMMAND, "predict", FOLDER / "houses.strata", table, "--device", "host", "--to", FOLDER / "houses.json")
    expected = [json.loads(line)["value"] for line in (FOLDER / "houses.json").read_text().splitlines()]
    library = compile_as(export(FOLDER / "houses.strata", "houses"), "houses")
    for row, value in zip(x, expected):
        features, y = numpy.zeros(2, "f4"), numpy.zeros(1, "f4")
        library.houses_features(pointer(row), pointer(features))
        library.houses_predict(pointer(features), pointer(y))
        library.houses_restore(pointer(y))
        same(y, value, "price")


def check_what_is_refused():
    file = made({"input": [300], "layers": [{"layer": "dense", "units": 300}], "loss": "mse"}, "wide")
    export(file, "refused", "--most-mib", "1", fails="90600 weights would be a file of about 2 MiB, more than 1 MiB")
    export(file, "refused", "--name", "a-b", fails='the name "a-b" is no identifier')
    assert b"void own_predict(" in export(file, "refused", "--name", "own").read_bytes()
    run(COMMAND, "export", file, "--to", FOLDER / "refused.c", fails="export needs --c")
    run(COMMAND, "export", file, "--c", fails="export needs --to FILE")
    run(COMMAND, "export", FOLDER / "none.strata", "--c", "--to", FOLDER / "refused.c", fails="none.strata")
    run(COMMAND, "export", file, "--c", "--to", FOLDER / "none" / "refused.c", fails="refused.c")


def main():
    failed = 0
    for name, check in sorted(globals().items()):
        if not name.startswith("check_") or (sys.argv[2:] and sys.argv[2] not in name):
            continue
        try:
            check()
            print(f"passed: {name}")
        except Exception:
            failed += 1
            print(f"failed: {name}")
            traceback.print_exc()
    print(f"largest difference from predict: {worst:.1e}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
