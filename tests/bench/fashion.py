#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the accuracy of `strata train FOLDER` with that of scikit-learn's MLPClassifier on Fashion-MNIST, as folders of
PNG files.

    python3 tests/bench/record.py fashion python3 tests/bench/fashion.py [--strata build/strata] [--device NAME]
        [--data /usr/share/datasets/fashion-mnist] [--train 60000] [--test 10000] [--only strata]

The data are those of Debian's package dataset-fashion-mnist (apt-get install dataset-fashion-mnist). Strata gets a folder
with train/ and test/, each with a folder of PNG files for each class, and no options but the seed and the device.
scikit-learn gets the same pixels, standardised, and MLPClassifier with its default settings. It needs numpy and
scikit-learn.
Exit codes: 0 Strata is level with the MLP (within two standard errors of the test examples) or better; 1 it is not; 3
something needed is missing."""

import argparse
import gzip
import json
import math
import pathlib
import struct
import subprocess
import sys
import tempfile
import time
import zlib

CLASSES = ("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
PARTS = {"train": "train", "test": "t10k"}


def read_part(folder, part, n):
    """Reads the first n pictures, as bytes of rows x columns, and their labels."""
    try:
        with gzip.open(folder / f"{PARTS[part]}-images-idx3-ubyte.gz") as file:
            _, found, rows, columns = struct.unpack(">4i", file.read(16))
            pictures = file.read(min(n, found) * rows * columns)
        with gzip.open(folder / f"{PARTS[part]}-labels-idx1-ubyte.gz") as file:
            labels = file.read()[8:]
    except OSError as error:
        print(f"fashion: {error}; apt-get install dataset-fashion-mnist", file=sys.stderr)
        sys.exit(3)
    size = rows * columns
    return [pictures[i:i + size] for i in range(0, len(pictures), size)], labels[:len(pictures) // size], columns


def png(pixels, columns):
    """Encodes a picture of grey bytes as PNG."""
    rows = len(pixels) // columns

    def chunk(name, content):
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
    lines = b"".join(b"\0" + pixels[i * columns:(i + 1) * columns] for i in range(rows))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">2I5B", columns, rows, 8, 0, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b""))


def write_folders(folder, part, pictures, labels, columns):
    for name in CLASSES:
        (folder / part / name).mkdir(parents=True)
    for i, (pixels, label) in enumerate(zip(pictures, labels)):
        (folder / part / CLASSES[label] / f"{i:05}.png").write_bytes(png(pixels, columns))


def run_strata(arguments, folder):
    command = [arguments.strata, "train", str(folder), "--seed", "0", "--device", arguments.device, "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        print(f"fashion: {' '.join(command)} ended with exit code {done.returncode}", file=sys.stderr)
        sys.exit(3)
    return json.loads(done.stdout.splitlines()[-1])["test_accuracy"]


def run_mlp(data):
    try:
        import numpy
        from sklearn import neural_network, pipeline, preprocessing
    except ImportError as error:
        print(f"fashion: {error}; pip install scikit-learn", file=sys.stderr)
        sys.exit(3)
    x, y = ({part: convert(data[part]) for part in data}
            for convert in (lambda d: numpy.frombuffer(b"".join(d[0]), "u1").reshape(len(d[0]), -1).astype("f4") / 255,
                            lambda d: numpy.frombuffer(d[1], "u1")))
    model = pipeline.make_pipeline(preprocessing.StandardScaler(), neural_network.MLPClassifier(random_state=0))
    model.fit(x["train"], y["train"])
    return model.score(x["test"], y["test"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strata", default="build/strata")
    parser.add_argument("--device", default="host")
    parser.add_argument("--data", type=pathlib.Path, default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--train", type=int, default=60000)
    parser.add_argument("--test", type=int, default=10000)
    parser.add_argument("--only", choices=("strata", "mlp"))
    arguments = parser.parse_args()
    data = {part: read_part(arguments.data, part, n) for part, n in (("train", arguments.train), ("test", arguments.test))}
    accuracy = {}
    with tempfile.TemporaryDirectory() as folder:
        for part, content in data.items():
            write_folders(pathlib.Path(folder), part, *content)
        runs = {"strata": lambda: run_strata(arguments, folder), "mlp": lambda: run_mlp(data)}
        for name, run in runs.items():
            if arguments.only in (None, name):
                begin = time.monotonic()
                accuracy[name] = run()
                print(f"{name:7} accuracy {accuracy[name]:.4f}  {time.monotonic() - begin:6.0f} s", flush=True)
    if len(accuracy) < 2:
        return 0
    spread = 2 * math.sqrt(accuracy["mlp"] * (1 - accuracy["mlp"]) / len(data["test"][1]))
    print(f"strata is {accuracy['strata'] - accuracy['mlp']:+.4f} +- {spread:.4f}")
    return 0 if accuracy["strata"] >= accuracy["mlp"] - spread else 1


if __name__ == "__main__":
    sys.exit(main())
