#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Compiles the training steps of all samples with Google's TPU compiler, for one core and for all cores of three kinds of
# TPU. LIBTPU is the path of libtpu.so, which tests/run.sh --all-drivers downloads. `python3 tests/bench/record.py tpu
# python3 tests/bench/tpu.py ...` writes the table in tests/bench/RESULTS.md.
set -u
exec python3 "$STRATA_SOURCE_DIR/tests/bench/tpu.py" "$STRATA_BUILD_DIR/strata" "$LIBTPU"
