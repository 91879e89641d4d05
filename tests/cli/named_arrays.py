# SPDX-License-Identifier: Apache-2.0
"""Makes arrays, a table and models for named_arrays_test.sh: named_arrays.py make FOLDER. And named_arrays.py ask STRATA
FOLDER compares the answers of `strata serve` with those of `strata predict`."""
import http.client
import json
import pathlib
import random
import struct
import subprocess
import sys
import zipfile

from files import npy

TWO = {
    "inputs": [{"name": "left", "shape": [3]}, {"name": "right", "shape": [4], "dtype": "i32"}],
    "layers": [
        {"layer": "embedding", "vocabulary": 50, "units": 4, "inputs": ["right"]},
        {"layer": "flatten", "name": "flat"},
        {"layer": "concat", "inputs": ["flat", "left"]},
        {"layer": "dense", "units": 16, "activation": "relu", "name": "hidden"},
        {"layer": "dense", "units": 2, "name": "same"},
        {"layer": "dense", "units": 1, "name": "size", "inputs": ["hidden"]},
    ],
    "outputs": [{"name": "same", "loss": "sparse_categorical_crossentropy"}, {"name": "size", "loss": "mse"}],
    "optimizer": {"name": "adam", "learning_rate": 0.01},
}


def array(dtype, rows):
    flat = [value for row in rows for value in (row if isinstance(row, list) else [row])]
    shape = (len(rows), len(rows[0])) if isinstance(rows[0], list) else (len(rows),)
    return npy(dtype, shape, struct.pack(f"<{len(flat)}{'f' if 'f' in dtype else 'i'}", *flat))


def make(work):
    rng = random.Random(5)
    n = 200
    left = [[rng.gauss(0, 1) for _ in range(3)] for _ in range(n)]
    right = [[rng.randrange(50) for _ in range(4)] for _ in range(n)]
    columns = {
        "left": ("<f4", left),
        "right": ("<i4", right),
        "same": ("<i4", [int(sum(row) > 0) for row in left]),
        "size": ("<f4", [2 * row[0] for row in left]),
    }

    def archive(name, parts, leave_out=""):
        with zipfile.ZipFile(work / name, "w") as file:
            for column, (dtype, values) in columns.items():
                for part, rows in parts.items():
                    if column != leave_out:
                        file.writestr(f"{column}{part}.npy", array(dtype, values[rows]))

    archive("all.npz", {"": slice(None)})
    archive("parts.npz", {"_train": slice(0, 150), "_test": slice(150, n)})
    archive("inputs.npz", {"": slice(None)}, leave_out="same")
    archive("wrong.npz", {"": slice(None)}, leave_out="right")
    (work / "two.json").write_text(json.dumps(TWO))
    (work / "request.json").write_text(json.dumps({"inputs": {"left": left[:5], "right": right[:5]}}))
    rows = ["review,stars,shop,mood"]
    for _ in range(200):
        good = rng.random() < 0.5
        words = [rng.choice(["fine", "great"] if good else ["bad", "poor"]) if rng.random() < 0.3
                 else rng.choice(["the", "box", "came", "today", "with", "it", "post"]) for _ in range(12)]
        rows.append(f"{' '.join(words)},{rng.randint(3, 5) if good else rng.randint(1, 3)},{rng.choice('AB')},"
                    + ("glad" if good else "sad"))
    (work / "reviews.csv").write_text("\n".join(rows) + "\n")


def ask(strata, work):
    command = [strata, "serve", str(work / "two.strata"), "--device", "host", "--port", "0", "--json"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    try:
        port = int(json.loads(server.stdout.readline())["url"].rsplit(":", 1)[1])

        def post(body):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=200)
            connection.request("POST", "/predict", body)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

        status, answer = post((work / "request.json").read_text())
        expected = [json.loads(line) for line in (work / "out.json").read_text().splitlines()[:5]]
        assert status == 200, answer
        assert len(answer["predictions"]) == 5
        for got, want in zip(answer["predictions"], expected):
            assert abs(got["size"] - want["size"]) < 1e-5, (got, want)
            assert all(abs(a - b) < 1e-5 for a, b in zip(got["same"], want["same"])), (got, want)
        for body, words in (
            ({"left": [[1, 2, 3]]}, "right"),
            ({"left": [[1, 2, 3]], "right": [[1, 2, 3, 4], [1, 2, 3, 4]]}, "has 2 examples, the first input has 1"),
            ({"left": [[1, 2]], "right": [[1, 2, 3, 4]]}, "has 2 elements"),
            ({"left": [[1, 2, 3]], "right": [[1, 2, 3, 400]]}, "400"),
            ({"left": [], "right": []}, "has 0 examples"),
            ([[1, 2, 3]], "object"),
        ):
            status, answer = post(json.dumps({"inputs": body}))
            assert status == 400 and words in json.dumps(answer), (body, status, answer)
    finally:
        server.terminate()
        server.wait()


if sys.argv[1] == "make":
    make(pathlib.Path(sys.argv[2]))
else:
    ask(sys.argv[2], pathlib.Path(sys.argv[3]))
