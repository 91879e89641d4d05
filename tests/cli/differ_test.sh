#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Workers whose data or options differ. Each task must fail before the first step, with both values in its message.
# tests/cluster/workers_test.c has the settings of the library.
. "$(dirname "$0")/support.sh"
mkdir "$work/a" "$work/b"
awk 'BEGIN { srand(1); print "a,b,w,y"
    for (i = 0; i < 120; i++)
        printf "%.4f,%.4f,%d,%s\n", i % 3 + rand(), rand() - i % 3, 1 + i % 4, substr("rgb", i % 3 + 1, 1) }' \
    >"$work/a/t.csv"

# Gives the command $1 to the tasks of a job, and the words in the variable `other` instead of it to worker 1 (parameter_server:
# worker 0), in a folder of its own.
cat >"$work/one.sh" <<'END_OF_TASK'
#!/bin/sh
case $TF_CONFIG in *"$OTHER"*) cd "$B" && exec sh -c "$2" ;; esac
cd "$A" && exec sh -c "$1"
END_OF_TASK
chmod +x "$work/one.sh"
export A="$work/a" B="$work/b"
train="$strata train t.csv --device host --epochs 2 --seed 1 --batch 8 --wait 30"

# differ TEXT OPTIONS OTHERS_OPTIONS: trains with two workers, and with a chief, a worker and a server. The text must be in the
# message, and launch must end with the code of wrong usage.
differ() {
    export OTHER='"index":1'
    expect 2 "$1" launch -n 2 -- "$work/one.sh" "$train $2" "$train $3"
    stderr "all tasks must train the same"
    export OTHER='"type":"worker"'
    expect 2 "$1" launch --workers 1 --ps 1 -- "$work/one.sh" "$train $2" "$train $3"
    check "worker and chief print \"$1\"" test "$(grep -cF -- "$1" "$work/err")" -ge 2
}

# The data of the other task.
sed 's/r$/x/; s/g$/r/; s/x$/g/' "$work/a/t.csv" >"$work/b/t.csv" # classes in another order
differ "of the training data is (" "" ""
(head -n 1 "$work/a/t.csv" && tail -n 60 "$work/a/t.csv" && sed -n 2,61p "$work/a/t.csv") >"$work/b/t.csv" # permuted rows
differ "is" "" ""
cp "$work/a/t.csv" "$work/b/t.csv"

# The options of the other task.
differ 'columns[0].name is "b" on worker' "--columns a,b" "--columns b,a"
differ 'weight is "w" on worker' "--columns a,b" "--columns a,b --weight-column w"
differ "the validation data is none on worker" "--validation-split 0.2" ""
differ "precision is bf16 on worker" "" "--precision bf16"
differ "the list of recomputed layers is dense on worker" "" "--recompute dense"
differ "the weight of class 0 is 2 on worker" "--class-weights 1,2,3" "--class-weights 2,2,3"

# The evaluator compares how it prepares data with what the checkpoint says.
export OTHER='"type":"evaluator"'
evaluates="--strategy parameter_server --checkpoint $work/ck"
expect 3 'in its preprocessing, columns[0].name is "a", and here "b"' launch --workers 1 --ps 1 --evaluator -- \
    "$work/one.sh" "$train $evaluates --columns a,b" "$train $evaluates --columns b,a"
rm -f "$work/ck"
# So does a training that goes on.
expect 0 "paused" train "$work/a/t.csv" --device host --epochs 2 --columns a,b --checkpoint "$work/ck" --stop-after 1
expect 3 'in its preprocessing, columns[0].name is "a", and here "b"' train "$work/a/t.csv" --device host --epochs 2 \
    --columns b,a --checkpoint "$work/ck"
expect 0 "saved" train "$work/a/t.csv" --device host --epochs 1 --save "$work/m.strata"
differ 'training of layer "dense' "--from $work/m.strata --freeze dense" "--from $work/m.strata"

# A cluster with parameter servers trains with them; another strategy is refused.
export OTHER=none
expect 2 "names parameter servers" launch --workers 1 --ps 1 -- "$work/one.sh" "$train --strategy mirrored" ""
finish
