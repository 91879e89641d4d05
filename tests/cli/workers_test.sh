#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Training with several workers, which `strata launch` starts. The numbers are those of one process, only one worker prints
# and writes files; and errors.
. "$(dirname "$0")/support.sh"
make_data "$work/data"
train="train mnist --data $work/data --epochs 1 --seed 1 --global-batch 60 --devices host --json"
# shellcheck disable=SC2086 # words
{
expect 0 "" $train
cp "$work/out" "$work/one"
for n in 2 3; do
    expect 0 "" launch -n $n -- "$strata" $train --strategy multi_worker_mirrored --save "$work/model.strata"
    check "the chief alone prints" test "$(grep -c '"event":"result"' "$work/out") $(wc -l <"$work/out")" = "1 2"
    json "r['workers'] == $n and r['replicas'] == $n and r['batch'] == 60 and r['replica_weights_equal'] is True"
    python3 - "$work/one" "$work/out" <<'END' || bad "the losses of $n workers are not those of one process"
import json, sys
one, many = (json.loads(open(p).readlines()[-1])["losses"] for p in sys.argv[1:])
assert len(one) == len(many) and all(abs(a - b) <= 1e-5 * abs(a) for a, b in zip(one, many))
END
    expect 0 "200 test examples" evaluate "$work/model.strata" --device host --data "$work/data"
done
# Batches of 2 with class weights, accumulated to 8. The third worker has no row of a batch. And f16, where all workers use
# the same loss scale.
few="train mnist --data $work/data --epochs 1 --seed 1 --devices host --json --global-batch 2 --accumulate 4 --class-weights 1,2,1,1,3,1,1,1,1,0.5"
expect 0 "" $few
cp "$work/out" "$work/one"
expect 0 "" launch -n 3 -- "$strata" $few --strategy multi_worker_mirrored
json 'r["steps"] == 75 and r["replica_weights_equal"] is True'
check "accumulated over workers as in one process" python3 - "$work/one" "$work/out" <<'END'
import json, sys
one, many = (json.loads(open(p).readlines()[-1])["losses"] for p in sys.argv[1:])
assert len(one) == len(many) and all(abs(a - b) <= 1e-4 * abs(a) for a, b in zip(one, many))
END
expect 0 "" launch -n 2 -- "$strata" $train --precision f16 --strategy multi_worker_mirrored
json 'r["precision"] == "f16" and r["replica_weights_equal"] is True and r["loss"] < 2'
expect 4 "name the layers" launch -n 2 -- "$strata" $train --recompute auto --strategy multi_worker_mirrored
expect 0 "" launch -n 2 -- "$strata" $train --recompute dense --strategy multi_worker_mirrored
json 'r["replica_weights_equal"] is True and r["loss"] < 2'

# --stop-after ends all workers behind the same epoch, and the same command continues there.
short="train mnist --data $work/data --epochs 3 --steps-per-epoch 2 --seed 1 --global-batch 60 --devices host --json"
expect 0 "" launch -n 2 -- "$strata" $short
cp "$work/out" "$work/whole"
expect 0 '{"event":"paused","epochs":2}' launch -n 2 -- "$strata" $short --checkpoint "$work/two" --stop-after 2
check "the checkpoint stays" test -s "$work/two"
expect 0 '"event":"result"' launch -n 2 -- "$strata" $short --checkpoint "$work/two"
check "a paused training ends as one without a pause" test \
    "$(grep -o 'weights_sha256":"[0-9a-f]*' "$work/out")" = "$(grep -o 'weights_sha256":"[0-9a-f]*' "$work/whole")"

# The area under the curve is that of all workers' examples. With a learning rate of 0 it is the same in each epoch.
python3 - "$work" <<'END'
import random, sys
random.seed(2)
pairs = [(random.gauss(0, 1), random.gauss(0, 1)) for _ in range(100)]
rows = [f"{a:.4f},{b:.4f},{int(a + random.gauss(0, 1) > 1)}" for a, b in pairs]
open(sys.argv[1] + "/auc.csv", "w").write("a,b,y\n" + "\n".join(rows))
END
cat >"$work/auc.json" <<'END'
{"input": [2], "layers": [{"layer": "dense", "units": 1}], "loss": "binary_crossentropy", "metrics": ["auc"],
 "optimizer": {"name": "sgd", "learning_rate": 0}}
END
auc="train $work/auc.json --data $work/auc.csv --epochs 1 --seed 1 --global-batch 7 --devices host --json"
expect 0 "" $auc
cp "$work/out" "$work/one"
expect 0 "" launch -n 3 -- "$strata" $auc --strategy multi_worker_mirrored
check "auc over workers is that of one process" python3 - "$work/one" "$work/out" <<'END'
import json, sys
one, many = (json.loads(open(p).readline())["train_auc"] for p in sys.argv[1:])
assert 0 < one < 1 and abs(one - many) < 1e-6, (one, many)
END

mkdir "$work/a.b"
expect 0 "and 1 other worker, " launch -n 2 -- "$strata" train mnist --data "$work/data" --epochs 1 --devices host --strategy \
    multi_worker_mirrored --trace "$work/a.b/trace.json"
stdout "[0] epoch 1/1"
stdout " % of its exchange hidden"
checks=$((checks + 1))
! grep -q '^\[1\]' "$work/out" || bad "a worker that is not the chief prints"
check "the chief's trace has both workers" python3 "$here/trace.py" "$work/a.b/trace.json" 2
check "each worker writes its own trace" python3 "$here/trace.py" "$work/a.b/trace.rank1.json"

# What each worker reads: rows of all batches, or its own files. All workers end in the same step.
python3 - "$work" <<'END'
import os, random, sys
rng = random.Random(1)
os.makedirs(sys.argv[1] + "/cifar")
for name, n in ("data_batch_1", 20), ("data_batch_2", 40), ("test_batch", 10):
    with open(f"{sys.argv[1]}/cifar/{name}.bin", "wb") as f:
        f.write(b"".join(bytes([i % 3]) + rng.randbytes(3072) for i in range(n)))
END
pictures="train cifar10 --data $work/cifar --epochs 1 --global-batch 10 --devices host --strategy multi_worker_mirrored --json --auto-shard"
# Steps. data: 60 pictures in batches of 10. file and auto: the larger file has 40 pictures, and a batch lasts two steps.
# off: 60 pictures, and a batch lasts two steps.
for policy in data:6 file:8 auto:8 off:12; do
    expect 0 "" launch -n 2 -- "$strata" $pictures "${policy%:*}"
    json "r['steps'] == ${policy#*:} and r['replica_weights_equal'] is True"
done
expect 2 "2 files among 3 workers" launch -n 3 -- "$strata" $pictures file
expect 2 "data, file, off or auto" $pictures rows
expect 2 "only programs in C can use it, with strata_dataset_shard_hint (strata/pipeline.h)" $pictures hint
expect 0 "" help train
stdout "(data); in C: hint"

# Workers are started separately, as in two terminals. When one is killed, the other one must report it. The second worker
# sends a heartbeat every 10 s, and the first one, whose own timeout is one second, must not treat it as lost.
free_ports 2
by_hand="train mnist --data $work/data --epochs 100000 --devices host --strategy multi_worker_mirrored --cluster 127.0.0.1:$port,127.0.0.1:$((port + 1))"
for victim in 1 0; do
    # A background process truncates its file only when it runs. So the test removes the output of the previous round.
    rm -f "$work/out.0" "$work/out.1"
    "$strata" $by_hand --task worker:1 --heartbeat 10 >"$work/out.1" 2>"$work/err.1" &
    pid_1=$!
    "$strata" $by_hand --task worker:0 --heartbeat 0.2 >"$work/out.0" 2>"$work/err.0" &
    pid_0=$!
    check "two workers train" eventually grep -q "epoch 2/" "$work/out.0"
    [ $victim = 0 ] || sleep 1.5
    check "they still train after a second without a sign of life" kill -0 $pid_0 $pid_1
    eval "kill -9 \$pid_$victim"
    survivor=$((1 - victim))
    eval "wait \$pid_$survivor"
    ended=$?
    said=$(tail -n 1 "$work/err.$survivor")
    check "a worker whose peer was killed ends with exit code 162, not $ended" test $ended = 162
    check "it names rank, host and step: $said" grep -Eq "rank $victim \(host .*\) was lost at step [0-9]+" \
        "$work/err.$survivor"
done

# If a worker fails or is interrupted, the other one must end, too, also if they share memory.
by_hand="train mnist --epochs 100000 --devices host --strategy multi_worker_mirrored --cluster 127.0.0.1:$port,127.0.0.1:$((port + 1))"
"$strata" $by_hand --task worker:1 --data "$work/none" >"$work/other.out" 2>&1 &
expect 162 "rank 1" $by_hand --task worker:0 --data "$work/data"
stderr "left while others still needed it"
wait $!
check "the one without data ends with exit code 3" test $? = 3
cat >"$work/interrupt.py" <<'END'
import signal, subprocess, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
one, other = (subprocess.Popen(sys.argv[1:] + ["--task", "worker:%d" % i], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for i in (0, 1))
while "epoch 1/" not in one.stdout.readline():
    assert one.poll() is None
other.send_signal(signal.SIGINT)
codes = other.wait(300), one.wait(300)
said = one.stderr.read()
assert codes == (130, 130) and "interrupted in epoch" in said, (codes, said)
END
check "Ctrl-C on one ends both before the same step" python3 "$work/interrupt.py" "$strata" $by_hand --data "$work/data"

# Workers with two kinds of devices, whose updates differ in the last bits. The copies must stay equal, because only the
# chief's update is used.
if "$strata" devices 2>/dev/null | grep -q opencl:0; then
    mixed="train mnist --data $work/data --epochs 4 --global-batch 20 --strategy multi_worker_mirrored --cluster 127.0.0.1:$port,127.0.0.1:$((port + 1)) --json"
    for chief in host opencl:0; do
        other=$([ $chief = host ] && echo opencl:0 || echo host)
        "$strata" $mixed --task worker:1 --devices $other >"$work/other.out" 2>&1 &
        expect 0 "" $mixed --task worker:0 --devices $chief
        wait $!
        check "the worker on $other ends well" test $? = 0
        json "r['replica_weights_equal'] is True and r['loss'] < 1.5"
    done
else
    echo "skipped: workers of two kinds of devices (no OpenCL)"
fi

# Gradients are sent with half as many bytes. The copies must stay equal, and the losses nearly.
for how in "" "--compress bf16" "--compress f16"; do
    expect 0 "" launch -n 2 -- "$strata" $train --strategy multi_worker_mirrored $how
    json "r['replica_weights_equal'] is True"
    cp "$work/out" "$work/sent${how#--compress }"
    python3 - "$work/sent" "$work/out" "$how" <<'END' || bad "train $how"
import json, sys
whole, rounded = (json.loads(open(p).readlines()[-1]) for p in sys.argv[1:3])
if sys.argv[3]:
    assert 0.49 < rounded["wire_bytes_per_step"] / whole["wire_bytes_per_step"] < 0.51
    assert rounded["weights_sha256"] != whole["weights_sha256"]
    assert abs(rounded["loss"] - whole["loss"]) < 0.02 * whole["loss"]
END
done
expect 2 "multi_worker_mirrored" $train --strategy mirrored --compress bf16
# The bits must be the same when Open MPI or MPICH transports the data. In Debian each mpirun has its own name. Leak
# detection is off because of MPI itself.
hash=$(python3 -c 'import json, sys; print(json.loads(open(sys.argv[1]).readlines()[-1])["weights_sha256"])' "$work/sent")
over_mpi() { # MPI PACKAGE MPIRUN VERSION OPTION...: VERSION is what its `mpirun --version` says
    mpi=$1 package=$2 mpirun=$3 version=$4
    shift 4
    $mpirun --version 2>/dev/null | grep -q "$version" || mpirun=mpirun
    if ! $mpirun --version 2>/dev/null | grep -q "$version"; then
        echo "skipped: --engine mpi over $mpi (Debian: $package)"
        return
    fi
    for engine in builtin mpi; do
        checks=$((checks + 1))
        ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
            $mpirun "$@" -n 2 "$strata" $train --strategy multi_worker_mirrored --engine $engine >"$work/out" 2>"$work/err" || \
                bad "$mpirun strata train --engine $engine"
        json "r['workers'] == 2 and r['weights_sha256'] == '$hash'"
    done
    # MPI on one rank only: no rank may wait in MPI for the others.
    for rank in 0 1; do
        OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 300 $mpirun "$@" -n 2 sh -c \
            'engine=; [ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" != '$rank' ] || engine="--engine mpi"; exec "$@" $engine' sh \
            "$strata" $train --strategy multi_worker_mirrored >"$work/out" 2>"$work/err"
        check "$mpirun with the engine on rank $rank ends with an error" test $? != 0
        stderr "the transport is"
        stderr "engine mpi on rank $rank"
    done
}
over_mpi "Open MPI" openmpi-bin mpirun.openmpi "Open MPI" --oversubscribe --bind-to none
over_mpi MPICH mpich mpirun.mpich "HYDRA\|Intel"
# The library must be that of the launcher. If it cannot be loaded, this is an error.
mkdir "$work/libraries"
for name in libmpi.so libmpi.so.12 libmpich.so.12 libmpi.so.40; do : >"$work/libraries/$name"; done
over_nothing() { LD_LIBRARY_PATH="$work/libraries" expect 4 "$@" $train --strategy multi_worker_mirrored --engine mpi \
    --cluster a:1,b:2 --task 0; }
PMI_SIZE=2 over_nothing "MPICH started this process, but its library is not there (Debian: libmpich12): "
stderr "libmpich.so.12: file too short"
OMPI_COMM_WORLD_SIZE=2 PMI_SIZE=2 over_nothing \
    "Open MPI started this process, but its library is not there (Debian: libopenmpi3): "
stderr "libmpi.so.40: file too short"
expect 2 "not started by the mpirun of Open MPI or MPICH" $train --strategy multi_worker_mirrored --engine mpi --cluster \
    a:1,b:2 --task 0
expect 2 "no engine" $train --strategy multi_worker_mirrored --engine nccl --cluster a:1,b:2 --task 0
# With several workers a sparse update of an embedding changes the rows that any of them used. With adagrad it equals the
# dense update.
{ echo review,sentiment && for i in 1 2 3 4 5 6 7 8 9 10; do printf 'a %s film,%s\nthe plot %s,%s\n' "good w$i" positive \
    "bad w$i" negative; done; } >"$work/imdb_train.csv"
cp "$work/imdb_train.csv" "$work/imdb_test.csv"
hash=""
for sparse in false true; do
    sed "s/\"layer\": *\"embedding\",/& \"sparse\": $sparse,/; s/\"optimizer\": *{[^}]*}/\"optimizer\": {\"name\": \"adagrad\"}/" "$STRATA_SOURCE_DIR/samples/imdb/model.json" >"$work/$sparse.json"
    expect 0 "" launch -n 2 -- "$strata" train "$work/$sparse.json" --data "$work" --epochs 2 --seed 1 --global-batch 6 \
        --devices host --json --strategy multi_worker_mirrored
    json "r['steps'] == 8 and r['replica_weights_equal'] is True and r['weights_sha256'].startswith('$hash')"
    hash=$(grep -o '"weights_sha256":"[0-9a-f]*' "$work/out" | cut -d '"' -f 4)
done
# A custom loop must have the numbers of one process.
for n in 2 3; do
    expect 0 "Epoch 5, Loss: 0.0878" launch -n $n -- "$STRATA_BUILD_DIR/samples/custom_loop" multi_worker_mirrored host
    check "the chief alone prints" test "$(wc -l <"$work/out")" = 5
done
expect 2 "--task TYPE:INDEX" $train --cluster a:1,b:2
expect 2 "multi_worker_mirrored" $train --task worker:1
for option in "--insecure" "--wait 1" "--heartbeat 1" "--stall 1" "--interface lo" "--transport tcp"; do expect 2 \
    "multi_worker_mirrored" $train $option; done
# Without --strategy the tasks of a job choose it. Workers that train separately although there is a cluster are warned once,
# and so is one without a cluster.
expect 0 "--strategy multi_worker_mirrored, since TF_CONFIG names 2 tasks" \
    launch -n 2 -- "$strata" train linear --devices host --epochs 1 --json
json "r['replicas'] == 2 and r['strategy'] == 'multi_worker_mirrored'"
expect 0 "" launch -n 2 -- "$strata" train linear --devices host --epochs 1 --strategy mirrored
check "a job without the strategy is warned of, once" test \
    "$(grep -c 'TF_CONFIG names 2 workers, and each trains alone' "$work/err")" = 1
expect 0 "nothing names a cluster" train linear --devices host --epochs 1 --strategy multi_worker_mirrored
expect 0 "1 other worker," launch -n 2 -- "$strata" train linear --devices host --epochs 1 --strategy multi_worker_mirrored \
    --transport tcp --wait 30 --heartbeat 2 --stall 60
expect 2 "no transport" $train --strategy multi_worker_mirrored --transport carrier --cluster a:1,b:2 --task 0
expect 2 "--task" $train --strategy multi_worker_mirrored --cluster a:1,b:2
expect 2 "for the devices of one worker" $train --strategy multi_worker_mirrored --split auto
}
finish
