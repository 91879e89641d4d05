#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Validation data. They are measured after each epoch and do not affect the training, but may end it and determine which
# epoch is kept.
. "$(dirname "$0")/support.sh"
make_data "$work/data"
python3 - "$work" <<'END_OF_PYTHON'
import os, random, sys
work, rng = sys.argv[1], random.Random(3)
def put(name, lines):
    os.makedirs(os.path.dirname(f"{work}/{name}"), exist_ok=True)
    open(f"{work}/{name}", "w").write("\n".join(lines) + "\n")
rows = [[rng.uniform(-1, 1) for _ in range(3)] for _ in range(500)]
put("houses.csv", ["a,b,c,price"] + [f"{a:.6f},{b:.6f},{c:.6f},{2 * a - b + 0.5:.6f}" for a, b, c in rows])
kinds = {"high": (3, 0), "low": (-3, 0), "mid": (0, 3)}
rows = [(x + rng.uniform(-1, 1), y + rng.uniform(-1, 1), n) for n in list(kinds) * 40 for x, y in [kinds[n]]]
put("kinds/train.csv", ["x,y,kind"] + [f"{x},{y},{n}" for x, y, n in rows[:80]])
put("kinds/test.csv", ["kind,w,y,x"] + [f"{n},1,{y},{x}" for x, y, n in rows[80:] if n != "high"])
put("kinds/typo.csv", ["kind,y,x", "hihg,0,3"])
words = [("good fine " if i % 2 else "bad poor ") + rng.choice(["film", "play", "book"]) + f",{'yes' if i % 2 else 'no'}" for i in range(60)]
put("texts.csv", ["text,kind"] + words)
put("held.csv", ["kind,text", "yes,good film", "no,poor", "no,bad unknown words"])
END_OF_PYTHON
printf '%s\n' '{"input": [2], "layers": [{"layer": "dense", "units": 3}], "optimizer": {"name": "adam", "learning_rate": 0.05}}' >"$work/kinds.json"

few="train mnist --device host --data $work/data --epochs 3 --batch 60 --seed 1"
# shellcheck disable=SC2086 # words
{
expect 0 "" $few --json
json '"val_loss" not in r and "best_epoch" not in r'
cp "$work/out" "$work/plain"
expect 0 "" $few --json --validation "$work/data"
json 'abs(r["val_loss"] - r["test_loss"]) < 1e-5 and r["val_accuracy"] == r["accuracy"] and len(r["val_losses"]) == 3 == r["best_epoch"]'
check "the weights are those of a training without validation" python3 - "$work" <<'END_OF_PYTHON'
import json, sys
one, other = (json.loads(open(f"{sys.argv[1]}/{name}").readlines()[-1]) for name in ("plain", "out"))
sys.exit(one["weights_sha256"] != other["weights_sha256"] or one["losses"] != other["losses"])
END_OF_PYTHON
expect 0 "  val_loss " $few --validation-split 0.5
stdout "  val_accuracy "
stdout "best epoch 3"
expect 0 "" $few --validation-split 0.5 --json
json 'r["steps"] == 3 * 5' # 300 of the 600 images
expect 0 "val_recall" $few --validation-split 0.5 --metrics recall
}
lines() { expect 0 "" train regression --device host --data "$work/houses.csv" --label price --json "$@"; }
lines --epochs 100 --learning-rate 0.05 --validation-split 0.2 --patience 3 --restore-best --save "$work/best.strata"
json 'r["epochs"] < 100 and r["epochs"] == r["best_epoch"] + 3 and r["val_loss"] == min(r["val_losses"]) == r["val_losses"][r["best_epoch"] - 1]'
cp "$work/out" "$work/best"
lines --epochs 100 --learning-rate 0.05 --validation-split 0.2 --patience 3
json 'r["val_loss"] == r["val_losses"][-1] > min(r["val_losses"])'
expect 0 "val_loss has not fallen for 3 epochs: the training ends" train regression --device host --data "$work/houses.csv" \
    --label price \
    --epochs 100 --learning-rate 0.05 --validation-split 0.2 --patience 3
lines --epochs 1 --validation "$work/houses.csv" # all its rows, because none is kept for testing
expect 0 "" train "$work/kinds.json" --device host --data "$work/kinds" --label kind --epochs 5 --validation "$work/kinds" \
    --json
json 'r["val_accuracy"] == r["accuracy"]'
expect 3 'not one of the 3 classes; the nearest is "high"' train "$work/kinds.json" --device host --data "$work/kinds" --label \
    kind --validation "$work/kinds/typo.csv"
expect 0 "val_accuracy 1.0000" train fake_news --device host --data "$work/texts.csv" --columns text --label kind --epochs 10 \
    --batch 4 --validation "$work/held.csv"
expect 0 "val_loss" train fake_news --device host --data "$work/texts.csv" --columns text --label kind --epochs 1 \
    --validation-split 0.3
expect 2 "--patience needs the loss on validation data; give --validation-split" train mnist --device host --patience 3
expect 2 "--restore-best needs the loss on validation data" train mnist --device host --restore-best
expect 2 "not both" train mnist --device host --validation-split 0.1 --validation "$work/data"
expect 2 "it must be a number from" train mnist --device host --validation-split 1.5
expect 2 "it must be between 0 and 1" train linear --device host --validation-split 1
expect 2 "neither may be empty" train linear --device host --validation-split 0.999
expect 2 "must be a whole number from 1" train linear --device host --validation-split 0.5 --patience 0
expect 3 "$work/nothing" train mnist --device host --data "$work/data" --validation "$work/nothing"

# Several workers must stop after the same epoch, and keep the same one. So must a job that continues from a checkpoint.
job="train regression --data $work/houses.csv --label price --device host --strategy multi_worker_mirrored --global-batch 64 --epochs 100
    --learning-rate 0.05 --validation-split 0.2 --patience 3 --restore-best --json"
# shellcheck disable=SC2086 # words
{
expect 0 "weights_sha256" launch -n 2 -- "$strata" $job
json 'r["workers"] == 2 and r["epochs"] == r["best_epoch"] + 3 < 100 and r["replica_weights_equal"] and r["val_loss"] == min(r["val_losses"])'
}
finish
