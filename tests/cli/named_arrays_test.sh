#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Models with several inputs and outputs. They are trained, evaluated, used for predictions and served with arrays of their
# names. And a user's model for a table with texts beside other columns.
. "$(dirname "$0")/support.sh"
python3 "$here/named_arrays.py" make "$work"
cd "$work" || exit 1

expect 0 "left, right -> same, size: 160 train / 40 test, shuffled, seed 0" \
    train two.json --data all.npz --epochs 8 --save two.strata --device host
stdout "size/loss"
expect 0 "left, right -> same, size: 150 train" train two.json --data parts.npz --epochs 1 --device host
stdout "on 50 test examples"
expect 0 "160 train / 40 test" train two.json --data all.npz --validation parts.npz --epochs 1 --device host
stdout "val_loss"
expect 0 "" evaluate two.strata all.npz --json --device host
json 'r["examples"] == 200 and r["metrics"]["same/accuracy"] > 0.8 and r["metrics"]["size/loss"] < 2'
expect 0 "200 answers in out.csv" predict two.strata inputs.npz --to out.csv --device host
check "a row has all outputs" python3 -c "
import csv
rows = list(csv.DictReader(open('out.csv')))
assert len(rows) == 200 and list(rows[0]) == ['index', 'same.0', 'same.1', 'size']
assert all(abs(float(r['same.0']) + float(r['same.1']) - 1) < 1e-5 for r in rows)"
expect 0 "200 answers in out.json" predict two.strata inputs.npz --to out.json --device host
expect 3 'has no array "right", which is an input of the model; its arrays are left, same, size' \
    train two.json --data wrong.npz --device host
expect 3 'has no array "same", which is an output of the model' evaluate two.strata inputs.npz --device host
expect 2 "has the inputs left, right and outputs same, size; its data are an .npz file" train two.json --device host
expect 2 "its data are an .npz file" evaluate two.strata reviews.csv --device host
expect 2 "its data are an .npz file" predict two.strata --row 1,2 --device host
if ! "$strata" serve /dev/null 2>&1 | grep -q "this build has no HTTP server"; then
    check "serve answers what predict did, and says what is wrong" python3 "$here/named_arrays.py" ask "$strata" "$work"
fi

# ---- a model that was written for a table with texts, then changed, and trained on the table ----
expect 0 "" train reviews.csv --epochs 1 --write-model m.json --device host
sed 's/"units": *64/"units": 48/' m.json >wide.json
expect 0 "accuracy" train wide.json --data reviews.csv --epochs 6 --save reviews.strata --device host
stdout "160 train / 40 test, shuffled and stratified"
expect 0 "on 200 test examples" evaluate reviews.strata reviews.csv --device host
expect 0 "200 answers in moods.csv" predict reviews.strata reviews.csv --to moods.csv --device host
expect 0 "" tune wide.json --data reviews.csv --trials 2 --epochs 1 --device host
finish
