#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Compares the speed of training with JAX, TensorFlow and PyTorch on the same cores. It prints a table with Strata's number, the
# best number of the others, their ratio, and the ratio to reach.
#     sh tests/bench/peers.sh [--record] [--only ROW,ROW] [--kept] [--rounds 5] [--device opencl:0]
#         [--peer-names "JAX,TF fit"]
#   --record: write the output into RESULTS.md
#   --only: rows by name (mnist-64, mnist-1, mnist-1024, cifar10-64, cifar10-1024, imdb-64, host, mirrored, 8-workers, ddp,
#       start, memory, first-start); all of them take half an hour
#   --kept: measure nothing, and print the last result of each row, with its commit
#   STRATA_BUILD_DIR     the folder in which `strata` was built (build/)
#   STRATA_PEER_SCRIPTS  a folder that contains jax_train.py, tf_train.py, torch_train.py and setup.sh (../shared/peers)
#   STRATA_PEERS         the folder of their Python environments (build/peers); if it is missing, `sh setup.sh DIR` makes it and
#                        needs about 8 GB
#   STRATA_TEST_DATA     a folder that contains mnist/, cifar10/ and imdb/ (../shared/data)
# Each program runs once in each round, alternately, so that changes of the machine's speed affect all. Every number is a median
# over the rounds. No other program should run at the same time.
# Exit codes: 0 all rows reach their limits, 1 some do not, 3 something needed is missing.
set -eu
cd "$(dirname "$0")/../.."
[ "${1:-}" != --record ] || { shift; exec python3 tests/bench/record.py peers sh tests/bench/peers.sh "$@"; }
build=${STRATA_BUILD_DIR:-build}
scripts=${STRATA_PEER_SCRIPTS:-../shared/peers}
data=${STRATA_TEST_DATA:-../shared/data}
[ -x "$build/strata" ] || { echo "peers: $build/strata is missing; build first, or set STRATA_BUILD_DIR" >&2; exit 3; }
[ -e "$scripts/jax_train.py" ] || { echo "peers: $scripts/jax_train.py is missing; set STRATA_PEER_SCRIPTS" >&2; exit 3; }
peers=${STRATA_PEERS:-$build/peers}
if [ ! -x "$peers/tf/bin/python" ] || [ ! -x "$peers/pt/bin/python" ] || [ ! -x "$peers/jax/bin/python" ]; then
    echo "peers: making $peers; this downloads TensorFlow, PyTorch and JAX" >&2
    sh "$scripts/setup.sh" "$peers" >&2 || exit 3
fi
exec python3 tests/bench/peers.py --strata "$build/strata" --scripts "$scripts" --peers "$peers" --data "$data" \
    --keep "$build/peers.json" "$@"
