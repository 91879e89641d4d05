#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# JAX runs small programs on the PJRT plugin, on the host and on the best device, and a device that is not there is an exception.
set -u
library=$STRATA_BUILD_DIR/libstrata_pjrt.so
python=${STRATA_TEST_JAX_PYTHON:-}
[ -n "$python" ] || { echo "skipped: jax is not here: STRATA_TEST_JAX_PYTHON names a Python that has it"; exit 77; }
if nm -D "$library" | grep -qE '__(asan|tsan)_init'; then
    echo "skipped: Python cannot load a library that was built with a sanitizer"
    exit 77
fi
out=$(mktemp)
trap 'rm -f "$out"' EXIT
code=0
on() { # DEVICE: runs plugin.py on it
    env -u STRATA_DEVICE ${1:+"STRATA_DEVICE=$1"} PJRT_NAMES_AND_LIBRARY_PATHS="strata:$library" JAX_PLATFORMS=strata,cpu \
        "$python" "$STRATA_SOURCE_DIR/tests/frontend/plugin.py" >"$out" 2>&1
}
for device in host ""; do
    on "$device" || { echo "FAILED on ${device:-the best device}"; code=1; }
    cat "$out"
done
# 1 is Python's exit code after an exception.
on nowhere:7
ended=$?
if [ $ended != 1 ] || ! grep -q 'UNAVAILABLE: STRATA_DEVICE=nowhere:7: .*host (' "$out"; then
    echo "FAILED: exit code $ended for a device that is not there"
    cat "$out"
    code=1
fi
[ "$(nm -D --defined-only "$library" | awk '{print $3}')" = GetPjrtApi ] || { echo "FAILED: GetPjrtApi is not the only export"; code=1; }
exit $code
