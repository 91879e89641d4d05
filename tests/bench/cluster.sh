#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Compares the time of an all_reduce with Open MPI and gloo on the same cores, in a table for each transport and number of
# ranks. Then compares the speed of training with several workers with one process, TensorFlow's workers and
# DistributedDataParallel. Then prints what the model (tests/bench/model.py) predicts for these costs, and its errors.
#     sh tests/bench/cluster.sh [--record] [--sizes 4096,65536,...] [--ranks "2 4"] [--tasks "mnist,cifar10"]
#                               [--rounds 3] [--model yes]
#   --record: write the output into RESULTS.md
#   --ranks "", --tasks "" or --model "" leaves out this part
#   STRATA_BUILD_DIR        the folder in which `strata` was built (build/)
#   STRATA_MPI_PROGRAM      source of a program that measures MPI_Allreduce (../shared/peers/mpi_allreduce.c); it needs mpicc
# and
#                           mpirun
#   STRATA_BENCH_PYTHON     a python3 with torch, for gloo (python3)
#   STRATA_BENCH_TORCHRUN   torchrun of a python with torch (torchrun)
#   STRATA_BENCH_TENSORFLOW a python3 with tensorflow (python3)
#   STRATA_TEST_DATA        a folder that contains mnist/ and cifar10/ (../shared/data)
#   STRATA_PEER_SCRIPTS     a folder that contains tf_train.py and torch_train.py (../shared/peers)
# A program that is missing is left out, with a message. If `chrt` is permitted, all programs have priority over other processes
# of the machine.
set -eu
cd "$(dirname "$0")/../.."
[ "${1:-}" != --record ] || { shift; exec python3 tests/bench/record.py cluster sh tests/bench/cluster.sh "$@"; }
build=${STRATA_BUILD_DIR:-build}
source=${STRATA_MPI_PROGRAM:-../shared/peers/mpi_allreduce.c}
python=${STRATA_BENCH_PYTHON:-python3}
sizes=4096,65536,1048576,16777216,67108864 ranks="2 4" tasks=mnist,cifar10 rounds=3 model=yes
while [ $# -gt 1 ]; do
    case $1 in
    --sizes) sizes=$2 ;;
    --ranks) ranks=$2 ;;
    --tasks) tasks=$2 ;;
    --rounds) rounds=$2 ;;
    --model) model=$2 ;;
    *)
        echo "usage: sh tests/bench/cluster.sh [--sizes A,B] [--ranks \"2 4\"] [--tasks A,B] [--rounds N] [--model yes]" >&2
        exit 2
        ;;
    esac
    shift 2
done
[ -x "$build/strata" ] || { echo "cluster: $build/strata is missing; build first, or set STRATA_BUILD_DIR" >&2; exit 3; }
first=""
if chrt -f 1 true 2>/dev/null; then first="chrt -f 1"; fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

mpi="" gloo=""
if command -v mpirun >/dev/null && [ -e "$source" ] && mpicc -O2 "$source" -o "$work/mpi_allreduce" 2>/dev/null; then
    mpi=yes
else
    echo "skipped: Open MPI (needs mpicc, mpirun and $source)"
fi
if "$python" -c 'import torch.distributed' 2>/dev/null; then gloo=yes; else echo "skipped: gloo (needs torch in $python)"; fi

bench() { # TRANSPORT RANKS PEER [MPI OPTIONS]
    transport=$1 n=$2 peer=$3
    shift 3
    echo "-- $transport, $n ranks, beside $peer"
    STRATA_BENCH_MPI="mpirun --oversubscribe --bind-to none -np $n $* $work/mpi_allreduce" \
        $first "$build/strata" bench allreduce --ranks "$n" --transport "$transport" --sizes "$sizes" --peer "$peer"
}
for n in $ranks; do
    [ -z "$gloo" ] || bench tcp "$n" gloo
    [ -z "$mpi" ] || bench tcp "$n" mpi --mca btl self,tcp
    [ -z "$mpi" ] || bench shm "$n" mpi
    [ -n "$gloo$mpi" ] || for transport in tcp shm; do
        $first "$build/strata" bench allreduce --ranks "$n" --transport "$transport" --sizes "$sizes"
    done
done
code=0
[ -z "$tasks" ] || python3 tests/bench/workers.py --strata "$build/strata" --data "${STRATA_TEST_DATA:-../shared/data}" \
    --tasks "$tasks" --rounds "$rounds" --scripts "${STRATA_PEER_SCRIPTS:-../shared/peers}" --torchrun \
        "${STRATA_BENCH_TORCHRUN:-torchrun}" \
    --python "${STRATA_BENCH_TENSORFLOW:-python3}" || code=$?
[ -z "$model" ] || python3 tests/bench/model.py --strata "$build/strata" --rounds "$rounds" || code=$?
exit $code
