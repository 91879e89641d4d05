#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Measures model_parallel on two halves of a CPU beside the whole CPU, and prints a table with a row for each comparison.
#     sh tests/bench/mesh.sh [--record] [--rounds 5] [--epochs 1] [--steps 0] [--only pipeline,bubble,tensor,bytes]
#   --record: write the output into RESULTS.md
#   --steps N: only N steps of each epoch, to try the script
#   STRATA_BUILD_DIR   the folder in which `strata` was built (build/)
#   STRATA_TEST_DATA   a folder that contains mnist/ and cifar10/ (../shared/data)
# It needs PoCL. Each program runs once in each round, alternately, and every number is a median over the rounds. If `chrt` is
# permitted, the programs have priority over other processes of the machine.
# Exit codes: 0 all rows reach their limits, 1 some do not, 3 something needed is missing.
set -eu
cd "$(dirname "$0")/../.."
[ "${1:-}" != --record ] || { shift; exec python3 tests/bench/record.py mesh sh tests/bench/mesh.sh "$@"; }
build=${STRATA_BUILD_DIR:-build}
[ -x "$build/strata" ] || { echo "mesh: $build/strata is missing; build first, or set STRATA_BUILD_DIR" >&2; exit 3; }
exec python3 tests/bench/mesh.py --strata "$build/strata" --data "${STRATA_TEST_DATA:-../shared/data}" "$@"
