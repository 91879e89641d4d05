#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The samples besides mnist, the programs to start from, and predictions from a user's data.
. "$(dirname "$0")/support.sh"

# ---- linear: the losses of Keras from the same initial zeros (0.15626 with its L2 of 1e-4, which adds 2e-5) ----
expect 0 "with the point (1, 1)" train linear --device host
expect 0 "" train linear --device host --json
json 'r["batch"] == 10 and r["epochs"] == 2 and r["steps"] == 20 and r["loss"] < 1e-2'
json 'abs(sum(r["losses"][:10]) / 10 - 0.15625) < 5e-5 and r["start_to_first_step_s"] > r["data_s"] >= 0'
expect 2 "takes no --data" train linear --device host --data "$work"
check "the program trains" sh -c "'$STRATA_BUILD_DIR/samples/linear' | grep -q 'epoch 2: loss'"

# ---- regression, on generated data and from files ----
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
# Rows for a model that has no preprocessing: each form of a table gives the same number.
expect 0 "" predict "$work/made.strata" --row .1,.2,.3,.4,.5,.6,.7,.8,.9,1 --device host
value=$(cut -f 2 "$work/out" | tail -n 1)
expect 0 "$value" predict "$work/made.strata" --row '.1;.2;.3;.4;.5;.6;.7;.8;.9;1' --separator ';' --device host
printf 'a~b~c~d~e~f~g~h~i~j\n.1~.2~.3~.4~.5~.6~.7~.8~.9~1\n' >"$work/tilde.csv"
expect 0 "$value" predict "$work/made.strata" "$work/tilde.csv" --separator '~' --device host
checks=$((checks + 1))
"$strata" predict "$work/made.strata" - --separator '~' --device host <"$work/tilde.csv" | grep -qF -- "$value" ||
    bad "predict - reads a table from standard input"

expect 0 "saved" train regression --device host --data "$work/houses.csv" --label price --columns a,b --epochs 60 --save \
    "$work/houses.strata"
expect 0 "index	value" predict "$work/houses.strata" --device host --input "$work/new.csv"
expect 0 "" predict "$work/houses.strata" --device host --input "$work/new.csv" --json
json 'r["index"] == 1 and abs(r["value"] + 2.5) < 0.4'
cp "$work/out" "$work/named"
printf '0.5,0.25\n-1,1\n' >"$work/rows.csv" # without a header
expect 0 "" predict "$work/houses.strata" --device host --input "$work/rows.csv" --json
check "rows without a header are taken in the order of the model's columns" cmp "$work/out" "$work/named"
gzip -c "$work/rows.csv" >"$work/rows.csv.gz"
expect 0 "" predict "$work/houses.strata" --device host --input "$work/rows.csv.gz" --json
check "compressed too" cmp "$work/out" "$work/named"
tail -n 1 "$work/named" | sed 's/"index":1/"index":0/' >"$work/second"
expect 0 "" predict "$work/houses.strata" --device host --row=-1,1 --json
check "--row is such a row" cmp "$work/out" "$work/second"
printf '1,2,3\n' >"$work/wide.csv"
expect 3 "wide.csv: has no header, and 3 columns; the model takes 2: a, b" predict "$work/houses.strata" --device host --input \
    "$work/wide.csv"
expect 3 "--row: has no header, and 1 column; the model takes 2: a, b" predict "$work/houses.strata" --device host --row 1
expect 3 'has the cell "x", which is not a number' predict "$work/houses.strata" --device host --row 1,x
printf '1,2\n3\n' >"$work/short.csv"
expect 3 "short.csv:2:2: the record ends after 1 cells" predict "$work/houses.strata" --device host --input "$work/short.csv"
expect 3 'has no column "a"' predict "$work/houses.strata" --device host --input "$work/rows.csv" --columns a,b
expect 2 "--columns: a --row has no names" predict "$work/houses.strata" --device host --row 1,2 --columns a,b
# the model was not trained on a table
expect 0 "index	value" predict "$work/made.strata" --device host --row 1,2,3,4,5,6,7,8,9,10
printf '1,2,price\n0.5,0.25,1\n-1,1,1\n0,0,1\n1,1,1\n2,2,1\n' >"$work/numbered.csv" # column names that are numbers are names
expect 0 "saved" train regression --device host --data "$work/numbered.csv" --label price --epochs 1 --save \
    "$work/numbered.strata"
printf '2,1\n0.25,0.5\n' >"$work/turned.csv"
expect 0 "" predict "$work/numbered.strata" --device host --input "$work/turned.csv" --json
cp "$work/out" "$work/turned"
expect 0 "" predict "$work/numbered.strata" --device host --row 0.5,0.25 --json
check "a header of numbers that are the model's columns is one" cmp "$work/out" "$work/turned"
expect 0 "on 500 test examples" evaluate "$work/houses.strata" --device host --data "$work/houses.csv"
stdout "R2 1.0000"
expect 0 "" train regression --device host --data "$work/heavy.csv" --label price --weight-column w --epochs 100 \
    --learning-rate 0.01 --json
json 'r["loss"] < 1e-3 and r["test_loss"] < 1e-3' # rows with weight 0 are ignored; all others are 1
expect 0 "" train regression --device host --data "$work/heavy.csv" --label price --columns a --epochs 100 --learning-rate \
    0.01 --json
json 'r["loss"] > 0.1'
expect 2 "--weight-column: only a CSV" train mnist --device host --weight-column w
expect 2 "class weights: mse" train regression --device host --epochs 1 --class-weights 1,2
expect 3 'price' train regression --device host --data "$work/houses.csv" --label prise
expect 3 "ragged.csv" train regression --device host --data "$work/ragged.csv" --label price
expect 0 'learns the number "price"' train regression --device host --data "$work/houses.csv" --epochs 1
expect 3 "has no train.csv" train regression --device host --data "$work" --label price
expect 0 "index	value" predict "$work/houses.strata" --device host --input "$work/houses.csv" # its other columns are ignored
expect 3 "3 columns are named; the model takes 2" predict "$work/houses.strata" --device host --input "$work/houses.csv" \
    --columns a,b,c

# Several numbers can be learned together. The sample then has as many outputs.
python3 - "$work" <<'END_OF_PYTHON'
import random, sys
random.seed(5)
rows = [(random.uniform(-1, 1), random.uniform(-1, 1)) for _ in range(500)]
lines = ["up,a,b,down,w"] + [f"{a + b:.6f},{a:.6f},{b:.6f},{-a:.6f},1" for a, b in rows]
open(sys.argv[1] + "/both.csv", "w").write("\n".join(lines) + "\n")
END_OF_PYTHON
expect 0 "" train regression --device host --data "$work/both.csv" --label up,down --weight-column w --epochs 40 \
    --learning-rate 0.01 --validation-split 0.1 --save "$work/both.strata" --json
json 'r["test_loss"] < 0.01 and r["val_loss"] < 0.01'
expect 0 "on 500 test examples" evaluate "$work/both.strata" --device host --data "$work/both.csv"
expect 0 "" predict "$work/both.strata" --device host --row 0.5,0.25 --json
json 'abs(r["values"][0] - 0.75) < 0.2 and abs(r["values"][1] + 0.5) < 0.2'
printf '%s\n' '{"input": [2], "layers": [{"layer": "dense", "units": 3}], "loss": "mse"}' >"$work/three.json"
expect 3 "takes (3) for outputs of (3)" train "$work/three.json" --device host --data "$work/both.csv" --label up,down \
    --columns a,b
expect 3 'has no column "dwon"; did you mean "down"?' train regression --device host --data "$work/both.csv" --label up,dwon
expect 3 'column "up" is named twice as a label' train regression --device host --data "$work/both.csv" --label up,up
expect 3 'column "up" is both a feature and the label' train regression --device host --data "$work/both.csv" --label up,down \
    --columns a,up
expect 3 "2 labels are learned together as numbers, not as classes" train fake_news --device host --data "$work/both.csv" \
    --label up,down --columns a

# A model stores its columns and the words of its label. In other files the columns may have another order, and words may be
# missing.
python3 - "$work" <<'END_OF_PYTHON'
import os, random, sys
work, rng = sys.argv[1], random.Random(7)
kinds = {"high": (3, 0), "low": (-3, 0), "mid": (0, 3)}
def rows(names):
    return [(x + rng.uniform(-1, 1), y + rng.uniform(-1, 1), n) for n in names for x, y in [kinds[n]]]
def put(name, head, lines):
    os.makedirs(os.path.dirname(f"{work}/{name}"), exist_ok=True)
    open(f"{work}/{name}", "w").write("\n".join([head] + lines) + "\n")
put("kinds/train.csv", "x,y,kind", [f"{x},{y},{n}" for x, y, n in rows(list(kinds) * 60)])
put("kinds/test.csv", "kind,w,y,x", [f"{n},1,{y},{x}" for x, y, n in rows(["low", "mid"] * 20)])
put("kinds/typo.csv", "kind,y,x", ["hihg,0,3"])
put("kinds/renamed.csv", "y,xx", ["0,3"])
END_OF_PYTHON
printf '%s\n' '{"input": [2], "layers": [{"layer": "dense", "units": 3}], "optimizer": {"name": "adam", "learning_rate": 0.05}}' >"$work/kinds.json"
expect 0 "" train "$work/kinds.json" --device host --data "$work/kinds" --label kind --epochs 20 --save "$work/kinds.strata" \
    --json
json 'r["accuracy"] > 0.99' # from files that lack a word and have the columns in another order
expect 0 "accuracy 100.00 % on 40 test examples" evaluate "$work/kinds.strata" --device host --data "$work/kinds"
expect 0 "accuracy 100.00 % on 40 test examples" evaluate "$work/kinds.strata" --device host --data "$work/kinds/test.csv"
expect 0 "" predict "$work/kinds.strata" --device host --input "$work/kinds/test.csv" --json
json 'r["index"] == 39 and r["class"] == "mid" and r["class_index"] == 2 and r["probability"] > 0.5'
expect 3 'not one of the 3 classes; the nearest is "high"' evaluate "$work/kinds.strata" --device host --data \
    "$work/kinds/typo.csv"
expect 3 'has no column "x"' predict "$work/kinds.strata" --device host --input "$work/kinds/renamed.csv"
expect 3 'the labels are words ("high", ...); a number' train regression --device host --data "$work/kinds/train.csv" --label \
    kind
expect 0 "400 train / 100 test, shuffled, seed 0" train regression --device host --data "$work/houses.csv" --label price \
    --epochs 1
expect 0 "" train regression --device host --data "$work/houses.csv" --label price --columns a,b --epochs 1 --precision bf16 \
    --json
json 'r["precision"] == "bf16"'
expect 2 "--label: only a CSV has columns" train mnist --device host --label kind
expect 2 "--columns: only a CSV has columns" train mnist --device host --columns a
expect 2 "--subwords: mnist does not learn from texts" train mnist --device host --subwords

# ---- pictures ----
make_data "$work/data"
python3 "$here/files.py" images "$work/data"
expect 0 "saved" train mnist --device host --data "$work/data" --epochs 3 --batch 60 --seed 1 --save "$work/digits.strata"
expect 0 "index" predict "$work/digits.strata" --device host --input "$work/data/one.npy"
cp "$work/out" "$work/first"
python3 - "$work" <<'END_OF_PYTHON'
import gzip, struct, sys, zlib
work = sys.argv[1]
pixels = open(work + "/data/one.npy", "rb").read()[-784:]
def twice(rows):
    return b"".join(bytes(v for v in rows[28 * y:28 * y + 28] for _ in (0, 1)) * 2 for y in range(28))
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
def png(rows, bits=8):
    line = 28 * bits // 8
    raw = b"".join(b"\0" + rows[line * y:line * y + line] for y in range(28))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 28, 28, bits, 0, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(raw)) +
            chunk(b"IEND", b""))
def put(name, data):
    open(work + "/" + name, "wb").write(data)
put("one.pgm", b"P5\n# a comment\n28 28\n255\n" + pixels)
put("inverted.pgm", b"P5 28 28 255\n" + bytes(255 - p for p in pixels))
put("text.pgm", b"P2 28 28 255\n" + b" ".join(b"%d" % p for p in pixels))
put("one.ppm", b"P6 28 28 255\n" + bytes(p for q in pixels for p in (q, q, q)))
put("large.pgm", b"P5 56 56 255\n" + twice(pixels))
put("one.png", png(pixels))
put("deep.png", png(bytes(p for q in pixels for p in (q, q)), 16))
put("one.pgm.gz", gzip.compress(b"P5 28 28 255\n" + pixels))
put("one.npy.gz", gzip.compress(open(work + "/data/one.npy", "rb").read()))
head = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 28, 28), }".ljust(117) + "\n"
put("nan.npy", b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head.encode() + struct.pack("<f", float("nan")) * 784)
put("photo.jpg", b"\xff\xd8\xff\xe0\0\x10JFIF\0")
put("cut.png", png(pixels)[:-40])
put("cut.pgm", b"P5 28 28 255\n" + pixels[:-1])
put("huge.pgm", b"P5 100000 100000 255\n")
END_OF_PYTHON
for name in one.pgm text.pgm one.ppm one.pgm.gz one.npy.gz; do
    expect 0 "index" predict "$work/digits.strata" --device host --input "$work/$name"
    check "$name gives the same as one.npy" cmp "$work/out" "$work/first"
done
expect 0 "index" predict "$work/digits.strata" --device host --input "$work/inverted.pgm" --invert
check "an inverted picture, inverted, gives the same" cmp "$work/out" "$work/first"
expect 0 "index" predict "$work/digits.strata" --device host --input "$work/large.pgm"
check "a picture twice as large is the same class" test "$(cut -f 2 "$work/out" | tail -n 1)" = \
    "$(cut -f 2 "$work/first" | tail -n 1)"
if "$strata" predict "$work/digits.strata" --device host --input "$work/one.png" >"$work/out" 2>"$work/err"; then
    check "one.png gives the same as one.npy" cmp "$work/out" "$work/first"
    expect 0 "index" predict "$work/digits.strata" --device host --input "$work/deep.png"
    check "so does one of 16 bits a pixel" cmp "$work/out" "$work/first"
    expect 3 "its PNG data is damaged" predict "$work/digits.strata" --device host --input "$work/cut.png"
else
    stderr "this build has no libpng"
fi
expect 3 "it is cut off" predict "$work/digits.strata" --device host --input "$work/cut.pgm"
expect 3 "is 100000 x 100000 pixels" predict "$work/digits.strata" --device host --input "$work/huge.pgm"
expect 3 "photo.jpg: i" predict "$work/digits.strata" --device host --input "$work/photo.jpg"
expect 0 "	-	nan" predict "$work/digits.strata" --device host --input "$work/nan.npy"
expect 0 "" predict "$work/digits.strata" --device host --input "$work/nan.npy" --json
json 'r == {"index": 0, "class": None, "class_index": None, "probability": None}'
expect 0 "confusion matrix" evaluate "$work/digits.strata" --device host --data "$work/data" --metrics confusion_matrix
check "a row of it for each digit" test "$(grep -cE '^[0-9] ( +[0-9]+){10}$' "$work/out")" = 10
expect 3 "did not learn from pictures" predict "$work/houses.strata" --device host --input "$work/one.pgm"
expect 2 "was not trained on texts" predict "$work/digits.strata" --device host --text "hello"
expect 2 "not more than one" predict "$work/digits.strata" --device host --text "hello" --input "$work/one.pgm"
finish
