#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Compiles the training steps of four samples with Google's TPU compiler for one kind of TPU, and those of two samples for two
# other kinds, for one core and for all cores. LIBTPU is the path of libtpu.so, which tests/run.sh --all-drivers downloads.
# `python3 tests/bench/record.py tpu python3 tests/bench/tpu.py ...` writes the table in tests/bench/RESULTS.md.
set -u
tpu() { python3 "$STRATA_SOURCE_DIR/tests/bench/tpu.py" "$STRATA_BUILD_DIR/strata" "$LIBTPU" "$@"; }
tpu --targets v5e:2x2 --samples linear,mnist,imdb,cifar10_resnet && tpu --targets v4:2x2x1,v6e:2x4 --samples linear,mnist_cnn
