#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The evaluator task of parameter_server. It must find the numbers that the chief would find, end with the training, and
# report its errors and what it waits for without success.
. "$(dirname "$0")/support.sh"
make_data "$work/data"
plain="train mnist --data $work/data --epochs 4 --seed 1 --global-batch 60 --device host --strategy parameter_server --wait 20"
train="$plain --checkpoint $work/point"
free_ports 4
base=$port
tasks="chief=127.0.0.1:$base;worker=127.0.0.1:$((base + 1));ps=127.0.0.1:$((base + 2))"
cluster="$tasks;evaluator=127.0.0.1:$((base + 3))"

# evaluations FILE EXPRESSION: a Python expression about the evaluator's events. `e` are its evaluations, `end` is its last
# event, `r` the result.
cat >"$work/events.py" <<'END'
import json, sys
events = [json.loads(line) for line in open(sys.argv[1]) if line.startswith("{")]
e = [x for x in events if x["event"] == "evaluation"]
end = ([x for x in events if x["event"] == "evaluated"] or [None])[0]
r = ([x for x in events if x["event"] == "result"] or [None])[0]
epochs = [x["epoch"] for x in e]
assert epochs == sorted(set(epochs)), epochs
assert eval(sys.argv[2]), events
END
evaluations() { check "the events fulfil: $2" python3 "$work/events.py" "$1" "$2"; }
until_says() { eventually grep -q "$2" "$1"; } # FILE TEXT

# shellcheck disable=SC2086 # words
{
# ---- during a training: without validation data it uses the test examples ----
expect 0 "" launch --workers 2 --ps 1 --evaluator -- "$strata" $train --json
evaluations "$work/out" "len(e) >= 1 and e[-1]['last'] and e[-1]['epoch'] == 4 and e[-1]['step'] == 40"
evaluations "$work/out" "e[-1]['loss'] == r['test_loss'] and e[-1]['accuracy'] == r['test_accuracy']"
evaluations "$work/out" "e[-1]['examples'] == 200 and e[-1]['data'] == 'test' and end['evaluations'] == len(e) and end['over']"
evaluations "$work/out" "end['best_loss'] == min(x['loss'] for x in e) and 'val_loss' not in r"
check "the checkpoint is gone at the end" test ! -e "$work/point"
check "the other tasks' lines are not on stdout" test "$(grep -cv '^{' "$work/out")" = 0

# ---- validation data: the losses must be those of a chief that evaluates between epochs; saving the best model ----
more="--sync --validation-split 0.2 --metrics top_5_accuracy --restore-best"
expect 0 "" launch --workers 2 --ps 1 -- "$strata" $plain $more --json
cp "$work/out" "$work/inline"
expect 0 "" launch --workers 2 --ps 1 --evaluator -- "$strata" $train $more --save "$work/m.strata" --json
check "losses are those that the chief finds" python3 - "$work/inline" "$work/out" <<'END'
import json, sys
inline = json.loads(open(sys.argv[1]).readlines()[-1])
events = [json.loads(line) for line in open(sys.argv[2])]
e = [x for x in events if x["event"] == "evaluation"]
assert e and all(x["loss"] == inline["val_losses"][x["epoch"] - 1] for x in e), (e, inline["val_losses"])
assert all("top_5_accuracy" in x["metrics"] and x["data"] == "validation" and x["examples"] == 120 for x in e)
result = [x for x in events if x["event"] == "result"][0]
assert result["losses"] == inline["losses"]
END
evaluations "$work/out" "end['best_model'] == '$work/m.best.strata' and end['best_epoch'] == 4"
expect 0 "" evaluate "$work/m.best.strata" --device host --data "$work/data" --json
json "r['accuracy'] == 1"

# ---- text, with the task's rank ----
expect 0 "evaluates each new $work/point with 200 test examples" launch --workers 1 --ps 1 --evaluator -- "$strata" $train
check "its lines have its rank" grep -q '^\[3\] evaluation of epoch 4  test_loss .* test_accuracy 1.0000' "$work/out"
stdout "[3] evaluated"

# ---- a training that is interrupted and resumed ----
"$strata" launch --workers 1 --ps 1 --evaluator -- "$strata" $train --json --epochs 40000 >"$work/log" 2>"$work/err" &
job=$!
until_says "$work/log" '"event":"evaluation"'
kill -INT $job
wait $job
check "a job that is interrupted says so" test $? = 130
check "the checkpoint stays" test -s "$work/point"
epochs=$(($(grep -c '"event":"epoch"' "$work/log") + 2))
expect 0 "" launch --workers 1 --ps 1 --evaluator -- "$strata" $train --json --epochs $epochs
evaluations "$work/out" "e[-1]['last'] and e[-1]['epoch'] == $epochs"
check "the checkpoint is gone" test ! -e "$work/point"
expect 0 "paused" launch --workers 1 --ps 1 --evaluator -- "$strata" $train --json --stop-after 2
evaluations "$work/out" "e[-1]['epoch'] == 2 and not e[-1]['last'] and not end['over']"
check "a training that pauses keeps its checkpoint" test -s "$work/point"
rm "$work/point"

# ---- when the evaluator fails, training continues and the exit code of launch shows the failure ----
cat >"$work/other.sh" <<'END'
#!/bin/sh
case $TF_CONFIG in *'"type":"evaluator"'*) set -- "$@" --seed 2 ;; esac
exec "$@"
END
chmod +x "$work/other.sh"
expect 3 "with seed 1, this is 2" launch --workers 1 --ps 1 --evaluator -- "$work/other.sh" "$strata" $train --json
stderr "evaluator:0 ended with exit code 3"
evaluations "$work/out" "not e and r['test_accuracy'] == 1"
check "the last checkpoint stays, as nobody has evaluated it" test -s "$work/point"
rm "$work/point"
# The evaluator fails long before the other tasks end.
cat >"$work/early.sh" <<'END'
#!/bin/sh
case $TF_CONFIG in *'"type":"evaluator"'*) exit 7 ;; esac
exec "$@"
END
chmod +x "$work/early.sh"
expect 7 "evaluator:0 ended with exit code 7; the others continue" \
    launch --workers 1 --ps 1 --evaluator -- "$work/early.sh" "$strata" $train --json
evaluations "$work/out" "not e and r['test_accuracy'] == 1"
rm "$work/point"
# The evaluator is killed at its first start, and started again.
cat >"$work/mortal.sh" <<'END'
#!/bin/sh
case $TF_CONFIG in *'"type":"evaluator"'*) [ -e "$ONCE" ] || { touch "$ONCE"; kill -9 $$; } ;; esac
exec "$@"
END
chmod +x "$work/mortal.sh"
export ONCE="$work/once"
expect 0 "evaluator:0 was ended by signal 9 (Killed); it is started again" \
    launch --workers 1 --ps 1 --evaluator --restarts 1 -- "$work/mortal.sh" "$strata" $train --json
evaluations "$work/out" "e[-1]['last'] and e[-1]['loss'] == r['test_loss']"
# The chief fails, so the evaluator is ended.
cat >"$work/no_chief.sh" <<'END'
#!/bin/sh
case $TF_CONFIG in *'"type":"chief"'*) sleep 0.5; exit 3 ;; esac
exec "$@"
END
chmod +x "$work/no_chief.sh"
expect 3 "chief:0 ended with exit code 3; the others are ended" \
    launch --workers 1 --ps 1 --evaluator -- "$work/no_chief.sh" "$strata" $train

# ---- without launch: no connections, and a chief that does not start ----
by_hand="--cluster $cluster --cluster-role"
expect 163 "no checkpoint has come to $work/point in 0.5 s" $train $by_hand evaluator --evaluator-wait 0.5
stderr "--evaluator-wait says how long"
for task in ps worker; do "$strata" $train $by_hand $task --task 0 >"$work/$task" 2>&1 & done
"$strata" $train --json $by_hand evaluator >"$work/evaluator" 2>&1 &
evaluator=$!
expect 0 "" $train --json $by_hand chief
wait $evaluator
check "the evaluator ends with 0" test $? = 0
wait
grep '"result"' "$work/out" >>"$work/evaluator"
evaluations "$work/evaluator" "e[-1]['last'] and e[-1]['loss'] == r['test_loss']"
check "nothing is left" test ! -e "$work/point"

# TF_CONFIG as in programs for TensorFlow, where the cluster does not list the evaluator. The chief evaluates too, and
# removes its checkpoint at the end.
config() { # TYPE
    printf '{"cluster":{"chief":["127.0.0.1:%d"],"worker":["127.0.0.1:%d"],' "$base" $((base + 1))
    printf '"ps":["127.0.0.1:%d"]},' $((base + 2))
    printf '"task":{"type":"%s","index":0}}' "$1"
}
python3 "$here/files.py" data "$work/more" 3000 200
long="train mnist --data $work/more --epochs 30 --seed 1 --batch 20 --device host --strategy parameter_server --wait 20"
long="$long --checkpoint $work/point --validation-split 0.2"
rm -f "$work/evaluator" "$work/chief" # a background process truncates its file only when it runs
TF_CONFIG=$(config evaluator) "$strata" $long --evaluator-wait 60 >"$work/evaluator" 2>"$work/evaluator.err" &
evaluator=$!
# before the first checkpoint, because the chief may soon have removed all of them
until_says "$work/evaluator" "evaluates each new"
for task in ps worker; do TF_CONFIG=$(config $task) "$strata" $long >"$work/$task" 2>&1 & done
TF_CONFIG=$(config chief) "$strata" $long --json >"$work/chief" 2>&1
check "the chief ends with 0" test $? = 0
wait $evaluator
check "the evaluator ends with 0 too" test $? = 0
wait
check "the evaluator says why it ends" grep -q "was removed after epoch" "$work/evaluator.err"
check "the chief evaluates too" grep -q '"val_losses":\[' "$work/chief"
check "the losses are the chief's, as far as they are printed" python3 - "$work/chief" "$work/evaluator" <<'END'
import json, re, sys
expected = [json.loads(line) for line in open(sys.argv[1]) if '"result"' in line][0]["val_losses"]
found = re.findall(r"evaluation of epoch (\d+)  val_loss (\S+)", open(sys.argv[2]).read())
found = [(int(epoch), float(loss)) for epoch, loss in found]
assert found and all(abs(loss - expected[epoch - 1]) < 6e-4 * loss for epoch, loss in found), (found, expected)
END

# The chief is killed. The evaluator cannot notice this, but its wait has a time limit. It starts when there are
# checkpoints.
endless="$train --epochs 40000 --cluster $cluster"
rm -f "$work/evaluator" "$work/chief"
for task in ps worker; do "$strata" $endless --wait 5 --task $task:0 >"$work/$task" 2>&1 & done
"$strata" $endless --wait 5 --task chief >"$work/chief" 2>&1 &
chief=$!
until_says "$work/chief" "epoch 1/"
"$strata" $endless --task evaluator --evaluator-wait 3 >"$work/evaluator" 2>&1 &
evaluator=$!
until_says "$work/evaluator" "evaluation of epoch"
kill -9 $chief
wait $chief 2>/dev/null
wait $evaluator
check "the evaluator ends with 163" test $? = 163
check "it says what it waited for" grep -q "is still the checkpoint of epoch .* after 3 s" "$work/evaluator"
wait
rm -f "$work/point"

# ---- errors ----
expect 2 "give all tasks --checkpoint" launch --workers 1 --ps 1 --evaluator -- "$strata" $plain
expect 2 "leave out --patience" launch --workers 1 --ps 1 --evaluator -- "$strata" $train --validation-split 0.2 --patience 2
expect 2 "give --save" launch --workers 1 --ps 1 --evaluator -- "$strata" $train --validation-split 0.2 --restore-best
expect 2 "--evaluator goes with --workers and --ps" launch -n 2 --evaluator -- "$strata" $train
expect 2 "is for a cluster with an evaluator" launch --workers 1 --ps 1 -- "$strata" $train --evaluator-wait 5
expect 2 "give all tasks --checkpoint" train mnist --cluster "$cluster" --cluster-role evaluator
}
finish
