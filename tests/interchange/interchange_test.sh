#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Model files of other programs: checked by onnxruntime, by the ONNX project's own node tests, and against numbers of Keras.
set -u
work=$STRATA_BUILD_DIR/interchange-test
modules="numpy, onnx, onnxruntime"
. "$(dirname "$0")/python.sh"
rm -rf "$work"
mkdir -p "$work"
said=$("$STRATA_BUILD_DIR/strata" convert "$work/none.onnx" "$work/none.strata" 2>&1)
if echo "$said" | grep -q 'this build of Strata has no ONNX'; then
    echo "skipped: this build has no ONNX (libprotobuf-c-dev, protobuf-c-compiler)"
    exit 77
fi
failed=0
LD_PRELOAD="$runtime" "$python" "$STRATA_SOURCE_DIR/tests/interchange/models.py" "$work" || failed=1
LD_PRELOAD="$runtime" "$python" "$STRATA_SOURCE_DIR/tests/interchange/nodes.py" || failed=1
exit $failed
