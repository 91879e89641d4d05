#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# A training that was killed continues from its last checkpoint, in one process or in a job that `strata launch --restarts`
# starts again. It must end with the weights of an uninterrupted training.
. "$(dirname "$0")/support.sh"
make_data "$work/data"
any="train mnist --data $work/data --seed 1 --global-batch 60 --devices host --checkpoint $work/point"
weights() { grep -o '"weights_sha256":"[0-9a-f]*"' "$work/out"; }
# shellcheck disable=SC2086 # words
{
# A training with very many epochs is killed after its first epoch. Then it continues for two more epochs.
"$strata" $any --epochs 40000 --json >"$work/killed" 2>&1 &
killed=$!
for _ in $(seq 6000); do
    [ ! -e "$work/point" ] || break
    sleep 0.01
done
kill -9 $killed
wait $killed 2>/dev/null
check "it was killed before its end" sh -c "! grep -q '\"result\"' '$work/killed'"
check "a checkpoint is there" test -s "$work/point"
cp "$work/point" "$work/first"
# A checkpoint of more epochs is an error; one of all epochs is evaluated, and removed.
"$strata" $any --epochs 1 >"$work/out" 2>"$work/err"
made=$(sed -n 's/.*was written after \([0-9]*\) epochs, .*/\1/p' "$work/err")
[ -n "$made" ] || made=$(sed -n 's/^all \([0-9]*\) epochs were done before.*/\1/p' "$work/out")
check "the checkpoint says of which epoch it is" test "${made:-0}" -ge 1
cp "$work/first" "$work/point"
train="$any --epochs $((made + 2))"
expect 0 "200 test examples" evaluate "$work/point" --device host --data "$work/data"
expect 0 "weights_sha256" $train --json --save "$work/model"
json "r['epochs'] == 2"
check "the checkpoint is gone" test ! -e "$work/point"
resumed=$(weights)
expect 0 "weights_sha256" $train --json
check "the weights are those of an uninterrupted training" test "$(weights)" = "$resumed"
check "its checkpoint is gone at the end" test ! -e "$work/point"
expect 0 "200 test examples" evaluate "$work/model" --device host --data "$work/data"
cp "$work/first" "$work/point"
expect 0 "continues after epoch" $train

# Settings that do not fit the checkpoint are errors, and the checkpoint does not change.
cp "$work/first" "$work/point"
expect 3 "with seed 1, this is 2" $train --seed 2
expect 3 "another model, optimizer or loss" $train --learning-rate 0.5
check "the checkpoint is as it was" cmp "$work/first" "$work/point"
expect 3 "is no checkpoint" train mnist --data "$work/data" --devices host --checkpoint "$work/model"
echo damaged >"$work/point"
expect 3 "$work/point" $train
rm "$work/point"

train="$any --epochs 100"
# Worker 1 of a job is killed after an epoch, before its first restart. Only the chief has written a checkpoint, and sends
# it to the other worker.
cat >"$work/mortal" <<'END'
#!/bin/sh
if [ "$STRATA_RESTART$STRATA_LOCAL_RANK" = 01 ]; then
    (
        while [ ! -e "$POINT" ]; do sleep 0.005; done
        kill -9 $$
    ) &
fi
exec "$@"
END
chmod +x "$work/mortal"
expect 0 "weights_sha256" launch -n 2 -- "$strata" $train --json --strategy multi_worker_mirrored
whole=$(weights)
POINT=$work/point expect 0 "strata: restart 1 of 2" launch -n 2 --restarts 2 -- "$work/mortal" "$strata" $train --json \
    --strategy multi_worker_mirrored
check "the weights of the job are those of an uninterrupted one" test "$(weights)" = "$whole"
json "r['epochs'] < 100 and r['replica_weights_equal'] is True"

# Each worker owns a part of the optimizer's slots. The chief's file must contain all of them.
rm -f "$work/point"
sharded="--json --strategy multi_worker_mirrored --shard-optimizer yes"
POINT=$work/point expect 0 "strata: restart 1 of 2" launch -n 2 --restarts 2 -- "$work/mortal" "$strata" $train $sharded
check "the weights of sharded workers are those of the others" test "$(weights)" = "$whole"
expect 2 "it must be auto, yes or no" $train --shard-optimizer maybe
expect 0 "weights_sha256" launch -n 2 -- "$strata" $train $sharded
check "an optimizer in shards changes no bit" test "$(weights)" = "$whole"
}
finish
