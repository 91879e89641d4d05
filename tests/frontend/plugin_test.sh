#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# pip installs the package strata_jax. JAX then runs small programs on the PJRT plugin, on the host and on the best device.
# Other programs do not use it, and a device that is not there is an exception.
set -u
library=$STRATA_BUILD_DIR/libstrata_pjrt.so
python=${STRATA_TEST_JAX_PYTHON:-}
[ -n "$python" ] || { echo "skipped: jax is not here: STRATA_TEST_JAX_PYTHON names a Python that has it"; exit 77; }
if nm -D "$library" | grep -qE '__(asan|tsan)_init'; then
    echo "skipped: Python cannot load a library that was built with a sanitizer"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
out=$work/out code=0
# pip writes its build folders beside setup.py, so it gets a copy.
mkdir -p "$work/source/include"
cp -r "$STRATA_SOURCE_DIR/include/strata" "$STRATA_SOURCE_DIR/include/python" "$work/source/include/" || exit 1
STRATA_LIBRARY=$STRATA_BUILD_DIR/libstrata.so "$python" -m pip -q install --no-deps --target "$work/package" \
    "$work/source/include/python" || exit 1
on() { # DEVICE: runs plugin.py on it
    env -u STRATA_DEVICE -u STRATA_LIBRARY ${1:+"STRATA_DEVICE=$1"} PYTHONPATH="$work/package" JAX_PLATFORMS=strata,cpu \
        "$python" "$STRATA_SOURCE_DIR/tests/frontend/plugin.py" >"$out" 2>&1
}
for device in host ""; do
    on "$device" || { echo "FAILED on ${device:-the best device}"; code=1; }
    cat "$out"
done
PYTHONPATH=$work/package "$python" -c 'import jax; assert {d.platform for d in jax.devices()} == {"cpu"}, jax.devices()' ||
    { echo "FAILED: a program that does not ask for Strata uses it"; code=1; }
# 1 is Python's exit code after an exception.
on nowhere:7
ended=$?
if [ $ended != 1 ] || ! grep -q 'UNAVAILABLE: STRATA_DEVICE=nowhere:7: .*host (' "$out"; then
    echo "FAILED: exit code $ended for a device that is not there"
    cat "$out"
    code=1
fi
exported=$(nm -D --defined-only "$library" | awk '{print $3}')
[ "$exported" = GetPjrtApi ] || { echo "FAILED: exported is $exported, and not GetPjrtApi alone"; code=1; }
exit $code
