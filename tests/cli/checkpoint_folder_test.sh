#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Checkpoints in a folder. A training that was killed or ended by SIGTERM continues with --resume: in one process, with
# several workers, and with another number of workers. It must end with the weights of an uninterrupted training.
. "$(dirname "$0")/support.sh"
make_data "$work/data"
train="train mnist --data $work/data --epochs 3 --seed 1 --global-batch 20 --devices host --json"
dir=$work/points
weights() { tail -n 1 "$work/out" | grep -o '"weights_sha256":"[0-9a-f]*"'; }
newest() { ls "$dir" 2>/dev/null | grep '^step-' | tail -n 1; }
# await NAME: waits until the folder has a newer checkpoint than this one.
await() {
    for _ in $(seq 6000); do
        now=$(newest)
        [ -n "$now" ] && [ "$now" != "$1" ] && return
        sleep 0.01
    done
}
# ended SIGNAL COMMAND...: sends the signal when the command has written a checkpoint. Its exit code is in $code.
ended() {
    signal=$1 before=$(newest)
    shift
    "$strata" "$@" >"$work/out" 2>"$work/err" </dev/null &
    running=$!
    await "$before"
    kill "-$signal" $running
    wait $running
    code=$?
}
# shellcheck disable=SC2086 # words
{
expect 0 "weights_sha256" $train
whole=$(weights)

# The training is killed twice, then ended by SIGTERM, and then runs to its end. An old checkpoint is removed only after the
# new one is in place. So a process that is killed in between leaves one checkpoint more than --keep, and the next process
# that writes one removes it.
kept() { ls "$dir" | grep -c '^step-'; }
endless="$train --epochs 40000 --checkpoint $dir --every 4 --keep 2 --resume"
ended KILL $endless
check "it was killed, and left a checkpoint" test $code = 137 -a -n "$(newest)"
ended KILL $endless
check "at most one checkpoint is there besides the two that are kept" test "$(kept)" -le 3
ended TERM $endless
check "SIGTERM ends it with 143, not $code" test $code = 143
check "a training that was not killed keeps at most two checkpoints" test "$(kept)" -le 2
last=$(($(newest | sed 's/step-0*//') / 30 + 1)) # on a fast machine many epochs, of 30 steps, have passed
expect 0 "" $train --checkpoint $dir/ --resume --epochs $((last + 1)) --stop-after $last
[ "$last" = 1 ] || expect 3 "was written after $last epochs, and --epochs is 1" $train --epochs 1 --checkpoint $dir --resume
check "the parameters are in a model file" \
    "$strata" evaluate "$dir/$(newest)/part-0.safetensors" --device host --data "$work/data"
expect 0 "weights_sha256" $train --checkpoint $work/other --keep 1
check "a folder is made, and has the last one" test "$(ls "$work/other")" = "lock
step-000000000090"
check "checkpoints change no bit" test "$(weights)" = "$whole"

# Two workers write a part each, and after SIGTERM to the job both save the same step. Then one process continues.
rm -rf "$dir"
sharded="--strategy multi_worker_mirrored --shard-optimizer yes --checkpoint $dir --every 3 --resume"
ended TERM launch -n 2 -- "$strata" $train $sharded --epochs 40000
check "the job ends with 143, not $code" test $code = 143
check "each worker has written its part" test -s "$dir/$(newest)/part-1.safetensors"
last=$(sed -n 's/.*interrupted in epoch \([0-9]*\) .*/\1/p' "$work/err")
check "its last epoch is known" test -n "$last"
[ "${last:-3}" -ge 3 ] || last=3
cp -R "$dir" "$work/one"
cp -R "$dir" "$work/three"
expect 0 "weights_sha256" launch -n 2 -- "$strata" $train --strategy multi_worker_mirrored --epochs $last
whole=$(weights)
loss=$(tail -n 1 "$work/out" | sed 's/.*"train_loss":\([0-9.e+-]*\).*/\1/')
expect 0 "weights_sha256" launch -n 2 -- "$strata" $train $sharded --epochs $last
check "two workers go on with the same bits" test "$(weights)" = "$whole"
# Another number of workers adds in another order, which changes the last bits.
expect 0 "weights_sha256" $train --epochs $last --checkpoint "$work/one" --resume
json "abs(r['train_loss'] - $loss) < 1e-4 * $loss and r['workers'] == 1"
expect 0 "weights_sha256" launch -n 3 -- "$strata" $train --strategy multi_worker_mirrored --epochs $last \
    --checkpoint "$work/three" --resume
json "abs(r['train_loss'] - $loss) < 1e-4 * $loss and r['workers'] == 3 and r['replica_weights_equal']"

# Settings that do not fit the checkpoint are errors.
expect 2 "another folder" $train --checkpoint "$work/other"
expect 3 "optimizer.learning_rate is 0.001, not 0.5" $train --checkpoint "$work/other" --resume --learning-rate 0.5 --epochs 4
expect 2 "--every 3x: give a number of steps" $train --checkpoint "$work/other" --every 3x
expect 2 "--keep is for checkpoints in a folder" $train --keep 2
echo file >"$work/file"
expect 3 "it is a file, and --every needs a folder" $train --checkpoint "$work/file" --every 2
}
finish
