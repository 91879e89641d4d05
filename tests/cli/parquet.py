# SPDX-License-Identifier: Apache-2.0
"""Writes Parquet files for parquet_test.sh with pyarrow to a folder, and the same tables as CSV."""
import csv
import datetime
import decimal
import json
import random
import sys

import pyarrow as pa
import pyarrow.parquet as pq

work = sys.argv[1]
rng = random.Random(5)
N = 600


def put(name, columns, **options):
    pq.write_table(pa.table(columns), f"{work}/{name}", **options)


def write_csv(name, columns):
    """Writes the CSV like pandas' to_csv: nothing for a missing value, True and False, ISO dates without the time at
    midnight."""
    def text(value):
        if value is None:
            return ""
        if isinstance(value, datetime.datetime) and value.time() == datetime.time():
            return str(value.date())
        return str(value)
    with open(f"{work}/{name}", "w", newline="") as file:
        out = csv.writer(file)
        out.writerow(columns)
        out.writerows([text(v) for v in row] for row in zip(*columns.values()))


def sometimes(value):
    return None if rng.random() < 0.1 else value


# Each type that a cell can have. The label is what `size` and `ripe` say.
size = [rng.uniform(-2, 2) for _ in range(N)]
ripe = [rng.random() < 0.5 for _ in range(N)]
days = [datetime.date(2023, 1, 1) + datetime.timedelta(days=rng.randrange(700)) for _ in range(N)]
times = [datetime.datetime(1969, 12, 1) + datetime.timedelta(days=rng.randrange(60), seconds=rng.randrange(0, 86400, 3600))
         for _ in range(N)]
columns = {
    "size, in \"cm\"": [sometimes(round(x, 6)) for x in size],
    "ripe": [sometimes(x) for x in ripe],
    "Stück": [sometimes(rng.randrange(-10**6, 10**6)) for _ in range(N)],
    "many": [rng.randrange(2**63) for _ in range(N)],
    "price": [sometimes(decimal.Decimal(rng.randrange(10**6)) / 100) for _ in range(N)],
    "day": [sometimes(x) for x in days],
    "when": [sometimes(x) for x in times],
    "colour": [sometimes(rng.choice(["red", "grün", 'a "b"', "one\ntwo"])) for _ in range(N)],
    "empty": [None] * N,
    "kind": ["good" if a > 0 and b else "bad" for a, b in zip(size, ripe)],
}
types = {"ripe": pa.bool_(), "Stück": pa.int32(), "many": pa.uint64(), "price": pa.decimal128(12, 2), "day": pa.date32(),
         "when": pa.timestamp("us"), "colour": pa.dictionary(pa.int8(), pa.string()), "empty": pa.null()}
arrays = {k: pa.array(v, types.get(k)) for k, v in columns.items()}
put("fruit.parquet", arrays, row_group_size=97, compression="zstd", write_page_checksum=True)
put("plain.parquet", arrays, use_dictionary=False, compression="none", data_page_version="2.0")
write_csv("fruit.csv", columns)
pq.write_table(pa.table({k: arrays[k] for k in reversed(list(arrays)) if k != "kind"}).slice(0, 50), f"{work}/new.parquet")

# Other types in which Parquet can store the same values.
narrow = {"a": [i % 7 + 0.5 for i in range(60)], "b": [float(i % 5) for i in range(60)], "y": ["u" if i % 7 > 3 else "v"
                                                                                             for i in range(60)]}
write_csv("narrow.csv", narrow)
put("narrow.parquet", {"a": pa.array(narrow["a"], pa.float32()), "b": pa.array(narrow["b"], pa.float16()),
                       "y": pa.array(narrow["y"], pa.large_string())})
put("bytes.parquet", {"a": pa.array(narrow["a"]), "b": pa.array([int(x) for x in narrow["b"]], pa.int8()),
                      "y": pa.array([x.encode() for x in narrow["y"]], pa.binary())})
at = [datetime.datetime(1950 + i, 1 + i % 12, 2, i % 24, 3, 4, 250000 * (i % 2)) for i in range(60)]
clocks = [datetime.time(1, 2, 3), datetime.time(12, 0), datetime.time(23, 59, 59, 5000)]
late = {"when": at, "zone": at, "clock": [clocks[i % 3] for i in range(60)], "long": [i * 90 + 0.5 for i in range(60)],
        "y": narrow["y"]}
write_csv("late.csv", late | {"clock": [str(c).replace("005000", "005") for c in late["clock"]]})
put("late.parquet", {"when": pa.array(at, pa.timestamp("ns")),
                     "zone": pa.array([t.replace(tzinfo=datetime.timezone.utc) for t in at],
                                      pa.timestamp("ms", "Europe/Zurich")),
                     "clock": pa.array(late["clock"], pa.time64("us")),
                     "long": pa.array([datetime.timedelta(seconds=x) for x in late["long"]], pa.duration("ms")),
                     "y": narrow["y"]})

# An index of pandas is stored after the columns, so the label is the column before it.
frame = pa.table({"x": narrow["a"], "y": narrow["y"], "who": [f"n{i}" for i in range(60)],
                  "__index_level_1__": list(range(60))})
frame = frame.replace_schema_metadata({"pandas": json.dumps({"index_columns": ["who", "__index_level_1__"], "columns": []})})
pq.write_table(frame, f"{work}/frame.parquet")

# An index that is not stored is described by an object, whose keys and values are no names of columns.
frame = pa.table({"x": narrow["a"], "range": narrow["a"], "kind": narrow["y"]})
unstored = {"kind": "range", "name": None, "start": 0, "stop": 60, "step": 1}
frame = frame.replace_schema_metadata({"pandas": json.dumps({"index_columns": [unstored], "columns": []})})
pq.write_table(frame, f"{work}/range.parquet")

# ---- files with errors ----
put("lists.parquet", {"a": [[1.0], [2.0, 3.0]], "y": ["u", "v"]})
put("parts.parquet", {"a": [{"b": 1}, {"b": 2}], "y": ["u", "v"]})
put("pairs.parquet", {"a": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int32())), "y": ["u", "v"]})
put("rowless.parquet", {"a": pa.array([], pa.int32()), "y": pa.array([], pa.string())})
pq.write_table(pa.table({}), f"{work}/nothing.parquet")
pq.write_table(pa.table([[1], [2]], names=["a", "a"]), f"{work}/twice.parquet")
put("far.parquet", {"a": pa.array([0, 1 << 55], pa.timestamp("ms")), "y": ["u", "v"]})
put("nul.parquet", {"a": ["u", "v\0w"], "y": ["u", "v"]})
put("odd.parquet", {"a": pa.array([b"\xff\xfe", b"a"], pa.binary()), "y": ["u", "v"]})
put("wrong.parquet", {k: pa.array(["1", "v"]) if k == "many" else v.slice(0, 2) for k, v in arrays.items()})
put("wide.parquet", {f"c{i}": [1] for i in range(17000)})
whole = open(f"{work}/fruit.parquet", "rb").read()
open(f"{work}/cut.parquet", "wb").write(whole[:len(whole) // 2])
open(f"{work}/headless.parquet", "wb").write(whole[:4])
open(f"{work}/flipped.parquet", "wb").write(whole[:200] + bytes([whole[200] ^ 255]) + whole[201:])


for i in range(1, 21):  # the end of the file describes the columns and their positions
    damaged = bytearray(open(f"{work}/plain.parquet", "rb").read())
    for _ in range(20):
        damaged[-rng.randrange(5, 400)] ^= rng.randrange(1, 256)
    open(f"{work}/damaged{i}.parquet", "wb").write(damaged)
