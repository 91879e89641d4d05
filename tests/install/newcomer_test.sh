#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The three programs in samples/ for newcomers. Each has at most the promised number of lines, including comments, in the
# project's format. Each must compile with the installed headers alone and with warnings as errors, and must learn something
# when it runs. So must the program in README.md.
#     STRATA_BUILD_DIR   the build to install      CC   its compiler      (both are set by ctest and tests/run.sh)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
samples=$here/../../samples
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() { echo "$*"; exit 1; }

# program NAME MOST_LINES: checks one of the programs
count() {
    lines=$(wc -l <"$samples/$1.c")
    [ "$lines" -le "$2" ] || fail "samples/$1.c has $lines lines; at most $2"
    if command -v clang-format >/dev/null; then
        clang-format --dry-run -Werror "$samples/$1.c" || fail "samples/$1.c is not in the project's format"
    else
        echo "skipped: the format of samples/$1.c (no clang-format)"
    fi
}
count own_data 45
count two_replicas 45
count own_layer 40

if grep -q '^STRATA_SANITIZE:STRING=.' "$STRATA_BUILD_DIR/CMakeCache.txt"; then
    echo "skipped: a build with sanitizers is not for installing"
    exit 77
fi
cmake --install "$STRATA_BUILD_DIR" --prefix "$work/prefix" >"$work/install.log" || { cat "$work/install.log"; exit 1; }
libdir=$(dirname "$(find "$work/prefix" -name libstrata.so)")
export PKG_CONFIG_PATH="$libdir/pkgconfig" LD_LIBRARY_PATH="$libdir"

for name in own_data two_replicas own_layer; do
    # shellcheck disable=SC2046 # the flags are words
    "$CC" -std=c11 -Wall -Wextra -Werror "$samples/$name.c" -o "$work/$name" $(pkg-config --cflags --libs strata)
    timeout 120 "$work/$name" host >"$work/$name.txt" || fail "$name ended with $?: $(cat "$work/$name.txt")"
done

# In each of the three outputs a loss must have fallen, or an accuracy must be high.
awk '/^epoch 30:/ { found = 1; exit !($NF > 0.9) } END { if (!found) exit 1 }' "$work/own_data.txt" ||
    fail "own_data has not learned: $(cat "$work/own_data.txt")"
awk '/^step 0:/ { first = $NF } /^step 150:/ { last = $NF } END { exit !(last > 0 && last < 0.8 * first) }' \
    "$work/two_replicas.txt" ||
    fail "two_replicas has not learned: $(cat "$work/two_replicas.txt")"
awk '/^loss/ { found = 1; exit !($NF == "last" && $7 < 0.9 * $2) } END { if (!found) exit 1 }' "$work/own_layer.txt" ||
    fail "own_layer has not learned: $(cat "$work/own_layer.txt")"
# The first block of C in README.md is a program.
block() { sed -n "/^\`\`\`$1\$/,/^\`\`\`\$/p" "$here/../../README.md" | sed '1d;/^```$/,$d'; }
block c >"$work/first.c"
# shellcheck disable=SC2046 # the flags are words
"$CC" -std=c11 -Wall -Werror "$work/first.c" -o "$work/first" $(pkg-config --cflags --libs strata)
(cd "$work" && timeout 120 ./first) >"$work/first.txt" || fail "README.md's program ended with $?: $(cat "$work/first.txt")"
grep -q '^accuracy 0\.9[78]' "$work/first.txt" || fail "README.md's program has not learned: $(cat "$work/first.txt")"

echo "three programs, within their lines, compile against the installed headers and learn"
