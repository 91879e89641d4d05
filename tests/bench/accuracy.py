#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the accuracy of `strata train table.csv` with that of scikit-learn's defaults, on the same training and test
rows.

    python3 tests/bench/record.py accuracy python3 tests/bench/accuracy.py [--strata build/strata] [--data ../shared/data]
        [--seeds 5] [--first-seed 0] [--only iris,wine]

It needs scikit-learn (pip install scikit-learn). For each seed, each dataset is divided at random into four fifths for
training and one fifth for testing (the optical digits have their own test part). Strata gets a folder with train.csv and
test.csv, and no options but the seed and the device. scikit-learn gets MLPClassifier or MLPRegressor, and
LogisticRegression or Ridge, all with their default settings, after the usual preprocessing: means for missing values,
standardisation, a column for each word. The numbers are means over the seeds of the accuracy, or of R2 where numbers are
learned. After a difference the table shows twice its standard error over the seeds. Two results are level if they differ by
at most that, or by one test row.
Exit codes: 0 Strata is level with the MLP or better in each row; 1 it is not; 3 something needed is missing."""

import argparse
import csv
import gzip
import json
import math
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import warnings

# The tables are small: threads of a library of products only wait for each other.
for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

try:
    import numpy
    from sklearn import datasets, impute, linear_model, model_selection, neural_network, pipeline, preprocessing
except ImportError as error:
    print(f"accuracy: {error}; pip install scikit-learn", file=sys.stderr)
    sys.exit(3)


def of_sklearn(load, missing=0.0):
    """A data set of scikit-learn whose columns are numbers. `missing` is the share of cells that are left empty."""
    bunch = load()
    rows = [[repr(float(value)) for value in row] for row in bunch.data]
    generator = random.Random(1)
    for row in rows:
        for i in range(len(row)):
            if generator.random() < missing:
                row[i] = ""
    classes = load is not datasets.load_diabetes
    labels = [f"class_{label}" if classes else repr(float(label)) for label in bunch.target]
    return rows, labels, [], classes, ",", None


def made(pair, classes):
    """A table that a generator of scikit-learn makes."""
    rows = [[repr(float(value)) for value in row] for row in pair[0]]
    return rows, [f"class_{y}" if classes else repr(float(y)) for y in pair[1]], [], classes, ",", None


def words_and_dates():
    """Generated numbers of rented bicycles, which depend on the weather (a word), the date, the temperature and noise."""
    generator = random.Random(2)
    rows, labels = [], []
    for _ in range(1200):
        day, month = generator.randint(1, 28), generator.randint(1, 12)
        weather = generator.choice(["sunny", "cloudy", "rain", "snow"])
        town = generator.choice(["Bern", "Basel", "Chur"])
        warmth = 10 - 12 * math.cos(2 * math.pi * (month - 1) / 12) + generator.gauss(0, 4)
        count = 40 + 3 * warmth + {"sunny": 40, "cloudy": 15, "rain": -25, "snow": -40}[weather] + 20 * (town == "Basel")
        rows.append([f"2023-{month:02}-{day:02}", weather, town, f"{warmth:.1f}" if generator.random() > 0.1 else ""])
        labels.append("many" if count + generator.gauss(0, 10) > 70 else "few")
    return rows, labels, [0, 1, 2], True, ";", None


def optical_digits(folder):
    """The optical digits, with the test part that belongs to the data."""
    parts = []
    for name in ("optdigits.tra.gz", "optdigits.tes.gz"):
        with gzip.open(folder / "optdigits" / name, "rt") as file:
            parts.append([line.strip().split(",") for line in file])
    rows = parts[0] + parts[1]
    return [row[:-1] for row in rows], [f"digit_{row[-1]}" for row in rows], [], True, ",", len(parts[0])


def iris(folder):
    path = folder / "iris" / "iris.data"
    rows = [line.split(",") for line in path.read_text().split() if line]
    return [row[:-1] for row in rows], [row[-1] for row in rows], [], True, ",", None


def features_of_peers(rows, words):
    """The preprocessing that scikit-learn needs: dates become day, month and weekday."""
    import datetime

    columns = []
    for i in range(len(rows[0])):
        values = [row[i] for row in rows]
        if i in words and values[0].count("-") == 2:
            dates = [datetime.date.fromisoformat(value) for value in values]
            columns += [[d.day for d in dates], [d.month for d in dates], [d.weekday() for d in dates]]
        elif i in words:
            for word in sorted(set(values)):
                columns.append([float(value == word) for value in values])
        else:
            columns.append([float(value) if value else numpy.nan for value in values])
    return numpy.array(columns, dtype=float).T


def peers_of(classes, seed):
    if classes:
        models = [neural_network.MLPClassifier(random_state=seed), linear_model.LogisticRegression()]
    else:
        models = [neural_network.MLPRegressor(random_state=seed), linear_model.Ridge()]
    return [pipeline.make_pipeline(impute.SimpleImputer(), preprocessing.StandardScaler(), model) for model in models]


def train_strata(options, folder, names, separator, classes, seed):
    command = [options.strata, "train", str(folder), "--json", "--seed", str(seed), "--device", options.device]
    if not classes:
        command += ["--learn", "regression"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"accuracy: {' '.join(command)}: exit code {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout.splitlines()[-1])


def write(path, names, separator, rows, labels):
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, delimiter=separator)
        writer.writerow(names)
        writer.writerows([*row, label] for row, label in zip(rows, labels))


def score(result, classes):
    if classes:
        return result["test_accuracy"]
    return result["scores"]["r2"]


def measure(options, name, data):
    rows, labels, words, classes, separator, first = data
    names = [f"c{i}" for i in range(len(rows[0]))] + ["label"]
    x = features_of_peers(rows, words)
    y = numpy.array(labels if classes else [float(label) for label in labels])
    scores = []
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        if first:
            train, test = list(range(first)), list(range(first, len(rows)))
        else:
            train, test = model_selection.train_test_split(
                list(range(len(rows))), test_size=0.2, random_state=seed, stratify=labels if classes else None
            )
        with tempfile.TemporaryDirectory() as folder:
            for part, chosen in (("train", train), ("test", test)):
                write(f"{folder}/{part}.csv", names, separator, [rows[i] for i in chosen], [labels[i] for i in chosen])
            ours = score(train_strata(options, folder, names, separator, classes, seed), classes)
        theirs = []
        for model in peers_of(classes, seed):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                theirs.append(model.fit(x[train], y[train]).score(x[test], y[test]))
        scores.append([ours, *theirs])
    scores = numpy.array(scores)
    means = scores.mean(axis=0)
    cells, level = [], []
    for peer in (1, 2):
        differences = scores[:, 0] - scores[:, peer]
        noise = 2 * differences.std(ddof=1) / math.sqrt(len(differences)) if len(differences) > 1 else 0
        one_more = 1 / len(test) if classes else 0  # one test row that is answered otherwise
        cells.append(f"{differences.mean():+.4f} +- {noise:.4f}")
        level.append(differences.mean() >= -max(noise, one_more))
    print(
        f"| {name} | {len(rows)} | {'accuracy' if classes else 'R2'} | {means[0]:.4f} | {means[1]:.4f} | {means[2]:.4f} "
        f"| {cells[0]} | {cells[1]} | {'yes' if level[0] else 'no'}, {'yes' if level[1] else 'no'} |",
        flush=True,
    )
    return level[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strata", default="build/strata")
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path("../shared/data"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0, help="seeds that no setting was chosen by")
    parser.add_argument("--device", default="host")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    if not pathlib.Path(options.strata).exists():
        print(f"accuracy: {options.strata} is missing; build first, or give --strata", file=sys.stderr)
        return 3
    tables = {
        "iris": lambda: iris(options.data),
        "breast cancer": lambda: of_sklearn(datasets.load_breast_cancer),
        "diabetes, a tenth missing": lambda: of_sklearn(datasets.load_diabetes, 0.1),
        "words and dates, `;`": words_and_dates,
        "optical digits": lambda: optical_digits(options.data),
        "wine (held out)": lambda: of_sklearn(datasets.load_wine),
        "digits (held out)": lambda: of_sklearn(datasets.load_digits),
        "moons (held out)": lambda: made(datasets.make_moons(400, noise=0.25, random_state=5), True),
        "classification (held out)": lambda: made(
            datasets.make_classification(600, 20, n_informative=5, flip_y=0.05, random_state=5), True
        ),
        "regression (held out)": lambda: made(
            datasets.make_regression(300, 15, n_informative=8, noise=30, random_state=5), False
        ),
        "friedman1 (held out)": lambda: made(datasets.make_friedman1(500, noise=1, random_state=5), False),
    }
    print("| table | rows | measure | Strata | MLP | linear | beside the MLP | beside the linear model | level or better |")
    print("|---|---|---|---|---|---|---|---|---|")
    level = True
    for name, load in tables.items():
        if options.only and not any(name.startswith(word) for word in options.only.split(",")):
            continue
        try:
            data = load()
        except OSError as error:
            print(f"accuracy: {name} is left out: {error}", file=sys.stderr)
            continue
        level = measure(options, name, data) and level
    return 0 if level else 1


if __name__ == "__main__":
    sys.exit(main())
