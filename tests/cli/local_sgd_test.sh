#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# strata train --strategy local_sgd: --every and --checkpoint-every, in one process and over workers; a training that continues
# from a checkpoint between two averages; workers that disagree.
. "$(dirname "$0")/support.sh"
make_data "$work/data"
train="train mnist --data $work/data --epochs 2 --seed 1 --global-batch 20 --json --strategy local_sgd"
weights() { tail -n 1 "$work/out" | grep -o '"weights_sha256":"[0-9a-f]*"'; }
# Removes the checkpoints after step 35, which is in the second epoch, three steps after an average.
back_to_35() {
    for point in "$work/points"/step-*; do
        [ "${point##*-}" -le 35 ] || rm -r "$point"
    done
}
# shellcheck disable=SC2086 # words
{
expect 0 "" $train --devices host,host --every 8
json 'r["strategy"] == "local_sgd" and r["replicas"] == 2 and r["replica_weights_equal"] is True'
whole=$(weights)
sent=$(tail -n 1 "$work/out" | sed 's/.*"comm_bytes_per_step":\([0-9.e+]*\).*/\1/')
expect 0 "" $train --devices host,host
check "8 is the default" test "$(weights)" = "$whole"
expect 0 "" $train --devices host,host --every 1
check "another number of steps trains something else" test "$(weights)" != "$whole"
json "r['comm_bytes_per_step'] > 6 * $sent" # 60 averages instead of 8
expect 0 "averaged after every 3 steps" ${train%%--json*} --strategy local_sgd --devices host,host --every 3
expect 2 "there is no strategy \"gathred\"" ${train%%--json*} --strategy gathred --every 3

expect 0 "" $train --devices host,host --log-device-placement
check "the average is the only exchange" test "$(grep -c '^exchange' "$work/err")" = 1
stderr "exchange  0: mean f32 (101824): from host host"

expect 0 "" $train --devices host,host --split 3:1
expect 0 "" $train --devices host,host --split auto

# A checkpoint between two averages has what each replica has.
expect 0 "" $train --devices host,host --every 8 --checkpoint "$work/points" --checkpoint-every 5 --keep 99
check "checkpoints change no bit" test "$(weights)" = "$whole"
back_to_35
expect 0 "" $train --devices host,host --every 8 --checkpoint "$work/points" --resume
check "the training goes on with the same bits" test "$(weights)" = "$whole"
rm -r "$work/points"

# Over workers, each of which is a process.
expect 0 "" launch -n 2 -- "$strata" $train --device host --every 8
json 'r["strategy"] == "local_sgd" and r["workers"] == 2 and r["replica_weights_equal"] is True'
check "two workers train what two replicas of one process do" test "$(weights)" = "$whole"
expect 0 "" launch -n 2 -- "$strata" $train --device host --every 8 --checkpoint "$work/points" --checkpoint-every 5 --keep 99
check "checkpoints of workers change no bit" test "$(weights)" = "$whole"
back_to_35
expect 0 "" launch -n 2 -- "$strata" $train --device host --every 8 --checkpoint "$work/points" --resume
check "workers go on with the same bits" test "$(weights)" = "$whole"
expect 0 "" launch -n 2 -- "$strata" $train --device host --every 8 --checkpoint "$work/file" --stop-after 1
expect 0 "" launch -n 2 -- "$strata" $train --device host --every 8 --checkpoint "$work/file"
check "so they do from a checkpoint in a file" test "$(weights)" = "$whole"
# Other replicas continue from the mean.
back_to_35
expect 0 "" $train --devices host,host,host --every 8 --checkpoint "$work/points" --resume
json 'r["replicas"] == 3'

# Workers that disagree.
cat >"$work/one.sh" <<'END_OF_TASK'
#!/bin/sh
case $TF_CONFIG in *'"index":1'*) exec "$@" --every 4 ;; esac
exec "$@" --every 8
END_OF_TASK
chmod +x "$work/one.sh"
expect 2 "the number of steps between averages is 4 on worker 1 and 8 on worker 0" launch -n 2 -- "$work/one.sh" "$strata" \
    $train --device host
stderr "all tasks must train the same"

# Wrong options.
expect 2 "--every 30s: with --strategy local_sgd it is a number of steps" $train --devices host,host --every 30s
expect 2 "--every 0: with --strategy local_sgd it is a number of steps" $train --devices host,host --every 0
expect 2 "give --every or --checkpoint-every, not both" train mnist --every 2 --checkpoint-every 3 --checkpoint "$work/points/"
expect 2 "or for --strategy local_sgd" train mnist --data "$work/data" --devices host,host --strategy mirrored --every 8
expect 2 "no gradients are exchanged" $train --devices host,host --shard-optimizer yes
expect 2 "no gradients are exchanged" $train --devices host,host --compress bf16
expect 2 "no gradients are exchanged" $train --devices host,host --bytes-per-pack 1000
}
finish
