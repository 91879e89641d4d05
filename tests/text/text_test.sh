#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The width of lines, a README.md in each folder, what READMEs name, no figures in READMEs: text.py says it in full.
set -u
git -C "$STRATA_SOURCE_DIR" rev-parse --git-dir >/dev/null 2>&1 || { echo "skipped: $STRATA_SOURCE_DIR is no git checkout"; \
    exit 77; }
exec python3 "$STRATA_SOURCE_DIR/tests/text/text.py" "$STRATA_SOURCE_DIR"
