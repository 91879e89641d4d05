#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Models exported to C: compiled with warnings as errors, compared with predict, and run with sanitizers.
set -u
work=$STRATA_BUILD_DIR/c-test
modules="numpy"
. "$(dirname "$0")/python.sh"
rm -rf "$work"
mkdir -p "$work"
LD_PRELOAD="$runtime" exec "$python" "$STRATA_SOURCE_DIR/tests/interchange/c_export.py" "$work"
