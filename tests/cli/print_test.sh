#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Layers that print the values that pass through them. They print to stderr, each worker under its own name, and do not
# change the training.
. "$(dirname "$0")/support.sh"
make_data "$work/data"
model() { # LAYER: a model for digits with this layer in it
    echo "{\"label\": \"mnist\", \"input\": [28, 28],
           \"layers\": [{\"layer\": \"flatten\"}, {\"layer\": \"dense\", \"units\": 8},
        $1 {\"layer\": \"dense\", \"units\": 10}]}"
}
model '' >"$work/plain.json"
model '{"layer": "print", "name": "hidden", "every": 5, "first": 2},' >"$work/m.json"
train="--data $work/data --epochs 1 --batch 60 --seed 1 --json --device host"
# shellcheck disable=SC2086 # words
{
expect 0 "weights_sha256" train "$work/plain.json" $train
quiet stderr
json "r['event'] == 'result'"
grep -o '"weights_sha256":"[0-9a-f]*"' "$work/out" >"$work/plain"
expect 0 "weights_sha256" train "$work/m.json" $train --save "$work/m.strata"
check "the bits are the same" grep -qf "$work/plain" "$work/out"
check "two of ten steps are shown, and one of four evaluations" \
    test "$(grep -c '^hidden ([16]00*,8) f32 \[[^,]*, [^,]*, ...\] ' "$work/err")" = 3
stderr "hidden (60,8) f32 ["
expect 0 "" evaluate "$work/m.strata" --data "$work/data" --device host --json
json "r['accuracy'] >= 0"
}
model '{"layer": "print", "first": 65},' >"$work/wrong.json"
expect 3 "first" train "$work/wrong.json" --data "$work/data" --device host
# shellcheck disable=SC2086
{
expect 0 "weights_sha256" launch -n 2 -- "$strata" train "$work/m.json" ${train% --device host} --devices host \
    --strategy multi_worker_mirrored
cat "$work/out" "$work/err" >"$work/all"
for worker in 0 1; do
    check "worker $worker shows what it trains on itself" grep -q "worker $worker: hidden (60,8) f32" "$work/all"
done
expect 0 "weights_sha256" launch --workers 1 --ps 1 -- "$strata" train "$work/m.json" $train --strategy parameter_server
cat "$work/out" "$work/err" >"$work/all"
check "a worker beside servers does" grep -q "worker 0: hidden (60,8) f32" "$work/all"
check "and the chief, which evaluates" grep -q "chief: hidden (" "$work/all"
}
finish
