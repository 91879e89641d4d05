#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# No folder of the library links to, or includes, one on its own level or a higher one: links.py has the table of levels.
set -u
build=$STRATA_BUILD_DIR/CMakeFiles
[ -d "$build/strata_objects.dir" ] || { echo "skipped: $build/strata_objects.dir is not there"; exit 77; }
exec python3 "$STRATA_SOURCE_DIR/tests/links/links.py" "$STRATA_SOURCE_DIR" "$STRATA_BUILD_DIR"
