#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# strata compile, and training through a PJRT plugin: the plugin of the tests, which is an interpreter.
. "$(dirname "$0")/support.sh"
plugin=$STRATA_BUILD_DIR/suites/pjrt_plugin.so
[ -e "$plugin" ] || { echo "skipped: $plugin was not built"; exit 77; }
make_data "$work/data"

expect 0 "StableHLO in" compile mnist --batch 8 --emit stablehlo "$work/one"
grep -q '"stablehlo.dot_general"' "$work/one" || bad "the text has no product"
grep -q 'tf.aliasing_output' "$work/one" || bad "nothing is updated in place"
if grep -q all_reduce "$work/one"; then bad "one replica exchanges something"; fi
expect 0 "8 replicas" compile mnist --batch 8 --strategy tpu --target v6e:2x4 --emit stablehlo "$work/eight"
grep -q 'dense<\[\[0, 1, 2, 3, 4, 5, 6, 7\]\]> : tensor<1x8xi64>' "$work/eight" || bad "eight replicas do not add up"
expect 0 '"replicas":4' compile cifar10_resnet --batch 8 --strategy tpu --target v5e:2x2 --emit stablehlo "$work/four" --json

expect 2 "give --plugin pjrt:FILE and --target NAME, or --emit stablehlo FILE" compile mnist
expect 2 "the format is stablehlo" compile mnist --emit onnx "$work/x"
expect 2 "needs a format and a file" compile mnist --emit stablehlo
expect 2 "needs a --target" compile mnist --plugin pjrt:x.so
expect 2 "strata compile knows tpu" compile mnist --emit stablehlo "$work/x" --strategy mirrored --target v5e:2x2
expect 2 "4 must divide it" compile mnist --batch 6 --strategy tpu --target v5e:2x2 --emit stablehlo "$work/x"
expect 2 "a chip and the sides of a grid" compile mnist --strategy tpu --target v5e --emit stablehlo "$work/x"
for target in v5e:0x0 v5e:2x0 v5e:-1x2 v5e:2x v5e: :2x2 v5e:2x2x2x2 v5e:99999999999999999999x1 v5e:4096x2 'v5e:2 x2'; do
    expect 2 "a chip and the sides of a grid" compile mnist --plugin "pjrt:$plugin" --target "$target"
done
expect 2 "needs pjrt:FILE" compile mnist --plugin other:x.so --target v5e:2x2
expect 3 "cannot be written" compile mnist --emit stablehlo /nonexistent/x
expect 4 "cannot be opened" compile mnist --plugin pjrt:/nonexistent.so --target v5e:2x2
expect 4 "has no PJRT_TopologyDescription_Create" compile mnist --plugin "pjrt:$plugin" --target v5e:2x2

expect 0 "pjrt:0 " devices --plugin "pjrt:$plugin"
expect 0 "mnist on pjrt:0" train mnist --data "$work/data" --epochs 1 --seed 1 --plugin "pjrt:$plugin" --device pjrt:0 \
    --save "$work/model.strata"
expect 0 "pjrt:0" evaluate "$work/model.strata" --data "$work/data" --plugin "pjrt:$plugin" --device pjrt:0 --json
tail -n 1 "$work/out" >"$work/there"
expect 0 '"device":"host"' evaluate "$work/model.strata" --data "$work/data" --device host --json
python3 - "$work/there" "$work/out" <<'END' || bad "a model that was trained by the plugin is not what the host evaluates"
import json, sys
a, b = (json.loads(open(path).read().splitlines()[-1]) for path in sys.argv[1:])
sys.exit(not (abs(a["loss"] - b["loss"]) < 1e-5 and a["accuracy"] == b["accuracy"]))
END
expect 2 "exports no symbol strata_plugin_v1" train mnist --plugin "$plugin"
cp "$plugin" "$work/open.so"
chmod 666 "$work/open.so"
expect 4 "every user may write the plugin" devices --plugin "pjrt:$work/open.so"
finish
