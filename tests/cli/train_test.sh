#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Training, evaluation and prediction: what is printed, the contents of --json, and that two runs give the same weights.
. "$(dirname "$0")/support.sh"
make_data "$work/data"
python3 "$here/files.py" images "$work/data"
train="train mnist --device host --data $work/data --batch 60"
# shellcheck disable=SC2086 # words
{
expect 0 "saved $work/a.strata" $train --epochs 3 --seed 1 --save "$work/a.strata"
stdout "mnist on host"
stdout "epoch 3/3  loss"
stdout "% on 200 test examples"
quiet stderr

expect 0 "" $train --epochs 3 --seed 1 --json --save "$work/b.strata"
quiet stderr
check "a line of JSON an epoch, one at the end" test "$(grep -c '^{' "$work/out") $(wc -l <"$work/out")" = "4 4"
expect 0 "" $train --epochs 3 --seed 1 --json
json 'r["sample"] == "mnist" and r["devices"] == ["host"] and isinstance(r["strategy"], str)'
json 'r["replicas"] == 1 and r["workers"] == 1 and r["batch"] == 60 and r["epochs"] == 3 and r["steps"] == 30'
json 'r["first_step_s"] > 0 and r["epoch_s"] > 0 and abs(r["samples_per_s"] * r["epoch_s"] - 600) < 6'
json 'len(r["losses"]) == 30 and all(isinstance(x, float) for x in r["losses"]) and 1.5 < r["losses"][0] < 4'
json '0 < r["loss"] < r["losses"][0] and 0.5 < r["accuracy"] <= 1'
json 'len(r["weights_sha256"]) == 64 and set(r["weights_sha256"]) <= set("0123456789abcdef") and r["peak_rss_mib"] > 1'
sha=$(grep -o '"weights_sha256":"[0-9a-f]*"' "$work/out")
expect 0 "$sha" $train --epochs 3 --seed 1 --json
check "two runs write the same file" cmp "$work/a.strata" "$work/b.strata"
# The rate must count the examples of shortened epochs only.
expect 0 "" train mnist --data "$work/data" --epochs 2 --batch 60 --steps-per-epoch 3 --device host --json
json 'r["steps"] == 6 and abs(r["samples_per_s"] * r["epoch_s"] - 180) < 2'
expect 0 "" $train --epochs 3 --seed 2 --json
checks=$((checks + 1))
! grep -q "$sha" "$work/out" || bad "another seed gives the same weights"
expect 0 "" $train --epochs 13 --json
json 'r["steps"] == 130 and len(r["losses"]) == 100'
expect 0 "" $train --epochs 1 --batch 512 --json # the second batch is shorter
json 'r["steps"] == 2 and r["batch"] == 512'
expect 0 "" train mnist --device host --data "$work/data" --epochs 1 --json
json 'r["batch"] == 64'
expect 0 "" $train --epochs 2 --json
whole=$(tail -n 1 "$work/out" | sed 's/.*"losses":\(\[[^]]*\]\).*/\1/')
expect 0 "" train mnist --device host --data "$work/data" --batch 15 --accumulate 4 --epochs 2 --json
json 'r["batch"] == 15 and r["steps"] == 20'
json "all(abs(a - b) < 1e-4 * b for a, b in zip(r['losses'], $whole))"
}

# Classes with weight 0 must never be predicted.
expect 0 "" train mnist --device host --data "$work/data" --epochs 3 --seed 1 --class-weights 1,1,1,1,1,0,0,0,0,0 --json
json 'r["accuracy"] < 0.6'
expect 2 "number 2 cannot be read" train mnist --device host --class-weights 1,x

for precision in f32 f16 bf16; do
    expect 0 "" train mnist --device host --data "$work/data" --epochs 1 --seed 1 --precision $precision --json
    json "r['precision'] == '$precision' and r['steps_skipped'] == 0 and r['loss'] < 2.2"
done
# Layers that are computed again in the backward pass change nothing.
expect 0 "" train mnist --device host --data "$work/data" --epochs 1 --seed 1 --json
sha=$(grep -o '"weights_sha256":"[0-9a-f]*"' "$work/out")
for layers in dense,dense_1 auto auto:1K; do
    expect 0 "$sha" train mnist --device host --data "$work/data" --epochs 1 --seed 1 --recompute $layers --json
done
expect 2 'there is no layer "dens"; did you mean "dense"?' train mnist --device host --data "$work/data" --recompute dens
# A model is evaluated in the precision in which it was trained, unless another one is requested.
expect 0 "" train mnist --device host --data "$work/data" --epochs 1 --seed 1 --precision bf16 --save "$work/half.strata" --json
half=""
# shellcheck disable=SC2086 # words
for asked in "" "--precision bf16" "--precision f32"; do
    expect 0 "" evaluate "$work/half.strata" --device host --data "$work/data" --json $asked
    loss=$(grep -o '"loss":[0-9.]*' "$work/out")
    half=${half:-$loss}
    checks=$((checks + 1))
    if [ "$asked" = "--precision f32" ]; then [ "$loss" != "$half" ]; else [ "$loss" = "$half" ]; fi || bad \
        "evaluate $asked: $loss, at first $half"
done
expect 2 "there are f32, f16 and bf16" evaluate "$work/half.strata" --device host --precision f12
expect 2 "there are f32, f16 and bf16" train mnist --device host --precision i32

# --learning-rate works with and without an optimizer in the model's JSON.
printf '%s\n' '{"input": [28, 28], "layers": [{"layer": "flatten"}, {"layer": "dense", "units": 10}]}' >"$work/plain.json"
expect 0 "" train "$work/plain.json" --device host --data "$work/data" --epochs 1 --json
json 'r["sample"].endswith("plain.json")'
first=$(grep -o '"weights_sha256":"[0-9a-f]*"' "$work/out")
expect 0 "" train "$work/plain.json" --device host --data "$work/data" --epochs 1 --learning-rate 0.01 --json
checks=$((checks + 1))
! grep -q "$first" "$work/out" || bad "--learning-rate changed nothing"

# ---- evaluate ----
expect 0 "" $train --epochs 3 --seed 1 --json
accuracy=$(grep -o '"accuracy":[0-9.]*' "$work/out")
expect 0 "$accuracy" evaluate "$work/a.strata" --device host --data "$work/data" --json
json 'r["examples"] == 200 and r["loss"] > 0 and r["device"] == "host"'
quiet stderr
# The way in which scripts read the number.
check "the accuracy can be cut out of the line" sh -c \
    "tail -n 1 '$work/out' | grep -oE '\"accuracy\": *[0-9.e-]+' | grep -oE '[0-9.e-]+\$'"
expect 0 "on 200 test examples" evaluate "$work/a.strata" --device host --data "$work/data" --batch 7

# ---- predict ----
expect 0 "index	class	probability" predict "$work/a.strata" --device host --input "$work/data/images.npy"
cp "$work/out" "$work/first"
check "a line for each image" test "$(wc -l <"$work/first")" = 6
for name in images.idx images.idx.gz rows.npy images_f32.npy; do
    expect 0 "index" predict "$work/a.strata" --device host --input "$work/data/$name"
    check "$name gives the same as images.npy" cmp "$work/out" "$work/first"
done
expect 0 "index" predict "$work/a.strata" --device host --input "$work/data/one.npy"
check "one image is one line" test "$(wc -l <"$work/out")" = 2
expect 0 "" predict "$work/a.strata" --device host --input "$work/data/images.npy" --json --batch 2
check "the last of five" test "$(wc -l <"$work/out")" = 5
expect 0 "" predict "$work/a.strata" --device host --input "$work/data/images.npy" --json
json 'r["index"] == 4 and 0 <= r["class"] <= 9 and 0 < r["probability"] <= 1'
expect 3 "cannot open" predict "$work/a.strata" --device host --input "$work/nowhere.npy"
expect 3 "the features are (2,28,30); the model takes (28,28)" \
    predict "$work/a.strata" --device host --input "$work/data/wide.npy"
expect 0 "index" predict "$work/a.strata" --device host --input "$work/data/i64.npy" # integers become floats
finish
