#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# strata summary --mesh: how the partitioner places the values of a training step, and the exchanges; and meshes that are not
# written right.
. "$(dirname "$0")/support.sh"

cat >"$work/sync.json" <<'END2'
{"label": "t", "input": [4], "layers": [{"layer": "batch_norm", "synchronized": true}, {"layer": "dense", "units": 1}],
 "loss": "mse"}
END2

expect 0 "6 devices, 2 exchanges in a step" summary mnist --mesh data=3,tensor=2 --batch 7
stdout "(7 over data: 3 2 2, 28, 28)"
stdout "(784, 128), partial over data"
stdout "all_reduce of pack over data"
expect 0 "" summary mnist --mesh data=2 --json
json 'r["n_devices"] == 2 and r["batch"] == 64 and [x["op"] for x in r["exchanges"]] == ["all_reduce", "all_reduce"]'
json 'all(x["axes"] == "data" for x in r["exchanges"]) and r["exchanges"][1]["bytes"] == 4 * 101824'
json '{v["placement"] for v in r["values"] if v["op"] == "adam"} == {"(101824)"}'
expect 0 "2 devices, 0 exchanges in a step" summary mnist --mesh tensor=2
for mesh in data data= =2 data=2, ,data=2 data=x data=2x; do
    expect 2 "it must be sizes of the axes data, stage and tensor, such as data=2,tensor=4" summary mnist --mesh "$mesh"
done
expect 2 "the mesh has the axis model; its axes may be data (of the examples), stage (of a pipeline) and tensor" \
    summary mnist --mesh data=2,model=2
expect 2 "axis data of the mesh has the size 0; it must be at least 1" summary mnist --mesh data=0
expect 2 "the mesh has two axes named data" summary mnist --mesh data=2,data=2
expect 0 "130 devices" summary mnist --mesh data=65,tensor=2 --batch 130
stdout "all_reduce of pack over data"
expect 2 "the mesh has more than 4096 devices" summary mnist --mesh data=4097
expect 0 "all_reduce of concat over data, 20B" summary "$work/sync.json" --mesh data=2
expect 2 "give one of --times, --placement, --memory and --mesh" summary mnist --mesh data=2 --times
finish
