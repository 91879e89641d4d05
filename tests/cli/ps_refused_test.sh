#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# --strategy parameter_server: errors in a job. Every task must report them as soon as the tasks have connected. If two
# tasks differ, the message must describe both. Errors that a single task detects are tested in parameter_server_test.sh.
. "$(dirname "$0")/support.sh"
make_data "$work/data"
wait_s=600
train="train mnist --data $work/data --epochs 1 --seed 1 --global-batch 60 --device host --strategy parameter_server"
train="$train --wait $wait_s"

# all_say TEXT: each of the job's five tasks (chief, 2 workers, 2 servers) must have printed it, and none may have waited
# for --wait.
all_say() {
    for task in 0 1 2 3 4; do
        check "task $task says \"$1\"" sh -c 'grep "^\[$1\]" "$2" | grep -qF -- "$3"' - $task "$work/err" "$1"
    done
    check "it is said at once" test $(($(date +%s) - began)) -lt $((wait_s / 2))
}

# job CODE TEXT ROLE FAULT OPTIONS COMMAND...: runs a job. Task ROLE:1 also gets OPTIONS, and its device has the FAULT
# (tests/plugin/faulty).
cat >"$work/one.sh" <<'END_OF_TASK'
#!/bin/sh
role=$1 fault=$2 options=$3
shift 3
# shellcheck disable=SC2086 # words
case $TF_CONFIG in *"\"type\":\"$role\",\"index\":1"*) exec env STRATA_FAULTY="$fault" "$@" $options ;; esac
exec "$@"
END_OF_TASK
chmod +x "$work/one.sh"
job() {
    code=$1 says=$2 role=$3 fault=$4 options=$5
    shift 5
    rm -rf "$ENDED"
    mkdir "$ENDED"
    began=$(date +%s)
    expect "$code" "$says" launch --workers 2 --ps 2 -- "$work/linger.sh" "$work/one.sh" "$role" "$fault" "$options" \
        "$strata" "$@"
    all_say "$says"
}
# launch ends all tasks when the chief has failed. So that each task can print its error, the chief's shell ends after the
# others.
export ENDED="$work/ended"
cat >"$work/linger.sh" <<'END_OF_TASK'
#!/bin/sh
"$@"
code=$?
: >"$ENDED/$$"
tries=0
case $TF_CONFIG in *'"type":"chief"'*)
    until [ "$(ls "$ENDED" | wc -l)" = 5 ] || [ $tries = 4000 ]; do
        sleep 0.05
        tries=$((tries + 1))
    done
    ;;
esac
exit $code
END_OF_TASK
chmod +x "$work/linger.sh"

# shellcheck disable=SC2086 # words
{
# ---- a task with another program ----
job 2 "the learning rate is 0.001 on chief:0 and 0.5 on ps:1" ps "" "--learning-rate 0.5" $train
job 2 "the partitioner is fixed:2 on chief:0 and max_size:4M on ps:1" ps "" "--partitioner max_size:4M" \
    $train --partitioner fixed:2
job 2 "the pace is bounded on worker:1 and asynchronous on chief:0" worker "" "--staleness 3" $train
job 2 "the way with old gradients is plain on worker:1 and corrected on chief:0" worker "" "--old-gradients plain" $train
job 2 "the number of replicas is 0 on chief:0 and 1 on ps:1" ps "" "--ps-replicas 1" $train
job 2 "the learning rate is 0.5 on worker:1 and 0.001 on chief:0" worker "" "--learning-rate 0.5" $train
job 2 "layers[1].units is 7 on worker:1 and 128 on chief:0" worker "" "--set layers.1.units=7" $train
stderr " on worker:1 and "

# A task with another strategy uses another protocol. The chief must report which connection came instead of its worker's.
expect 162 "worker:1 ended (exit code 162) before it joined; connections refused" launch --workers 2 --ps 1 -- \
    "$work/one.sh" worker "" "--strategy multi_worker_mirrored" "$strata" $train --wait 6
stderr "it takes chief:0 for the store of a job"

# ---- a server whose device has no memory for its shards ----
plugin=$(ls "$STRATA_BUILD_DIR"/suites/plugins/libstrata_faulty_plugin.* 2>/dev/null | head -n 1)
if [ -n "$plugin" ]; then
    on_chip="--plugin $plugin --parameter-device faulty:0 --allow-fallback host"
    job 4 "ps:1 cannot hold its shards" ps fail:buffer_create:5 "" $train $on_chip
    stderr "bytes on faulty:0: variable shards: faulty:0: injected"
else
    echo "skipped: a server without room: the plugin of tests/plugin was not built"
fi

# ---- more tasks than TF_CONFIG names ----
as() { # ROLE INDEX WORKERS: TF_CONFIG of a cluster with that list of workers
    echo "{\"cluster\":{\"chief\":[\"127.0.0.1:$base\"],\"worker\":[$3],\"ps\":[\"127.0.0.1:$((base + 3))\"]}," \
        "\"task\":{\"type\":\"$1\",\"index\":$2}}"
}
free_ports 4
base=$port
one="\"127.0.0.1:$((base + 1))\"" two="\"127.0.0.1:$((base + 1))\",\"127.0.0.1:$((base + 2))\""
refused() { # CODE TEXT CONFIG OPTIONS...: by this task alone
    export TF_CONFIG="$3"
    code=$1 says=$2
    shift 3
    expect "$code" "$says" $train "$@"
    unset TF_CONFIG
}
refused 3 "this task is worker:2, but the cluster has 2 of that type" "$(as worker 2 "$two")"
refused 3 "this task is ps:1, but the cluster has 1 of that type" "$(as ps 1 "$two")"
refused 2 "TF_CONFIG has 1 chief, 0 workers and 1 ps" "$(as chief 0 "")"
says='--task is "ps:1", but TF_CONFIG says that this process is worker:0'
refused 2 "$says" "$(as worker 0 "$two")" --cluster-role ps --task 1
# The cluster of the chief has one worker. A second one starts, because its own TF_CONFIG lists two.
began=$(date +%s)
TF_CONFIG=$(as chief 0 "$one") "$strata" $train >"$work/chief" 2>&1 &
chief=$!
TF_CONFIG=$(as ps 0 "$one") "$strata" $train >"$work/ps" 2>&1 &
ps=$!
TF_CONFIG=$(as worker 1 "$two") "$strata" $train >"$work/stranger" 2>&1
check "the stranger ends with 2" test $? = 2
TF_CONFIG=$(as worker 0 "$one") "$strata" $train >"$work/worker" 2>&1 # the training has not begun without it
check "the worker ends with 2" test $? = 2
wait $chief
check "the chief ends with 2" test $? = 2
wait $ps
check "the server ends with 2" test $? = 2
for task in chief ps worker stranger; do
    check "the $task says it" grep -q "the number of workers is 2 on worker:1 and 1 on chief:0" "$work/$task"
done
check "it is said at once" test $(($(date +%s) - began)) -lt $((wait_s / 2))

# ---- no cluster, another role, a server that does not start ----
expect 2 "nothing says which tasks there are; start them with strata launch --workers 2 --ps 1" $train
alone="chief=127.0.0.1:$base;worker=127.0.0.1:$((base + 1));ps=127.0.0.1:$((base + 2))"
expect 2 "--cluster-role server: it must be chief, worker, ps or evaluator" $train --cluster "$alone" --cluster-role server
expect 163 "ps:0 did not come in 1 s: ps:0 at 127.0.0.1:$((base + 2))" $train --cluster "$alone" --task chief --wait 1

# ---- options of other strategies, and options of this one under others ----
expect 2 "are for --strategy parameter_server" $train --staleness 2 --strategy mirrored
expect 2 "are for --strategy parameter_server" $train --ps-replicas 1 --strategy multi_worker_mirrored
expect 2 "does not take a sharded optimizer" $train --shard-optimizer yes
expect 2 "does not take a split" $train --split 1:1
expect 2 "does not take cross-device ops" $train --cross-device-ops ring
expect 2 "does not take another compress than bf16" $train --compress f16

# ---- a partitioner for parameters that must not be divided ----
for optimizer in "optimizer.name=lars" "optimizer.name=lamb"; do
    expect 2 "takes the norm of each whole parameter" \
        launch --workers 1 --ps 1 -- "$strata" $train --partitioner fixed:8 --set $optimizer
    stderr "the partitioner cuts "
done
}

# Synchronized batch norm needs exchanges between workers.
cat >"$work/norm.json" <<'END'
{"label": "mnist", "input": [28, 28], "layers": [{"layer": "flatten"}, {"layer": "batch_norm", "synchronized": true},
 {"layer": "dense", "units": 10}], "loss": "sparse_categorical_crossentropy"}
END
# shellcheck disable=SC2086 # words
expect 4 'layer "batch_norm" is a synchronized batch_norm' launch --workers 2 --ps 1 -- "$strata" train "$work/norm.json" \
    --data "$work/data" --epochs 1 --device host --sync
finish
