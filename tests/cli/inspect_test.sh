#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# strata inspect and strata summary: the contents of a file, and the layers and costs of a model.
. "$(dirname "$0")/support.sh"
make_data "$work/data"
python3 "$here/files.py" images "$work/data"
expect 0 "saved" train mnist --device host --data "$work/data" --epochs 1 --save "$work/model.strata"

# ---- inspect ----
expect 0 "a Strata model (safetensors)" inspect "$work/model.strata"
stdout "dense/kernel "
stdout "(784,128)"
stdout '"units":128'
quiet stderr
expect 0 "" inspect "$work/model.strata" --json
json 'r["format"] == "a Strata model (safetensors)" and r["model"]["label"] == "mnist"'
json '{t["name"]: (t["dtype"], t["shape"], t["bytes"]) for t in r["tensors"]}["dense/kernel"] == ("F32", [784, 128], 401408)'
expect 0 "npy" inspect "$work/data/images.npy"
stdout "(5,28,28)"
expect 0 "" inspect "$work/data/images_f32.npy" --json
json 'r["tensors"] == [{"name": "elements", "dtype": "f32", "shape": [5, 28, 28], "bytes": 15680}]'
for name in images.idx images.idx.gz; do
    expect 0 "" inspect "$work/data/$name" --json
    json 'r["format"] == "IDX" and r["tensors"][0]["dtype"] == "u8" and r["tensors"][0]["bytes"] == 3920'
done

python3 - "$work" <<'END_OF_PYTHON'
import gzip, struct, sys
head = "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), }".ljust(117) + "\n"
data = b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head.encode() + bytes(48)
open(sys.argv[1] + "/double.npy", "wb").write(data)
open(sys.argv[1] + "/double.npy.gz", "wb").write(gzip.compress(data))
open(sys.argv[1] + "/text.gz", "wb").write(gzip.compress(b"no format of ours"))
END_OF_PYTHON
printf '{"input": [28' >"$work/cut.json"
for name in double.npy double.npy.gz; do
    expect 0 "" inspect "$work/$name" --json
    json 'r["format"] == "npy" and r["tensors"] == [{"name": "elements", "dtype": "f64", "shape": [2, 3], "bytes": 48}]'
done
for name in stored deflated; do
    expect 0 "" inspect "$STRATA_SOURCE_DIR/tests/fuzz/corpus/npz/$name" --json
    json 'r["format"] == "npz" and [(t["name"], t["dtype"], t["shape"], t["bytes"]) for t in r["tensors"]] == [("x", "u8", [2, 3], 6), ("y", "i64", [2, 1], 16), ("w", "f32", [2], 8)]'
done
expect 0 "npz" inspect "$STRATA_SOURCE_DIR/tests/fuzz/corpus/npz/stored"
head -c 300 "$STRATA_SOURCE_DIR/tests/fuzz/corpus/npz/stored" >"$work/cut.npz"
expect 3 "it is cut off, or not a zip archive" inspect "$work/cut.npz" --json
quiet stdout
python3 -c "
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], 'w') as z: z.writestr('note.txt', 'no array')" "$work/note.npz"
expect 3 "note.npz: note.txt" inspect "$work/note.npz"
quiet stdout
expect 3 "begins like none of the formats" inspect "$work/text.gz"
expect 0 "a Strata model (JSON)" inspect "$STRATA_SOURCE_DIR/samples/mnist/model.json"
stdout "dense/kernel "
stdout "(784,128)"
expect 3 "cut.json" inspect "$work/cut.json"

expect 2 "inspect needs FILE" inspect
expect 3 "nowhere: cannot open" inspect "$work/nowhere"
expect 3 "it is a folder" inspect "$work"
: >"$work/empty"
expect 3 "$work/empty: begins like none of the formats" inspect "$work/empty"
head -c 3000 "$work/data/images.idx" >"$work/cut"
expect 3 "it is cut off" inspect "$work/cut"
python3 "$here/files.py" models "$work/model.strata" "$work/damaged"
for name in cut_header cut_data overlapping cut_json; do
    expect 3 "$work/damaged/$name" inspect "$work/damaged/$name"
    quiet stdout
done

# ---- summary ----
expect 0 "parameters      101770" summary mnist
stdout "dense_1"
stdout "(64,128)"
expect 0 "" summary mnist --batch 2 --json
json 'r["batch"] == 2 and r["parameters"] == 101770 and r["forward_flops"] == 2 * (2 * 784 * 128 + 2 * 128 + 2 * 128 * 10 + 10)'
json '[(l["kind"], l["output"], l["parameters"]) for l in r["layers"]] == [
    ("flatten", [2, 784], 0), ("dense", [2, 128], 100480), ("dense", [2, 10], 1290)]'
json '2 * 2 * (2 * 784 * 128 + 2 * 128 * 10) < r["step_flops"] < 3 * 2 * (2 * 784 * 128 + 2 * 128 * 10)'
json 'r["step_bytes"] > 7 * 4 * 101770 and r["step_memory_bytes"] > 0'
expect 0 "" summary "$work/model.strata" --json
json 'r["parameters"] == 101770'
printf '%s\n' '{"input": [4, 4], "layers": [{"layer": "flatten"}, {"layer": "dense", "units": 3}]}' >"$work/small.json"
expect 0 "parameters      51 " summary "$work/small.json"
expect 2 'Did you mean "mnist"?' summary mnits
expect 3 "nowhere.json: cannot open" summary "$work/nowhere.json"
expect 3 "nowhere.strata: cannot open" summary "$work/nowhere.strata"
expect 2 '--batch is "0"' summary mnist --batch 0

# ---- the times of a step's nodes ----
devices=host
if "$strata" devices --json | grep -q '"opencl:0"'; then devices="host opencl:0"; else echo \
    "skipped: times on opencl:0 (there is none)"; fi
for device in $devices; do
    expect 0 ", batch 16, on $device (" summary mnist --batch 16 --times --device $device
    python3 - "$work/out" <<'END' || bad "the table of times on $device"
import re, sys
table = open(sys.argv[1]).read().split("\n\n")[1].splitlines()
assert table[0].split() == "node output n us each % GFLOP/s GB/s".split(), table[0]
rows = [re.fullmatch(r"(\S+)( .*?)? +(f32\([0-9,]*\)) +(\d+) +(\S+) +(\S+) +(\S+) +(\S+)", line) for line in table[1:-1]]
assert all(rows), table
ops = [row[1] for row in rows]
assert {"matmul", "sparse_softmax_cross_entropy", "sparse_softmax_cross_entropy_grad", "reduce_sum"} <= set(ops), ops
# If the device has a kernel for it, the update also computes the largest gradient.
assert ops.count("adam") + ops.count("adam_product") == 1 and ops.count("matmul") + ops.count("adam_product") == 5, ops
assert any(row[1] == "matmul" and row[2].split() == ["bias", "relu"] for row in rows), table
times = [(int(row[4]) * float(row[5]), float(row[6])) for row in rows if row[5] != "-"]
assert all(us > 0 or share < 0.1 for us, share in times) and times == sorted(times, key=lambda t: -t[1]), times
assert abs(sum(share for _, share in times) - 100) < 0.05 * len(times) + 0.01, times
nodes, step = map(float, re.fullmatch(r"the nodes one by one (\S+) us, a whole step (\S+) us", table[-1]).groups())
assert abs(nodes - sum(us for us, _ in times)) < 0.1 * len(times) and step > 0, (nodes, step)
END
done
expect 0 "" summary mnist --batch 16 --times --device host --precision bf16 --json
json 'r["device"] == "host" and r["step_us"] > 0 and any(n["dtype"] == "bf16" and n["op"] == "matmul bias relu" for n in r["nodes"])'
json 'abs(sum(n["share"] or 0 for n in r["nodes"]) - 1) < 0.001'
json 'abs(sum(n["count"] * (n["us"] or 0) for n in r["nodes"]) / r["nodes_us"] - 1) < 0.001'
# a rate has three digits after the point, so that of a slow machine may differ by half a thousandth
json 'next((n["gbytes"] + 0.0005) * n["us"] for n in r["nodes"] if n["op"].startswith("adam")) > 7 * 4 * 101.77'
expect 4 'there is no "opencl:77"' summary mnist --times --device opencl:77
peak() {
    grep -o '"peak_bytes":[0-9]*' "$work/out" | cut -d: -f2
}
expect 0 "" summary cifar10_resnet --batch 32 --memory --json
kept=$(peak)
expect 0 "" summary cifar10_resnet --batch 32 --memory --recompute auto:1M --json
check "the peak falls by recomputing" test "$(peak)" -lt "$kept"
expect 2 "--precision f13" summary mnist --precision f13
printf 'PK\003\004' >"$work/m.keras"
expect 3 "m.keras: is a file of Keras; make a model of it first: strata convert" inspect "$work/m.keras"
finish
