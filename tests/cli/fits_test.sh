#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# A model that needs more memory than its device has: the message names the pipeline of the devices on which it fits, with the
# bytes of strata summary --mesh, and this pipeline trains it. The devices are those of a plugin (tests/plugin/adapter).
. "$(dirname "$0")/support.sh"
plugin=$STRATA_BUILD_DIR/suites/plugins/libstrata_host_plugin.so
[ -e "$plugin" ] || { echo "skipped: there is no $plugin"; exit 77; }
awk 'BEGIN { for (i = 0; i < 64; i++) { for (k = 0; k < 12; k++) printf "%d,", (i * 37 + k * 11 + i * k) % 50
                                       print i % 3 ? "a" : "b" } }' >"$work/data.csv"
# Each layer of 512 units after the first has 3 MiB of parameters and slots, and 1 MiB of gradients.
hidden='{"layer": "dense", "units": 512, "activation": "relu"}'
cat >"$work/deep.json" <<END
{"label": "deep", "input": [12], "layers": [$hidden, $hidden, $hidden, $hidden, $hidden, {"layer": "dense", "units": 2}],
 "loss": "sparse_categorical_crossentropy", "optimizer": {"name": "adam"}}
END
echo '{"label": "wide", "input": [12], "layers": [{"layer": "dense", "units": 400000}]}' >"$work/wide.json"

# train MODEL MIB DEVICES ARGUMENT...: the arguments of a training with so many devices of so much memory.
train() {
    model=$1 bytes=$(($2 << 20)) n=$3
    shift 3
    echo "train $work/$model.json --data $work/data.csv --epochs 1 --batch 16 --plugin $plugin,devices=$n,bytes=$bytes $*"
}
# says MESH DEVICE: the last message has these options, and the bytes that the summary has for the device.
says() {
    stderr "it fits on several devices of this machine: --strategy model_parallel --mesh $1 --devices host-plugin:0,"
    cp "$work/err" "$work/message"
    expect 0 "" summary "$work/deep.json" --mesh "$1" --batch 16 --device "$2" --plugin "$plugin" --json
    json "', which need ' + ', '.join(f'{(a + b) / 2**20:.1f} MiB' for a, b in zip(r['device_bytes'], r['step_bytes'])) \
        in open('$work/message').read()"
}
silent() {
    ! grep -q "several devices" "$work/err" || bad "a mesh is suggested"
}

# shellcheck disable=SC2046 # words
{
# The parameters fit, and the step does not.
expect 4 "MiB are free" $(train deep 14 2 --device host-plugin:0)
says stage=2 host-plugin:0
expect 0 "on host-plugin:0, host-plugin:1" \
    $(train deep 14 2 --strategy model_parallel --mesh stage=2 --devices host-plugin:0,host-plugin:1)
# The parameters do not fit.
expect 4 "OUT_OF_MEMORY" $(train deep 8 4 --device host-plugin:0)
says stage=4 host
# Too few devices; a training that uses several devices already; a model that cannot be cut.
expect 4 "OUT_OF_MEMORY" $(train deep 2 2 --device host-plugin:0)
silent
expect 4 "OUT_OF_MEMORY" $(train deep 8 4 --strategy mirrored --devices host-plugin:0,host-plugin:1)
silent
expect 4 "OUT_OF_MEMORY" $(train wide 8 4 --device host-plugin:0)
silent
}
finish
