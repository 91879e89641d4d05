#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The logs that a training writes for programs, --log and --json. The names of numbers tell to which data they belong.
. "$(dirname "$0")/support.sh"
make_data "$work/data"
train="train mnist --device host --data $work/data --epochs 3 --batch 60 --seed 1"
# shellcheck disable=SC2086 # words
{
expect 0 "" $train --validation-split 0.5 --metrics recall --log "$work/run.jsonl" --json
json 'r["event"] == "result" and r["train_loss"] == r["loss"] and r["test_accuracy"] == r["accuracy"]'
json 'r["test_examples"] == 200 and r["train_accuracy"] <= 1 and r["test_loss"] > 0 and r["val_loss"] > 0'
check "rows of steps, epochs and the test data" python3 - "$work" <<'END'
import json, math, sys
rows = [json.loads(line) for line in open(sys.argv[1] + "/run.jsonl")]
out = [json.loads(line) for line in open(sys.argv[1] + "/out")]
steps, epochs, tests = ([r for r in rows if r["event"] == e] for e in ("step", "epoch", "test"))
assert len(steps) == 15 and len(epochs) == 3 and len(tests) == 1 and len(rows) == 19
assert [r["total_step"] for r in steps] == list(range(1, 16)) and [r["step"] for r in steps[:6]] == [1, 2, 3, 4, 5, 1]
result = out[-1]
assert all(abs(s["train_loss"] - l) <= 1e-6 * l for s, l in zip(steps, result["losses"]))
assert all(r["gradient_norm"] > 0 and r["learning_rate"] > 0 and "train_accuracy" not in r for r in steps)
for r, e in zip(epochs, out):
    assert r["epoch"] == e["epoch"] and r["train_loss"] == e["train_loss"] and r["val_loss"] == e["val_loss"]
    assert r["weight_norm"] > 1 and r["samples_per_s"] > 0 and r["epoch_s"] > 0
    assert 0 <= r["train_recall"] <= 1 and 0 <= r["val_recall"] <= 1
assert epochs[-1]["train_loss"] == result["train_loss"] and tests[0]["test_loss"] == result["test_loss"]
assert all(a["seconds"] <= b["seconds"] for a, b in zip(rows, rows[1:]))
END
expect 0 "" $train --validation-split 0.5 --log "$work/run.csv" --log-every 2
check "a CSV has the same, a column for each name" python3 - "$work/run.csv" <<'END'
import csv, sys
rows = list(csv.DictReader(open(sys.argv[1])))
events = [r["event"] for r in rows]
assert events.count("step") == 7 and events.count("epoch") == 3 and events[-1] == "test"
assert all(None not in r and None not in r.values() for r in rows)
epoch = [r for r in rows if r["event"] == "epoch"][-1]
assert float(epoch["val_accuracy"]) > 0.5 and epoch["test_loss"] == "" and float(rows[-1]["test_loss"]) > 0
END
expect 0 "" train regression --device host --epochs 2 --log "$work/numbers.jsonl" --json
check "numbers have no accuracy" sh -c "! grep -q accuracy '$work/numbers.jsonl'"

# A training that is resumed appends to the log.
two="--batch 1 --log $work/two.csv --checkpoint $work/point"
python3 - "$strata" $train $two --epochs 40000 <<'END' >"$work/out" 2>"$work/err"
import signal, subprocess, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
run = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
while b"epoch 1/" not in run.stdout.readline():
    pass
run.send_signal(signal.SIGINT)
run.stdout.read()
sys.exit(run.wait() != 130)
END
last=$(($(sed -n 's/.*interrupted in epoch \([0-9]*\) .*/\1/p' "$work/err") + 1)) # on a fast machine many epochs have passed
expect 0 "continues" $train $two --epochs $last
check "each step is there once" python3 - "$work/two.csv" $last <<'END'
import csv, sys
steps = [int(r["total_step"]) for r in csv.DictReader(open(sys.argv[1])) if r["event"] == "step"]
assert steps == list(range(1, 1 + 600 * int(sys.argv[2]))), (len(steps), steps[:3], steps[-3:])
END
expect 2 "its ending must be .jsonl" $train --log "$work/run.txt"
expect 2 "--log-every is for --log FILE" $train --log-every 3
expect 3 "cannot write in" $train --log "$work/no-such-folder/run.jsonl"
if [ -e /dev/full ]; then
    ln -s /dev/full "$work/full.jsonl"
    expect 161 "--log $work/full.jsonl: No space left" $train --log "$work/full.jsonl"
fi
}
finish
