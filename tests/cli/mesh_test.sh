#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# strata summary --mesh: how model_parallel places the parameters and values of a training step, the exchanges, the bytes of
# each device, and the schedule of a pipeline; and meshes that are not written right.
. "$(dirname "$0")/support.sh"

cat >"$work/sync.json" <<'END2'
{"label": "t", "input": [4], "layers": [{"layer": "batch_norm", "synchronized": true}, {"layer": "dense", "units": 1}],
 "loss": "mse"}
END2

expect 0 "6 devices, " summary mnist --mesh data=3,tensor=2 --batch 7
stdout "(7 over data: 3 2 2, 28, 28)"
stdout "(784, 128 over tensor: 64 64), partial over data"
stdout "all_reduce of matmul over data"
expect 0 "" summary mnist --mesh data=2 --json
json 'r["n_devices"] == 2 and r["batch"] == 64 and {x["op"] for x in r["exchanges"]} == {"all_reduce"}'
json 'all(x["axes"] == "data" for x in r["exchanges"]) and sum(x["bytes"] for x in r["exchanges"]) == 8 + 4 * 101770'
json '[p["placement"] for p in r["parameters"]] == ["(784, 128)", "(128)", "(128, 10)", "(10)"] and r["schedule"] is None'
json 'r["device_bytes"][0] == r["device_bytes"][1] == 3 * 4 * 101770'

# Parameters divided over tensor: by choice, and by a layout.
expect 0 "" summary mnist --mesh tensor=2 --json
json '[p["placement"] for p in r["parameters"]][:2] == ["(784, 128 over tensor: 64 64)", "(128 over tensor: 64 64)"]'
json 'r["device_bytes"][0] == r["device_bytes"][1] == 12 * (784 * 64 + 64 + 64 * 10 + 10)'
# A step needs at least the gradients and the examples, and for half of the parameters less than for all.
json 'all(4 * 784 * 64 + 4 * 64 * 784 < n < 1e6 for n in r["step_bytes"]) and len(r["step_bytes"]) == 2'
echo '{"dense/kernel": ["tensor", null]}' >"$work/layout.json"
expect 0 "" summary mnist --mesh tensor=2 --layout "$work/layout.json" --json
json '[p["placement"] for p in r["parameters"]] == ["(784 over tensor: 392 392, 128)", "(128)", "(128, 10)", "(10)"]'

# Stages, and how long they wait: (p - 1) / (m + p - 1).
expect 0 "stages wait for 20 % of a step" summary mnist --mesh stage=2 --microbatches 4 --schedule gpipe
stdout "(784, 128), at coordinate 0 of stage"
stdout "stage 0: F0 F1 F2 F3 B0 B1 B2 B3"
expect 0 "stages wait for 50 % of a step" summary mnist --mesh stage=2
expect 0 "" summary mnist --mesh stage=2 --microbatches 8 --json
json 'abs(r["bubble"] - 1 / 9) < 1e-6 and r["schedule"].startswith("stage 0: F0 F1 B0 F2 B1")'
json 'r["step_bytes"] is None and sum(r["device_bytes"]) == 12 * 101770 and "send" in {x["op"] for x in r["exchanges"]}'
for mesh in data data= =2 data=2, ,data=2 data=x data=2x; do
    expect 2 "it must be sizes of the axes data, stage and tensor, such as data=2,tensor=4" summary mnist --mesh "$mesh"
done
expect 2 "the mesh has the axis model; its axes may be data (of the examples), stage (of a pipeline) and tensor" \
    summary mnist --mesh data=2,model=2
expect 2 "axis data of the mesh has the size 0; it must be at least 1" summary mnist --mesh data=0
expect 2 "the mesh has two axes named data" summary mnist --mesh data=2,data=2
expect 0 "130 devices" summary mnist --mesh data=65,tensor=2 --batch 130
stdout "all_reduce of matmul over data"
expect 2 "the mesh has more than 4096 devices" summary mnist --mesh data=4097
expect 0 "all_reduce of concat over data, 20B" summary "$work/sync.json" --mesh data=2
expect 2 "give one of --times, --placement, --memory and --mesh" summary mnist --mesh data=2 --times
expect 2 "--layout, --microbatches, --schedule and --zero are for --mesh" summary mnist --schedule gpipe
expect 2 "the schedule is \"none\"" summary mnist --mesh stage=2 --schedule none
# ZeRO: slots, then also parameters, are halves. 1 whole parameter, 1/2 to update and 2 x 1/2 slots are 2.5 of 3 parts.
expect 0 "" summary mnist --mesh data=2 --json
json 'abs(r["device_bytes"][0] / 4 / 3 / 101770 - 1) < 1e-3'
expect 0 "" summary mnist --mesh data=2 --zero 1 --json
json 'abs(r["device_bytes"][0] / 4 / 2.5 / 101770 - 1) < 1e-2'
expect 0 "" summary mnist --mesh data=2 --zero 3 --json
json 'abs(r["device_bytes"][0] / 4 / 1.5 / 101770 - 1) < 1e-2'
expect 2 "each stage needs at least one" summary mnist --mesh stage=9
expect 3 "$work/none.json" summary mnist --mesh tensor=2 --layout "$work/none.json"
finish
