#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Draws random cases and asks other programs what is right: models beside Keras, tables beside pandas and scikit-learn, graphs
# beside the references of the ops, and properties that need no other program. tests/oracle/README.md describes each.
#
# The packages of tests/oracle/requirements.txt are fetched once into build/oracle. Without them what needs them is skipped.
set -u
usage() {
    cat <<'END'
usage: sh tests/oracle.sh [--draws N] [--seed S] [--part models|graphs|tables|properties] [--only K] [--jobs J]

  --draws N     how many cases each part draws (default 300)
  --seed S      the seed of the draws (default: the date, as 20261128); it is printed
  --part NAME   only this part; may be repeated
  --only K      with --part: repeats draw K
  --jobs J      how many draws run at a time

Environment: STRATA_BUILD_DIR  the build whose library and command are tried (default build/tests)
             STRATA_TEST_PEERS a Python that has the packages already (default: build/oracle/bin/python)
END
}

draws=300 seed=$(date +%Y%m%d) parts="" more=""
while [ $# -gt 0 ]; do
    case $1 in
    -h | --help) usage; exit 0 ;;
    --draws | --seed | --part | --only | --jobs) [ $# -gt 1 ] || { echo "oracle.sh: $1 needs a value" >&2; exit 2; } ;;
    *) usage >&2; exit 2 ;;
    esac
    case $1 in
    --draws) draws=$2 ;;
    --seed) seed=$2 ;;
    --part) parts="$parts $2" ;;
    *) more="$more $1 $2" ;;
    esac
    shift 2
done
cd "$(dirname "$0")/.." || exit 1
root=$PWD
export STRATA_SOURCE_DIR="$root" STRATA_BUILD_DIR="${STRATA_BUILD_DIR:-$root/build/tests}"
export STRATA_LIBRARY="$STRATA_BUILD_DIR/libstrata.so" XDG_CACHE_HOME="${XDG_CACHE_HOME:-$root/build/cache}"

fetched=$root/build/oracle python=${STRATA_TEST_PEERS:-$root/build/oracle/bin/python}
if [ -z "${STRATA_TEST_PEERS:-}" ] && ! cmp -s tests/oracle/requirements.txt "$fetched/complete"; then
    rm -rf "$fetched"
    python3 -m venv "$fetched" >/dev/null 2>&1 &&
        "$fetched/bin/pip" -q --retries 1 --timeout 20 install -r tests/oracle/requirements.txt >"$fetched/pip.log" 2>&1 &&
        cp tests/oracle/requirements.txt "$fetched/complete"
fi
[ -n "${STRATA_TEST_PEERS:-}" ] || [ -e "$fetched/complete" ] || python=""

failed=0
for part in ${parts:-models graphs tables properties}; do
    if [ "$part" = graphs ]; then
        # A plugin, and StableHLO that the tests' interpreter of PJRT runs.
        suites=$STRATA_BUILD_DIR/suites
        program="env STRATA_PLUGINS=$suites/plugins/libstrata_host_plugin.so:pjrt:$suites/pjrt_plugin.so $suites/oracle_graphs"
    elif [ -z "$python" ]; then
        echo "skipped: $part: pip could not fetch the packages of tests/oracle/requirements.txt"
        continue
    else
        program="$python tests/oracle/$part.py"
    fi
    # shellcheck disable=SC2086 # a command and options of several words
    $program --draws "$draws" --seed "$seed" $more || failed=1
done
exit $failed
