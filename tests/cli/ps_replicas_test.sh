#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# --ps-replicas 1: servers are killed and stopped in the middle of an epoch, and training continues with the copies of their
# shards. Synchronous training must then have the bits of an undisturbed one, which shows that no push was lost or counted
# twice.
. "$(dirname "$0")/support.sh"
python3 "$here/files.py" data "$work/data" 6000 200
plain="train mnist --data $work/data --epochs 4 --seed 1 --batch 30 --device host --json --strategy parameter_server --wait 200"
# Only a task that is stopped is lost by its silence; with these heartbeats that takes minutes.
plain="$plain --heartbeat 30"
train="$plain --ps-replicas 1"

# fault WHAT ROLE:INDEX DELAY RESTARTS OPTIONS...: kills the task, or stops it for WHAT seconds, DELAY seconds after the
# first epoch. The job's code is then in $code.
fault() {
    what=$1 task=$2 delay=$3 restarts=$4
    shift 4
    set -- "$strata" launch --workers 2 --ps 3 --restarts "$restarts" -- "$strata" "$@"
    python3 - "$what" "$task" "$delay" "$work" "$@" <<'END'
import os, signal, subprocess, sys, time
what, task, delay, work = sys.argv[1:5]
role, index = task.split(":")
out, err = open(work + "/out", "w"), open(work + "/err", "w")
job = subprocess.Popen(sys.argv[5:], stdout=out, stderr=err, stdin=subprocess.DEVNULL)
def find():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            parent = int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[1])
            if parent == job.pid and f'"type":"{role}","index":{index}' in open(f"/proc/{pid}/environ").read():
                return int(pid)
        except (OSError, IndexError):
            pass
    sys.exit(f"there is no task {task}")
until = time.time() + 300
while '"epoch":1' not in open(work + "/out").read() and time.time() < until and job.poll() is None:
    time.sleep(0.005)
pid = find()
time.sleep(float(delay))
os.kill(pid, signal.SIGKILL if what == "kill" else signal.SIGSTOP)
if what != "kill":
    time.sleep(float(what))
    os.kill(pid, signal.SIGCONT)
try:
    sys.exit(job.wait(300))
except subprocess.TimeoutExpired:
    job.terminate()
    sys.exit("the job hangs")
END
    code=$?
}
sha_of() { tail -n 1 "$1" | sed 's/.*"weights_sha256":"\([0-9a-f]*\)".*/\1/'; }
gap() { # SECONDS: no epoch of the last job took that much longer than the others
    check "no epoch takes $1 s more" python3 - "$work/out" "$1" <<'END'
import json, statistics, sys
epochs = [json.loads(line)["epoch_s"] for line in open(sys.argv[1]) if '"event":"epoch"' in line]
assert epochs and max(epochs) < float(sys.argv[2]) + 4 * statistics.median(epochs), epochs
END
}

# shellcheck disable=SC2086 # words
{
expect 0 "" launch --workers 2 --ps 3 -- "$strata" $plain --sync
sha=$(sha_of "$work/out")
expect 0 "" launch --workers 2 --ps 3 -- "$strata" $train --sync
json "r['weights_sha256'] == '$sha'" # copies change nothing
steps=400

for index in 0 2; do
    fault kill ps:$index 0.0$((index * 3)) 1 $train --sync
    check "training goes on without ps:$index" test $code = 0
    stderr "ps:$index was lost"
    json "r['weights_sha256'] == '$sha' and r['steps'] == $steps"
    gap 60
    check "no step is repeated" test ! "$(grep "are repeated" "$work/err")"
done

# The server does not start again. The other tasks must continue to the end.
fault kill ps:1 0.05 0 $train --sync
stderr "ps:1 was lost"
json "r['weights_sha256'] == '$sha' and r['steps'] == $steps"
gap 60

# A server that is stopped for some time continues, before the training has ended. The other tasks must ignore it, because they
# treat it as lost.
expect 0 "" launch --workers 2 --ps 3 -- "$strata" $plain --sync --epochs 24
long=$(sha_of "$work/out")
fault 7 ps:2 0.05 0 $train --sync --heartbeat 0.6 --epochs 24
check "training goes on while ps:2 is stopped" test $code = 0
stderr "ps:2 was lost"
json "r['weights_sha256'] == '$long' and r['steps'] == 2400"

fault kill ps:1 0.05 1 $train
check "training goes on without ps:1" test $code = 0
json "r['steps'] == 800 and r['test_accuracy'] > 0.9"
gap 60

# Workers are killed and stopped, too.
fault kill worker:1 0.05 1 $train --sync
check "training goes on without worker:1" test $code = 0
stderr "worker:1 was lost"
json "r['weights_sha256'] == '$sha' and r['steps'] == $steps"
# Until the stopped worker is treated as lost, the other one may make at most four more steps.
fault 6 worker:0 0.05 0 $train --staleness 4 --heartbeat 0.6 --epochs 24
check "training goes on while worker:0 is stopped" test $code = 0
stderr "worker:0 was lost"
json "r['steps'] == 4800 and r['test_accuracy'] > 0.9"

# The chief is killed, in a job without launch. A new chief continues from the checkpoint with the same workers and servers.
# Without a new one they must end after --wait, with an error.
free_ports 5
base=$port
cluster="chief=127.0.0.1:$base;worker=127.0.0.1:$((base + 1)),127.0.0.1:$((base + 2))"
cluster="$cluster;ps=127.0.0.1:$((base + 3)),127.0.0.1:$((base + 4))"
without_chief() { # FILE OPTIONS...: kills the chief after its second epoch and when FILE exists; the other tasks continue
    pids= file=$1
    shift
    rm -f "$work/out" # a background process truncates its file only when it runs
    for task in worker:0 worker:1 ps:0 ps:1; do
        "$strata" "$@" --cluster "$cluster" --task $task >"$work/$task" 2>&1 &
        pids="$pids $!"
    done
    "$strata" "$@" --cluster "$cluster" --task chief:0 >"$work/out" 2>"$work/err" &
    chief=$!
    tries=0
    until { grep -qs '"epoch":2' "$work/out" && [ -s "$file" ]; } || [ $tries = 4000 ]; do
        sleep 0.01
        tries=$((tries + 1))
    done
    kill -9 $chief
    wait $chief 2>"$work/killed" # the shell reports the signal
}
ended() { # CODE: all other tasks must end with it
    for pid in $pids; do
        wait $pid
        check "a task ends with $1" test $? = "$1"
    done
}
long="$train --epochs 8 --sync"
expect 0 "" launch --workers 2 --ps 2 -- "$strata" $long
sha=$(sha_of "$work/out")
long="$long --checkpoint $work/go.strata"
without_chief "$work/go.strata" $long
check "a checkpoint is there" test -s "$work/go.strata"
expect 0 "" $long --cluster "$cluster" --task chief:0
json "r['weights_sha256'] == '$sha' and r['workers_lost'] == 0"
ended 0
without_chief "$work/out" $train --epochs 40000 --wait 5
ended 162
check "a server says who is missing" grep -q "the chief, 127.0.0.1:$base, was lost, and did not come back" "$work/ps:1"
check "a worker says who is missing" grep -q "chief:0 at 127.0.0.1:$base was lost" "$work/worker:1"

expect 2 "takes 2 to 256 servers; the cluster has 1" launch --workers 1 --ps 1 -- "$strata" $train
expect 2 "a whole number from 0 to 1" $train --ps-replicas 2
}
finish
