#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# --strategy parameter_server with a chief, workers and servers as processes of this host. Synchronous training must give
# the numbers of multi_worker_mirrored. Workers are killed and start again. Every task must report errors.
. "$(dirname "$0")/support.sh"
make_data "$work/data"
train="train mnist --data $work/data --epochs 2 --seed 1 --global-batch 60 --device host --json"
servers="--strategy parameter_server --wait 20"

# near FILE FILE PART: the losses of both files may differ by this part.
near() {
    check "losses alike to $3" python3 - "$1" "$2" "$3" <<'END'
import json, sys
a, b = (json.loads(open(p).readlines()[-1])["losses"] for p in sys.argv[1:3])
assert len(a) == len(b) and all(abs(x - y) <= float(sys.argv[3]) * abs(x) for x, y in zip(a, b)), (a, b)
END
}

# shellcheck disable=SC2086 # words
{
# ---- synchronous training: the batches, losses and bits of multi_worker_mirrored ----
expect 0 "" launch -n 3 -- "$strata" $train --strategy multi_worker_mirrored
cp "$work/out" "$work/mirrored"
sha=$(tail -n 1 "$work/out" | sed 's/.*"weights_sha256":"\([0-9a-f]*\)".*/\1/')
for options in --sync "--staleness 0 --partitioner fixed:2"; do
    expect 0 "" launch --workers 3 --ps 2 -- "$strata" $train $servers $options
    near "$work/mirrored" "$work/out" 1e-5
    json "r['weights_sha256'] == '$sha' and r['staleness_max'] == 0 and r['steps'] == 20"
    json "r['servers'] == 2 and r['workers'] == 3"
done
expect 0 "" launch --workers 3 --ps 1 -- "$strata" $train $servers --sync --compress bf16
near "$work/mirrored" "$work/out" 0.05
expect 0 "" launch --workers 3 --ps 2 -- "$strata" $train $servers --sync --backup 1
json "r['gradients_late'] >= 0 and r['steps'] == 20 and r['train_loss'] < 1"

# ---- asynchronous training and bounded staleness ----
expect 0 "" launch --workers 3 --ps 2 -- "$strata" $train $servers --epochs 4
json "r['steps'] == 40 and r['test_accuracy'] > 0.9 and r['staleness_mean'] >= 0"
weights="--class-weights 1,2,1,1,3,1,1,1,1,0.5"
expect 0 "" launch --workers 3 --ps 2 -- "$strata" $train $servers --staleness 2 --accumulate 2 $weights
json "r['steps'] == 10 and r['train_loss'] < 2"
expect 0 "" launch --workers 3 --ps 2 -- "$strata" $train $servers --epochs 4 --ps-replicas 1 --old-gradients corrected
json "r['steps'] == 40 and r['test_accuracy'] > 0.85"
expect 0 "" $train
alone=$(tail -n 1 "$work/out" | sed 's/.*"weights_sha256":"\([0-9a-f]*\)".*/\1/')
expect 0 "" launch --workers 1 --ps 1 -- "$strata" $train $servers --old-gradients corrected
json "r['weights_sha256'] == '$alone' and r['staleness_max'] == 0"
spoken="train mnist --data $work/data --epochs 1 --steps-per-epoch 3 --device host"
expect 0 "versions old" launch --workers 2 --ps 1 -- "$strata" $spoken $servers
expect 0 "" launch --workers 2 --ps 1 -- "$strata" $train $servers --precision f16 --validation-split 0.2 --restore-best
json "r['precision'] == 'f16' and r['train_loss'] < 2 and len(r['val_losses']) == 2 and r['best_epoch'] >= 1"

# ---- sparse tables ----
python3 - "$work" <<'END'
import csv, random, sys
rng = random.Random(3)
with open(sys.argv[1] + "/texts.csv", "w") as file:
    rows = csv.writer(file)
    rows.writerow(["text", "label"])
    for _ in range(300):
        kind = rng.random() < 0.5
        words = [f"word{rng.randrange(60)}" for _ in range(12)]
        words += [rng.choice(["good", "great", "fine"] if kind else ["bad", "poor", "dull"]) for _ in range(3)]
        rng.shuffle(words)
        rows.writerow([" ".join(words), "good" if kind else "bad"])
END
texts="train $work/texts.csv --model text --epochs 2 --seed 1 --global-batch 40 --json --device host --set layers.0.sparse=true"
expect 0 "" launch -n 2 -- "$strata" $texts --strategy multi_worker_mirrored
cp "$work/out" "$work/mirrored"
expect 0 "" launch --workers 2 --ps 2 -- "$strata" $texts $servers --sync --partitioner fixed:3
near "$work/mirrored" "$work/out" 1e-5
expect 0 "" launch --workers 2 --ps 2 -- "$strata" $texts $servers --epochs 8 --compress bf16
json "r['test_accuracy'] > 0.8"

# ---- gradients that are not finite are reported, counted and skipped ----
python3 - "$work" <<'END'
import sys
with open(sys.argv[1] + "/sums.csv", "w") as file:
    file.write("a,b,y\n")
    for i in range(200):
        file.write(f"{i % 7 / 7},{i % 11 / 11},{i % 7 / 7 + i % 11 / 11}\n")
END
numbers="train $work/sums.csv --epochs 3 --seed 1 --device host --set optimizer.name=sgd"
expect 3 "gradients of epoch" launch --workers 2 --ps 1 -- "$strata" $numbers $servers --learning-rate 1e5
stderr "are not finite (the loss) and were left out"

# ---- a checkpoint can be resumed under another strategy, in both directions ----
expect 0 "" $train --epochs 4 --strategy one_device
cp "$work/out" "$work/whole"
stops() { # LOG: ends the training after its first epoch
    eventually grep -q '"epoch":1' "$1"
}
long="train mnist --data $work/data --epochs 40000 --seed 1 --global-batch 60 --device host --json --checkpoint $work/go.strata"
"$strata" launch --workers 2 --ps 2 -- "$strata" $long $servers --sync >"$work/log" 2>"$work/err" &
stops "$work/log"
kill -INT $!
wait $!
check "a training that is interrupted says so" test $? = 130
check "it leaves a checkpoint" test -s "$work/go.strata"
done_before=$(grep -c '"event":"epoch"' "$work/log")
expect 0 "" $train --epochs $((done_before + 2)) --checkpoint "$work/go.strata"
json "r['test_accuracy'] == 1 and r['epochs'] <= 3"

# ---- workers are killed and start again ----
python3 "$here/files.py" data "$work/more" 6000 200
kill_one() { # ROLE OPTIONS...: kills task 1 of the role during training; the job's code is in $code
    role=$1
    shift
    more="train mnist --data $work/more --epochs 8 --batch 30 --device host --json $servers"
    "$strata" launch --workers 3 --ps 2 --restarts 1 -- "$strata" $more "$@" >"$work/out" 2>"$work/err" &
    job=$!
    python3 - $job "$role" "$work/out" <<'END'
import os, signal, sys, time
def find():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            parent = int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[1])
            if parent == int(sys.argv[1]) and f'"type":"{sys.argv[2]}","index":1' in open(f"/proc/{pid}/environ").read():
                return int(pid)
        except (OSError, IndexError):
            pass
until = time.time() + 300
def wait_for(what): # calls `what` until it returns something
    while not (found := what()):
        if time.time() > until:
            sys.exit("there is no such task, or its first epoch does not end")
        time.sleep(0.005)
    return found
pid = wait_for(find)
wait_for(lambda: '"epoch":1' in open(sys.argv[3]).read())
os.kill(pid, signal.SIGKILL)
END
    wait $job
    code=$?
}
for options in "" "--sync"; do
    kill_one worker $options
    check "training goes on without worker:1 $options" test $code = 0
    stderr "worker:1 was lost"
    steps=$((8 * 200))
    [ -z "$options" ] || steps=$((8 * 67)) # the 90 batches are divided by 3 workers
    json "r['workers_lost'] == 1 and r['test_accuracy'] > 0.9 and r['steps'] == $steps"
    check "no epoch takes seconds more" python3 - "$work/out" <<'END'
import json, statistics, sys
epochs = [json.loads(line)["epoch_s"] for line in open(sys.argv[1]) if '"event":"epoch"' in line]
assert len(epochs) == 8 and max(epochs) < 3 + 4 * statistics.median(epochs), epochs
END
done

# ---- a server is killed and starts again: the steps of its epoch are repeated, with the bits of an undisturbed training ----
# The hash of the synchronous training in which a worker was killed.
sha=$(tail -n 1 "$work/out" | sed 's/.*"weights_sha256":"\([0-9a-f]*\)".*/\1/')
kill_one ps --sync
check "training goes on with a new ps:1" test $code = 0
stderr "ps:1 started again"
stderr "steps are repeated"
json "r['weights_sha256'] == '$sha' and r['steps'] == $steps"

# ---- without launch ----
free_ports 3
base=$port
cluster="chief=127.0.0.1:$base;worker=127.0.0.1:$((base + 1));ps=127.0.0.1:$((base + 2))"
by_hand="$train $servers --cluster $cluster"
"$strata" $by_hand --cluster-role ps --task ps:0 >"$work/ps" 2>&1 &
ps=$!
"$strata" $by_hand --cluster-role worker --task 0 >"$work/worker" 2>&1 &
worker=$!
expect 0 "" $by_hand --cluster-role chief
json "r['workers'] == 1 and r['servers'] == 1"
wait $ps
check "the server ends with 0" test $? = 0
wait $worker
check "the worker ends with 0" test $? = 0

# ---- errors ----
expect 2 "0 ps" launch -n 2 -- "$strata" $train $servers
expect 2 "go together" launch --workers 2 -- "$strata" $train $servers
expect 2 "--staleness -1" $train $servers --staleness -1
expect 2 "give --sync" $train $servers --backup 1
expect 2 "it must be plain or corrected" $train $servers --old-gradients new
expect 2 "no gradient is old" launch --workers 1 --ps 1 -- "$strata" $train $servers --sync --old-gradients plain
expect 2 "partitioner \"thirds\"" launch --workers 1 --ps 1 -- "$strata" $train $servers --partitioner thirds
expect 2 "are for --strategy parameter_server" $train --sync
expect 2 "backup is 2 with 2 workers" launch --workers 2 --ps 1 -- "$strata" $train $servers --sync --backup 2
expect 2 "transport" $train $servers --transport shm
expect 2 "9 servers for 4 shards" launch --workers 1 --ps 9 -- "$strata" $train $servers
}
finish
