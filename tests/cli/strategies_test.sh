#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Training on several devices with the command: which strategy is chosen, what is printed, which results are equal, and
# errors.
. "$(dirname "$0")/support.sh"
make_data "$work/data"
train="train mnist --data $work/data --epochs 1 --seed 1"
# shellcheck disable=SC2086 # words
{
expect 0 "" $train --devices host --strategy one_device --global-batch 60 --json
json 'r["strategy"] == "one_device" and r["replicas"] == 1 and r["replica_weights_equal"] is True and r["imbalance"] == 1'
json 'r["comm_s"] == 0 and r["comm_hidden"] == 0'
cp "$work/out" "$work/one"

# One copy of the parameters on the host, and one replica there: the bits must be those of one device.
expect 0 "" $train --devices host --strategy central_storage --global-batch 60 --json
json 'r["strategy"] == "central_storage" and r["devices"] == ["host"]'
check "one replica gives the weights of one device" \
    test "$(grep -o '"weights_sha256":"[0-9a-f]*"' "$work/out")" = "$(grep -o '"weights_sha256":"[0-9a-f]*"' "$work/one")"

expect 0 "one_device on host" $train --devices host --strategy auto --batch 60
expect 0 "default on " $train --strategy default --batch 60
}

# shellcheck disable=SC2086
if "$strata" devices --json | grep -q '"opencl:0.1"'; then
    group="--devices opencl:0.0,opencl:0.1"
    expect 0 "mirrored on opencl:0.0, opencl:0.1" $train $group --batch 30
    expect 0 "" $train $group --batch 30 --json
    json 'r["strategy"] == "mirrored" and r["devices"] == ["opencl:0.0", "opencl:0.1"] and r["replicas"] == 2'
    json 'r["batch"] == 60 and r["replica_weights_equal"] is True and r["imbalance"] >= 1 and r["comm_s"] > 0'
    json '0 <= r["comm_hidden"] <= 1 and r["comm_bytes_per_step"] > 4 * 2 * 2 * 101770'
    python3 - "$work/one" "$work/out" <<'END' || bad "two replicas' losses are not those of one device"
import json, sys
one, two = (json.loads(open(p).readlines()[-1])["losses"] for p in sys.argv[1:])
assert len(one) == len(two) and all(abs(a - b) <= 1e-5 * abs(a) for a, b in zip(one, two))
END
    expect 0 "" $train $group --global-batch 60 --trace "$work/trace"
    python3 "$here/trace.py" "$work/trace" >"$work/tracks" 2>&1 ||
        bad "the trace is not as its format asks for: $(tail -n 1 "$work/tracks")"
    python3 - "$work/trace" <<'END' || bad "the trace lacks kernels, or has an exchange before what it adds up is known"
import json, sys
events = json.load(open(sys.argv[1]))["traceEvents"]
tracks = {e["tid"]: e["args"]["name"].split(" (")[0] for e in events if e["name"] == "thread_name"}
assert list(tracks.values()) == ["host thread", "replica 0 opencl:0.0 queue", "replica 1 opencl:0.1 queue"], tracks
host, *devices = tracks
for step in (0, 3):
    slices = [e for e in events if e["ph"] == "X" and e["args"]["step"] == step]
    for device in devices:
        exchange = [e for e in slices if e["tid"] == device and e["name"].startswith("exchange all_reduce")][-1]
        assert exchange["args"]["dtype"] == "f32"
        loss = [e for e in slices if e["tid"] == device and e["args"].get("op") == "classification_sums"]
        assert len(loss) == 1 and loss[0]["ts"] + loss[0]["dur"] <= exchange["ts"] + exchange["dur"] + 1000, (loss, exchange)
        assert [e["args"]["op"] for e in slices if e["tid"] == device][-1] == "adam"
END
    expect 0 "" $train --devices opencl:0.0,host --split 3:1 --global-batch 60 --json
    json 'r["replica_weights_equal"] is True'
    expect 0 "" $train $group --split auto --global-batch 60 --json
    expect 0 "" $train $group --batch 30 --scale-lr --json
    expect 0 "" $train $group --batch 30 --log-device-placement
    for line in "variable  dense/kernel f32 (784,128): opencl:0.0 opencl:0.1" \
        "node      replica 1, segment 0: all_reduce f32 "; do
        grep -q "$line" "$work/err" || bad "--log-device-placement does not say \"$line\""
    done
fi

# Traces for each kind of device. The bits must be the same without a trace.
for device in host opencl:0 vulkan:0; do
    "$strata" devices --json | grep -q "\"$device\"" || { echo "skipped: no trace of $device, which is not there"; continue; }
    expect 0 "" $train --device $device --batch 60 --json
    weights=$(tail -n 1 "$work/out" | grep -o '"weights_sha256":"[0-9a-f]*"')
    expect 0 "$weights" $train --device $device --batch 60 --json --trace "$work/trace"
    check "the trace of $device is as its format asks for" python3 "$here/trace.py" "$work/trace"
    kernels='"name":"(matmul \(784,128\)|adam_product.*)","cat":"device"'
    check "a step of $device has its kernels" grep -qE "$kernels" "$work/trace"
done

# The sample with a custom training loop, under every strategy.
lists="default|one_device host|mirrored host|mirrored host host|central_storage host host|auto host|model_parallel host host"
if "$strata" devices --json | grep -q '"opencl:0.1"'; then
    lists="$lists|mirrored opencl:0.0 opencl:0.1|mirrored opencl:0 host|central_storage opencl:0.0 opencl:0.1"
fi
echo "$lists" | tr '|' '\n' >"$work/lists"
while read -r list; do
    checks=$((checks + 1))
    # shellcheck disable=SC2086
    "$STRATA_BUILD_DIR/samples/custom_loop" $list >"$work/out" 2>"$work/err" </dev/null
    grep -q "Epoch 5, Loss: 0.0878" "$work/out" || bad "custom_loop $list"
done <"$work/lists"

# shellcheck disable=SC2086
{
expect 2 "did you mean \"mirrored\"" $train --strategy miror
expect 2 "not both" $train --device host --devices host
expect 2 "not both" $train --device host --batch 1 --global-batch 2
expect 2 "a part is empty" $train --devices host,,host
expect 2 "not a whole number" $train --devices host --split 1:x
expect 2 "2 parts, there are 1" $train --devices host --split 1:2
expect 2 "there are no cross-device ops" $train --devices host --strategy mirrored --cross-device-ops nccl
expect 2 "has no parameter device" $train --devices host --strategy mirrored --parameter-device host
expect 3 "not finite" train linear --device host --learning-rate 1e5 --trace "$work/failed"
check "a training that fails leaves its trace" python3 "$here/trace.py" "$work/failed"
expect 3 "trace: " $train --devices host --trace "$work/no-such-folder/trace"
expect 4 "opencl:77" $train --devices host,opencl:77
}
finish
