#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# .keras files that Strata writes: read back to the bit, loaded by Keras itself, which predicts the same, and read once more as
# Keras saved them.
#
# Keras and JAX are fetched once into build/keras. Where they cannot be, the part that needs Keras is skipped.
set -u
work=$STRATA_BUILD_DIR/keras-test
keras=$STRATA_SOURCE_DIR/build/keras
modules="numpy"
. "$(dirname "$0")/python.sh"
rm -rf "$work"
mkdir -p "$work"
if ldconfig -p 2>/dev/null | grep -q 'libhdf5'; then :; else
    echo "skipped: there is no libhdf5 (libhdf5-dev)"
    exit 77
fi
files="$STRATA_SOURCE_DIR/tests/interchange/keras_files.py"
LD_PRELOAD="$runtime" "$python" "$files" "$work" write || exit 1
if [ ! -e "$keras/complete" ]; then
    rm -rf "$keras"
    python3 -m venv "$keras" >/dev/null 2>&1 &&
        "$keras/bin/pip" -q --retries 1 --timeout 20 install keras jax h5py numpy >/dev/null 2>&1 && touch "$keras/complete"
fi
if [ ! -e "$keras/complete" ]; then
    echo "skipped: pip could not fetch keras and jax; the files were written and read back"
    exit 77
fi
"$keras/bin/python" "$STRATA_SOURCE_DIR/tests/interchange/keras_load.py" "$work" || exit 1
LD_PRELOAD="$runtime" exec "$python" "$files" "$work" read
