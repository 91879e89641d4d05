#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The sample programs that train with parameter servers. Each task is a process of this host. One sample has a custom
# training loop with a coordinator, the other one uses model.fit.
. "$(dirname "$0")/support.sh"

# run PROGRAM ARGUMENT...: runs all tasks. The chief's output is in $work/out, the errors of the other tasks are in
# $work/err.
run() {
    free_ports 5
    STRATA_CLUSTER="chief=127.0.0.1:$port;worker=127.0.0.1:$((port + 1)),127.0.0.1:$((port + 2))"
    export STRATA_CLUSTER="$STRATA_CLUSTER;ps=127.0.0.1:$((port + 3)),127.0.0.1:$((port + 4))"
    program=$STRATA_BUILD_DIR/samples/$1
    shift
    checks=$((checks + 1))
    : >"$work/err"
    others=""
    for task in ps:0 ps:1 worker:0 worker:1; do
        STRATA_TASK=$task timeout 300 "$program" "$@" >/dev/null 2>>"$work/err" </dev/null &
        others="$others $!"
    done
    STRATA_TASK=chief timeout 300 "$program" "$@" >"$work/out" 2>>"$work/err" </dev/null || bad "$program $*: the chief failed"
    for other in $others; do
        wait "$other" || bad "$program $*: a task failed"
    done
    quiet stderr
    loss=$(sed -n 's/^Epoch 5, Loss: //p' "$work/out")
    check "$program $*: the loss after 5 epochs is $loss" python3 -c "assert 0.07 < float('$loss') < 0.13"
}

loop=$STRATA_BUILD_DIR/samples/parameter_server_loop
expect 0 "Parameter server training completed" launch --workers 2 --ps 1 -- "$loop" host
run parameter_server_loop host
stdout "Parameter server training completed"
run parameter_server_fit none host
run parameter_server_fit 4 host
run parameter_server_fit 0 host
finish
