#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# strata graph: the layers of a model as a list and as a picture. strata trace: a summary of a trace.
. "$(dirname "$0")/support.sh"

cat >"$work/two.json" <<'END'
{"inputs": [{"name": "left", "shape": [4]}, {"name": "right", "shape": [4]}],
 "layers": [{"layer": "dense", "name": "side", "units": 8, "inputs": ["left"]},
            {"call": "side", "name": "other_side", "inputs": ["right"]},
            {"layer": "dense", "name": "deep", "units": 8},
            {"layer": "concat", "inputs": ["side", "deep", "left"]},
            {"layer": "dense", "name": "same", "units": 1}],
 "outputs": [{"name": "same", "loss": "binary_crossentropy"}]}
END
expect 0 "concat" graph "$work/two.json" --batch 3
stdout "left                     input"
stdout "other_side               dense                (3,8)                  <- right"
stdout "concat                   concat               (3,20)                 <- side, deep, left"
expect 0 "<svg" graph "$work/two.json" --svg
cp "$work/out" "$work/two.svg"
checks=$((checks + 1))
python3 - "$work/two.svg" <<'END' || bad "the picture is not as it should be"
import sys, xml.etree.ElementTree as tree
root = tree.parse(sys.argv[1]).getroot()
name = "{http://www.w3.org/2000/svg}"
width, boxes = float(root.get("width")), root.findall(name + "rect")
texts = [t.text for t in root.iter(name + "text")]
# The picture has a box for each input and layer. Boxes of one level are beside each other, all are inside the picture, and
# each edge ends with an arrow.
boxes = [b for b in boxes if b.get("rx")]
assert len(boxes) == 7, len(boxes)
assert {"left", "right", "side (dense)", "other_side (dense)", "concat"} <= set(texts), texts
places = [(float(b.get("y")), float(b.get("x")), float(b.get("width"))) for b in boxes]
for y, x, wide in places:
    assert 0 <= x and x + wide <= width, (x, wide, width)
    assert sum(y == other[0] and abs(x - other[1]) < wide for other in places) == 1, "boxes overlap"
assert sum(p.get("d").endswith("z") for p in root.iter(name + "path")) == 7
END
expect 0 "wrote $work/m.svg" graph mnist_cnn --svg --to "$work/m.svg"
check "the file is a picture" grep -q "max_pool2d_1" "$work/m.svg"
expect 3 "" graph mnist_cnn --svg --to "$work/nowhere/m.svg"
expect 2 "Did you mean \"mnist\"" graph mnits

# --memory lists what is in memory when a step needs most. The sum must be the peak, and must not exceed the memory of the
# step.
expect 0 "max_pool2d_grad" summary cifar10 --memory --batch 8
expect 0 "" summary cifar10 --memory --batch 8 --json
json "sum(v['bytes'] for v in r['values']) == r['peak_bytes'] and r['slot_bytes'] == 2 * r['parameter_bytes']"
cp "$work/out" "$work/memory"
expect 0 "" summary cifar10 --batch 8 --json
checks=$((checks + 1))
python3 - "$work/out" "$work/memory" <<'END' || bad "the peak is not within what the step takes"
import json, sys
step, peak = (json.loads(open(path).read()) for path in sys.argv[1:])
assert 0.5 * step["step_memory_bytes"] <= peak["peak_bytes"] <= step["step_memory_bytes"], (step, peak)
END
expect 2 "give one of --times, --placement, --memory and --mesh" summary cifar10 --memory --times

# A trace with chosen times: in 2 steps a device is busy for 60 of 100 us, and a host waits.
cat >"$work/trace.json" <<'END'
{"traceEvents": [
{"name": "process_name", "ph": "M", "pid": 1, "tid": 100, "args": {"name": "worker 0"}},
{"name": "thread_name", "ph": "M", "pid": 1, "tid": 100, "args": {"name": "host thread"}},
{"name": "thread_name", "ph": "M", "pid": 1, "tid": 101, "args": {"name": "replica 0"}},
{"name": "epoch 1", "cat": "host", "ph": "X", "ts": 0, "dur": 100, "pid": 1, "tid": 100, "args": {"step": 0}},
{"name": "next batch", "cat": "host", "ph": "X", "ts": 10, "dur": 40, "pid": 1, "tid": 100, "args": {"step": 0}},
{"name": "matmul (2,3)", "cat": "device", "ph": "X", "ts": 0, "dur": 20, "pid": 1, "tid": 101,
 "args": {"step": 0, "op": "matmul", "GFLOP/s": 10, "GB/s": 4}},
{"name": "adam (3)", "cat": "device", "ph": "X", "ts": 60, "dur": 20, "pid": 1, "tid": 101, "args": {"step": 1, "op": "adam"}},
{"name": "matmul (2,3)", "cat": "device", "ph": "X", "ts": 80, "dur": 20, "pid": 1, "tid": 101,
 "args": {"step": 1, "op": "matmul", "GFLOP/s": 20}}]}
END
expect 0 "input bound: 40 %" trace "$work/trace.json"
stdout "2 steps in 0.100 ms, 50.0 us each; 1 worker, 1 device"
stdout "busy for 60.0 % of the time"
expect 0 "" trace "$work/trace.json" --json
json "r['steps'] == 2 and r['us'] == 100 and r['input'] == 0.4 and [t['busy'] for t in r['tracks']] == [1, 0.6]"
json "[(o['name'], o['count'], o['us']) for o in r['tracks'][1]['rows']] == [('matmul', 2, 40), ('adam', 1, 20)]"
json "r['tracks'][1]['rows'][0]['gflops'] == 15 and r['tracks'][1]['rows'][0]['gbytes'] == 4"
json "[(o['name'], o['us']) for o in r['tracks'][0]['rows']] == [('between steps', 60), ('next batch', 40)]"
expect 0 "" trace "$work/trace.json" --json --peaks --device host
json "0 < r['tracks'][1]['rows'][0]['of_peak'] and r['peak_gflops'] > 0 and r['peak_gbytes'] > 0"
# In one step a program is compiled, and its driver continues to compile in the first run. This step must not count, because
# its time does not show how long others take.
cat >"$work/cold.json" <<'END'
[{"name": "process_name", "ph": "M", "pid": 1, "tid": 100, "args": {"name": "worker 0"}},
{"name": "thread_name", "ph": "M", "pid": 1, "tid": 100, "args": {"name": "host thread"}},
{"name": "thread_name", "ph": "M", "pid": 1, "tid": 101, "args": {"name": "replica 0"}},
{"name": "epoch 1", "cat": "host", "ph": "X", "ts": 0, "dur": 10000, "pid": 1, "tid": 100, "args": {"step": 0}},
{"name": "compile", "cat": "host", "ph": "X", "ts": 100, "dur": 900, "pid": 1, "tid": 100, "args": {"step": 9}},
{"name": "wait for device", "cat": "host", "ph": "X", "ts": 1500, "dur": 8300, "pid": 1, "tid": 100, "args": {"step": 11}},
{"name": "wait for device", "cat": "host", "ph": "X", "ts": 9850, "dur": 50, "pid": 1, "tid": 100, "args": {"step": 12}},
{"name": "a", "cat": "device", "ph": "X", "ts": 2000, "dur": 10, "pid": 1, "tid": 101, "args": {"step": 9, "op": "a"}},
{"name": "a", "cat": "device", "ph": "X", "ts": 9700, "dur": 100, "pid": 1, "tid": 101, "args": {"step": 9, "op": "a"}},
{"name": "a", "cat": "device", "ph": "X", "ts": 9800, "dur": 100, "pid": 1, "tid": 101, "args": {"step": 10, "op": "a"}},
{"name": "a", "cat": "device", "ph": "X", "ts": 9900, "dur": 100, "pid": 1, "tid": 101, "args": {"step": 11, "op": "a"}}]
END
expect 0 "2 steps in 0.200 ms, 100.0 us each; 1 worker, 1 device" trace "$work/cold.json"
stdout "left out: 1 step of 9.700 ms, in which programs were compiled"
stdout "busy for 100.0 % of the time"
expect 0 "" trace "$work/cold.json" --json
json "r['compiling_steps'] == 1 and r['compiling_us'] == 9700 and r['steps'] == 2 and r['us'] == 200"
json "[(o['name'], o['count'], o['us']) for o in r['tracks'][1]['rows']] == [('a', 2, 200)]"
json "[(o['name'], o['us']) for o in r['tracks'][0]['rows'] if o['us']] == [('between steps', 750), ('wait for device', 50)]"
# When there is no other step, all steps count.
sed '/"step": 1[01], "op"/d; /"step": 9, "op"/ { /9700/ s/,$/]/; }' "$work/cold.json" >"$work/all.json"
expect 0 "1 steps in 7.800 ms" trace "$work/all.json"
# Slices without gaps. Because of rounding, the sum of the first one's time and duration is larger than the time of the
# second one, which nevertheless does not lie within the first.
cat >"$work/close.json" <<'END'
[{"name": "a", "cat": "device", "ph": "X", "ts": 10322588380.305, "dur": 0.040, "pid": 1, "tid": 101,
  "args": {"step": 0, "op": "a"}},
 {"name": "b", "cat": "device", "ph": "X", "ts": 10322588380.345, "dur": 91.236, "pid": 1, "tid": 101,
  "args": {"step": 0, "op": "b"}}]
END
expect 0 "" trace "$work/close.json" --json
json "[(o['name'], round(o['us'], 2)) for o in r['tracks'][0]['rows']] == [('b', 91.24), ('a', 0.04)]"
# Two devices, one of which works three times as long as the other.
cat >"$work/two.json" <<'END'
[{"name": "process_name", "ph": "M", "pid": 1, "tid": 101, "args": {"name": "worker 0"}},
{"name": "thread_name", "ph": "M", "pid": 1, "tid": 101, "args": {"name": "replica 0"}},
{"name": "thread_name", "ph": "M", "pid": 1, "tid": 102, "args": {"name": "replica 1"}},
{"name": "matmul (2,3)", "cat": "device", "ph": "X", "ts": 0, "dur": 30, "pid": 1, "tid": 101, "args": {"step": 0, "op": "a"}},
{"name": "matmul (2,3)", "cat": "device", "ph": "X", "ts": 0, "dur": 90, "pid": 1, "tid": 102, "args": {"step": 0, "op": "a"}}]
END
expect 0 "one slow device: worker 0 replica 1 works 3.0 times as long" trace "$work/two.json"
stdout "--split auto"
expect 0 "--split" help train
# The two stages of a pipeline, of which one works longer, and waits too. A bubble is not work, and no row of the table.
cat >"$work/stages.json" <<'END'
[{"name": "thread_name", "ph": "M", "pid": 1, "tid": 101, "args": {"name": "replica 0, stage 0, a queue (A)"}},
{"name": "thread_name", "ph": "M", "pid": 1, "tid": 102, "args": {"name": "replica 1, stage 1, b queue (B)"}},
{"name": "a", "cat": "device", "ph": "X", "ts": 0, "dur": 30, "pid": 1, "tid": 101, "args": {"step": 0, "microbatch": 0}},
{"name": "bubble", "cat": "device", "ph": "X", "ts": 30, "dur": 70, "pid": 1, "tid": 101, "args": {"step": 0}},
{"name": "bubble", "cat": "device", "ph": "X", "ts": 0, "dur": 30, "pid": 1, "tid": 102, "args": {"step": 0}},
{"name": "a", "cat": "device", "ph": "X", "ts": 30, "dur": 70, "pid": 1, "tid": 102, "args": {"step": 0, "microbatch": 0}}]
END
expect 0 "one slow stage: stage 1 works 2.3 times as long as the others" trace "$work/stages.json"
stdout "bubbles: also stage 1, which works most, waits for 30 % of its steps; more micro-batches (--microbatches)"
stdout "replica 0, stage 0, a queue (A): busy for 30.0 % of the time, in bubbles for 70.0 %"
expect 0 "" trace "$work/stages.json" --json
json '[(t["stage"], t["busy"], t["bubble"], len(t["rows"])) for t in r["tracks"]] == [(0, .3, .7, 1), (1, .7, .3, 1)]'
json 'not any("--split" in hint for hint in r["hints"]) and r["steps"] == 1'
grep -v bubble "$work/stages.json" >"$work/apart.json"
expect 0 "stages one after the other" trace "$work/apart.json"
sed 's/stage 1/stage 0/' "$work/apart.json" >"$work/tensor.json"
expect 0 "a mesh divides equally along data and tensor" trace "$work/tensor.json"
echo '[]' >"$work/empty.json"
expect 3 "has no slices of a device" trace "$work/empty.json"
echo '[{"ph": "X", "name": "a"}]' >"$work/wrong.json"
expect 3 "[0]: \"ts\" is missing" trace "$work/wrong.json"
echo '{"traceEvents": 3}' >"$work/wrong.json"
expect 3 "traceEvents" trace "$work/wrong.json"
expect 3 "no-such-file" trace "$work/no-such-file"
# A trace of a real training.
make_data "$work/data"
expect 0 "" train mnist --device host --data "$work/data" --epochs 1 --trace "$work/real.json"
expect 0 "matmul" trace "$work/real.json"
# Profiles some steps of a training, which must have the bits of a training without a profile.
expect 0 "" train mnist --device host --data "$work/data" --epochs 2 --batch 4 --seed 3 --json
sed -n 's/.*"weights_sha256":"\([0-9a-f]*\)".*/\1/p' "$work/out" | tail -1 >"$work/plain"
check "there is a hash to compare with" [ -s "$work/plain" ]
expect 0 "" train mnist --device host --data "$work/data" --epochs 2 --batch 4 --seed 3 --json --profile 3:6 \
    --trace "$work/p.json"
json "r['event'] == 'profile' and r['steps'] == 3 and r['compiling_steps'] == 1 and r['peak_gflops'] > 0 and r['hints']"
checks=$((checks + 1))
sed -n 's/.*"weights_sha256":"\([0-9a-f]*\)".*/\1/p' "$work/out" | tail -1 | cmp -s - "$work/plain" ||
    bad "what is trained has other bits with --profile"
expect 0 "3 steps in" trace "$work/p.json"
expect 0 "1 steps in" train mnist --device host --data "$work/data" --epochs 1 --batch 4 --profile 1:2
stdout "matmul"
expect 0 "the training had none of these steps" train mnist --device host --data "$work/data" --epochs 1 --profile 100000:100001
expect 2 "it must be the first and the last step, for example 10:20" train mnist --data "$work/data" --profile 3
expect 2 "it must be the first and the last step, for example 10:20" train mnist --data "$work/data" --profile 5:4
checks=$((checks + 1))
TMPDIR=$work/tmp && mkdir "$TMPDIR" && export TMPDIR
"$strata" train mnist --device host --data "$work/data" --epochs 1 --profile 1:2 >"$work/out" 2>&1
[ -z "$(ls "$TMPDIR")" ] || bad "--profile leaves files behind"
finish
