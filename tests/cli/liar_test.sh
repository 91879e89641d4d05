#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The command with a driver that computes wrong results (tests/shims/opencl_shim.c over PoCL), and the table of checked
# kernels.
. "$(dirname "$0")/support.sh"

expect 0 "matmul " devices --check --device host
expect 0 '"verdict":"right"' devices --check --device host --json
json 'all(row["verdict"] == "right" for row in r[0]["ops"]) and r[0]["id"] == "host" and len(r[0]["ops"]) > 100'
expect 2 "there is no nothing:0" devices --check --device nothing:0

use_shim
export STRATA_SHIM_LIE=strata_binary
set -- train regression --device opencl:0 --epochs 1 --no-cache --no-tune
expect 4 "kernel binary f32 computes sub wrongly" "$@"
grep -q "driver Liar" "$work/err" || bad "the driver is not named"
expect 0 "on opencl:0" "$@" --allow-fallback host
grep -q "warning: opencl:0: kernel binary f32" "$work/err" || bad "no word of the kernel that is not used"
expect 0 "on opencl:0" "$@" --trust
expect 0 "on opencl:0" "$@" --trust --debug determinism
STRATA_SHIM_FICKLE=1
export STRATA_SHIM_FICKLE
expect 3 "at epoch 1, step 1 the step gives other bits on opencl:0 when it is run again: the first tensor that differs is " \
    "$@" --trust --debug determinism
stderr "by op "
export STRATA_SHIM_LIE=strata_nothing
expect 0 "on opencl:0" "$@"
if grep -q "warning" "$work/err"; then bad "an honest driver is warned of"; fi
finish
