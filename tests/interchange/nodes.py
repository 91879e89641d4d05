#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the public ONNX backend tests, which the package `onnx` carries, as a user would: the files as they are.

    STRATA_SOURCE_DIR=. python3 tests/interchange/nodes.py [--command STRATA] [NAME...]
    STRATA_SOURCE_DIR=. python3 tests/bench/record.py "onnx node tests" python3 tests/interchange/nodes.py

NAME...    only tests whose names contain one of these words; each is then shown
--command  evaluate with `STRATA predict FILE --inputs x.npz --whole --to y.npz`, instead of Python's
           strata.load(FILE, whole=True).predict({input: array})

A test is a graph of one or a few nodes with inputs and outputs. Its file is written as the package has it. Refused tests are
counted by op, where the op is not there, or by what the message says. The exit code is 1 where a result is wrong, or an error
is none of the known gaps (GAPS)."""

import collections
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

import numpy
import onnx
from onnx import numpy_helper

RELATIVE, ABSOLUTE = 1e-3, 1e-5  # of the public runner, but for its 1e-7: f32 here is not added in f64's order
# What the evaluation may say, and why that is so. A message with none of these words is a failure.
GAPS = {
    "its opset is": "ops before opset 7, and those of other domains, are not there",
    "is bool": "a reduction of bools is that of numbers",
    "have no elements": "nothing is the largest of no numbers",
    "empty tensors": "an axis of size 0 is not there in every op",
    "has size 0": "an axis of size 0 is not there in every op",
    "element type": "strings, complex numbers, 4-bit and 8-bit floats are not there; floats are f32",
    "Indices are not there": "a pool gives its values alone",
    "of integers": "pools, powers and remainders are not there for every type",
    'mode "constant"': "other paddings are not there",
    "dilations": "pools have no dilation",
    "over 3 axes": "windows are over one and two axes",
    "mean and deviation are no outputs": "a normalisation gives its result alone",
    "training_mode": "an export for training is not read",
    "its mask is not there": "dropout outside of training has no mask",
    "select_last_index": "the first of equals is taken",
    "first state or peepholes": "a layer begins with zeros, and has no peepholes",
    "both Y and Y_h": "a layer gives all steps or the last",
    "last c is no output": "a layer gives h alone",
    "ceil_mode with count_include_pad": "a mean over padding counts what is there",
    "is no tensor": "sequences and optional values are not there",
    "larger than what it computes": "a transposed convolution does not add places",
}


def own_inputs(model):
    """Without the weights, which old files list as inputs too."""
    weights = {t.name for t in model.graph.initializer}
    return [v for v in model.graph.input if v.name not in weights]


def evaluate_in_python(path, arrays):
    import strata

    try:
        return strata.load(path, whole=True).predict(arrays), None
    except strata.Error as error:
        return None, str(error)


def evaluate_by_command(command, path, arrays):
    folder = pathlib.Path(path).parent
    numpy.savez(folder / "x.npz", **arrays)
    done = subprocess.run([command, "predict", path, "--inputs", folder / "x.npz", "--whole", "--to", folder / "y.npz"],
                          capture_output=True, text=True, check=False)
    if done.returncode:
        return None, done.stderr.strip()
    with numpy.load(folder / "y.npz") as file:
        return {name: file[name] for name in file}, None


def run(model, data, expected, folder, command):
    """None: right. Else what was wrong, or what the message says."""
    path = str(pathlib.Path(folder) / "node.onnx")
    onnx.save(model, path)
    inputs, outputs = own_inputs(model), model.graph.output
    if any(not v.type.HasField("tensor_type") for v in [*inputs, *outputs]):
        return "is no tensor"
    if any(numpy.asarray(a).dtype.kind not in "fiubV" for a in data):
        return "element type of an input"
    arrays = {v.name: numpy.asarray(a) for v, a in zip(inputs, data)}
    results, said = evaluate_by_command(command, path, arrays) if command else evaluate_in_python(path, arrays)
    if said is not None:
        return said
    for value, want in zip(outputs, expected):
        got, want = results[value.name], numpy.asarray(want)
        if got.shape != want.shape:
            return f"wrong: {value.name} is {got.shape} instead of {want.shape}"
        if not command and got.dtype != want.dtype and want.dtype.kind in "fiub":
            return f"wrong: {value.name} has {got.dtype} instead of {want.dtype}"
        relative = RELATIVE if want.dtype.kind != "V" else 8e-3  # bfloat16 has 8 bits
        if not numpy.allclose(got.astype("f8"), want.astype("f8"), relative, ABSOLUTE, equal_nan=True):
            return f"wrong: {value.name} by {numpy.nanmax(numpy.abs(got.astype('f8') - want.astype('f8')))}"
    return None


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


def without_input(model, data, i):
    """The model and its inputs without input i of its only node."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    node = changed.graph.node[0]
    name, node.input[i] = node.input[i], ""
    while node.input and not node.input[-1]:
        node.input.pop()
    if name in node.input:
        return None
    kept = [k for k, v in enumerate(own_inputs(model)) if v.name != name]
    inputs = [v for v in changed.graph.input if v.name != name]
    del changed.graph.input[:]
    changed.graph.input.extend(inputs)
    return changed, [data[k] for k in kept]


def check_missing_inputs(cases, folder, command):
    """Each input of a node of each op is left out. Where ONNX says that the op needs it, the message must say that it is
    missing. Otherwise the result must be that of ONNX's own evaluator, or the node is refused. Returns what is wrong, and how
    many inputs were left out."""
    from onnx.reference import ReferenceEvaluator

    wrong, n, seen = [], 0, set()
    for name, model, data_sets in cases:
        if len(model.graph.node) != 1:
            continue
        node, data = model.graph.node[0], data_sets[0][0]
        schema = onnx.defs.get_schema(node.op_type, max(o.version for o in model.opset_import), node.domain)
        for i, given in enumerate(node.input):
            formal = schema.inputs[min(i, len(schema.inputs) - 1)]
            variadic = formal.option == onnx.defs.OpSchema.FormalParameterOption.Variadic
            changed = without_input(model, data, i) if given and not (variadic and i) else None
            if changed is None or (node.op_type, i) in seen:
                continue
            seen.add((node.op_type, i))
            n += 1
            if formal.option != onnx.defs.OpSchema.FormalParameterOption.Optional:
                said = run(*changed, [], folder, command)
                if said is None or f"its input {i} is missing" not in said:
                    wrong.append(f"{name} without its input {i} ({formal.name}): {said or 'is accepted'}")
                continue
            try:
                arrays = {v.name: a for v, a in zip(changed[0].graph.input, changed[1])}
                expected = ReferenceEvaluator(changed[0]).run(None, arrays)
            except Exception:  # the evaluator does not know the op, or the file is none without this input
                expected = None
            said = expected and run(*changed, expected, folder, command)
            if said and said.startswith("wrong"):
                wrong.append(f"{name} without its input {i} ({formal.name}): {said}")
    return wrong, n


def main():
    warnings.simplefilter("ignore")
    words, command = sys.argv[1:], None
    if words[:1] == ["--command"]:
        command, words = words[1], words[2:]
    else:
        sys.path.insert(0, os.path.join(os.environ.get("STRATA_SOURCE_DIR", "."), "include", "python"))
    counts, failures = collections.Counter(), []
    gaps, missing = collections.defaultdict(list), collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        passed = []
        for name, model, data_sets in [*node_cases(), *stored_cases()]:
            if words and not any(w in name for w in words):
                continue
            said = next((s for s in (run(model, data, want, folder, command) for data, want in data_sets) if s), None)
            if said is None:
                counts["passed"] += 1
                passed.append((name, model, data_sets))
            elif "has no op for" in said:
                counts["without an op"] += 1
                missing[said.split("no op for: ")[-1].split(" (")[0]] += 1
            elif not said.startswith("wrong") and any(gap in said for gap in GAPS):
                counts["refused with a reason"] += 1
                gaps[next(g for g in GAPS if g in said)].append(name)
            else:
                counts["failed"] += 1
                failures.append(f"{name}: {said}")
            if words:
                print(name, said or "passed")
        wrong, n_left_out = check_missing_inputs(passed, folder, command)
        failures += wrong
    print(f"ONNX's own tests of onnx {onnx.__version__}, files as they are: " +
          ", ".join(f"{n} {what}" for what, n in counts.items()))
    print(f"  {n_left_out} inputs of nodes were left out")
    print("  ops that are not there: " + ", ".join(f"{op} {n}" for op, n in sorted(missing.items())))
    for gap, names in sorted(gaps.items()):
        print(f'  {len(names)} tests, {GAPS[gap]} ("{gap}"): ' + ", ".join(names[:3]) + (" ..." if len(names) > 3 else ""))
    for failure in failures:
        print("FAILED", failure)
    sys.exit(1 if failures or not counts["passed"] else 0)


if __name__ == "__main__":
    main()
