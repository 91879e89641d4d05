#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Curves, confusion matrices and weights, in a terminal of any width and as SVG.
. "$(dirname "$0")/support.sh"
make_data "$work/data"
unset NO_COLOR COLUMNS LINES LC_ALL LC_CTYPE
export TERM=xterm LANG=C.UTF-8
train="train mnist --device host --data $work/data --validation-split 0.2 --seed 1"
narrower() { # N: no line of stdout has more columns
    check "all lines fit in $1 columns" python3 -c 'import sys
lines = open(sys.argv[1], encoding="utf-8").read().splitlines()
assert all(len(l) <= int(sys.argv[2]) for l in lines), max(lines, key=len)' "$work/out" "$1"
}
svg() { # FILE N: it is XML, with at least so many shapes
    check "$1 is SVG with at least $2 shapes" python3 -c 'import sys, xml.etree.ElementTree as e
root = e.parse(sys.argv[1]).getroot()
shapes = [x for x in root.iter() if x.tag.split("}")[1] in ("polyline", "rect")]
assert root.tag.endswith("}svg") and len(shapes) >= int(sys.argv[2])' "$1" "$2"
}
# shellcheck disable=SC2086 # words
{
expect 0 "" $train --epochs 6 --batch 100 --log "$work/one.jsonl" --save "$work/model.strata" --learning-rate 0.0003
expect 0 "" $train --epochs 4 --batch 200 --log "$work/two.csv"

for width in 80 50 24; do
    expect 0 "train_loss" plot "$work/one.jsonl" --width $width
    narrower $width
    stdout "val_accuracy"
    check "it is drawn in Braille" python3 -c 'import sys
assert any("\u2801" <= c <= "\u28ff" for c in open(sys.argv[1], encoding="utf-8").read())' "$work/out"
done
expect 0 "two.csv: val_loss" plot "$work/one.jsonl" "$work/two.csv" --show loss
LC_ALL=C expect 0 "gradient_norm" plot "$work/one.jsonl" --show gradient_norm,learning_rate --steps --height 9
check "without UTF-8 it is ASCII" sh -c "! LC_ALL=C grep -q '[^ -~]' '$work/out'"
check "a falling loss falls from the left top" python3 - "$strata" "$work/one.jsonl" <<'END'
import subprocess, sys
command = [sys.argv[1], "plot", sys.argv[2], "--show", "loss", "--height", "12", "--width", "60"]
lines = subprocess.run(command, capture_output=True, text=True, env={"LC_ALL": "C"}).stdout.splitlines()
rows = [line[10:].ljust(50) for line in lines[1:13]]
top = [next((r for r in range(12) if rows[r][c] != " "), None) for c in (0, 25, 49)]
assert top[0] == 0 and top[0] < top[1] < top[2], (top, rows)
assert max(float(l[:9]) for l in lines[1:13] if l[:9].strip()) > 1
END
expect 0 "wrote $work/runs.svg" plot "$work/one.jsonl" "$work/two.csv" --svg "$work/runs.svg"
svg "$work/runs.svg" 8

# The output of --json is also such a file. While a training is running, the file may end in the middle of a line.
expect 0 "" $train --epochs 3 --json
{ cat "$work/out"; printf '{"event":"ep'; } >"$work/stream.jsonl"
expect 0 "val_loss" plot "$work/stream.jsonl"

for width in 80 50 20; do
    expect 0 "200 examples, accuracy " plot "$work/model.strata" --confusion "$work/data" --device host --width $width
done
expect 0 "" plot "$work/model.strata" --confusion "$work/data" --device host
narrower 80
check "the matrix is that of evaluate" python3 - "$strata" "$work" <<'END'
import json, subprocess, sys
strata, work = sys.argv[1:]
command = [strata, "evaluate", work + "/model.strata", "--device", "host", "--data", work + "/data", "--json"]
said = subprocess.run(command + ["--metrics", "confusion_matrix"], capture_output=True, text=True, check=True).stdout
wanted = json.loads(said)["metrics"]["confusion_matrix"]
rows = [[int(x) for x in line.split()[1:]] for line in open(work + "/out").read().splitlines()[3:13]]
assert rows == wanted, rows
END
expect 0 "wrote" plot "$work/model.strata" --confusion "$work/data" --device host --svg "$work/confusion.svg"
svg "$work/confusion.svg" 100
expect 0 "dense/kernel (784,128)" plot "$work/model.strata" --weights
stdout "mean "
narrower 80
expect 0 "wrote" plot "$work/model.strata" --weights --svg "$work/weights.svg"
svg "$work/weights.svg" 128

# Classes are labelled by their words, and all rows of a CSV are used.
python3 - "$work/flowers.csv" <<'END'
import random, sys
random.seed(3)
with open(sys.argv[1], "w") as f:
    f.write("a,b,kind\n")
    for i in range(60):
        k = i % 3
        f.write(f"{k * 2 + random.random()},{-k + random.random()},{('rose', 'tulip', 'lily')[k]}\n")
END
printf '%s' '{"input": [2], "layers": [{"layer": "dense", "units": 3}], "optimizer": {"name": "adam", "learning_rate": 0.1}}' \
    >"$work/kinds.json"
flowers="train $work/kinds.json --device host --data $work/flowers.csv --label kind"
expect 0 "" $flowers --epochs 30 --save "$work/kinds.strata"
expect 0 "60 examples" plot "$work/kinds.strata" --confusion "$work/flowers.csv" --device host
stdout "tulip"

expect 2 "a run's file ends in .jsonl or .csv" plot "$work/model.strata"
expect 2 "--weights is of one model" plot "$work/one.jsonl" --weights
expect 2 "not both" plot "$work/model.strata" --weights --confusion "$work/data"
expect 3 "No such file" plot "$work/none.jsonl"
expect 3 'there is no "los" in' plot "$work/one.jsonl" --show los
printf '{"epoch": 1}\nnot json\n' >"$work/bad.jsonl"
expect 3 "bad.jsonl: line 2" plot "$work/bad.jsonl"
printf '{"epoch": 1}\n[1, 2]\n' >"$work/list.jsonl"
expect 3 "list.jsonl: line 2" plot "$work/list.jsonl"
printf '{"event":"epoch","epoch":%d,"loss":%s}\n' 1 1 2 1.0000000000000002 >"$work/near.jsonl"
expect 0 "wrote $work/near.svg" plot "$work/near.jsonl" --svg "$work/near.svg"
python3 -c "
names = ['event', 'epoch', 'total_step', 'loss', 'a' * 60] + [f'metric_{i}' for i in range(80)]
for row in [names] + [['epoch', i, 10 * i, 1 / i] + [i] * 81 for i in range(1, 5)]: print(*row, sep=',')" >"$work/wide.csv"
expect 0 "epoch 4" plot "$work/wide.csv" # a name that is too long, and more names than are read
printf 'event,epoch,train_loss\nepoch,1,x\n' >"$work/bad.csv"
expect 3 "column train_loss is \"x\"" plot "$work/bad.csv"
printf 'event,epoch\nepoch,1,2\n' >"$work/bad.csv"
expect 3 "more columns than the first row" plot "$work/bad.csv"
: >"$work/empty.jsonl"
expect 3 "has no rows yet" plot "$work/empty.jsonl"
head -c 3000 /dev/zero | tr '\0' '\377' >"$work/binary.jsonl"
expect 3 "has no rows yet" plot "$work/binary.jsonl"
printf '\377\000\n' >"$work/binary.jsonl"
expect 3 "is not text" plot "$work/binary.jsonl"
expect 3 "one.strata" plot "$work/one.strata" --weights
}
finish
