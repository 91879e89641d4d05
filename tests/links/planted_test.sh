#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The checks of links and of exported symbols find what is planted: a private header and a private symbol in the command and in
# libstrata_interchange, a symbol that it needs and libstrata.so does not export, a function that nothing uses, a public header
# that includes a higher one, a word of a folder above, and an exported symbol that no header declares.
set -eu
here=$STRATA_SOURCE_DIR/tests/links
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "$*"; exit 1; }
cc=${CC:-cc}

mkdir -p "$work/samples/strata" "$work/core/graph" "$work/core/interchange" "$work/core/run" "$work/include/strata"
echo 'void strata_planted(void); void strata_unused(void); void strata_planted(void) {} void strata_unused(void) {}' \
    >"$work/core/graph/planted.c"
printf '#include "core/graph/graph.h"\nvoid strata_planted(void);\nint main(void) { strata_planted(); }\n' \
    >"$work/samples/strata/main.c"
echo "strata_status (*fit)(struct strata_model *model);" >"$work/core/run/planted.h"
printf '#include "core/graph/graph.h"\nvoid strata_planted(void);\nvoid use(void); void use(void) { strata_planted(); }\n' \
    >"$work/core/interchange/planted.c"
objects() { # TARGET SOURCE: compiles the source where the build of the target would
    mkdir -p "$work/build/CMakeFiles/$1.dir/$(dirname "$2")"
    "$cc" -I"$STRATA_SOURCE_DIR" -I"$STRATA_SOURCE_DIR/include" -c "$work/$2" -o "$work/build/CMakeFiles/$1.dir/$2.o"
}
objects strata_objects core/graph/planted.c
objects sample_strata samples/strata/main.c
objects strata_interchange_objects core/interchange/planted.c
"$cc" -shared -o "$work/build/libstrata.so" -x c /dev/null
objects test_model core/graph/planted.c
cd "$here"
python3 - "$work" >"$work/found" <<'END'
import pathlib, sys
import links
source, build = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[1]) / "build"
defined, _ = links.symbols(source, [build / "CMakeFiles/strata_objects.dir"])
print("\n".join(links.reaches_inside(source, build, defined, set()) + links.is_missing(source, build) +
                links.is_never_used(source, build, defined, set()) + links.names_above(source)))
print("goes up" if links.goes_up("strata/status.h", "strata/model.h") else "is not found")
END
for found in "main.c includes core/graph/graph.h" "main.c links strata_planted" "defines strata_unused" "goes up" \
    "planted.h:1 names what is above core/run" "interchange/planted.c includes core/graph/graph.h" \
    "interchange/planted.c links strata_planted" \
    "interchange/planted.c needs strata_planted, which libstrata.so does not export"; do
    grep -q "$found" "$work/found" || fail "not found: $found; found is: $(cat "$work/found")"
done
[ "$(wc -l <"$work/found")" = 8 ] || fail "more is found than was planted: $(cat "$work/found")"

"$cc" -fPIC -c "$work/core/graph/planted.c" -o "$work/planted.o"
"$cc" -shared -o "$work/build/libstrata.so" "$work/planted.o" -Wl,--whole-archive "$STRATA_BUILD_DIR/libstrata.a" \
    -Wl,--no-whole-archive
cp "$STRATA_BUILD_DIR/libstrata_interchange.so" "$work/build/"
! STRATA_BUILD_DIR=$work/build sh "$STRATA_SOURCE_DIR/tests/install/symbols_test.sh" >"$work/found" 2>&1 ||
    fail "a library with another symbol passes"
grep -q "no header in include/strata declares it: strata_planted strata_unused" "$work/found" || fail "$(cat "$work/found")"
