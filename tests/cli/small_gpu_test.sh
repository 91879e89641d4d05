#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Vulkan devices that lack something (tests/shims/vulkan_shim.c over lavapipe): without 8-bit storage, bytes and booleans are
# parts of words, and training gives the same losses; tiny work-groups are refused.
. "$(dirname "$0")/support.sh"
use_vulkan_shim
awk 'BEGIN { for (i = 0; i < 64; i++) { for (k = 0; k < 12; k++) printf "%d,", (i * 37 + k * 11 + i * k) % 50
                                       print i % 3 ? "a" : "b" } }' >"$work/data.csv"
cat >"$work/model.json" <<'END'
{"label": "model", "input": [12],
 "layers": [{"layer": "reshape", "shape": [12, 1]}, {"layer": "dropout", "rate": 0.3},
            {"layer": "conv1d", "filters": 8, "kernel_size": 3, "activation": "relu"}, {"layer": "global_max_pool"},
            {"layer": "dense", "units": 2}],
 "loss": "sparse_categorical_crossentropy", "optimizer": {"name": "adam"}}
END

# train_loss ARGUMENT...: trains on the device; $loss is the loss and the accuracy of the epoch.
train_loss() {
    expect 0 "on vulkan:0" train "$@" --device vulkan:0 --epochs 1 --batch 16 --no-tune --no-cache
    loss=$(sed -n 's/^epoch 1.1 *\(loss [0-9.]* *accuracy [0-9.]*\).*/\1/p' "$work/out")
    [ -n "$loss" ] || bad "no loss"
}

for model in "$work/model.json --data $work/data.csv" "mnist --steps 3"; do
    train_loss $model
    whole=$loss
    export STRATA_SHIM_WITHOUT=8
    train_loss $model
    unset STRATA_SHIM_WITHOUT
    [ "$loss" = "$whole" ] || bad "$model: $whole with 8-bit storage, $loss without"
done

export STRATA_SHIM_WORKGROUP=1
expect 4 "its work-groups have at most 1 work-items" train regression --device vulkan:0
finish
