#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# How fast Strata trains beside TensorFlow and PyTorch on the same cores: prints a table, one row a comparison, after checking
# that both learn the same.
#     sh tests/bench/peers.sh [--record] [--tasks mnist,cifar10,imdb] [--batches 64,1,1024] [--rounds 5]
#         [--device opencl:0] [--only speed,memory,start]
#   --record: write what it prints into RESULTS.md
#   STRATA_BUILD_DIR     where `strata` was built (build/)
#   STRATA_PEER_SCRIPTS  tf_train.py, torch_train.py and setup.sh (../shared/peers)
#   STRATA_PEERS         their python environments, made by `sh setup.sh DIR` (build/peers, made when it is missing: about 6 GB)
#   STRATA_TEST_DATA     folder with mnist/, cifar10/, imdb/ (../shared/data)
# Every number is a median over rounds in which each program runs once, in turn, so that all see the same machine. Nothing else
# should run meanwhile.
# Exit codes: 0 all rows reach what is asked, 1 some do not, 3 something needed is missing.
set -eu
cd "$(dirname "$0")/../.."
[ "${1:-}" != --record ] || { shift; exec python3 tests/bench/record.py peers sh tests/bench/peers.sh "$@"; }
build=${STRATA_BUILD_DIR:-build}
scripts=${STRATA_PEER_SCRIPTS:-../shared/peers}
data=${STRATA_TEST_DATA:-../shared/data}
[ -x "$build/strata" ] || { echo "peers: $build/strata is missing; build first, or set STRATA_BUILD_DIR" >&2; exit 3; }
[ -e "$scripts/tf_train.py" ] || { echo "peers: $scripts/tf_train.py is missing; set STRATA_PEER_SCRIPTS" >&2; exit 3; }
peers=${STRATA_PEERS:-$build/peers}
if [ ! -x "$peers/tf/bin/python" ] || [ ! -x "$peers/pt/bin/python" ]; then
    echo "peers: making $peers; this downloads TensorFlow and PyTorch" >&2
    sh "$scripts/setup.sh" "$peers" >&2 || exit 3
fi
exec python3 tests/bench/peers.py --strata "$build/strata" --scripts "$scripts" --peers "$peers" --data "$data" "$@"
