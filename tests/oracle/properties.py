# SPDX-License-Identifier: Apache-2.0
"""Properties that need no oracle: what must be equal whatever a model, a table and its settings are. Models are those of
models.py, and tables those of tables.py. draws.py describes the options."""
import ctypes
import json
import locale
import os
import re
import subprocess

import numpy

import draws
from draws import Differs, Skip
from library import Failed, build, command, last_json, lib, strata, struct
import models
import tables

CLOSE = 2e-5  # for what is computed in another order, in f32


# ---- helpers ----------------------------------------------------------------------------------------------------------------
def compiled(case):
    model = strata.Model.from_json(case["spec"])
    for name in case["train"].get("freeze", []):
        lib.model_freeze(model, name)
    return model.compile(models.optimizer_of(case["train"]["optimizer"]), device="host", seed=case["train"]["seed"])


def targets(model, case):
    """The labels under the names that the model gives its outputs."""
    return dict(zip(model._ports[1], (case["data"]["y"][o["name"]] for o in case["spec"]["outputs"])))


def trained(case):
    """The case's model after its epochs."""
    model = compiled(case)
    fit(model, case)
    return model


def fit(model, case):
    train, data = case["train"], case["data"]
    if not train["epochs"]:
        return
    try:
        model.fit(data["x"], targets(model, case), batch_size=train["batch"], epochs=train["epochs"], verbose=0,
                  sample_weight=data.get("weights"), class_weight=train.get("class_weight"), seed=train["seed"])
    except strata.Error as error:
        if "the loss is not finite" in str(error) and models.diverges(case):
            raise Skip("the training diverges") from None
        raise


def outputs(model, x, **options):
    """The model's predictions, as a list in the order of its outputs."""
    y = model.predict(x, **options)
    return list(y.values()) if isinstance(y, dict) else [y]


def evaluated(model, case, **options):
    return model.evaluate(case["data"]["x"], targets(model, case), **options)


def same(what, got, want):
    """All bits are equal, and NaN is NaN."""
    for i, (a, b) in enumerate(zip(got, want)):
        a, b = numpy.asarray(a), numpy.asarray(b)
        if a.shape != b.shape or not numpy.array_equal(a, b, equal_nan=a.dtype.kind == "f"):
            raise Differs(f"{what}: other bits", f"of value {i}: {a.ravel()[:6]}, not {b.ravel()[:6]}")


def rounding(model, x):
    """For each output, how far predictions move when inputs and weights have rounding errors. Some models enlarge them: a
    group_norm of what another one's average leaves, which is 0 but for rounding."""
    weights, random = model.get_weights(), numpy.random.default_rng(1)

    def moved(a):
        return (a * (1 + 2e-7 * random.uniform(-1, 1, a.shape))).astype(a.dtype) if a.dtype.kind == "f" else a

    want, found = outputs(model, x), []
    for _ in range(8):
        model.set_weights([moved(w) for w in weights])
        found.append(outputs(model, {k: moved(v) for k, v in x.items()}))
    model.set_weights(weights)
    return [numpy.nanmax([numpy.abs(f[i] - w) for f in found], initial=0) for i, w in enumerate(want)]


def near(what, got, want, tolerance=CLOSE, of=None):
    """Equal within rounding, in units of the largest value. of: the model and its inputs, if these are predictions; where they
    differ by more, they may differ by four times what rounding moves."""
    for i, (a, b) in enumerate(zip(got, want)):
        a, b = numpy.asarray(a, float), numpy.asarray(b, float)
        if a.size != b.size:
            raise Differs(f"{what}: another shape", f"{a.shape}, not {b.shape}")
        a = a.reshape(b.shape)
        allowed = tolerance * max(1.0, numpy.abs(b[numpy.isfinite(b)]).max(initial=0))
        for again in (False, True):
            if again:
                allowed += 4 * rounding(*of)[i]
            with numpy.errstate(invalid="ignore"):
                off = ~((numpy.abs(a - b) <= allowed) | (a == b) | (numpy.isnan(a) & numpy.isnan(b)))
            if not of or not off.any():
                break
        if off.any():
            at = tuple(numpy.argwhere(off)[0])
            raise Differs(f"{what}: another value", f"of value {i} at {list(map(int, at))}: {a[at]:.9g}, not {b[at]:.9g}; "
                                                    f"{off.sum()} of {off.size} differ")


PARAMETERS = ("dense", "embedding", "batch_norm", "layer_norm", "rms_norm", "group_norm", "conv1d", "conv2d",
              "conv2d_transpose", "depthwise_conv2d", "separable_conv2d", "lstm", "gru", "multi_head_attention")


def all_layers(rows):
    for row in rows:
        yield row
        yield from all_layers((row.get("layers") or []) + (row.get("shortcut") or []))


def draw_case(c):
    case = models.draw_case(c)
    models.describe(c, case)
    if not any(row.get("layer") in PARAMETERS for row in all_layers(case["spec"]["layers"])):
        raise Skip("no layer has parameters")
    return case


def rows(values, index):
    return {name: value[index] for name, value in values.items()}


# ---- models -----------------------------------------------------------------------------------------------------------------
def saved(c, folder):
    """A model that was saved and loaded has the same bits, predictions, metrics and description."""
    case = draw_case(c)
    model = trained(case)
    path = os.path.join(folder, "m.strata")
    model.save(path)
    again = strata.load(path)
    again.compile(device="host")
    same("the weights of a loaded model", again.get_weights(), model.get_weights())
    same("the predictions of a loaded model", outputs(again, case["data"]["x"]), outputs(model, case["data"]["x"]))
    if not case["train"].get("freeze"):  # a file does not say what is frozen, whose penalties are no part of the loss
        same("the metrics of a loaded model", evaluated(again, case).values(), evaluated(model, case).values())
    if json.loads(again.to_json()) != json.loads(model.to_json()):
        raise Differs("a loaded model has another description", f"{again.to_json()}, not {model.to_json()}")
    second = os.path.join(folder, "again.strata")
    again.save(second)
    with open(path, "rb") as a, open(second, "rb") as b:
        if a.read() != b.read():
            raise Differs("a file that is loaded and saved again has other bytes")


def described(c, folder):
    """A model that is made of another's JSON is the same model, and so is a second one with the same seed."""
    case = draw_case(c)
    model, second = trained(case), trained(case)
    same("a second training", second.get_weights(), model.get_weights())
    again = strata.Model.from_json(compiled(case).to_json())
    again.compile(device="host", seed=case["train"]["seed"])
    if not case["train"].get("freeze"):
        fit(again, case)
        same("a model of the JSON", again.get_weights(), model.get_weights())


def has_penalty(layers):
    return any(key in row for row in all_layers(layers) for key in ("kernel_l1", "kernel_l2"))


def exported(c, folder):
    """A model in the format of another program, and read back, computes the same."""
    ending = c.one([".onnx", ".keras"])
    case = draw_case(c)
    model = trained(case)
    path = os.path.join(folder, "m" + ending)
    try:
        model.save(path)
    except strata.Error as error:
        if error.status == "UNSUPPORTED":
            raise Skip(str(error)) from None
        raise Differs(f"{ending} cannot be written", str(error)) from None
    try:
        again = strata.load(path)
        again.compile(device="host")
    except strata.Error as error:
        raise Differs(f"{ending} cannot be read", str(error)) from None
    x = case["data"]["x"]
    if len(x) > 1:
        x = dict(zip(again._ports[0], x.values())) if set(again._ports[0]) != set(x) else x
    else:
        x = next(iter(x.values()))
    of = model, case["data"]["x"]
    near(f"the predictions of {ending}", outputs(again, x), outputs(*of), of=of)
    if not has_penalty(case["spec"]["layers"]):
        y = dict(zip(again._ports[1], targets(model, case).values()))
        y = y if len(y) > 1 or isinstance(x, dict) else next(iter(y.values()))
        near(f"the loss of {ending}", [again.evaluate(x, y)["loss"]], [evaluated(model, case)["loss"]], 1e-4)
    twice = os.path.join(folder, "twice" + ending)
    again.save(twice)
    second = strata.load(twice).build(device="host")
    near(f"the predictions of a second {ending}", outputs(second, x), outputs(*of), of=of)


def state_dict(c, folder):
    """Weights under PyTorch's names come back with the same bits."""
    case = draw_case(c)
    model = trained(case)
    names = list(model.weights)
    if not names:
        raise Skip("there are no weights")
    with open(os.path.join(folder, "map"), "w") as file:
        file.writelines(f"x.{i}.{name.replace('/', '_')} {name}\n" for i, name in enumerate(names))
    path, lines = os.path.join(folder, "m.safetensors"), os.path.join(folder, "map")
    lib.model_save_state_dict(model, path, lines)
    again = compiled({**case, "train": {**case["train"], "seed": case["train"]["seed"] + 1}})
    lib.model_take_state_dict(again, path, lines)
    same("the weights of a state dict", again.get_weights(), model.get_weights())


def in_c(c, folder):
    """The model as a file of C computes what predict computes."""
    case = draw_case(c)
    model = trained(case)
    source, library = os.path.join(folder, "m.c"), os.path.join(folder, "m.so")
    try:
        lib.model_save_c(model, source, struct("c_options", name="m"))
    except strata.Error as error:
        if error.status == "UNSUPPORTED":
            raise Skip(str(error)) from None
        raise Differs("C cannot be written", str(error)) from None
    done = subprocess.run(["cc", "-O0", "-w", "-shared", "-fPIC", "-o", library, source, "-lm"], capture_output=True, text=True)
    if done.returncode:
        raise Differs("C cannot be compiled", done.stderr[:600])
    with open(source) as file:
        parameters = re.search(r"void m_predict\(([^)]*)\);", file.read())[1].split(",")
    predict = ctypes.CDLL(library).m_predict
    want = outputs(model, case["data"]["x"])
    got = [numpy.zeros(w.shape, numpy.float32) for w in want]
    flat = [g.reshape(len(g), -1) for g in got]
    for i in range(case["n"]):
        given = [numpy.ascontiguousarray(v[i]) for v in case["data"]["x"].values()]
        taken = [numpy.zeros(f.shape[1], numpy.float32) for f in flat]
        if len(parameters) != len(given) + len(taken):
            raise Differs("C has other parameters", ", ".join(parameters))
        predict(*(ctypes.c_void_p(a.ctypes.data) for a in given + taken))
        for f, t in zip(flat, taken):
            f[i] = t
    near("the predictions of C", got, want, of=(model, case["data"]["x"]))


def batches(c, folder):
    """Predictions and metrics do not depend on the size of the batches."""
    case = draw_case(c)
    model, x = trained(case), case["data"]["x"]
    want = outputs(model, x)
    for batch in {1, 2, c.number(1, case["n"] + 2)}:
        near("predictions in other batches", outputs(model, x, batch_size=batch), want, 2e-6, (model, x))
        near(f"metrics of other batches", evaluated(model, case, batch_size=batch).values(), evaluated(model, case).values())
    order = numpy.random.default_rng(c.seed()).permutation(case["n"])
    near("the predictions of rows in another order", outputs(model, rows(x, order)), [w[order] for w in want], 2e-6, (model, x))


LOG = 1e-7
# 1 - p has the rounding error of p, so its logarithm is not that of the loss, which is computed from logits, if it is smaller.
LOG_OF_OTHER = 1e-3


def loss_of(spec, prediction, target, logits=None):
    """The mean loss of a prediction, in double. None: it cannot be computed from probabilities."""
    options = spec if isinstance(spec, dict) else {"name": spec}
    name, smoothing = options["name"], options.get("label_smoothing") or 0
    p, n = prediction.astype(float), len(prediction)
    if "categorical" in name:
        k = p.shape[-1]
        t = numpy.eye(k)[target.astype(int)] if target.ndim < p.ndim else target.astype(float)
        t = t * (1 - smoothing) + smoothing / k
        if p.min() < LOG:
            return None
        return -(t * numpy.log(p)).sum(-1).reshape(n, -1).mean(1)
    t = target.astype(float)
    if name == "binary_crossentropy":
        t = t * (1 - smoothing) + smoothing / 2
        if p.min() < LOG or (1 - p).min() < LOG_OF_OTHER:
            return None
        return -(t * numpy.log(p) + (1 - t) * numpy.log(1 - p)).reshape(n, -1).mean(1)
    e = (p - t).reshape(n, -1)
    if name == "mse":
        return (e * e).mean(1)
    if name == "mae":
        return numpy.abs(e).mean(1)
    delta = options.get("delta") or 1
    a = numpy.abs(e)
    return numpy.where(a <= delta, a * a / 2, delta * (a - delta / 2)).mean(1)


def measured(c, folder):
    """evaluate computes the loss and the accuracy of what predict computes."""
    case = draw_case(c)
    if has_penalty(case["spec"]["layers"]):
        raise Skip("the loss has penalties")
    model, data, spec = trained(case), case["data"], case["spec"]
    got = evaluated(model, case)
    loss = numpy.zeros(case["n"])
    for one, prediction in zip(spec["outputs"], outputs(model, data["x"])):
        if not numpy.isfinite(prediction).all():
            raise Skip("a prediction is not finite")
        of = loss_of(one["loss"], prediction, data["y"][one["name"]])
        if of is None:
            raise Skip("a probability is 0 within rounding")
        loss += of * (1 if one.get("weight") is None else one["weight"])
    near("the loss of evaluate", [got["loss"]], [loss.mean()], 2e-4)
    name = spec["outputs"][0]["loss"]
    name = name["name"] if isinstance(name, dict) else name
    target, p = data["y"][spec["outputs"][0]["name"]], outputs(model, data["x"])[0]
    if len(spec["outputs"]) == 1 and "accuracy" in got and "categorical" in name:
        truth = target if target.ndim < p.ndim else target.argmax(-1)
        if (numpy.sort(p, -1)[..., -2:] @ [-1, 1]).min(initial=1) < 1e-5:
            raise Skip("two classes are equally likely")
        near("the accuracy of evaluate", [got["accuracy"]], [(p.argmax(-1) == truth).mean()], 1e-6)
    weights = numpy.random.default_rng(c.seed()).choice([0, 0.5, 1, 3], case["n"]).astype("float32")
    if weights.sum():
        near("the weighted loss of evaluate", [evaluated(model, case, sample_weight=weights)["loss"]],
             [(loss * weights).sum() / case["n"]], 2e-4)


def repeated(c, folder):
    """Data twice have the metrics of the data once."""
    case = draw_case(c)
    model = trained(case)
    twice = {**case, "data": {"x": {k: numpy.concatenate([v, v]) for k, v in case["data"]["x"].items()},
                              "y": {k: numpy.concatenate([v, v]) for k, v in case["data"]["y"].items()}}}
    near("the metrics of the data twice", evaluated(model, twice).values(), evaluated(model, case).values())


def german():
    """Chooses a locale with a decimal comma."""
    folder = build / "locale"
    if not (folder / "de_DE.UTF-8" / "LC_CTYPE").exists():
        folder.mkdir(exist_ok=True)
        subprocess.run(["localedef", "--no-archive", "-i", "de_DE", "-f", "UTF-8", folder / "de_DE.UTF-8"], capture_output=True)
    os.environ["LOCPATH"] = str(folder)
    try:
        locale.setlocale(locale.LC_ALL, "de_DE.UTF-8")
    except locale.Error:
        raise Skip("there is no locale with a decimal comma") from None


def in_another_locale(c, folder):
    """A program that has chosen a locale trains, writes and reads the same."""
    case = draw_case(c)
    model = trained(case)
    ending = c.one(["", ".onnx", ".keras", ".c"])

    def write(model, path):
        if ending == ".c":
            lib.model_save_c(model, path, struct("c_options", name="m"))
        else:
            model.save(path)
    first, second = os.path.join(folder, "a" + ending), os.path.join(folder, "b" + ending)
    try:
        write(model, first)
    except strata.Error as error:
        if error.status == "UNSUPPORTED":
            raise Skip(str(error)) from None
        raise
    german()
    again = trained(case)
    same("a training in another locale", again.get_weights(), model.get_weights())
    write(again, second)
    if ending in ("", ".c", ".onnx"):
        with open(first, "rb") as a, open(second, "rb") as b:
            if a.read() != b.read():
                raise Differs(f"a file {ending} of another locale has other bytes")
    if ending != ".c":
        x = case["data"]["x"]
        x = x if len(x) > 1 else next(iter(x.values()))
        loaded = strata.load(first).build(device="host")
        if not isinstance(x, dict) or set(loaded._ports[0]) == set(x):
            near("a model that is loaded in another locale", outputs(loaded, x), outputs(model, case["data"]["x"]))


def on_threads(c, folder):
    """One thread computes what all threads compute."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise Skip("there is one core")
    r = numpy.random.default_rng(c.seed())
    shape = c.one([(64,), (16, 16, 3), (40, 8)])
    kinds = {1: ["dense"], 2: ["conv1d", "lstm", "gru", "dense", "attention"], 3: ["conv2d", "pool", "dense", "conv2d"]}
    layers = strata.layers
    makers = {"dense": lambda: layers.dense(c.one([64, 33, 128]), activation=c.one(["relu", "tanh", None])),
              "conv1d": lambda: layers.conv1d(c.one([16, 7]), kernel_size=3, padding="same"),
              "lstm": lambda: layers.lstm(c.one([16, 9]), return_sequences=True),
              "gru": lambda: layers.gru(c.one([16, 9]), return_sequences=True),
              "attention": lambda: layers.multi_head_attention(2, key_dim=8),
              "conv2d": lambda: layers.conv2d(c.one([16, 6]), kernel_size=[3, 3], padding="same"),
              "pool": lambda: layers.max_pool2d(size=[2, 2], padding="same")}
    chain = [makers[c.one(kinds[len(shape)])]() for _ in range(c.number(1, 3))]
    if c.chance(3):
        chain.insert(c.number(0, len(chain)), layers.batch_norm())
    if len(shape) > 1:
        chain.append(layers.flatten())
    chain.append(layers.dense(4))
    c.note(f"input {shape}, layers {chain}")
    n, batch = c.one([50, 33, 128]), c.one([50, 128, 17])
    x, y = r.normal(size=(n, *shape)).astype("float32"), r.integers(0, 4, n)
    results = []
    for one in (cores, cores[:1]):
        os.sched_setaffinity(0, one)
        device = strata.Device("host")
        model = strata.Sequential(chain, input_shape=list(shape))
        model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", device=device, seed=1)
        model.fit(x, y, batch_size=batch, epochs=2, verbose=0)
        results.append((model.get_weights(), [model.predict(x)]))
    same("the weights of one thread", results[1][0], results[0][0])
    same("the predictions of one thread", results[1][1], results[0][1])


def by_the_command(c, folder):
    """The command evaluates and predicts what the library does."""
    case = draw_case(c)
    model, x = trained(case), case["data"]["x"]
    path, data = os.path.join(folder, "m.strata"), os.path.join(folder, "data.npz")
    model.save(path)
    single = len(x) == 1 and len(case["data"]["y"]) == 1
    y = targets(model, case)
    arrays = {"x": next(iter(x.values())), "y": next(iter(y.values()))} if single else {**x, **y}
    numpy.savez(data, **arrays)
    want = evaluated(model, case)
    try:
        got = last_json(command("evaluate", path, data, "--device", "host", "--json"))
    except Failed as error:
        raise Differs("the command cannot evaluate", str(error)) from None
    if not numpy.isfinite(want["loss"]):
        raise Skip("the loss is not finite")
    if not case["train"].get("freeze"):
        near("the loss of the command", [got["loss"]], [want["loss"]], 1e-6)
    if "accuracy" in want:
        near("the accuracy of the command", [got["accuracy"]], [want["accuracy"]], 1e-6)


# ---- tables -----------------------------------------------------------------------------------------------------------------
class Trial:
    """A table, and a model that the command trains on it."""

    def __init__(self, c, folder):
        self.folder, self.n = folder, 0
        self.t = t = tables.draw_table(c)
        self.told = {**tables.dialect_of(t), **tables.dialect_of(tables_told(t))}
        self.path, text = self.write("train")
        tables.describe(c, t, text, self.told)
        self.model = os.path.join(folder, "m.strata")
        self.seed = c.number(0, 5)
        self.train(self.path, self.model, self.told)

    def write(self, name, columns=None):
        return tables.write(self.t, os.path.join(self.folder, name + ".csv"), columns)

    def train(self, path, to, told, env=None):
        t = self.t
        name = t.label["name"] if t.header else f"column {t.all.index(t.label) + 1}"
        label = [] if t.all[-1] is t.label else ["--label", name]
        try:
            command("train", path, *tables.as_options(told), *label, "--device", "host", "--epochs", "2", "--seed", self.seed,
                    "--save", to, env=env)
        except Failed as error:
            raise Differs(f"train fails: {str(error).split(': ')[-1][:30]}", str(error)) from None

    def answers(self, path, told=None, model=None, env=None):
        """The rows that predict writes, as texts."""
        told = self.told if told is None else told
        try:
            text = command("predict", model or self.model, path, *tables.as_options(told), "--device", "host",
                           "--probabilities", "--json", env=env)
        except Failed as error:
            raise Differs(f"predict fails: {str(error).split(': ')[-1][:30]}", str(error)) from None
        return [json.loads(line) for line in text.splitlines()]


class tables_told:
    """A table whose dialect is told completely."""

    def __init__(self, t):
        self.__dict__.update(t.__dict__)
        self.told = True


def equal_answers(what, got, want):
    if got != want:
        at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
        raise Differs(what, f"{len(got)} and {len(want)} answers; the first that differs, {at}: {got[at:at + 1]}, not "
                            f"{want[at:at + 1]}")


def permuted_columns(c, folder):
    """The columns of a later table may be in any order, and there may be more."""
    trial = Trial(c, folder)
    t = trial.t
    if not t.header:
        raise Skip("there are no names")
    want = trial.answers(trial.path)
    columns = list(t.all) if not c.chance(3) else [col for col in t.all if col is not t.label]
    if c.chance(2):
        columns.append({"name": "another", "kind": "words", "texts": ["w"] * t.n, "values": None,
                        "missing": numpy.zeros(t.n, bool), "plain": True})
    order = numpy.random.default_rng(c.seed()).permutation(len(columns))
    path, _ = trial.write("permuted", [columns[i] for i in order])
    equal_answers("a table with columns in another order has other answers", trial.answers(path), want)


def renamed_labels(c, folder):
    """Other words for the classes, in the same order, change nothing but the words."""
    trial = Trial(c, folder)
    t = trial.t
    if t.task != "words":
        raise Skip("the labels are no words")
    want = trial.answers(trial.path)
    used = [text for text, missing in zip(t.label["texts"], t.label["missing"]) if not missing]
    if t.marker and t.na is tables.USUAL_MARKERS and t.label["missing"].any():
        raise Skip("a word of missing values is a class")
    words = sorted(set(used), key=lambda w: w.encode())
    others = [c.one(["k", "x y", "Ä", "#"]) + f" {i}" for i in range(len(words))]
    others = sorted(others, key=lambda w: w.encode())
    other = dict(zip(words, others))
    t.label["texts"] = [other[w] if w in other else w for w in t.label["texts"]]
    path, _ = trial.write("renamed")
    model = os.path.join(folder, "renamed.strata")
    trial.train(path, model, trial.told)
    for row in want:
        row["class"] = other[row["class"]]
    equal_answers("labels with other names have other answers", trial.answers(path, model=model), want)


def table_in_another_locale(c, folder):
    """A locale with a decimal comma changes no file and no answer."""
    trial = Trial(c, folder)
    german()
    env = {"LC_ALL": "de_DE.UTF-8"}
    model = os.path.join(folder, "german.strata")
    trial.train(trial.path, model, trial.told, env)
    with open(trial.model, "rb") as a, open(model, "rb") as b:
        if a.read() != b.read():
            raise Differs("a training in another locale saves other bytes")
    equal_answers("another locale has other answers", trial.answers(trial.path, env=env), trial.answers(trial.path))


def rewritten(c, folder):
    """The same cells, written with other characters, have the same answers."""
    trial = Trial(c, folder)
    t = trial.t
    want = trial.answers(trial.path)
    t.separator = c.one([",", ";", "\t", "|"])
    t.quote = c.one(['"', "'"])
    t.all_quoted = c.chance(2)
    t.mark = c.chance(2)
    t.pack = c.one(["", ".gz", ".xz", ".zip"])
    t.end = c.one(["\n", "\r\n"])
    path, _ = trial.write("rewritten")
    told = {**tables.dialect_of(t), **tables.dialect_of(tables_told(t))}
    equal_answers("a table that is written otherwise has other answers", trial.answers(path, told), want)


def one_by_one(c, folder):
    """A row of a table has the answer that it has among others."""
    trial = Trial(c, folder)
    want = trial.answers(trial.path)
    try:
        text = command("predict", trial.model, trial.path, *tables.as_options(trial.told), "--device", "host",
                       "--probabilities", "--json", "--batch", c.one([1, 3, 64]))
    except Failed as error:
        raise Differs("predict fails", str(error)) from None
    for a, b in zip([json.loads(line) for line in text.splitlines()], want):
        numbers = [(a[k], b[k]) for k in a if k in ("value", "probability")]
        numbers += list(zip(a.get("probabilities", []), b.get("probabilities", [])))
        near("answers in other batches", [p for p, _ in numbers], [q for _, q in numbers], 3e-6)


MODELS = [saved, described, exported, exported, state_dict, in_c, batches, measured, measured, repeated, in_another_locale,
          on_threads, by_the_command]
TABLES = [permuted_columns, renamed_labels, table_in_another_locale, rewritten, one_by_one]


LIMITS = ["no layer has parameters; there is nothing to train", "it is sparse and is called"]  # that the headers document


def check(c, folder):
    one = c.one(MODELS + TABLES)
    c.note(one.__doc__)
    cores, spoken = os.sched_getaffinity(0), locale.setlocale(locale.LC_ALL)
    try:
        one(c, folder)
    except strata.Error as error:
        if any(limit in str(error) for limit in LIMITS):
            raise Skip(str(error)) from None
        raise Differs(f"{one.__name__}: {type(error).__name__}", str(error)) from None
    finally:  # other draws follow in this process
        os.sched_setaffinity(0, cores)
        locale.setlocale(locale.LC_ALL, spoken)


if __name__ == "__main__":
    draws.main("properties", check)
