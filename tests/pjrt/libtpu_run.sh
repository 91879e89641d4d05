#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The training steps of all samples, compiled by Google's TPU compiler for one core and for all cores of three kinds of TPU.
# LIBTPU is libtpu.so; tests/run.sh --all-drivers fetches it. `python3 tests/bench/record.py tpu python3 tests/bench/tpu.py ...`
# writes the table to tests/bench/RESULTS.md.
set -u
exec python3 "$STRATA_SOURCE_DIR/tests/bench/tpu.py" "$STRATA_BUILD_DIR/strata" "$LIBTPU"
