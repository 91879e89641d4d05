#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Compares what libstrata.so and libstrata_interchange.so export with the public headers and with symbols.txt, the public
# symbols of the last release and those that were added since:
#   - each function and variable that a header declares with STRATA_API is exported, and nothing else
#   - none of symbols.txt is missing, since compiled programs need them; from version 1.0 on, removing one needs a new soname
#   - symbols.txt has all of them: `sh tests/install/symbols_test.sh --write` adds and removes what a change meant to
#   - the soname is libstrata.so.MAJOR
#   STRATA_BUILD_DIR   the build, build/tests without it      CC   its compiler, cc without it
set -eu
export LC_ALL=C # comm needs lines sorted by bytes
here=$(cd "$(dirname "$0")" && pwd)
include=$here/../../include
build=${STRATA_BUILD_DIR:-$here/../../build/tests}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "$*"; exit 1; }

# declared: prints the names that are declared after STRATA_API, also within macros. In a declaration the name is the first
# word that is followed by a parenthesis, a bracket or the end.
for header in "$include"/strata/*.h; do echo "#include <strata/$(basename "$header")>"; done >"$work/all.c"
"${CC:-cc}" -E -P -I"$include" "$work/all.c" | tr '\n' ' ' | tr ';' '\n' |
    sed -n 's/.*__attribute__((visibility("default")))//p' |
    sed 's/__attribute__(([a-z_]*))//g; s/[([].*//; s/ *$//; s/.*[^a-z0-9_]//' | sort -u >"$work/declared"
[ "$(wc -l <"$work/declared")" -gt 400 ] || fail "only $(wc -l <"$work/declared") declarations were found in $include"

for library in libstrata.so libstrata_interchange.so; do
    [ -e "$build/$library" ] || fail "$build/$library is missing; build it first: cmake --build $build --target $library"
done
nm -D --defined-only "$build/libstrata.so" "$build/libstrata_interchange.so" |
    awk '$3 ~ /^strata_/ { print $3 }' | sort -u >"$work/exported"
missing=$(comm -23 "$work/declared" "$work/exported")
[ -z "$missing" ] || fail "declared in include/strata and not exported:" $missing
foreign=$(comm -13 "$work/declared" "$work/exported")
[ -z "$foreign" ] || fail "exported, and no header in include/strata declares it:" $foreign

if [ "${1:-}" = --write ]; then
    cp "$work/declared" "$here/symbols.txt"
    exit 0
fi
lost=$(comm -13 "$work/declared" "$here/symbols.txt")
[ -z "$lost" ] || fail "public symbols are gone, and programs that use them do not start:" $lost \
    "- if that is meant, say so in CHANGELOG.md and run: sh tests/install/symbols_test.sh --write"
new=$(comm -23 "$work/declared" "$here/symbols.txt")
[ -z "$new" ] || fail "public symbols that tests/install/symbols.txt does not list:" $new \
    "- run: sh tests/install/symbols_test.sh --write"

if command -v readelf >/dev/null; then
    major=$(sed -n 's/.*define STRATA_VERSION *"\([0-9]*\)\..*/\1/p' "$include/strata/version.h")
    readelf -d "$build/libstrata.so" | grep -q "soname: \[libstrata.so.$major\]" || fail "the soname is not libstrata.so.$major"
fi
echo "$(wc -l <"$here/symbols.txt") public symbols are exported, none is lost"
