#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Two workers whose callbacks set different learning rates. Both must use rank 0's rate in the very next step, so the rates
# are those of one process.
#     STRATA_SOURCE_DIR  the sources      STRATA_BUILD_DIR  the build      CC  its compiler      (set by ctest and tests/run.sh)
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if grep -q '^STRATA_SANITIZE:STRING=.' "$STRATA_BUILD_DIR/CMakeCache.txt"; then
    echo "skipped: a build with sanitizers does not link a program from outside"
    exit 77
fi
"$CC" -std=c11 -Wall -Wextra -Werror -I "$STRATA_SOURCE_DIR/include" "$STRATA_SOURCE_DIR/tests/cli/rate_worker.c" \
    -o "$work/worker" -L "$STRATA_BUILD_DIR" -lstrata -Wl,-rpath,"$STRATA_BUILD_DIR"
timeout 300 "$work/worker" alone >"$work/alone.txt"
# A worker's lines may begin with its name.
timeout 300 "$STRATA_BUILD_DIR/strata" launch -n 2 -- "$work/worker" together >"$work/together.txt" 2>&1 ||
    { cat "$work/together.txt"; exit 1; }
rates=$(sed -n '1s/ *$//p' "$work/alone.txt")
n=$(grep -cF -- "$rates" "$work/together.txt" || true)
[ "$n" = 2 ] || { echo "alone: $rates"; echo "together, on $n of 2 workers the same:"; cat "$work/together.txt"; exit 1; }
case $rates in "0.01 0.02 0.03"*) ;; *) echo "the rates are $rates"; exit 1 ;; esac
learned=$(grep -o 'learned [0-9a-f]*' "$work/together.txt" | sort | uniq -c | awk '{ print $1 }')
[ "$learned" = 2 ] || { echo "the workers have not learned the same:"; cat "$work/together.txt"; exit 1; }
echo "two workers, one rate in each step"
