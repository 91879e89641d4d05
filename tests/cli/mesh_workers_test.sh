#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# strata train --strategy model_parallel over several workers: the mesh has the devices of all of them, and trains what one
# device trains. Files have the whole model. Workers with another mesh are told both.
. "$(dirname "$0")/support.sh"
make_data "$work/data"
train="train mnist --data $work/data --epochs 1 --seed 1 --json"
mesh="$train --strategy model_parallel --global-batch 60"
# The losses of the last run, and that of the test examples, are those of one device, up to the order of sums.
same() {
    json "(one := json.loads(open('$work/one').read().splitlines()[-1])) and len(one['losses']) == len(r['losses']) and \
        math.isclose(one['test_loss'], r['test_loss'], rel_tol=1e-5) and \
        all(math.isclose(a, b, rel_tol=1e-5) for a, b in zip(one['losses'], r['losses']))"
}
weights() { tail -n 1 "$work/out" | grep -o '"weights_sha256":"[0-9a-f]*"'; }
# shellcheck disable=SC2086 # words
{
expect 0 "" $train --device host --global-batch 60
cp "$work/out" "$work/one"
for axis in data tensor stage; do
    expect 0 "" launch -n 2 -- "$strata" $mesh --mesh $axis=2 --devices host --save "$work/$axis.strata"
    same
done
expect 0 "" launch -n 2 -- "$strata" $mesh --mesh data=2,tensor=2 --devices host,host
same
# A custom loop has the numbers of one device.
expect 0 "Epoch 5, Loss: 0.0878" launch -n 2 -- "$STRATA_BUILD_DIR/samples/custom_loop" model_parallel host
for axis in data tensor stage; do # the file has the parameters of all workers
    expect 0 "" evaluate "$work/$axis.strata" --data "$work/data" --device host --json
    json "(one := json.loads(open('$work/one').read().splitlines()[-1])) and \
        math.isclose(one['test_loss'], r['loss'], rel_tol=1e-5)"
done
# A pipeline over workers has the bits of one device that accumulates.
expect 0 "" $train --device host --global-batch 15 --accumulate 4
bits=$(weights)
expect 0 "" launch -n 2 -- "$strata" $mesh --mesh stage=2 --devices host --microbatches 4
check "a pipeline over workers has the bits of one device" test "$(weights)" = "$bits"
json '0 < r["bubble"] < 1 and abs(r["planned_bubble"] - 1 / 5) < 1e-4 and 1 <= r["stage_imbalance"] < 2'
# A checkpoint has the whole model: it goes on under another mesh and on one device.
expect 0 "" $train --device host --global-batch 60 --epochs 2
cp "$work/out" "$work/one"
more="--epochs 2 --checkpoint $work/ck"
expect 0 "" launch -n 2 -- "$strata" $mesh --mesh tensor=2 --devices host $more --stop-after 1
cp "$work/ck" "$work/ck2"
expect 0 "" launch -n 2 -- "$strata" $mesh --mesh stage=2 --devices host $more
json "(one := json.loads(open('$work/one').read().splitlines()[-1])) and \
    math.isclose(one['test_loss'], r['test_loss'], rel_tol=1e-5)"
expect 0 "" $train --device host --global-batch 60 --epochs 2 --checkpoint "$work/ck2"
json "(one := json.loads(open('$work/one').read().splitlines()[-1])) and \
    math.isclose(one['test_loss'], r['test_loss'], rel_tol=1e-5)"
expect 4 "--save-best reads parameters between epochs" \
    launch -n 2 -- "$strata" $mesh --mesh data=2 --devices host --save-best "$work/best.strata"
expect 4 "strategy model_parallel over several workers: --tensorboard reads parameters between epochs" \
    launch -n 2 -- "$strata" $mesh --mesh data=2 --devices host --tensorboard "$work/board"
# Workers with other settings.
expect 2 "mesh stage=3 is for 3 devices, but there are 2" launch -n 2 -- "$strata" $mesh --mesh stage=3 --devices host
expect 2 "3 devices at each coordinate of data, and worker 1 has devices 2 to 3; give each worker a multiple of 3 devices" \
    launch -n 3 -- "$strata" $mesh --mesh data=2,tensor=3 --devices host,host
other='if [ "$STRATA_LOCAL_RANK" = 0 ]; then a=$1; else a=$2; fi; shift 2; exec "$@" $a'
expect 2 "mesh is data=1,stage=1,tensor=2 on worker 1 and data=2,stage=1,tensor=1 on worker 0" \
    launch -n 2 -- sh -c "$other" sh "--mesh data=2" "--mesh tensor=2" "$strata" $mesh --devices host
# A worker that is killed within a pipeline ends the job.
lost='echo $$ >"$1/pid$STRATA_LOCAL_RANK"; shift; exec "$@"'
"$strata" launch -n 2 -- sh -c "$lost" sh "$work" "$strata" $mesh --mesh stage=2 --devices host --microbatches 4 \
    --epochs 100000 --log "$work/log.jsonl" >"$work/lost" 2>&1 &
launcher=$!
eventually test -s "$work/log.jsonl"
kill -9 "$(cat "$work/pid1")"
wait $launcher
check "a lost worker is an error" test $? = 137
check "it is named" grep -q "worker 1 was ended by signal 9" "$work/lost"
}
finish
