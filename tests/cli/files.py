# SPDX-License-Identifier: Apache-2.0
"""Makes files for the tests of the command: IDX files like MNIST's, .npy images, and damaged copies of a model file.

    files.py data FOLDER TRAIN TEST      images of bars with noise; the height of the bar is the class
    files.py images FOLDER               the first five test images as images.npy, images.idx, images.idx.gz, images_f32.npy
    files.py models MODEL FOLDER         one file for each kind of damage"""
import gzip
import json
import os
import random
import struct
import sys


def idx(dims, data):
    return struct.pack(">HBB", 0, 8, len(dims)) + struct.pack(">%dI" % len(dims), *dims) + bytes(data)


def write(path, data):
    with open(path, "wb") as file:
        file.write(data)


def draw(label, rng):
    rows = [bytes([255] * 28) if label * 2 + 4 <= row < label * 2 + 7 else bytes(rng.getrandbits(5) for _ in range(28))
            for row in range(28)]
    return b"".join(rows)


def data(folder, n_train, n_test):
    os.makedirs(folder, exist_ok=True)
    rng = random.Random(7)
    for prefix, n in (("train", int(n_train)), ("t10k", int(n_test))):
        labels = [rng.randrange(10) for _ in range(n)]
        images = b"".join(draw(label, rng) for label in labels)
        write(f"{folder}/{prefix}-images-idx3-ubyte", idx((n, 28, 28), images))
        write(f"{folder}/{prefix}-labels-idx1-ubyte", idx((n,), labels))


def npy(descr, shape, data):
    header = "{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (descr, shape)
    header += " " * (-(len(header) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data


def images(folder):
    with open(f"{folder}/t10k-images-idx3-ubyte", "rb") as file:
        pixels = file.read()[16:16 + 5 * 784]
    write(f"{folder}/images.npy", npy("|u1", (5, 28, 28), pixels))
    write(f"{folder}/rows.npy", npy("|u1", (5, 784), pixels))
    write(f"{folder}/one.npy", npy("|u1", (28, 28), pixels[:784]))
    write(f"{folder}/images_f32.npy", npy("<f4", (5, 28, 28), struct.pack("<3920f", *(p / 255 for p in pixels))))
    write(f"{folder}/images.idx", idx((5, 28, 28), pixels))
    write(f"{folder}/images.idx.gz", gzip.compress(idx((5, 28, 28), pixels)))
    write(f"{folder}/wide.npy", npy("|u1", (2, 28, 30), bytes(2 * 28 * 30)))
    write(f"{folder}/i64.npy", npy("<i8", (1, 28, 28), bytes(784 * 8)))


def models(path, folder):
    with open(path, "rb") as file:
        whole = file.read()
    (n,) = struct.unpack("<Q", whole[:8])
    header, payload = json.loads(whole[8:8 + n]), whole[8 + n:]
    os.makedirs(folder, exist_ok=True)

    def put(name, changed, tail=payload):
        text = json.dumps(changed).encode()
        write(f"{folder}/{name}", struct.pack("<Q", len(text)) + text + tail)

    def copy():
        return json.loads(json.dumps(header))

    def with_model(edit):
        changed = copy()
        model = json.loads(changed["__metadata__"]["strata.model"])
        edit(model)
        changed["__metadata__"]["strata.model"] = json.dumps(model)
        return changed

    write(f"{folder}/empty", b"")
    write(f"{folder}/text", b"these are just some words, no tensors\n")
    write(f"{folder}/cut_header", whole[:8 + n // 2])
    write(f"{folder}/cut_data", whole[:-1])
    write(f"{folder}/longer", whole + b"x")
    write(f"{folder}/huge_header", struct.pack("<Q", 1 << 62) + whole[8:])
    put("no_model", {k: v for k, v in header.items() if k != "__metadata__"})
    names = [k for k in header if k != "__metadata__"]
    names.sort(key=lambda k: header[k]["data_offsets"])
    first, last = names[0], names[-1]
    changed = copy()
    changed[last]["data_offsets"] = [changed[last]["data_offsets"][0] - 4, changed[last]["data_offsets"][1] - 4]
    put("overlapping", changed)
    changed = copy()
    changed["spare"] = {"dtype": "F32", "shape": [1], "data_offsets": [len(payload), len(payload) + 4]}
    put("extra", changed, payload + b"\0\0\0\0")
    changed = copy()
    begin, end = changed.pop(last)["data_offsets"]
    put("missing", changed, payload[:begin])
    changed = copy()
    changed[first]["shape"] = changed[first]["shape"][::-1] + [1]
    put("reshaped", changed)
    changed = copy()
    changed["__metadata__"]["strata.model"] = "{\"input\": [28, 28"
    put("cut_json", changed)
    put("other_layer", with_model(lambda m: m["layers"][0].update(layer="convolve")))
    put("huge_layer", with_model(lambda m: m["layers"][1].update(units=1 << 24)))
    put("other_input", with_model(lambda m: m.update(input=[8, 8])))


if __name__ == "__main__":
    {"data": data, "images": images, "models": models}[sys.argv[1]](*sys.argv[2:])
