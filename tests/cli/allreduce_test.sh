#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# strata bench allreduce: a line a size for each transport, a peer beside, and what is said of wrong options.
. "$(dirname "$0")/support.sh"

for transport in tcp shm inproc; do
    expect 0 '"algorithm":"one_shot"' bench allreduce --ranks 2 --transport $transport --sizes 4,262144 --json
    json "r['bytes'] == 262144 and 0 < r['min_us'] <= r['median_us'] and r['algorithm'] == 'two_shot' and r['transport'] == '$transport'"
done
expect 0 '"wire_bytes":262144' bench allreduce --ranks 2 --sizes 262144 --json
expect 0 '"wire_bytes":131072' bench allreduce --ranks 2 --sizes 262144 --json --compress bf16
# Tuning: what was best is taken by the next run, also by a worker that has no table.
mkdir "$work/cache"
export XDG_CACHE_HOME=$work/cache
expect 0 "the best of all algorithms for 2 ranks over shm" bench allreduce --ranks 2 --transport shm --sizes 64,65536 --tune
check "a table is written" test -s "$work/cache/strata/allreduce.table"
printf '# mine\nshm 2 1000 ring\nnonsense\nshm 2 any halving_doubling\ntcp 3 any ring\n' >"$work/cache/strata/allreduce.table"
expect 0 '"algorithm":"ring"' bench allreduce --ranks 2 --transport shm --sizes 64 --json
expect 0 '"algorithm":"halving_doubling"' bench allreduce --ranks 2 --transport shm --sizes 65536 --json
expect 0 '"algorithm":"one_shot"' bench allreduce --ranks 3 --transport shm --sizes 64 --json
expect 0 '"bytes":64' bench allreduce --ranks 2 --transport shm --sizes 64 --tune --json
check "rows of others are kept" grep -q "^tcp 3 any ring$" "$work/cache/strata/allreduce.table"
check "and its own replaced" test "$(grep -c '^shm 2 ' "$work/cache/strata/allreduce.table")" = 1
expect 2 "2 ranks or more" bench allreduce --ranks 1 --tune
expect 2 "bf16 or f16" bench allreduce --compress int8
expect 0 ring bench allreduce --ranks 3 --transport shm --sizes 64 --algorithm ring
printf '#!/bin/sh\necho "mpi $1 B  median 1000000.0 us  min 9.0 us"\n' >"$work/peer"
chmod +x "$work/peer"
STRATA_BENCH_MPI=$work/peer expect 0 '"peer":"mpi"' bench allreduce --sizes 64 --peer mpi --json
json "r['peer_median_us'] == 1000000 and r['ratio'] < 1"
expect 2 "multiples of 4" bench allreduce --sizes 6
if "$strata" devices | grep -q "^opencl:0.1"; then
    for ops in host tree device; do
        expect 0 "\"cross_device_ops\":\"$ops\"" bench allreduce --devices opencl:0.0,opencl:0.1 --cross-device-ops $ops --sizes 65536 --json
        json "r['devices'] == 2 and 0 < r['min_us'] <= r['median_us'] and r['fold_gb_per_s'] > 0 and r['gb_per_s'] > 0"
    done
fi
expect 2 "multiples of 4" bench allreduce --devices host --sizes 6
expect 2 "no cross-device ops" bench allreduce --devices host --cross-device-ops nccl
expect 4 "opencl:77" bench allreduce --devices host,opencl:77
expect 2 "tcp, shm or inproc" bench allreduce --transport carrier
expect 2 "gloo, or mpi" bench allreduce --peer nccl
expect 2 "no algorithm" bench allreduce --algorithm tree
finish
