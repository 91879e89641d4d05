#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The samples beside mnist, the programs to start from, and predicting what a person has.
. "$(dirname "$0")/support.sh"

# ---- linear: the losses of Keras from the same zeros (0.15626 with its L2 of 1e-4, which adds 2e-5) ----
expect 0 "with the point (1, 1)" train linear --device host
expect 0 "" train linear --device host --json
json 'r["batch"] == 10 and r["epochs"] == 2 and r["steps"] == 20 and r["loss"] < 1e-2'
json 'abs(sum(r["losses"][:10]) / 10 - 0.15625) < 5e-5 and r["start_to_first_step_s"] > 0'
expect 2 "takes no --data" train linear --device host --data "$work"
check "the program trains" sh -c "'$STRATA_BUILD_DIR/samples/linear' | grep -q 'epoch 2: loss'"

# ---- regression, made and from files ----
expect 0 "numbers that the program makes" train regression --device host --epochs 2
expect 0 "" train regression --device host --json --save "$work/made.strata"
json 'r["loss"] < 0.2 and r["test_loss"] < 0.2 and r["epochs"] == 10'
check "the program trains" sh -c "'$STRATA_BUILD_DIR/samples/regression' | grep -q 'after epoch 10'"
python3 - "$work" <<'END_OF_PYTHON'
import random, sys
random.seed(3)
rows = [(random.uniform(-1, 1), random.uniform(-1, 1), random.uniform(-1, 1)) for _ in range(500)]
heavy = ["a,price,w"] + [f"{i % 2},{i % 3 == 0:d},{1 if i % 3 == 0 else 0}" for i in range(100)]
open(sys.argv[1] + "/heavy.csv", "w").write("\n".join(heavy) + "\n")
lines = ["a,b,c,price"] + [f"{a:.6f},{b:.6f},{c:.6f},{2 * a - b + 0.5:.6f}" for a, b, c in rows]
open(sys.argv[1] + "/houses.csv", "w").write("\n".join(lines) + "\n")
open(sys.argv[1] + "/new.csv", "w").write("a,b\n0.5,0.25\n-1,1\n")
open(sys.argv[1] + "/ragged.csv", "w").write("a,b,price\n1,2,3\n4,5\n")
END_OF_PYTHON
expect 0 "" train regression --device host --data "$work/houses.csv" --label price --epochs 20 --json
json 'r["test_loss"] < 0.02'
expect 0 "saved" train regression --device host --data "$work/houses.csv" --label price --columns a,b --epochs 60 --save "$work/houses.strata"
expect 0 "index	value" predict "$work/houses.strata" --device host --input "$work/new.csv"
expect 0 "" predict "$work/houses.strata" --device host --input "$work/new.csv" --json
json 'r["index"] == 1 and abs(r["value"] + 2.5) < 0.4'
expect 0 "on 100 test examples" evaluate "$work/houses.strata" --device host --data "$work/houses.csv" --label price --columns a,b
expect 0 "" train regression --device host --data "$work/heavy.csv" --label price --weight-column w --epochs 100 --learning-rate 0.01 --json
json 'r["loss"] < 1e-3 and r["test_loss"] < 1e-3' # rows that weigh nothing are not learned: all others are 1
expect 0 "" train regression --device host --data "$work/heavy.csv" --label price --columns a --epochs 100 --learning-rate 0.01 --json
json 'r["loss"] > 0.1'
expect 2 "--weight-column: only a CSV" train mnist --device host --weight-column w
expect 2 "class weights: mse" train regression --device host --epochs 1 --class-weights 1,2
expect 3 'price' train regression --device host --data "$work/houses.csv" --label prise
expect 3 "ragged.csv" train regression --device host --data "$work/ragged.csv" --label price
expect 2 "--label COLUMN" train regression --device host --data "$work/houses.csv"
expect 3 "has no train.csv" train regression --device host --data "$work" --label price
expect 3 "the data's elements are (4)" predict "$work/houses.strata" --device host --input "$work/houses.csv"

# ---- pictures ----
make_data "$work/data"
python3 "$here/files.py" images "$work/data"
expect 0 "saved" train mnist --device host --data "$work/data" --epochs 3 --batch 60 --seed 1 --save "$work/digits.strata"
expect 0 "index" predict "$work/digits.strata" --device host --input "$work/data/one.npy"
cp "$work/out" "$work/first"
python3 - "$work" <<'END_OF_PYTHON'
import struct, sys, zlib
work = sys.argv[1]
pixels = open(work + "/data/one.npy", "rb").read()[-784:]
def twice(rows):
    return b"".join(bytes(v for v in rows[28 * y:28 * y + 28] for _ in (0, 1)) * 2 for y in range(28))
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
def png(rows):
    raw = b"".join(b"\0" + rows[28 * y:28 * y + 28] for y in range(28))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 28, 28, 8, 0, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(raw)) +
            chunk(b"IEND", b""))
def put(name, data):
    open(work + "/" + name, "wb").write(data)
put("one.pgm", b"P5\n# a comment\n28 28\n255\n" + pixels)
put("inverted.pgm", b"P5 28 28 255\n" + bytes(255 - p for p in pixels))
put("text.pgm", b"P2 28 28 255\n" + b" ".join(b"%d" % p for p in pixels))
put("one.ppm", b"P6 28 28 255\n" + bytes(p for q in pixels for p in (q, q, q)))
put("large.pgm", b"P5 56 56 255\n" + twice(pixels))
put("one.png", png(pixels))
put("cut.png", png(pixels)[:-40])
put("cut.pgm", b"P5 28 28 255\n" + pixels[:-1])
put("huge.pgm", b"P5 100000 100000 255\n")
END_OF_PYTHON
for name in one.pgm text.pgm one.ppm; do
    expect 0 "index" predict "$work/digits.strata" --device host --input "$work/$name"
    check "$name gives the same as one.npy" cmp "$work/out" "$work/first"
done
expect 0 "index" predict "$work/digits.strata" --device host --input "$work/inverted.pgm" --invert
check "an inverted picture, inverted, gives the same" cmp "$work/out" "$work/first"
expect 0 "index" predict "$work/digits.strata" --device host --input "$work/large.pgm"
check "a picture twice as large is the same class" test "$(cut -f 2 "$work/out" | tail -n 1)" = "$(cut -f 2 "$work/first" | tail -n 1)"
if "$strata" predict "$work/digits.strata" --device host --input "$work/one.png" >"$work/out" 2>"$work/err"; then
    check "one.png gives the same as one.npy" cmp "$work/out" "$work/first"
    expect 3 "its PNG data is damaged" predict "$work/digits.strata" --device host --input "$work/cut.png"
else
    stderr "this build has no libpng"
fi
expect 3 "it is cut off" predict "$work/digits.strata" --device host --input "$work/cut.pgm"
expect 3 "is 100000 x 100000 pixels" predict "$work/digits.strata" --device host --input "$work/huge.pgm"
expect 3 "is a picture, but the model takes (2)" predict "$work/houses.strata" --device host --input "$work/one.pgm"
expect 2 "was not trained on texts" predict "$work/digits.strata" --device host --text "hello"
expect 2 "not both" predict "$work/digits.strata" --device host --text "hello" --input "$work/one.pgm"
finish
