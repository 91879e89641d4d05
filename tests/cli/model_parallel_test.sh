#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# strata train --strategy model_parallel: meshes train what one device trains; layouts and schedules; options that are wrong.
. "$(dirname "$0")/support.sh"
make_data "$work/data"
train="train mnist --data $work/data --epochs 1 --seed 1 --json"
mesh="$train --strategy model_parallel --global-batch 20"
weights() { tail -n 1 "$work/out" | grep -o '"weights_sha256":"[0-9a-f]*"'; }
# The losses of the last run are those of one device, up to the order of sums.
same() {
    json "(one := json.loads(open('$work/one').read().splitlines()[-1])) and len(one['losses']) == len(r['losses']) and \
        all(math.isclose(a, b, rel_tol=1e-5) for a, b in zip(one['losses'], r['losses']))"
}
# shellcheck disable=SC2046,SC2086 # words
{
expect 0 "" $train --device host --global-batch 20
cp "$work/out" "$work/one"
expect 0 "" $mesh --devices host,host
same
json 'r["strategy"] == "model_parallel" and r["replicas"] == 1'
expect 0 "" $mesh --devices host,host --mesh tensor=2
same
expect 0 "" $mesh --devices host,host,host,host --mesh data=2,tensor=2
same
expect 0 "" $mesh --devices host,host,host,host --mesh data=2,stage=2
same

# A pipeline has the bits of one device that accumulates its micro-batches, in every order.
expect 0 "" $train --device host --global-batch 5 --accumulate 4
bits=$(weights)
for schedule in gpipe 1f1b zero_bubble; do
    expect 0 "" $mesh --devices host,host --mesh stage=2 --microbatches 4 --schedule $schedule
    check "$schedule has the bits of one device" test "$(weights)" = "$bits"
    json '0 < r["bubble"] < 1 and r["slowest_stage"] in (0, 1) and 1 <= r["stage_imbalance"] < 2'
    json "abs(r['planned_bubble'] - 1 / (13 if '$schedule' == 'zero_bubble' else 5)) < 1e-4"
done
expect 0 "% of their steps, and by the schedule for 20 %; stage" \
    $(echo "$mesh" | sed 's/ --json//') --devices host,host --mesh stage=2 --microbatches 4

# The trace has a row for each device with its stage, its micro-batches and its bubbles.
expect 0 "" $mesh --devices host,host --mesh stage=2 --microbatches 4 --trace "$work/trace.json"
json '0 < r["bubble"] < 1'
check "the trace is whole" python3 "$here/trace.py" "$work/trace.json"
check "rows of stages" python3 - "$work/trace.json" <<'END'
import collections, json, sys
events, names, seen = json.load(open(sys.argv[1]))["traceEvents"], {}, collections.defaultdict(set)
for e in events:
    if e["name"] == "thread_name":
        names[e["tid"]] = e["args"]["name"]
    elif e["ph"] == "X" and e["name"] == "bubble":
        seen[names[e["tid"]]].add("bubble")
    elif e["ph"] == "X" and (e["cat"] == "device" or e["name"].startswith("exchange")) and "microbatch" in e["args"]:
        seen[names[e["tid"]]].add(e["args"]["microbatch"])
runs = {0, 1, 2, 3}
for r in range(2):
    row = [name for name in names.values() if name.startswith(f"replica {r}, stage {r}, host queue (")]
    assert len(row) == 1 and seen[row[0]] == runs | {"bubble"}, seen
    assert seen[f"exchanges of replica {r}"] == runs, seen
END
expect 0 "29 steps in" trace "$work/trace.json" # the first one compiled
stdout "in bubbles for"

# A layout by hand, and where it puts the parameters.
echo '{"kernel": [null, "tensor"], "bias": ["tensor"]}' >"$work/layout.json"
expect 0 "" $mesh --devices host,host --mesh tensor=2 --layout "$work/layout.json" --log-device-placement
same
stderr "kernel f32 (784, 128 over tensor: 64 64): host host"
expect 0 "" $mesh --devices host,host --mesh tensor=2 --layout auto
same
expect 0 "" $mesh --devices host,host --mesh stage=2 --log-device-placement
stderr "at coordinate 1 of stage: host"

# Wrong options.
expect 2 "mesh stage=3 is for 3 devices, but there are 2; meshes of 2 devices: data=2 or stage=2 or tensor=2" \
    $mesh --devices host,host --mesh stage=3
expect 2 "the mesh has the axis model" $mesh --devices host,host --mesh model=2
expect 2 "each stage needs at least one" $mesh --devices host,host,host,host,host
expect 2 'the schedule is "nothing"' $mesh --devices host,host --schedule nothing
echo '{"nothing": [null, "tensor"]}' >"$work/nothing.json"
expect 2 'rule "nothing" matches no parameter' $mesh --devices host,host --mesh tensor=2 --layout "$work/nothing.json"
echo '{"kernel": 3}' >"$work/three.json"
expect 3 "layout: kernel: must be an array" $mesh --devices host,host --mesh tensor=2 --layout "$work/three.json"
expect 3 "$work/none.json" $mesh --devices host,host --mesh tensor=2 --layout "$work/none.json"
for option in "mesh stage=2" "layout $work/layout.json" "microbatches 2" "schedule gpipe"; do
    expect 2 "strategy mirrored has no ${option%% *}; model_parallel has" $train --devices host,host --$option
done
expect 4 "take gpipe, 1f1b or zero_bubble" $mesh --devices host,host --schedule interleaved:2
}
finish
