#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Measures the costs and gains of strategies on one machine, and prints a table with a row for each comparison.
#     sh tests/bench/strategies.sh [--record] [--tasks mnist,cifar10] [--rounds 5] [--only one,halves,ddp,central,allreduce]
#   --record: write the output into RESULTS.md
#   STRATA_BUILD_DIR     the folder in which `strata` was built (build/)
#   STRATA_TEST_DATA     a folder that contains mnist/ and cifar10/ (../shared/data)
#   STRATA_PEER_SCRIPTS  a folder that contains torch_train.py (../shared/peers)
#   STRATA_BENCH_TORCHRUN  torchrun of a python with torch, for DistributedDataParallel (torchrun)
# It needs PoCL. Each program runs once in each round, alternately, and every number is a median over the rounds. If `chrt` is
# permitted, the programs have priority over other processes of the machine.
# Exit codes: 0 all rows reach their limits, 1 some do not, 3 something needed is missing.
set -eu
cd "$(dirname "$0")/../.."
[ "${1:-}" != --record ] || { shift; exec python3 tests/bench/record.py strategies sh tests/bench/strategies.sh "$@"; }
build=${STRATA_BUILD_DIR:-build}
[ -x "$build/strata" ] || { echo "strategies: $build/strata is missing; build first, or set STRATA_BUILD_DIR" >&2; exit 3; }
exec python3 tests/bench/strategies.py --strata "$build/strata" --data "${STRATA_TEST_DATA:-../shared/data}" \
    --scripts "${STRATA_PEER_SCRIPTS:-../shared/peers}" --torchrun "${STRATA_BENCH_TORCHRUN:-torchrun}" "$@"
