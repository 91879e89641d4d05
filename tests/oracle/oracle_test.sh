#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# 100 draws of each part, with the seed of the day.
set -u
if ldd "$STRATA_BUILD_DIR/libstrata.so" | grep -q 'lib[at]san'; then
    echo "skipped: the other programs do not run with a library that was built with a sanitizer"
    exit 77
fi
exec sh "$STRATA_SOURCE_DIR/tests/oracle.sh" --draws 100
