#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# No room of the library links to, or includes, one above it: links.py has the table of floors.
set -u
objects=$STRATA_BUILD_DIR/CMakeFiles/strata_objects.dir
[ -d "$objects" ] || { echo "skipped: $objects is not there"; exit 77; }
exec python3 "$STRATA_SOURCE_DIR/tests/links/links.py" "$STRATA_SOURCE_DIR" "$objects"
