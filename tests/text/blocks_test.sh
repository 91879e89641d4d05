#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The commands and programs that the READMEs and the help texts show: blocks.py runs them in the order of the text, in a copy of
# the project.
set -u
if ! git -C "$STRATA_SOURCE_DIR" rev-parse --git-dir >/dev/null 2>&1; then
    echo "skipped: $STRATA_SOURCE_DIR is no git checkout"
    exit 77
fi
if grep -q '^STRATA_SANITIZE:STRING=.' "$STRATA_BUILD_DIR/CMakeCache.txt"; then
    echo "skipped: a build with sanitizers is not for installing"
    exit 77
fi
exec python3 "$STRATA_SOURCE_DIR/tests/text/blocks.py" "$STRATA_SOURCE_DIR" "$STRATA_BUILD_DIR"
