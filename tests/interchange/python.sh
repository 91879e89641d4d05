# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
#
# For the tests of this folder: $python, which has numpy, onnx and onnxruntime, and what a library with a sanitizer needs.

# From the package index, fetched once for all builds.
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
    # shellcheck disable=SC2154 # the test names what it imports
    if ! python3 -c "import $modules" 2>/dev/null; then
        echo "skipped: Python has no $modules, and pip could not fetch them"
        exit 77
    fi
fi
# A library that was built with a sanitizer needs its runtime before all others.
runtime=$(ldd "$STRATA_BUILD_DIR/libstrata.so" | sed -n 's/.*=> \(.*lib[at]san.so[^ ]*\).*/\1/p' | tr '\n' ' ')
export STRATA_LIBRARY="$STRATA_BUILD_DIR/libstrata.so" ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0"
