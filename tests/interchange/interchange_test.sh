#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Model files of other programs: checked by onnxruntime, by the ONNX project's own node tests, and against numbers of Keras.
set -u
work=$STRATA_BUILD_DIR/interchange-test
# onnx and onnxruntime from the package index, fetched once for all builds.
fetched=$STRATA_SOURCE_DIR/build/interchange
if [ ! -e "$fetched/complete" ]; then
    rm -rf "$fetched"
    python3 -m venv "$fetched" >/dev/null 2>&1 &&
        "$fetched/bin/pip" -q --retries 1 --timeout 20 install numpy onnx onnxruntime \
            >/dev/null 2>&1 && touch "$fetched/complete"
fi
python=$fetched/bin/python
if [ ! -e "$fetched/complete" ]; then
    python=python3
    if ! python3 -c 'import numpy, onnx, onnxruntime' 2>/dev/null; then
        echo "skipped: Python has no onnx and onnxruntime, and pip could not fetch them"
        exit 77
    fi
fi
rm -rf "$work"
mkdir -p "$work"
said=$("$STRATA_BUILD_DIR/strata" convert "$work/none.onnx" "$work/none.strata" 2>&1)
if echo "$said" | grep -q 'this build of Strata has no ONNX'; then
    echo "skipped: this build has no ONNX (libprotobuf-c-dev, protobuf-c-compiler)"
    exit 77
fi
# A library that was built with a sanitizer needs its runtime before all others.
runtime=$(ldd "$STRATA_BUILD_DIR/libstrata.so" | sed -n 's/.*=> \(.*lib[at]san.so[^ ]*\).*/\1/p' | tr '\n' ' ')
export STRATA_LIBRARY="$STRATA_BUILD_DIR/libstrata.so" ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0"
failed=0
LD_PRELOAD="$runtime" "$python" "$STRATA_SOURCE_DIR/tests/interchange/models.py" "$work" || failed=1
LD_PRELOAD="$runtime" "$python" "$STRATA_SOURCE_DIR/tests/interchange/nodes.py" || failed=1
exit $failed
