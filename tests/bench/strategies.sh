#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What strategies cost and gain on one machine: prints a table, one row a comparison.
#     sh tests/bench/strategies.sh [--record] [--tasks mnist,cifar10] [--rounds 5] [--only one,halves,ddp,central,allreduce]
#   --record: write what it prints into RESULTS.md
#   STRATA_BUILD_DIR     where `strata` was built (build/)
#   STRATA_TEST_DATA     folder with mnist/, cifar10/ (../shared/data)
#   STRATA_PEER_SCRIPTS  torch_train.py (../shared/peers)
#   STRATA_BENCH_TORCHRUN  torchrun of a python with torch, for DistributedDataParallel (torchrun)
# It needs PoCL. Every number is a median over rounds in which each program runs once, in turn; where `chrt` may, before other
# work of the machine.
# Exit codes: 0 all rows reach what is asked, 1 some do not, 3 something needed is missing.
set -eu
cd "$(dirname "$0")/../.."
[ "${1:-}" != --record ] || { shift; exec python3 tests/bench/record.py strategies sh tests/bench/strategies.sh "$@"; }
build=${STRATA_BUILD_DIR:-build}
[ -x "$build/strata" ] || { echo "strategies: $build/strata is missing; build first, or set STRATA_BUILD_DIR" >&2; exit 3; }
exec python3 tests/bench/strategies.py --strata "$build/strata" --data "${STRATA_TEST_DATA:-../shared/data}" \
    --scripts "${STRATA_PEER_SCRIPTS:-../shared/peers}" --torchrun "${STRATA_BENCH_TORCHRUN:-torchrun}" "$@"
