#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The Python package: installed by pip into a virtual environment of its own, with the library of this build inside, and then
# tried by strata_test.py.
set -u
work=$STRATA_BUILD_DIR/python-test
# numpy and scikit-learn from the package index, fetched once for all builds; else what the system's Python has.
fetched=$STRATA_SOURCE_DIR/build/python-packages
if [ ! -e "$fetched/complete" ]; then
    rm -rf "$fetched"
    python3 -m venv "$fetched" >/dev/null 2>&1 &&
        "$fetched/bin/pip" -q --retries 1 --timeout 20 install setuptools wheel numpy scikit-learn tensorboard >/dev/null \
            2>&1 &&
        touch "$fetched/complete"
    "$fetched/bin/pip" -q --retries 1 --timeout 20 install xprof >/dev/null 2>&1 # TensorBoard's profiler; one test needs it
fi
python=""
[ -e "$fetched/complete" ] && python=$fetched/bin/python
for candidate in python3 /usr/bin/python3; do
    [ -n "$python" ] || ! "$candidate" -c 'import numpy, venv, ensurepip, setuptools' 2>/dev/null || python=$candidate
done
if [ -z "$python" ]; then
    echo "skipped: Python has no numpy, venv or setuptools (python3-numpy, python3-venv, python3-setuptools)"
    exit 77
fi
rm -rf "$work"
"$python" -m venv --system-site-packages "$work" || exit 1
if [ -e "$fetched/complete" ]; then # an environment does not see the packages of another one
    ls -d "$fetched"/lib/python3*/site-packages >"$(ls -d "$work"/lib/python3*/site-packages)/fetched.pth"
fi

# pip writes its build folders beside setup.py, so it gets a copy.
mkdir -p "$work/source/include"
cp -r "$STRATA_SOURCE_DIR/include/strata" "$STRATA_SOURCE_DIR/include/python" "$work/source/include/" || exit 1
STRATA_LIBRARY=$STRATA_BUILD_DIR/libstrata.so "$work/bin/pip" -q install --no-index --no-deps --no-build-isolation \
    "$work/source/include/python" || exit 1

# The libraries must be there by the names by which they need each other: musl and auditwheel look for files.
package=$(ls -d "$work"/lib/python3*/site-packages/strata)
for needed in $(readelf -d "$package"/libstrata_interchange.so* | sed -n 's/.*(NEEDED).*\[\(libstrata[^]]*\)\].*/\1/p'); do
    [ -e "$package/$needed" ] || { echo "the package has no $needed, which libstrata_interchange needs"; exit 1; }
done

# A library that was built with a sanitizer needs its runtime before all others.
runtime=$(ldd "$STRATA_BUILD_DIR/libstrata.so" | sed -n 's/.*=> \(.*lib[at]san.so[^ ]*\).*/\1/p' | tr '\n' ' ')
cd "$work" || exit 1
export STRATA_SOURCE="$STRATA_SOURCE_DIR" STRATA_COMMAND="$STRATA_BUILD_DIR/strata"
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0"
exec env -u STRATA_LIBRARY LD_PRELOAD="$runtime" "$work/bin/python" "$STRATA_SOURCE_DIR/tests/python/strata_test.py"
