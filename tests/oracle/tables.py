# SPDX-License-Identifier: Apache-2.0
"""Random tables: pandas writes them as a CSV, and what Strata reads must be what pandas reads. A model that is trained on the
table is scored by `strata evaluate` and by scikit-learn. draws.py describes the options."""
import ctypes
import datetime
import gzip
import io
import lzma
import os
import zipfile

import numpy
import pandas
import sklearn.metrics

import draws
from draws import Differs, Skip
from library import Failed, command, ctype, last_json, lib, strata, struct

USUAL_MARKERS = ["NA", "N/A", "NaN", "null", "None", "?", "-", "--"]
WORDS = ["red", "green", "blue", "a b", "x;y", "x,y", "x|y", "x\ty", 'say "no"', "it's", "Zoë", "東京", "é", "no", "yes",
         "two\nlines", "#1", "1a", "a1", "+", "Inf", "true", "False", "e5", "0x1f", "1-2", "12:30", "$", "%", "1/2", "*"]
NAMES = ["x", "y", "size", "Größe", "a b", "a,b", "a;b", 'the "best"', "it's", "price $", "2020", "x.1", "col\n2", "Name", "名",
         "class", "n/m", "_", "%", "weight"]
FORMATS = ["%Y-%m-%d", "%Y/%m/%d", "%Y.%m.%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%d-%m-%Y", "%m.%d.%Y", "%m-%d-%Y"]
ORDERS = {"Y": "ymd", "d": "dmy", "m": "mdy"}


class Table:
    """A table: its columns, and how they are written."""


# ---- columns: each maker returns (kind, texts, values); a text None is a missing cell -------------------------------------
def digits(value, places):
    return f"{value:.{places}f}"


def grouped(text, thousands):
    """The text of a number with groups of three digits in its integer part."""
    sign, text = ("-", text[1:]) if text.startswith("-") else ("", text)
    whole, point, rest = text.partition(".")
    parts = []
    while len(whole) > 3:
        parts.insert(0, whole[-3:])
        whole = whole[:-3]
    return sign + thousands.join([whole, *parts]) + point + rest


def number_column(c, t, random):
    kind = c.one(["small", "whole", "large", "tiny", "signed", "constant", "year", "exponent"])
    n, places = t.n, c.number(1, 4)
    values = {"small": lambda: random.uniform(0, 10, n), "whole": lambda: random.integers(-50, 1000, n).astype(float),
              "large": lambda: random.uniform(-1, 1, n) * 10.0 ** c.number(3, 12), "tiny": lambda: random.uniform(0, 1e-3, n),
              "signed": lambda: random.normal(0, 100, n), "constant": lambda: numpy.full(n, c.one([0.0, 7.0, 0.1])),
              "year": lambda: random.integers(1990, 2030, n).astype(float),
              "exponent": lambda: random.uniform(-9, 9, n) * 10.0 ** random.integers(-20, 20, n)}[kind]()
    whole = kind in ("whole", "year")
    if kind == "exponent":
        texts = [f"{v:.6e}" for v in values]
    elif kind == "tiny":
        texts = [digits(v, 7) for v in values]
    else:
        texts = [digits(v, 0 if whole else places) for v in values]
    if t.thousands and kind in ("large", "whole", "signed") and c.chance(2):
        texts = [grouped(v, "\0") for v in texts]  # \0 becomes the separator of groups
    unit = c.one(["", "", "", "%", " %", "$", "€", "-€", " kg"]) if t.units else ""
    values = numpy.array([float(v.replace("\0", "")) for v in texts])
    texts = [v.replace(".", t.decimal).replace("\0", t.thousands) for v in texts]
    if unit in ("%", " %"):
        texts = [v + unit for v in texts]
    elif unit in ("$", "€"):
        texts = ["-" + unit + v[1:] if v[0] == "-" else unit + v for v in texts]
    elif unit == "-€":
        texts = [v + " €" for v in texts]
    plain = unit in ("", " kg") and t.thousands != " "
    return ("number", texts, values, plain)


def words_column(c, t, random):
    few = c.some(WORDS, 8) or ["red"]
    few = [w for w in few if w not in t.na] or ["red"]
    texts = [few[i] for i in random.integers(0, len(few), t.n)]
    return ("words", texts, texts, True)


def truth_column(c, t, random):
    pair = c.one([("False", "True"), ("no", "yes"), ("N", "Y"), ("FALSE", "TRUE")])
    texts = [pair[i] for i in random.integers(0, 2, t.n)]
    return ("words", texts, texts, True)


def date_column(c, t, random):
    form = c.one(FORMATS)
    if t.order and ORDERS[form[1]] not in ("ymd", t.order):
        form = "%Y-%m-%d"  # one order of dates for a table
    time = c.one(["", " %H:%M", "T%H:%M:%S", " %H:%M:%S"])
    span = c.one([30, 400, 9000, 40000])
    first = datetime.datetime(c.one([2024, 1999, 1970, 1950]), 1, 1)
    moments = [first + datetime.timedelta(days=int(d), seconds=int(s) if time else 0)
               for d, s in zip(random.integers(0, span, t.n), random.integers(0, 86400, t.n))]
    texts = [m.strftime(form + time) for m in moments]
    pad = c.chance(4) and not time and form[1] != "Y"
    if pad:  # days and months without their zero
        separator = form[2]
        texts = [separator.join(str(int(p)) if len(p) == 2 else p for p in text.split(separator)) for text in texts]
    moments = [datetime.datetime.strptime(m.strftime(form + time), form + time) for m in moments]
    values = numpy.array([(m - datetime.datetime(1970, 1, 1)) / datetime.timedelta(days=1) for m in moments])
    t.orders.add(ORDERS[form[1]])
    return ("date", texts, (values, bool(time)), True)


def empty_column(c, t, random):
    return ("empty", [None] * t.n, None, True)


def counter_column(c, t, random):
    first = c.number(0, 1)
    return ("counter", [str(first + i) for i in range(t.n)], numpy.arange(t.n) + first, True)


# ---- the table --------------------------------------------------------------------------------------------------------------
def draw_table(c):
    t = Table()
    random = numpy.random.default_rng(c.seed())
    t.n = c.one([40, 30, 60, 25, 120])
    t.separator = c.one([",", ";", "\t", "|", ":", " "])
    t.decimal = c.one([".", ","])
    t.thousands = c.one(["", "", ",", ".", " ", "'"])
    if t.thousands == t.decimal:
        t.thousands = ""
    t.quote = c.one(['"', '"', "'"])
    t.end = c.one(["\n", "\r\n", "\r"])
    t.mark = c.chance(4)  # a byte-order mark
    t.pack = c.one(["", "", "", ".gz", ".xz", ".zip"])
    t.header = not c.chance(4)
    t.all_quoted = c.chance(4)
    t.units = c.chance(3)
    t.told = c.chance(2)
    t.na = c.one([USUAL_MARKERS, USUAL_MARKERS, ["missing"], ["-999", "NA"], []])
    t.marker = c.one(["", "", *t.na])
    t.order = c.one(["dmy", "mdy"])
    t.orders = set()
    makers = [number_column, words_column, date_column, truth_column, empty_column, counter_column]
    n_columns = c.number(1, 6)
    names = c.some([n for n in NAMES], 20)
    t.columns = []
    for i in range(n_columns):
        kind, texts, values, plain = c.one([number_column] * 3 + makers)(c, t, random)
        name = names[i] if i < len(names) else f"n{i}"
        if kind == "counter":
            name = "id"
            if not t.header or any(col["name"] == name for col in t.columns):
                continue
        missing = numpy.zeros(t.n, bool)
        if kind not in ("empty", "counter") and c.chance(3):
            missing = random.uniform(0, 1, t.n) < c.one([0.05, 0.3])
            missing[:2] = False
        if kind == "empty":
            missing[:] = True
        t.columns.append({"name": name, "kind": kind, "texts": texts, "values": values, "missing": missing, "plain": plain})
    if all(col["kind"] in ("empty", "counter") for col in t.columns):
        kind, texts, values, plain = number_column(c, t, random)
        t.columns.append({"name": "number", "kind": kind, "texts": texts, "values": values, "missing": numpy.zeros(t.n, bool),
                          "plain": plain})
    draw_label(c, t, random)
    return t


def draw_label(c, t, random):
    t.task = c.one(["words", "whole", "numbers"])
    k = c.number(2, 4)
    order = numpy.arange(t.n) % k
    random.shuffle(order)
    if t.task == "words":
        few = ["no", "yes", "per haps", "Zoë"][:k] if not c.chance(3) else ["b", "a", "B", "ä"][:k]
        texts = [few[i] for i in order]
        values = texts
    elif t.task == "whole":
        few = c.one([[0, 1, 2, 3], [1, 2, 3, 4], [-1, 1, 10, 9], [3, 100, 20, 5]])[:k]
        values = numpy.array([float(few[i]) for i in order])
        texts = [str(few[i]) for i in order]
    else:
        values = numpy.array([float(digits(v, 3)) for v in random.normal(5, 2, t.n) * c.one([1, 1000, 1e-2])])
        if len(set(values)) < 3:
            raise Skip("a label with hardly any values")
        texts = [digits(v, 3).replace(".", t.decimal) for v in values]
    missing = numpy.zeros(t.n, bool)
    if c.chance(4):
        missing = random.uniform(0, 1, t.n) < 0.1
        missing[:2 * k] = False
    t.label = {"name": "label", "kind": t.task, "texts": texts, "values": values, "missing": missing, "plain": True}
    at = len(t.columns) if not c.chance(4) else c.number(0, len(t.columns))
    t.all = [*t.columns[:at], t.label, *t.columns[at:]]
    if t.end == "\r" and not t.all_quoted:  # pandas does not quote a cell with another line end than the table's
        t.end = "\r\n"


def write(t, path, columns=None):
    """Lets pandas write the table."""
    frame = pandas.DataFrame({col["name"]: pandas.Series([None if m else v for v, m in zip(col["texts"], col["missing"])],
                                                         dtype=object)
                              for col in columns or t.all})
    marker = t.marker
    text = frame.to_csv(sep=t.separator, index=False, header=t.header, quotechar=t.quote, na_rep=marker,
                        quoting=1 if t.all_quoted else 0, lineterminator=t.end)
    data = text.encode("utf-8-sig" if t.mark else "utf-8")
    packs = {"": lambda: data, ".gz": lambda: gzip.compress(data), ".xz": lambda: lzma.compress(data)}
    if t.pack == ".zip":
        with zipfile.ZipFile(path + ".zip", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("table.csv", data)
    else:
        with open(path + t.pack, "wb") as file:
            file.write(packs[t.pack]())
    return path + t.pack, text


# ---- what is told, and what is expected -------------------------------------------------------------------------------------
def dialect_of(t):
    """The options of the command with which the table is read. What cannot be found in a table is always told."""
    told = {"na": ",".join(t.na)} if t.na is not USUAL_MARKERS else {}
    if t.separator in ": " or t.told:
        told["separator"] = {"\t": "tab", " ": "space"}.get(t.separator, t.separator)
    if t.quote == "'" or t.told:
        told["quote"] = t.quote
    if t.told:
        told["header"] = "yes" if t.header else "no"
        told["decimal"] = t.decimal
        told["thousands"] = t.thousands or "none"
        if t.orders - {"ymd"}:
            told["dates"] = (t.orders - {"ymd"}).pop()
    return told


def as_struct(told):
    """The same as strata_csv_dialect."""
    orders = {"dmy": 1, "mdy": 2, "ymd": 3}
    header = {"yes": 1, "no": 2}.get(told.get("header"), 0)
    dialect = struct("csv_dialect", header=header, dates=orders.get(told.get("dates"), 0))
    for name in ("separator", "quote", "decimal", "thousands"):
        if name in told:
            setattr(dialect, name, {"tab": b"\t", "space": b" ", "none": b"\1"}.get(told[name], told[name].encode()))
    if "na" in told:
        words = [w.encode() for w in told["na"].split(",") if w]
        dialect.kept = (ctypes.c_char_p * max(1, len(words)))(*(words or [b""]))
        dialect.na, dialect.n_na = dialect.kept, len(words)
    return dialect


def as_options(told):
    return [part for name, value in told.items() for part in (f"--{name}", value)]


def read(path, t, told):
    """The table. If Strata does not choose between its separator and another, it is told."""
    try:
        return lib.csv_read_table(path, as_struct(told), None)
    except strata.Error as error:
        name = {"\t": "tab"}.get(t.separator, f"'{t.separator}'")
        if "separator" in told or "(--separator)" not in str(error) or name not in str(error):
            raise
        told["separator"] = {"\t": "tab"}.get(t.separator, t.separator)
        return lib.csv_read_table(path, as_struct(told), None)


def standard(values, rows):
    """(x - mean) / deviation, with those of some rows."""
    known = values[rows][~numpy.isnan(values[rows])]
    if not len(known):
        return numpy.nan_to_num(values)
    mean, deviation = known.mean(), known.std()
    if not deviation > 1e-12 * abs(mean):
        deviation = 1
    return numpy.nan_to_num((values - mean) / deviation)


def features_of(column, rows):
    """The features of a column as include/strata/preprocessing.h describes them; `rows` are those with a label."""
    missing = column["missing"]
    if column["kind"] == "words":
        words = ["" if m else w for w, m in zip(column["values"], missing)]
        different = sorted(set(words), key=lambda w: w.encode())
        return numpy.array([[w == d for d in different] for w in words], float)
    values, time = column["values"] if column["kind"] == "date" else (column["values"], False)
    values = numpy.where(missing, numpy.nan, values)
    parts = [standard(values, rows)]
    if missing[rows].any():
        parts.append(missing)
    if column["kind"] == "date":
        for length in (365.2425, 7, *([1] if time else [])):
            angle = 2 * numpy.pi * (values / length % 1)
            parts += [numpy.nan_to_num(numpy.sin(angle)), numpy.where(missing, 0, numpy.cos(angle))]
    return numpy.stack(parts, 1).astype(float)


def labels_of(t):
    """The labels, the names of the classes, and which rows have a label."""
    known = ~t.label["missing"]
    values = numpy.array(t.label["values"], dtype=object)
    if t.task == "numbers":
        return values.astype(float), None, known
    if t.task == "words":
        if t.na is USUAL_MARKERS and t.marker:  # a word like others in a column of words
            values, known = numpy.where(known, values, t.marker), numpy.ones(t.n, bool)
        names = sorted(set(values[known]), key=lambda w: w.encode())
        return numpy.array([names.index(v) if k else -1 for v, k in zip(values, known)]), names, known
    different = sorted(set(values[known]))
    return (numpy.array([different.index(v) if k else -1 for v, k in zip(values, known)]), [f"{d:g}" for d in different],
            known)


def check_pandas(t, text):
    """Skips a table that pandas itself does not read as it was meant."""
    markers = ["", *t.na] + ([w.lower() for w in t.na] if t.na is USUAL_MARKERS else [])
    frame = pandas.read_csv(io.StringIO(text), sep=t.separator, quotechar=t.quote, header=0 if t.header else None,
                            decimal=t.decimal, thousands=t.thousands or None, na_values=markers, keep_default_na=False,
                            lineterminator="\r" if t.end == "\r" else None,
                            dtype={i if not t.header else col["name"]: str for i, col in enumerate(t.all)
                                   if col["kind"] not in ("number", "numbers") or not col["plain"]})
    if len(frame) != t.n:
        raise Skip("pandas reads another number of rows")
    for i, col in enumerate(t.all):
        read = frame.iloc[:, i]
        if col["kind"] in ("number", "numbers") and col["plain"]:
            want = numpy.where(col["missing"], numpy.nan, numpy.array(col["values"], float))
            if not numpy.allclose(read.astype(float), want, rtol=1e-12, atol=0, equal_nan=True):
                raise Skip("pandas reads another number")
        elif [None if v is None or v != v else v for v in read] != \
                [None if m else v for v, m in zip(col["texts"], col["missing"])]:
            raise Skip("pandas reads other words")


def describe(c, t, text, told):
    c.note(f"told: {as_options(told)}; the table is written with separator {t.separator!r}, quote {t.quote!r}, decimal "
           f"{t.decimal!r}, thousands {t.thousands!r}, line ends {t.end!r}, header {t.header}, na {t.na}, task {t.task}")
    c.note("columns: " + ", ".join(f"{col['name']!r} {col['kind']}" for col in t.all))
    c.note("begins: " + repr(text[:400]))


# ---- checking ---------------------------------------------------------------------------------------------------------------
def elements(dataset):
    parts = list(dataset)
    return numpy.array([p[0].ravel() for p in parts], float), numpy.array([p[1].ravel() for p in parts], float)


def compare(kind, got, want, tolerance=2e-6):
    want = numpy.asarray(want, float)
    if got.shape != want.shape:
        raise Differs(f"{kind}: another shape", f"{got.shape}, not {want.shape}")
    off = ~(numpy.abs(got - want) <= tolerance * (1 + numpy.abs(want)))
    if off.any():
        at = tuple(numpy.argwhere(off)[0])
        raise Differs(f"{kind}: another value", f"at {list(map(int, at))} {got[at]!r}, not {want[at]!r}; {off.sum()} of "
                                                f"{off.size} differ")


def compare_features(got, columns, rows):
    wanted = [(col, features_of(col, rows)) for col in columns if col["kind"] not in ("empty", "counter")]
    width = sum(w.shape[1] for _, w in wanted)
    if got.shape[1] != width:
        raise Differs("the features have another width", f"{got.shape[1]}, not {width}: "
                      + ", ".join(f"{col['name']!r} {w.shape[1]}" for col, w in wanted))
    at = 0
    for col, want in wanted:
        compare(f"a column of the kind {col['kind']}", got[:, at:at + want.shape[1]], want[rows])
        at += want.shape[1]


def check(c, folder):
    t = draw_table(c)
    told = dialect_of(t)
    path, text = write(t, os.path.join(folder, "table.csv"))
    describe(c, t, text, told)
    check_pandas(t, text)
    labels, classes, known = labels_of(t)
    label = t.label["name"] if t.header else f"column {t.all.index(t.label) + 1}"
    options = struct("preprocessing_options", labels=[label] if t.all[-1] is not t.label else None,
                     n_labels=t.all[-1] is not t.label)
    try:
        csv = read(path, t, told)
        p = lib.preprocessing_from_csv(csv, options)
        strata.Dataset(lib.preprocessing_split_csv(p, csv, 0.0, 0)[0]).close()  # it shuffles the rows; it measures the columns
        report = struct("preprocessing_report")
        data = strata.Dataset(lib.preprocessing_apply_csv(p, csv, struct("apply_options", report=report)))
    except strata.Error as error:
        raise Differs(f"reading fails: {str(error).split(': ')[-1][:30]}", str(error)) from None
    found = lib.preprocessing_found(p)
    c.note("found: " + found)
    if not t.told and (" are read with a decimal " in found or " could be " in found):
        raise Skip("Strata says that the table can be read in two ways")
    features, targets = elements(data)
    names = [lib.preprocessing_class_name(p, i) for i in range(lib.preprocessing_n_classes(p))] or None
    if names != classes:
        raise Differs("the classes differ", f"{names}, not {classes}")
    if len(features) != known.sum() or report.n_unlabelled != (~known).sum() or report.n_unknown:
        raise Differs("another number of rows", f"{len(features)} and {report.n_unlabelled}, not {known.sum()} of {t.n}; "
                                                f"{report.n_unknown} words are unknown")
    compare_features(features, t.columns, known)
    compare("the labels", targets[:, 0], standard(labels, known)[known] if classes is None else labels[known])
    check_scores(c, p, data, path, told, classes, labels, known, folder)


def check_scores(c, p, data, path, told, classes, labels, known, folder):
    """Trains a model for a moment, and compares its scores with those of scikit-learn."""
    single = classes is not None and len(classes) == 2 and c.chance(2)
    width = 1 if classes is None or single else len(classes)
    loss = "mse" if classes is None else "binary_crossentropy" if single else "sparse_categorical_crossentropy"
    model = strata.Sequential([strata.layers.Dense(width)], input_shape=data.element_shape)
    model.compile(optimizer=strata.optimizers.Adam(0.1), loss=loss, device="host", seed=c.number(0, 3))
    model.fit(data, epochs=c.number(0, 3), batch_size=16, verbose=0)
    lib.model_set_preprocessing(model, p)
    file = os.path.join(folder, "model.strata")
    model.save(file)
    batch = c.one([100, 1, 7, 32])
    try:
        got = last_json(command("evaluate", file, path, *as_options(told), "--device", "host", "--batch", batch, "--json"))
    except Failed as error:
        raise Differs(f"evaluate fails: {str(error).split(': ')[-1][:30]}", str(error)) from None
    outputs = model.predict(data).reshape(int(known.sum()), width).astype(float)
    truth, scores = labels[known], got["scores"]
    if got["examples"] != known.sum():
        raise Differs("evaluate counts other examples", f"{got['examples']}, not {known.sum()}")
    if classes is None:
        deviation = truth.std() or 1
        answers = outputs[:, 0] * deviation + truth.mean()
        expected = {"r2": sklearn.metrics.r2_score(truth, answers), "mae": sklearn.metrics.mean_absolute_error(truth, answers),
                    "rmse": sklearn.metrics.mean_squared_error(truth, answers) ** 0.5}
        compare("the loss", numpy.array(got["loss"]), ((answers - truth) ** 2).mean() / deviation ** 2, 1e-4)
        for name, want in expected.items():
            compare(f"the score {name}", numpy.array(scores[name]), want, 1e-4)
        return
    every = list(range(len(classes)))
    truth = truth.astype(int)
    chances = numpy.concatenate([1 - outputs, outputs], 1) if single else outputs
    # f32 cannot tell apart what double can, so ties are those of f32.
    answers = chances.astype(numpy.float32).argmax(1) if not single else (outputs[:, 0] > 0.5).astype(int)
    expected = dict(zip(("precision", "recall", "f1"), sklearn.metrics.precision_recall_fscore_support(
        truth, answers, labels=every, zero_division=0)))
    expected["confusion_matrix"] = sklearn.metrics.confusion_matrix(truth, answers, labels=every).ravel()
    if len(classes) == 2:
        expected["auc"] = sklearn.metrics.roc_auc_score(truth, chances[:, 1])
    else:
        expected["auc"] = numpy.mean([sklearn.metrics.roc_auc_score(truth == k, chances[:, k]) for k in every])
    for name, want in expected.items():
        compare(f"the score {name}", numpy.array(scores[name], float).ravel(), numpy.ravel(want), 2e-6)
    best = numpy.sort(chances, 1)
    if (best[:, -1] - best[:, -2]).min() > 1e-6:  # the accuracy is that of the logits, which may differ where softmax is equal
        compare("the accuracy", numpy.array(got["accuracy"]), sklearn.metrics.accuracy_score(truth, answers), 1e-6)
    chosen = numpy.clip(chances[numpy.arange(len(truth)), truth], 1e-30, 1)
    if chosen.min() > 1e-3:
        compare("the loss", numpy.array(got["loss"]), -numpy.log(chosen).mean(), 1e-4)
    if scores["classes"] != classes:
        raise Differs("evaluate names other classes", f"{scores['classes']}, not {classes}")


if __name__ == "__main__":
    draws.main("tables", check)
