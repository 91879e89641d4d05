#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# A model of 40 million parameters (160 MB) with one kernel of 142 MB, which is more than lavapipe can bind as one buffer
# range. The losses must be the same on the host, OpenCL and Vulkan, and each can load the model file and the checkpoint of
# another one.
. "$(dirname "$0")/support.sh"
if grep -q '^STRATA_SANITIZE:STRING=.' "${STRATA_BUILD_DIR:-/nonexistent}/CMakeCache.txt" 2>/dev/null; then
    echo "skipped: minutes under a sanitizer; tests/strategies/blocks_test.c runs the same code on small models"
    exit 77
fi
python3 - "$work" <<'END_OF_PYTHON'
import json, random, sys
work, rng = sys.argv[1], random.Random(1)
rows = [[rng.uniform(-1, 1) for _ in range(10)] for _ in range(40)]
kinds = ["a" if x[0] + x[1] > 0.3 else "b" if x[2] > 0 else "c" for x in rows]
with open(f"{work}/rows.csv", "w") as f:
    f.write(",".join(f"f{i}" for i in range(10)) + ",kind\n")
    f.writelines(",".join(f"{v:.4f}" for v in x) + f",{kind}\n" for x, kind in zip(rows, kinds))
layers = [{"layer": "dense", "units": n, "activation": "relu"} for n in (5960, 5960, 500)] + [{"layer": "dense", "units": 3}]
with open(f"{work}/large.json", "w") as f:
    json.dump({"input": [10], "layers": layers, "optimizer": {"name": "adam", "learning_rate": 0.0003}}, f)
END_OF_PYTHON

data="--data $work/rows.csv --label kind"
train="train $work/large.json $data --batch 16 --seed 1 --json"
first=
for device in host opencl:0 vulkan:0; do
    "$strata" devices | grep -q "^$device " || continue
    # shellcheck disable=SC2086 # words
    expect 0 "" $train --device "$device" --epochs 2 --save "$work/$device.strata"
    json 'len(r["losses"]) == 4'
    cp "$work/out" "$work/$device.out"
    first=${first:-$device}
    check "the losses on $device are those on $first" python3 - "$work/$first.out" "$work/$device.out" <<'END_OF_PYTHON'
import json, sys
one, other = (json.loads(open(path).read().splitlines()[-1])["losses"] for path in sys.argv[1:])
sys.exit(len(one) != len(other) or any(abs(a - b) > 1e-4 for a, b in zip(one, other)))
END_OF_PYTHON
    last=$device
done
# shellcheck disable=SC2086 # words
{
expect 0 "" evaluate "$work/$last.strata" $data --device "$first" --json
cp "$work/out" "$work/there"
expect 0 "" evaluate "$work/$first.strata" $data --device "$last" --json
check "a file means the same on $first and $last" python3 - "$work/there" "$work/out" <<'END_OF_PYTHON'
import json, sys
one, other = (json.loads(open(path).read().splitlines()[-1])["loss"] for path in sys.argv[1:])
sys.exit(abs(one - other) > 1e-4)
END_OF_PYTHON
}
finish
