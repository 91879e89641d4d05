#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Callbacks with a state, with several workers and with parameter servers. A job that was killed and continued from its
# checkpoint must end with the same states as an uninterrupted job, each worker with its own, and with the same bits.
#     STRATA_SOURCE_DIR  the sources      STRATA_BUILD_DIR  the build      CC  its compiler      (set by ctest and tests/run.sh)
. "$(dirname "$0")/support.sh"
if grep -q '^STRATA_SANITIZE:STRING=.' "$STRATA_BUILD_DIR/CMakeCache.txt"; then
    echo "skipped: a build with sanitizers does not link a program from outside"
    exit 77
fi
"$CC" -std=gnu11 -Wall -Wextra -Werror -I "$STRATA_SOURCE_DIR/include" "$STRATA_SOURCE_DIR/tests/cli/callback_worker.c" \
    -o "$work/worker" -L "$STRATA_BUILD_DIR" -lstrata -Wl,-rpath,"$STRATA_BUILD_DIR" || bad "the worker does not compile"

# job FOLDER KILL: runs the job. The states that it printed at the end are in $work/ends.
job() {
    timeout 300 "$strata" launch $tasks -- "$work/worker" $strategy "$work/$1" "$2" >"$work/out" 2>"$work/err"
    code=$?
    grep -oE '(at the end:|own of) .*' "$work/out" | sort >"$work/ends"
}

while read -r strategy kills tasks; do
    job "$strategy" 0
    check "$strategy: the job ends" test $code = 0
    check "$strategy: it trains for some epochs" grep -qE 'epochs ([4-9]|1[0-2]) ' "$work/ends"
    cp "$work/ends" "$work/whole"
    job "$strategy" 0
    check "$strategy: what was over stays as it is, whether patience or the last epoch has ended it" \
        grep -qE 'first_epoch is 12|at the end' "$work/out" "$work/err"
    [ $code != 0 ] || check "$strategy: and has the same numbers" cmp "$work/ends" "$work/whole"
    for kill in $(echo "$kills" | tr , ' '); do
        job "$strategy-$kill" "$kill"
        check "$strategy: it is killed in step $kill" test $code != 0
        job "$strategy-$kill" 0
        check "$strategy: it goes on after step $kill" test $code = 0
        [ "$kill" -lt 6 ] || check "$strategy: from a checkpoint" grep -q "goes on in epoch" "$work/out"
        checks=$((checks + 1))
        cmp -s "$work/ends" "$work/whole" || {
            bad "$strategy, killed in step $kill: the end is another one"
            diff "$work/whole" "$work/ends"
        }
    done
done <<'END'
multi_worker_mirrored 3,17,38 -n 2
parameter_server 9,35,57 --workers 2 --ps 2
END
finish
