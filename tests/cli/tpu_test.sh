#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# strata train --strategy tpu: errors, and training on all cores of a board of samples/systolic, which this test builds. The
# bits must be the same for any number of steps in a call. Cores can be chosen by name, and two hosts can have a board each.
. "$(dirname "$0")/support.sh"
make_data "$work/mnist"
words="train mnist --data $work/mnist --epochs 2 --seed 3 --global-batch 24"
train="$words --json"

# same FILE FILE: the losses and the weights in the last lines of the two files must have the same bits.
same() {
    python3 - "$1" "$2" <<'END_OF_PYTHON'
import json, sys
a, b = (json.loads(open(name).read().splitlines()[-1]) for name in sys.argv[1:3])
assert len(a["losses"]) >= 20, len(a["losses"])
assert a["losses"] == b["losses"] and a["weights_sha256"] == b["weights_sha256"]
END_OF_PYTHON
}

# ---- without a board ----
STRATA_PLUGINS=
unset TPU_NAME TPU_ACCELERATOR_TYPE TPU_WORKER_HOSTNAMES TPU_WORKER_ID
export STRATA_PLUGINS
expect 4 "no device of this machine is a core of a TPU" $train --strategy tpu
expect 2 "host is no core of a TPU" $train --strategy tpu --devices host,host
far=grpc://10.0.0.2:8470
expect 4 "the address \"$far\" is that of another host's TPU" $train --strategy tpu --tpu-address $far
expect 2 "strategy mirrored has no TPU address" $train --strategy mirrored --devices host,host --tpu-address local
expect 2 "--steps-per-execution" $train --steps-per-execution 0
TPU_WORKER_HOSTNAMES=a,b expect 3 "says which of them this is" $train --strategy tpu
expect 0 "--tpu-address local|NAME" help train
stdout "--steps-per-execution N"
for k in 1 3; do
    expect 0 '"weights_sha256"' $train --device host --steps-per-execution $k
    cp "$work/out" "$work/host.$k"
done
check "steps per execution change what the host computes" same "$work/host.1" "$work/host.3"

# ---- on a board ----
source=$here/../..
if [ ! -d "$source/samples/systolic" ] || grep -q '^STRATA_SANITIZE:STRING=.' "$STRATA_BUILD_DIR/CMakeCache.txt"; then
    echo "not tried: training on a board (a build with sanitizers is not for installing)"
    finish
fi
check "install" cmake --install "$STRATA_BUILD_DIR" --prefix "$work/prefix"
check "configure" cmake -G Ninja -S "$source/samples/systolic" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix"
check "build" cmake --build "$work/build" --target strata_systolic
board=$work/build/libstrata_systolic.so,cores=8
expect 0 "8 of 8 cores of systolic board 0, which add up by themselves" $words --plugin "$board" --strategy tpu
train="$train --plugin $board --strategy tpu"
expect 0 '"strategy":"tpu"' $train
cp "$work/out" "$work/one"
for k in 2 7 50; do
    expect 0 '"strategy":"tpu"' $train --steps-per-execution $k
    check "$k steps in a call give other losses or weights" same "$work/one" "$work/out"
done
expect 0 '"strategy":"tpu"' $train --tpu-address "systolic board 0"
expect 0 '"devices":["systolic:1","systolic:6"]' $train --tpu-address systolic --devices systolic:6,systolic:1
expect 4 "there are: local, \"systolic board 0\" of systolic" $train --tpu-address nowhere
TPU_NAME=nowhere expect 0 '"strategy":"tpu"' $train --tpu-address nowhere
expect 0 '"strategy":"tpu"' $train --shard-optimizer yes
check "a sharded optimizer gives other losses or weights" same "$work/one" "$work/out"
expect 0 '"host_nodes":0' $train --allow-fallback host
check "a host that is not needed gives other losses or weights" same "$work/one" "$work/out"
expect 0 '"strategy":"tpu"' launch -n 2 -- "$strata" $train --steps-per-execution 5
json 'r["workers"] == 2 and r["replicas"] == 16 and r["replica_weights_equal"]'
check "two hosts with a board each have other losses than one" python3 - "$work/one" "$work/out" <<'END_OF_PYTHON'
import json, sys
one, two = (json.loads(open(name).read().splitlines()[-1])["losses"] for name in sys.argv[1:3])
assert len(one) == len(two) and all(abs(a - b) <= 1e-5 for a, b in zip(one, two)), (one, two)
END_OF_PYTHON
finish
