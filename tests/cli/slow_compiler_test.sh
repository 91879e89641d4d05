#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The command with a driver that takes an hour to compile (tests/shims/opencl_shim.c over PoCL): the time limit, and Ctrl-C.
. "$(dirname "$0")/support.sh"

use_shim
export STRATA_SHIM_COMPILE_SECONDS=3600
set -- train regression --device opencl:0 --epochs 1 --no-cache --no-tune --trust
expect 163 "has not compiled kernel" "$@" --compile-seconds 0.1
stderr "Another device may do better"
stderr "warning: opencl:0: compiling kernel "

# After the warning, which shows that the driver compiles, the first Ctrl-C must end the command.
: >"$work/err"
"$strata" "$@" --compile-seconds 18 >"$work/out" 2>"$work/err" &
pid=$!
eventually grep -q "so far, which the driver" "$work/err"
kill -INT "$pid"
wait "$pid"
code=$?
if [ "$code" != 130 ]; then bad "Ctrl-C while compiling ended with $code"; fi
stderr "interrupted while the driver compiled kernel"
finish
