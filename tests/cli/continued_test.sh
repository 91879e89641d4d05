#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The command of a training, given again: one that is finished evaluates and saves, a full disk loses nothing, and a checkpoint
# is not continued with other data or options.
. "$(dirname "$0")/support.sh"
cd "$work" || exit 1
awk 'BEGIN { print "a,b,y"; for (i = 0; i < 200; i++) print i % 7 "." i % 10 "," i % 5 "," (i % 7 > i % 5 ? "yes" : "no") }' \
    >t.csv
train="train t.csv --device host --epochs 3"
hash_of() { sha256sum "$1" | cut -c 1-64; }

# Finished, in one process, with several workers, and with parameter servers.
for how in "launch --workers 1 --ps 1 --" "launch -n 2 --" ""; do
    more=""
    case $how in *--ps*) more="--strategy parameter_server" ;; *-n*) more="--strategy multi_worker_mirrored" ;; esac
    rm -rf ck m.strata
    for time in first second; do
        # shellcheck disable=SC2086 # words
        expect 0 "saved m.strata" $how ${how:+"$strata"} $train $more --checkpoint ck --resume --save m.strata
        [ $time = second ] || whole=$(hash_of m.strata)
        check "$how: the model of the $time time" test "$(hash_of m.strata)" = "$whole"
        rm -f m.strata
    done
    stdout "all 3 epochs were done before"
done
expect 0 '"event":"result"' $train --checkpoint ck --resume --json
json 'r["epochs"] == 0 and r["steps"] == 0 and r["test_examples"] == 40'
json 'r["train_loss"] is None and r["train_accuracy"] is None'
expect 3 "ck was written after 3 epochs, and --epochs is 2; give --epochs 3" $train --epochs 2 --checkpoint ck --resume
best="--validation-split 0.2 --restore-best"
expect 0 "saved m.strata" $train $best --checkpoint bk --resume --save m.strata
expect 0 "saved again.strata" $train $best --checkpoint bk --resume --save again.strata
check "the best epoch is restored again" test "$(hash_of m.strata)" = "$(hash_of again.strata)"
expect 0 "accuracy" evaluate ck t.csv --device host

# A disk that is full: the limit of a file's size has the same effect. Training goes on without its checkpoint.
(ulimit -f 8 && trap '' XFSZ && exec "$strata" $train --checkpoint full.ck --json) >out 2>err </dev/null
check "the training ends with 0" test $? = 0
check "it says why" grep -q "a checkpoint was not written, and training goes on: full.ck: cannot write" err
check "it has a result" grep -q '"event":"result"' out
check "nothing is left" test ! -e full.ck
# If the model cannot be saved at the end, the same command continues from the newest checkpoint and saves it.
expect 0 "saved w.strata" $train --save w.strata
expect 0 "paused" $train --checkpoint f.ck --stop-after 2
(ulimit -f 8 && trap '' XFSZ && exec "$strata" $train --checkpoint f.ck --save f.strata) >out 2>err </dev/null
check "a model that cannot be saved is an error" test $? = 161
expect 0 "saved f.strata" $train --checkpoint f.ck --save f.strata
check "the model is that of a training with more room" test "$(hash_of f.strata)" = "$(hash_of w.strata)"
check "its checkpoint is gone" test ! -e f.ck
(ulimit -f 8 && trap '' XFSZ && exec "$strata" $train --checkpoint e.ck --stop-after 2) >out 2>err </dev/null
check "a pause without room for a checkpoint is an error" test $? = 161

# Other data and options. Each of several workers reports an error, and none waits for another.
expect 0 "paused" launch -n 2 -- "$strata" $train --strategy multi_worker_mirrored --checkpoint w.ck --stop-after 1
sed '7s/^[^,]*/9.5/' t.csv >cell.csv
expect 3 "other data or options" launch -n 2 -- "$strata" train cell.csv --device host \
    --epochs 3 --strategy multi_worker_mirrored --checkpoint w.ck
expect 0 "paused" $train --checkpoint o.ck --stop-after 1
expect 0 "paused" $train --checkpoint o/ --stop-after 1
head -n 160 t.csv >less.csv
sed 's/,no$/,nein/' t.csv >words.csv
sed '1s/b/c/' t.csv >names.csv
for at in o.ck "o --resume"; do
    for other in less words cell; do
        # shellcheck disable=SC2086 # words
        expect 3 "--from" train $other.csv --device host --epochs 3 --checkpoint $at
    done
    # shellcheck disable=SC2086 # words
    {
        expect 3 "the number of class weights is 2 now and 0 in the checkpoint" $train --class-weights 1,2 --checkpoint $at
        expect 3 "the number of steps an epoch may have is 5 now and 0 in the checkpoint" \
            $train --steps-per-epoch 5 --checkpoint $at
        expect 0 "continues after epoch 1" $train --batch 4 --checkpoint $at
        stderr "the checkpoint was made with a batch of 16, and goes on with 4"
    }
done
expect 0 "accuracy" train less.csv --device host --epochs 1 --from o
finish
