#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The checks of this folder and of ../recipes find what is planted: a wide line, a folder without a README, names that do not
# exist, a measured figure, an op without a formula, a table without a list of what a new row needs, READMEs whose command fails
# or prints something else, and calls that depend on the locale or the time of day.
set -u
source=$STRATA_SOURCE_DIR
git -C "$source" rev-parse --git-dir >/dev/null 2>&1 || { echo "skipped: $source is no git checkout"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=""
bad() {
    echo "FAILED: $*"
    failed=yes
}
mkdir -p "$work/tree/core/op" "$work/tree/include/strata" "$work/tree/samples/strata" "$work/tree/tests/text"
cd "$work/tree" && git init -q . || exit 1
for folder in core core/op include/strata samples/strata; do echo "# $folder" >"$folder/README.md"; done
echo 'static const command it = {.name = "train"};' >samples/strata/main.c
: >include/strata/ops.h
: >core/op/ops.def
: >core/op/elementwise.def

# plant FILE TEXT FINDING: with this file, the check finds it and nothing else.
plant() {
    mkdir -p "${1%/*}"
    [ ! -e "$1" ] || cp "$1" "$work/before"
    printf '%s\n' "$2" >"$1"
    [ "${4:-}" = bare ] || [ -e "${1%/*}/README.md" ] || echo "# a folder" >"${1%/*}/README.md"
    git add -A
    ! python3 "$source/tests/text/text.py" . >"$work/found" || bad "$1 passes: $2"
    grep -qF "$3" "$work/found" || bad "not found: $3; found is: $(cat "$work/found")"
    [ "$(wc -l <"$work/found")" = 2 ] || bad "more is found than was planted: $(cat "$work/found")"
    if [ -e "$work/before" ]; then mv "$work/before" "$1"; else rm "$1"; fi
}
git add -A
python3 "$source/tests/text/text.py" . >"$work/found" || bad "nothing is planted, and found is: $(cat "$work/found")"
wide=$(printf '%0129d' 0)
for ending in c h kernel sh py; do plant "core/planted.$ending" "$wide" "core/planted.$ending:1: 129 columns"; done
plant core/README.md "$wide" "core/README.md:1: 129 columns"
plant alone/planted.c "int x;" "alone/README.md is missing" bare
plant core/README.md 'See `core/nowhere.c`.' "core/nowhere.c does not exist"
plant core/README.md 'Run `strata fly`.' "there is no command strata fly"
plant core/README.md 'It reaches 12.5 GFLOP/s.' "a measured figure, 12.5 GFLOP/s"
plant core/op/ops.def 'STRATA_OP(planted)' "planted has no formula"
# Words of the glossaries with another meaning.
plant core/run/planted.c '/* All members of a channel. */' "planted.c:1: channel: the devices of an exchange are a team"
plant cluster/transport/planted.c '/* Begins an exchange. */' "an exchange: one step of a collective is a round"
plant cluster/rpc/planted.c '/* The channel. */' "channel: two processes have a connection"
plant strategies/parameter_server/planted.c '/* Reads the store. */' "the store: what a server owns is a stock"
plant strategies/parameter_server/planted.c '/* Reads its stores. */' "its stores: what a server owns is a stock"
plant core/data/planted.c 'int slot;' "slot: a slot is the memory of a run"

# Lists of what something new needs.
rm core/op/elementwise.def
printf '# core\n\n## A new thing `x`\n\n1. a row `THING(x)` in `core/op/ops.def`.\n' >core/README.md
git add -A
python3 "$source/tests/recipes/recipes.py" . >"$work/found" || bad "a table with a list fails: $(cat "$work/found")"
: >core/planted.def
git add -A
! python3 "$source/tests/recipes/recipes.py" . >"$work/found" || bad "a table without a list passes"
grep -q '^core/planted.def: no section' "$work/found" || bad "not found: core/planted.def; found is: $(cat "$work/found")"
(cd "$source" && python3 tests/recipes/recipes.py .) >"$work/found" || bad "$(cat "$work/found")"

# Calls that depend on the locale and the time of day (../links).
python3 - "$source/tests/links" >"$work/found" <<'END'
import sys
sys.path.insert(0, sys.argv[1])
import links
print("locale:", *links.locale_calls("core/graph/planted.c", {"strtod", "__isoc99_sscanf", "strlen"}))
print("format:", *links.formats_fraction('snprintf(text, 8, "%g", x); snprintf(text, 8, "%d", n);'))
waiting = "now = time(NULL); pthread_cond_init(&c->free, NULL);"
print("clock:", *links.uses_time_of_day("core/graph/planted.c", waiting, {"free"}))
END
for found in "^locale: s.* s.*" '^format: snprintf(text, 8, "%g", x)$' "^clock: time( pthread_cond_init of free$"; do
    grep -q "$found" "$work/found" || bad "not found: $found; found is: $(cat "$work/found")"
done

# Examples of the READMEs.
if ! grep -q '^STRATA_SANITIZE:STRING=.' "$STRATA_BUILD_DIR/CMakeCache.txt"; then
    printf '# planted\n\n    $ strata help nothing\n\nand\n\n    $ strata --version\n    strata 7 wonders\n' >README.md
    git add -A
    ! python3 "$source/tests/text/blocks.py" . "$STRATA_BUILD_DIR" README.md >"$work/found" 2>&1 || bad "wrong examples pass"
    for found in "strata help nothing" "the README shows 'strata 7 wonders'" \
        "2 examples of the READMEs and of the manual page ran, 2 failed"; do
        grep -qF "$found" "$work/found" || bad "not found: $found; found is: $(cat "$work/found")"
    done
fi
[ -z "$failed" ] && echo "each planted fault is found"
