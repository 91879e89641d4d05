#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Training with several workers, started by `strata launch`: the numbers of one process, one worker that speaks and writes, and what is refused.
. "$(dirname "$0")/support.sh"
make_data "$work/data"
train="train mnist --data $work/data --epochs 1 --seed 1 --global-batch 60 --devices host --json"
# shellcheck disable=SC2086 # words
{
expect 0 "" $train
cp "$work/out" "$work/one"
for n in 2 3; do
    expect 0 "" launch -n $n -- "$strata" $train --strategy multi_worker_mirrored --save "$work/model.strata"
    sed -i 's/^\[0\] //' "$work/out"
    check "the chief alone prints" test "$(wc -l <"$work/out")" = 1
    json "r['workers'] == $n and r['replicas'] == $n and r['batch'] == 60 and r['replica_weights_equal'] is True"
    python3 - "$work/one" "$work/out" <<'END' || bad "the losses of $n workers are not those of one process"
import json, sys
one, many = (json.loads(open(p).readlines()[-1])["losses"] for p in sys.argv[1:])
assert len(one) == len(many) and all(abs(a - b) <= 1e-5 * abs(a) for a, b in zip(one, many))
END
    expect 0 "200 test examples" evaluate "$work/model.strata" --device host --data "$work/data"
done
expect 2 "multi_worker_mirrored" $train --cluster a:1,b:2
expect 2 "for the devices of one worker" $train --strategy multi_worker_mirrored --split auto
}
finish
