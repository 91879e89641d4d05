#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Builds samples/systolic as a vendor would: outside of the source tree, with an installed Strata, of which it includes only
# strata/plugin.h. Then the command trains with the plugin. Its losses must be those of the host within the bound for
# products in bf16 that samples/systolic/README.md derives.
. "$(dirname "$0")/support.sh"
source=$here/../..
if grep -q '^STRATA_SANITIZE:STRING=.' "$STRATA_BUILD_DIR/CMakeCache.txt"; then
    echo "skipped: a build with sanitizers is not for installing"
    exit 77
fi

# ---- outside of the source tree ----
cp -R "$source/samples/systolic" "$work/systolic"
check "it includes another header of Strata than plugin.h" sh -c \
    "! grep -rhoE '#include [<\"](strata|core|backends)/[^>\"]*' '$work/systolic' --include='*.[ch]' | grep -v strata/plugin.h"
check "install" cmake --install "$STRATA_BUILD_DIR" --prefix "$work/prefix"
check "configure" cmake -G Ninja -S "$work/systolic" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" -DSYSTOLIC_WERROR=ON
check "build" cmake --build "$work/build"
plugin=$work/build/libstrata_systolic.so
[ -f "$plugin" ] || { cat "$work/check.log"; finish; }
check "it needs a symbol of Strata" sh -c "! nm -D --undefined-only '$plugin' | grep strata_"
check "it exports more than its entry" sh -c "test \"\$(nm -D --defined-only '$plugin' | grep -c ' T ')\" = 1"
# The plugin does not support products of f16, for which the arrays would lose bits, nor recurrent and fused ops, which are
# composed of others.
expect 0 " 0 wrong, 17 not claimed" plugin-check "$plugin"
expect 0 " 0 wrong, 17 not claimed" plugin-check "$plugin,form=portable" --quick
check "its own tests" ctest --test-dir "$work/build" --output-on-failure

# ---- devices and options ----
expect 0 "systolic:0" devices --plugin "$plugin"
stdout "Systolic S1"
expect 0 "systolic:3" devices --plugin "$plugin,cores=4"
stdout 'core 3 of 4 of "systolic board 0", at (3) of a grid of (4), which add up by themselves'
stdout "memories: HBM of "
stdout "any number of steps a call, copies beside programs, copies between devices"
expect 0 "" devices --plugin "$plugin,cores=4" --json
json '[d["topology"] for d in r if d["id"] == "systolic:2"] == [
    {"system": "systolic board 0", "n_cores": 4, "core": 2, "dims": [4], "coordinates": [2]}]'
json '[(d["collectives"], d["steps_per_call"]) for d in r if d["id"] == "systolic:0"] == [(["f32", "i32", "i64"], None)]'
json '[d["transfers"] and d["device_copies"] for d in r if d["id"] == "systolic:0"] == [True]'
json '[[(s["name"], s["buffers"]) for s in d["spaces"]] for d in r if d["id"] == "systolic:0"] == [
    [("HBM", True), ("on-chip", False)]]'
json '[(d["topology"], d["collectives"], d["steps_per_call"], d["spaces"]) for d in r if d["id"] == "host"] == [
    (None, None, 1, [])]'
expect 2 "there are cores, chip, patience and form" devices --plugin "$plugin,wings=2"
expect 2 "cores is \"65\"; it must be 1 to 64" devices --plugin "$plugin,cores=65"

# ---- training ----
python3 - "$work" <<'END_OF_PYTHON'
import os, random, sys
work, rng = sys.argv[1], random.Random(5)
def put(name, data):
    os.makedirs(os.path.dirname(work + "/" + name), exist_ok=True)
    open(work + "/" + name, "wb").write(data if isinstance(data, bytes) else data.encode())
def record(label):  # one bright plane, the others dark
    planes = [bytes(rng.randrange(200, 256) if label % 3 == p else rng.randrange(40) for _ in range(1024)) for p in range(3)]
    return bytes([label]) + b"".join(planes)
put("cifar10/data_batch_1.bin", b"".join(record(i % 3) for i in range(400)))
put("cifar10/test_batch.bin", b"".join(record(i % 3) for i in range(60)))
kind, cruel, rest = ["wonderful", "lovely", "great"], ["dull", "awful", "bad"], ["film", "the", "a", "story", "and", "plot"]
def text(good):
    words = [rng.choice(kind if good else cruel)] * 3 + [rng.choice(rest) for _ in range(6)]
    rng.shuffle(words)
    return " ".join(words)
def table(n):
    return "review,sentiment\n" + "".join(f'"{text(i % 2)}",{("negative", "positive")[i % 2]}\n' for i in range(n))
put("imdb/imdb_train.csv", table(640))
put("imdb/imdb_test.csv", table(60))
END_OF_PYTHON
make_data "$work/mnist"

check "losses of single steps are not within the bound of their operands" \
    env STRATA_TEST_SYSTOLIC="$plugin" "$STRATA_BUILD_DIR/suites/test_plugin" --filter 'bf16/*'

# within NAME PRODUCTS: compares the losses of two separate trainings, in $work/NAME.host and $work/NAME.systolic. They must
# agree within the estimate in README.md.
within() {
    title="$1: losses of training are not as near to the host's as bf16 allows"
    check "$title" python3 - "$work/$1.host" "$work/$1.systolic" "$2" <<'END_OF_PYTHON'
import json, math, sys
host, systolic = (json.loads(open(name).read().splitlines()[-1])["losses"] for name in sys.argv[1:3])
products = int(sys.argv[3])
assert len(host) == len(systolic) >= 5, (len(host), len(systolic))
assert host != systolic, "the same bits as f32: products were not rounded to bf16"
for t, (a, b) in enumerate(zip(host, systolic)):
    bound = 2.5 * math.sqrt(products) * 2**-8 * (1 + t / 7)
    assert abs(a - b) <= bound, f"step {t}: {a} and {b}, more than {bound} apart"
END_OF_PYTHON
}

learns() { # NAME PRODUCTS ARGUMENT...
    name=$1 products=$2
    shift 2
    for device in host systolic:0; do
        expect 0 "\"sample\":\"$name\"" train "$name" --plugin "$plugin" --device $device --seed 1 --json "$@"
        cp "$work/out" "$work/$name.${device%:0}"
    done
    within "$name" "$products"
}
learns mnist 2 --data "$work/mnist" --batch 32 --epochs 3
json 'r["devices"] == ["systolic:0"] and r["accuracy"] > 0.9'
learns cifar10 4 --data "$work/cifar10" --batch 20 --epochs 1
learns imdb 2 --data "$work/imdb" --batch 64 --epochs 2
learns regression 3 --epochs 1
learns linear 1 --epochs 1
learns mnist_cnn 3 --data "$work/mnist" --batch 40 --epochs 1
expect 0 "saved" train cifar10_resnet --plugin "$plugin" --device systolic:0 --data "$work/cifar10" --batch 40 --epochs 1 \
    --seed 1 --save "$work/resnet.strata"
expect 0 "on 60 test examples" evaluate "$work/resnet.strata" --plugin "$plugin" --device systolic:0 --data "$work/cifar10"

# ---- cycles, and the times of the units ----
expect 0 "in the device's own time: " summary mnist --times --batch 32 --plugin "$plugin" --device systolic:0
expect 0 "" summary mnist --times --batch 32 --plugin "$plugin" --device systolic:0 --json
json 'r["device_work_bytes"] > 0'
json 'r["cycles"] > 1000 and 0 < r["utilisation"] < 1 and r["device_bytes"] > 4 * r["parameters"] and r["device_us"] > 0'
json '[n for n in r["nodes"] if n["op"].startswith("matmul")][0]["utilisation"] > r["utilisation"] / 2'
expect 0 "" summary mnist --times --batch 32 --device host --json
json '"cycles" not in r' # this device does not report them
expect 0 "" train mnist --plugin "$plugin" --device systolic:0 --data "$work/mnist" --epochs 1 --trace "$work/trace.json"
check "the trace has no rows of the chip's units" python3 - "$work/trace.json" <<'END_OF_PYTHON'
import json, sys
events = json.load(open(sys.argv[1]))["traceEvents"]
rows = {e["args"]["name"]: e["tid"] for e in events if e["name"] == "thread_name"}
matrix = [e for e in events if e["ph"] == "X" and e["tid"] == rows["systolic:0 matrix"]]
assert {e["name"] for e in matrix} == {"matmul"} and len(matrix) >= 10, matrix[:3]
assert all(a["ts"] + a["dur"] <= b["ts"] + 1e-3 for a, b in zip(matrix, matrix[1:])), "a unit is at two things at once"
assert {"systolic:0 dma in", "systolic:0 dma out", "systolic:0 vector"} <= set(rows), rows
END_OF_PYTHON

# ---- a second run gives the same bits, and other devices can use the model ----
train_digits="train mnist --plugin $plugin --device systolic:0 --data $work/mnist --batch 32 --epochs 1 --seed 3 --json"
# shellcheck disable=SC2086 # words
expect 0 '"sample":"mnist"' $train_digits --save "$work/mnist.strata"
cp "$work/out" "$work/first"
# shellcheck disable=SC2086
expect 0 '"sample":"mnist"' $train_digits
check "another run has other weights" python3 -c 'import json, sys
first, second = (json.loads(open(name).read().splitlines()[-1])["weights_sha256"] for name in sys.argv[1:])
sys.exit(first != second)' "$work/first" "$work/out"
expect 0 "on 200 test examples" evaluate "$work/mnist.strata" --device host --data "$work/mnist"

# ---- all cores of a board, and groups of cores ----
for case in "cifar10 4 20 1" "imdb 2 64 2"; do
    # shellcheck disable=SC2086 # words
    set -- $case
    expect 0 '"replicas":8' train "$1" --plugin "$plugin,cores=8" --strategy tpu --data "$work/$1" --global-batch "$3" \
        --epochs "$4" --seed 1 --json
    cp "$work/out" "$work/$1.systolic"
    within "$1" "$2"
done
group="train mnist --strategy mirrored --data $work/mnist --epochs 3 --seed 1 --global-batch 32 --json"
cp "$work/mnist.host" "$work/group.host"
# shellcheck disable=SC2086
expect 0 '"devices":["systolic:0","systolic:1","host"]' $group --plugin "$plugin,cores=2" --devices systolic:0,systolic:1,host
cp "$work/out" "$work/group.systolic"
within group 2
if "$strata" devices | grep -q '^opencl:0  *[a-z]*  *[0-9]'; then
    # shellcheck disable=SC2086
    expect 0 '"devices":["opencl:0","systolic:0"]' $group --plugin "$plugin" --devices opencl:0,systolic:0 --no-tune
    cp "$work/out" "$work/group.systolic"
    within group 2
else
    echo "skipped: a group with opencl:0, which is not here"
fi
finish
