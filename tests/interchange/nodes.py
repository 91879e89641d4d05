#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the public ONNX backend node tests, which the package `onnx` carries, on Strata's import.

usage: nodes.py [NAME...]    only tests whose names contain one of these words; each failure is then shown whole

A test is one node with inputs and outputs. Its graph has no weights, which a model needs, so each output is multiplied by an
initializer of 1. Node tests give shapes, axes and weights as inputs of the graph, which models of exporters have as constants:
where the import says that an input must be constant, the test runs again with all inputs but the first as constants. Tests of
ops that there are none for are counted by op; tests of things that ops do not do here are listed with what the import says.
The exit code is 1 where a result is wrong, or an error is none of the known gaps (GAPS)."""

import collections
import os
import pathlib
import sys
import tempfile
import warnings

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, os.path.join(os.environ["STRATA_SOURCE_DIR"], "include", "python"))
import strata  # noqa: E402
from strata._native import lib, struct  # noqa: E402

RELATIVE, ABSOLUTE = 1e-3, 1e-5  # of the public runner, but for its 1e-7: f32 here is not added in f64's order
# What the import may say, and why that is so. A message with none of these words is a failure.
GAPS = {
    "its opset is": "ops before opset 7, and those of other domains, are not there",
    "x is bool": "a reduction of bools is that of numbers",
    "has size 0": "an axis of size 0 has no use in training",
    "has no op for": "the op is not there",
    "element type": "strings, complex numbers, 4-bit and 8-bit floats are not there, nor numbers beyond i32",
    "must be one constant number": "bounds and rates are options of a layer, so they cannot depend on the data",
    "it must be constant": "shapes are known when a program is compiled, so they cannot depend on the data",
    "must be of one type": "an op of two types is not there",
    "empty tensors": "an axis of size 0 has no use in training",
    "Indices are not there": "a pool gives its values alone",
    "of integers": "pools and powers are of floats",
    'mode "constant"': "other paddings are not there",
    "dilations": "pools have no dilation",
    "over 3 axes": "windows are over one and two axes",
    "over -1 axes": "windows are over one and two axes",
    "mean and deviation are no outputs": "a normalisation gives its result alone",
    "training_mode": "an export for training is not read",
    "its mask is not there": "dropout outside of training has no mask",
    "result is random": "dropout outside of training does nothing",
    "select_last_index": "the first of equals is taken",
    "pads below 0": "cutting is slicing",
    "first state or peepholes": "a layer begins with zeros, and has no peepholes",
    "both Y and Y_h": "a layer gives all steps or the last",
    "last c is no output": "a layer gives h alone",
    "with activations other": "layers have three functions",
    "with activation_": "functions have no numbers of their own",
    "with clip": "clipping of gates is not there",
    "direction": "a reverse layer gives its last step alone",
    "ceil_mode with count_include_pad": "a mean over padding counts what is there",
    "does not depend on the inputs": "the output is a constant",
    "nothing depends on the input": "the output does not use an input",
    "powers of integers": "pow is of floats",
    "there can be": "a model has at most 8 inputs",
    "already, which is the most": "a model has at most 8 inputs",
    "no tensor with a shape": "sequences and optional values are not there",
    "has no size": "shapes are known when a program is compiled",
    "of one number": "a reduction of a scalar is the scalar",
    "to element type": "floats become f32, integers i32",
    "beyond 2^24": "constants are stored as f32",
    "larger than what it computes": "a transposed convolution does not add places",
    "size of 0": "an axis of size 0 has no use in training",
    "repeats of": "an axis of size 0 has no use in training",
    "its value is no tensor": "strings and sparse tensors are not there",
    "at least one element": "an axis of size 0 has no use in training",
    "the elements": "a shape rule of the op",
}


def own_inputs(model):
    """Without the weights, which old files list as inputs too."""
    weights = {t.name for t in model.graph.initializer}
    return [v for v in model.graph.input if v.name not in weights]


def graph_of(model, data, constants):
    """A copy of the model whose outputs are f32 times a weight, with the inputs `constants` as initializers."""
    out = onnx.ModelProto()
    out.CopyFrom(model)
    del out.graph.input[:]
    for value, array in zip(own_inputs(model), data):
        if value.name in constants:
            out.graph.initializer.append(numpy_helper.from_array(numpy.asarray(array), value.name))
        else:
            out.graph.input.append(helper.make_tensor_value_info(value.name, value.type.tensor_type.elem_type, array.shape))
    out.graph.initializer.append(numpy_helper.from_array(numpy.ones(1, "f4"), "one_weight"))
    del out.graph.output[:]
    for value in model.graph.output:
        cast, name = value.name + "_f32", value.name + "_out"
        out.graph.node.append(helper.make_node("Cast", [value.name], [cast], to=TensorProto.FLOAT))
        out.graph.node.append(helper.make_node("Mul", [cast, "one_weight"], [name]))
        out.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
    return out


def predict(model, data, constants, folder):
    path = os.path.join(folder, "node.onnx")
    onnx.save(graph_of(model, data, constants), path)
    own = strata.Model._of(lib.model_load_onnx(path, struct("onnx_options", whole=True)))
    own.build(device="host")
    own._inputs = [v.name for v in own_inputs(model) if v.name not in constants]
    own._outputs = [v.name + "_out" for v in model.graph.output]
    arrays = []
    for value, array in zip(own_inputs(model), data):
        if value.name in constants:
            continue
        array = numpy.asarray(array)
        kind = "f4" if array.dtype.kind == "f" else "i4"
        if array.dtype.kind in "iu" and array.size and (array.max() > 2**31 - 1 or array.min() < -(2**31)):
            raise strata.Error("element type: beyond i32")
        arrays.append(numpy.ascontiguousarray(array[None].astype(kind)))
    result = own.predict(arrays[0] if len(arrays) == 1 and len(own._outputs) == 1 else arrays)
    return [result[n] for n in own._outputs] if isinstance(result, dict) else [result]


def run(model, data, expected, folder):
    """None: right. Else what was wrong, or what the import says."""
    if any(not isinstance(a, numpy.ndarray) or a.dtype.kind not in "fiub" for a in [*data, *expected]):
        return "element type: no numbers"
    said = None
    for constants in ([], [v.name for v in own_inputs(model)[1:]], [v.name for v in own_inputs(model)[:1]]):
        try:
            results = predict(model, data, constants, folder)
        except strata.Error as error:
            # The first refusal is what the op cannot do, unless it is cured by constants.
            said = said if said and "must be constant" not in said and "must be one constant" not in said else str(error)
            continue
        for got, want in zip(results, expected):
            want = numpy.asarray(want)
            if got.size != want.size:
                return f"wrong: {got.shape} elements instead of {want.shape}"
            got = got.reshape(want.shape)
            if not numpy.allclose(got, want.astype("f8"), RELATIVE, ABSOLUTE, equal_nan=True):
                return f"wrong: by {numpy.nanmax(numpy.abs(got - want.astype('f8')))}"
        return None
    return said


def node_cases():
    from onnx.backend.test.case.node import collect_testcases

    return [(case.name, case.model, case.data_sets) for case in collect_testcases() if case.model is not None]


def stored_cases():
    """Networks of few layers that the package has as files; those with weights were exported by PyTorch."""
    cases = []
    for kind in ("pytorch-converted", "pytorch-operator", "simple"):
        for folder in sorted((pathlib.Path(onnx.__file__).parent / "backend" / "test" / "data" / kind).glob("test_*")):
            model = onnx.load(str(folder / "model.onnx"))
            sets = []
            for data in sorted(folder.glob("test_data_set_*")):
                if not all(v.type.HasField("tensor_type") for v in [*model.graph.input, *model.graph.output]):
                    continue
                files = [
                    sorted(data.glob(f"{what}_*.pb"), key=lambda p: int(p.stem.split("_")[1])) for what in ("input", "output")
                ]
                sets.append([[numpy_helper.to_array(onnx.load_tensor(str(p))) for p in paths] for paths in files])
            if sets:
                cases.append((f"{kind}/{folder.name}", model, sets))
    return cases


def main():
    warnings.simplefilter("ignore")
    words = sys.argv[1:]
    counts, failures = collections.Counter(), []
    gaps, missing = collections.defaultdict(list), collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        for name, model, data_sets in [*node_cases(), *stored_cases()]:
            if words and not any(w in name for w in words):
                continue
            said = next((s for s in (run(model, data, expected, folder) for data, expected in data_sets) if s), None)
            if said is None:
                counts["passed"] += 1
            elif "has no op for" in said or "has no op" in said:
                counts["without an op"] += 1
                missing[said.split(": ")[-1].split(" (")[0]] += 1
            elif not said.startswith("wrong") and any(words_of_gap in said for words_of_gap in GAPS):
                counts["known gaps"] += 1
                gaps[next(g for g in GAPS if g in said)].append(name)
            else:
                counts["failed"] += 1
                failures.append(f"{name}: {said}")
            if words:
                print(name, said or "passed")
    print("ONNX node tests: " + ", ".join(f"{n} {what}" for what, n in counts.items()))
    print("  ops that are not there: " + ", ".join(f"{op} {n}" for op, n in sorted(missing.items())))
    for gap, names in sorted(gaps.items()):
        print(f'  {len(names)} tests, {GAPS[gap]} ("{gap}"): ' + ", ".join(names[:6]) + (" ..." if len(names) > 6 else ""))
    for failure in failures:
        print("FAILED", failure)
    sys.exit(1 if failures or not counts["passed"] else 0)


if __name__ == "__main__":
    main()
