#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# strata tune: the search, its log, continuing after a kill, the command that it prints, and errors for wrong options.
. "$(dirname "$0")/support.sh"

python3 - "$work" <<'END'
import random, sys
random.seed(3)
rows = []
for i in range(240):
    kind = i % 3
    rows.append("%.3f,%.3f,%.3f,%s" % (random.gauss(kind, 0.5), random.gauss(-kind, 0.7), random.gauss(0, 1), "abc"[kind]))
open(sys.argv[1] + "/t.csv", "w").write("p,q,r,kind\n" + "\n".join(rows) + "\n")
open(sys.argv[1] + "/n.csv", "w").write("p,y\n" + "\n".join("%d,%.2f" % (i, 2.5 * i + 0.25) for i in range(60)) + "\n")
END

has_rows() { [ "$(cat "$work/cut.jsonl" 2>/dev/null | wc -l)" -ge "$1" ]; } # whether the log of the search has so many

# A setting of 0 is 0: a trial with it is not one with the optimizer's default, 0.004.
expect 0 '"event":"result"' tune "$work/t.csv" --device host --trials 2 --epochs 2 --search random --seed 1 \
    --set 'optimizer.weight_decay=0' --set 'optimizer.beta1=0|0.5' --json
cp "$work/out" "$work/zero"
expect 0 '"event":"result"' tune "$work/t.csv" --device host --trials 2 --epochs 2 --search random --seed 1 \
    --set 'optimizer.weight_decay=0.004' --set 'optimizer.beta1=0|0.5' --json
check "0 and 0.004 are two settings" python3 - "$work/zero" "$work/out" <<'END'
import json, sys
zero, other = ([json.loads(line) for line in open(name)][:-1] for name in sys.argv[1:])
assert [row["settings"]["optimizer.weight_decay"] for row in zero] == [0, 0], zero
assert all(a["val_loss"] != b["val_loss"] for a, b in zip(zero, other, strict=True)), (zero, other)
END
expect 2 "optimizer.learning_rate=0|1: a learning rate is above 0" tune "$work/t.csv" --set 'optimizer.learning_rate=0|1'

# Random search: every trial runs to its end, the search is reproducible, and it searches the model's default ranges.
expect 0 "optimizer.learning_rate" tune "$work/t.csv" --device host --trials 4 --search random --epochs 3 --seed 5
stdout "layers.0.units"
stdout "train with them:"
expect 0 '"event":"result"' tune "$work/t.csv" --device host --trials 4 --search random --epochs 3 --seed 5 --json
cp "$work/out" "$work/first"
json 'r["trials"] == 4 and r["failed"] == 0 and r["best"]["epochs"] == 3 and 0 < r["best"]["val_loss"] < 3'
expect 0 '"event":"result"' tune "$work/t.csv" --device host --trials 4 --search random --epochs 3 --seed 5 --json
check "the same seed gives the same trials" python3 - "$work/first" "$work/out" <<'END'
import json, sys
a, b = ([json.loads(line) for line in open(name)] for name in sys.argv[1:])
for x, y in zip(a, b, strict=True):
    for row in (x, y):
        row.pop("seconds", None), row.get("best", {}).pop("seconds", None)
    assert x == y, (x, y)
rates = [row["settings"]["optimizer.learning_rate"] for row in a[:-1]]
assert len(set(rates)) == 4 and all(1e-4 <= rate <= 1e-2 for rate in rates), rates
losses = [row["val_loss"] for row in a[:-1]]
assert a[-1]["best"]["val_loss"] == min(losses), losses
END

# The command that it prints must train to the same loss, in every bit.
command=$(tail -n 1 "$work/first" | python3 -c "import json, sys; print(json.loads(sys.stdin.read())['command'])")
best=$(tail -n 1 "$work/first" | python3 -c "import json, sys; print(json.loads(sys.stdin.read())['best']['val_loss'])")
# shellcheck disable=SC2086 # words
(cd "$work" && eval "\"$strata\" ${command#strata } --json" >"$work/out" 2>"$work/err")
json "abs(min(r['val_losses']) - $best) < 1e-7"
check "the command saves the model" test -s "$work/best.strata"

# Halving: nine trials run for one epoch, three of them for three, and one for nine. A search that was killed continues
# without the finished trials.
"$strata" tune "$work/t.csv" --device host --trials 9 --epochs 9 --json --log "$work/whole.jsonl" >"$work/whole" 2>"$work/err"
check "halving trains 9, 3 and 1" python3 - "$work/whole" <<'END'
import collections, json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
assert collections.Counter(row["epochs"] for row in rows[:-1]) == {1: 9, 3: 3, 9: 1}, rows
END
for rows in 2 7 11; do
    rm -rf "$work/cut.jsonl" "$work/cut.jsonl.trials"
    "$strata" tune "$work/t.csv" --device host --trials 9 --epochs 9 --json --log "$work/cut.jsonl" >"$work/out" 2>"$work/err" &
    tuner=$!
    eventually has_rows $rows
    kill -KILL $tuner
    wait $tuner 2>/dev/null
    printf '{"event":"trial","tr' >>"$work/cut.jsonl" # an incomplete line
    expect 0 '"event":"result"' tune "$work/t.csv" --device host --trials 9 --epochs 9 --json --log "$work/cut.jsonl"
    check "killed after $rows rows it ends as the one that was not, and repeats no trial" python3 - "$work" <<'END'
import json, sys
whole, cut = ([json.loads(line) for line in open(sys.argv[1] + "/" + name)] for name in ("whole.jsonl", "cut.jsonl"))
keys = ("trial", "epochs", "settings", "val_loss", "best_epoch")
told = [[tuple(json.dumps(row[key]) for key in keys) for row in rows[1:]] for rows in (whole, cut)]
assert sorted(told[0]) == sorted(told[1]) and len(set(told[1])) == len(told[1]), told
END
done
expect 0 "continues from" tune "$work/t.csv" --device host --trials 9 --epochs 9 --log "$work/cut.jsonl"
expect 3 "its seed was 0 and is now 4" tune "$work/t.csv" --device host --trials 9 --epochs 9 --log "$work/cut.jsonl" --seed 4
expect 2 "would overwrite" tune "$work/t.csv" --device host --log "$work/t.csv"
check "a file that is no journal stays as it is" grep -q "p,q,r,kind" "$work/t.csv"

# After Ctrl-C the results of trials are kept.
rm -rf "$work/cut.jsonl" "$work/cut.jsonl.trials"
"$strata" tune "$work/t.csv" --device host --trials 9 --epochs 40 --log "$work/cut.jsonl" >"$work/out" 2>"$work/err" &
tuner=$!
eventually has_rows 2
kill -INT $tuner
wait $tuner
check "an interrupted search ends with exit code 130" test $? = 130
stderr "the same command continues from"

# Ranges of the user, and two trials at the same time. A trial that fails is reported, and the others continue.
expect 0 "best: trial" tune "$work/t.csv" --devices host,host --trials 4 --epochs 2 --search random \
    --set "layers.0.units=8|16" --set "batch=8..64" --set "optimizer.learning_rate=1e-3..1e-1" --set optimizer.name=sgd
stdout "on host, host"
stdout "optimizer.name"
expect 0 "val_loss" tune "$work/n.csv" --device host --trials 2 --epochs 2 --validation "$work/n.csv"
expect 0 " failed" tune "$work/t.csv" --device host --trials 6 --epochs 1 --set "optimizer.learning_rate=1e-3|1e35" \
    --set layers.0.units=8

# In a narrow range, values have as many digits as they need to stay in it.
expect 0 "" tune "$work/t.csv" --device host --trials 6 --epochs 1 --search random --set optimizer.beta2=0.999..0.9999 --json
json 'r["failed"] == 0 and 0.999 < r["best"]["settings"]["optimizer.beta2"] < 0.9999'

# A sample, and a model of the user.
expect 0 "best: trial" tune regression --device host --trials 2 --epochs 1
expect 0 "best: trial" tune mnist --device host --trials 2 --epochs 1 --set "layers.1.units=8|16"
"$strata" train "$work/t.csv" --device host --epochs 1 --write-model "$work/m.json" >"$work/out" 2>"$work/err"
expect 0 "best: trial" tune "$work/m.json" --data "$work/t.csv" --device host --trials 2 --epochs 1

# Errors for wrong options.
expect 2 "a range is LEAST..MOST" tune "$work/t.csv" --set "batch=..5"
expect 2 "must be less than" tune "$work/t.csv" --set "optimizer.learning_rate=1e-2..1e-4"
expect 2 "a choice is empty" tune "$work/t.csv" --set "layers.0.units=8||16"
expect 3 'there is no activation "no_such_one"' tune "$work/t.csv" --set "layers.0.activation=relu|no_such_one"
expect 2 "0 to 5" tune "$work/t.csv" --set "layers.9.units=8|16"
expect 2 "is given twice" tune "$work/t.csv" --set batch=8 --set batch=9
expect 2 "it must be random or halving" tune "$work/t.csv" --search grid
expect 2 "does not predict classes" tune "$work/n.csv" --objective accuracy
expect 2 "both set it" tune "$work/t.csv" --batch 8 --set "batch=8|16"
expect 2 "give a file" tune - --trials 2
expect 2 "Did you mean --trials?" tune "$work/t.csv" --trails 3
expect 3 "nothing.csv" tune "$work/nothing.csv"
expect 4 'there is no "opencl:77"' tune "$work/t.csv" --devices opencl:77
expect 2 "give --checkpoint" train "$work/t.csv" --device host --stop-after 1

# The part of `strata train` that tune uses: a run that is paused after an epoch and continued must have the bits of an
# uninterrupted one.
expect 0 "paused after epoch 2" train "$work/t.csv" --device host --epochs 4 --checkpoint "$work/c" --stop-after 2
expect 0 '"event":"result"' train "$work/t.csv" --device host --epochs 4 --checkpoint "$work/c" --json
tail -n 1 "$work/out" >"$work/first"
expect 0 '"event":"result"' train "$work/t.csv" --device host --epochs 4 --json
json "r['weights_sha256'] == json.load(open('$work/first'))['weights_sha256']"
finish
