#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# A step with a node that the device cannot run: the error, summary --placement, and --allow-fallback host. OpenCL's kernels
# refuse a window with more elements than a work-item may iterate over. The host runs it.
. "$(dirname "$0")/support.sh"

cat >"$work/pool.json" <<'END'
{"label": "linear", "input": [1],
 "layers": [{"layer": "dense", "units": 90000}, {"layer": "reshape", "shape": [300, 300, 1]},
            {"layer": "max_pool2d", "size": 300}, {"layer": "flatten"}, {"layer": "dense", "units": 1}],
 "loss": "mse", "optimizer": {"name": "sgd", "learning_rate": 0.01}}
END

# ---- with a device that has all ops ----
expect 2 "--allow-fallback gpu: it must be host" train mnist --allow-fallback gpu
expect 2 "--allow-fallback gpu: it must be host" train mnist --strategy mirrored --devices host --allow-fallback gpu
expect 2 "give one of --times, --placement, --memory and --mesh" summary mnist --times --placement
expect 0 "nodes: " summary mnist --placement --device host
expect 0 ", 0 on the host for it, 0 nowhere" summary mnist --placement --device host
expect 0 "" summary mnist --placement --device host --batch 8 --json
json 'r["n_nowhere"] == 0 and r["n_host"] == 0 and r["batch"] == 8 and r["device"] == "host"'
json 'all(n["runs_on"] == "host" and n["reason"] is None and n["others"] == [] for n in r["nodes"])'
json 'any(n["name"] == "dense" and n["op"] == "matmul" and n["output"] == [8, 128] for n in r["nodes"])'
expect 0 "" train "$work/pool.json" --device host --epochs 2 --batch 4 --json --allow-fallback host --save "$work/pool.strata"
json 'r["host_nodes"] == 0 and r["copies_per_step"] == 0'
cp "$work/out" "$work/on_host"
quiet stderr

# ---- with a device that lacks one ----
if ! "$strata" devices --json | grep -q '"opencl:0"'; then
    echo "skipped: a device that lacks an op (there is no opencl:0)"
    finish
fi
expect 4 "opencl:0 cannot run 2 of 17 nodes. The host can: --allow-fallback host" \
    train "$work/pool.json" --device opencl:0 --batch 4
stderr "max_pool2d: max_pool2d f32 (4,1,1,1): there is no kernel for it"
stderr "max_pool2d_grad f32 (4,300,300,1): there is no kernel for it"
expect 0 "15 on opencl:0, 0 on the host for it, 2 nowhere" summary "$work/pool.json" --placement --device opencl:0 --batch 4
stdout "nothing: there is no kernel for it; it runs on host"
expect 0 "15 on opencl:0, 2 on the host for it, 0 nowhere" \
    summary "$work/pool.json" --placement --device opencl:0 --batch 4 --allow-fallback host
stdout "the host: there is no kernel for it; it runs on host"
expect 0 "" summary "$work/pool.json" --placement --device opencl:0 --batch 4 --json
json '[(n["op"], n["runs_on"], n["others"]) for n in r["nodes"] if n["reason"]] == [
    ("max_pool2d", None, ["host"]), ("max_pool2d_grad", None, ["host"])]'
expect 0 "" train "$work/pool.json" --device opencl:0 --epochs 2 --batch 4 --json --allow-fallback host
stderr "of the 17 nodes of a training step the host runs 2 for opencl:0: 1 max_pool2d, 1 max_pool2d_grad"
stderr "copies, 2.8"
json 'r["host_nodes"] == 2 and 3 <= r["copies_per_step"] <= 12 and 2 * 1440000 <= r["copy_bytes_per_step"] < 2.1 * 1440000'
python3 - "$work/on_host" "$work/out" <<'END' || bad "the losses on opencl:0 with the host's help, and on the host"
import json, sys
a, b = (json.loads(open(name).read().splitlines()[-1]) for name in sys.argv[1:])
assert len(a["losses"]) > 10 and all(abs(x - y) <= 1e-4 * abs(x) + 1e-6 for x, y in zip(a["losses"], b["losses"])), (a, b)
END
expect 0 "the host runs 1 for opencl:0: 1 max_pool2d" \
    predict "$work/pool.strata" --row 1 --device opencl:0 --allow-fallback host
stderr "copies, "
expect 4 "opencl:0 cannot run 1 of " predict "$work/pool.strata" --row 1 --device opencl:0
expect 0 "loss" evaluate "$work/pool.strata" --device opencl:0 --allow-fallback host
stderr "of an evaluation the host runs 1 for opencl:0: 1 max_pool2d"
finish
