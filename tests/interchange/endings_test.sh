#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Each layer, activation, loss and ending of a model, written to each format and read back.
set -u
work=$STRATA_BUILD_DIR/endings-test
modules="numpy"
. "$(dirname "$0")/python.sh"
rm -rf "$work"
mkdir -p "$work"
said=$("$STRATA_BUILD_DIR/strata" convert "$work/none.onnx" "$work/none.strata" 2>&1)
if echo "$said" | grep -q 'this build of Strata has no ONNX'; then
    echo "skipped: this build has no ONNX (libprotobuf-c-dev, protobuf-c-compiler)"
    exit 77
fi
LD_PRELOAD="$runtime" exec "$python" "$STRATA_SOURCE_DIR/tests/interchange/endings.py" "$work"
