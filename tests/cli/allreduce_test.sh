#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# strata bench allreduce: it prints a line for each size and each transport, can compare with another implementation, and
# runs on the workers of a job; the bytes that the cost model counts; and errors for wrong options.
. "$(dirname "$0")/support.sh"

for transport in tcp shm inproc; do
    expect 0 '"algorithm":"one_shot"' bench allreduce --ranks 2 --transport $transport --sizes 4,262144 --json
    json "r['bytes'] == 262144 and 0 < r['min_us'] <= r['median_us'] and r['algorithm'] == 'two_shot' and r['transport'] == '$transport'"
done
expect 0 '"wire_bytes":262144' bench allreduce --ranks 2 --sizes 262144 --json
expect 0 '"wire_bytes":131072' bench allreduce --ranks 2 --sizes 262144 --json --compress bf16
# In a job the workers are the ranks, and only the chief prints.
expect 0 '{"bytes":65536' launch -n 3 -- "$strata" bench allreduce --sizes 4,65536 --transport tcp --seconds 0.01 --json
check "two lines, of the chief" test "$(grep -c '^{.*"ranks":3,"transport":"tcp"' "$work/out") $(wc -l <"$work/out")" = "2 2"
expect 0 "f32 sum over 2 ranks, shm" launch -n 2 -- "$strata" bench allreduce --sizes 4
expect 0 "f32 sum over 1 ranks, tcp" launch -n 2 -- "$strata" bench allreduce --ranks 1 --sizes 4
expect 2 "give --ranks too" launch -n 2 -- "$strata" bench allreduce --tune
# The model of tests/bench/model.py must count the bytes that are really sent, for the algorithm that is really chosen.
cat >"$work/counts.py" <<'EOF'
import json, os, subprocess, sys
sys.path.insert(0, sys.argv[2])
import model

def measured(p, size, *more):
    command = [sys.argv[1], "bench", "allreduce", "--ranks", str(p), "--sizes", str(size), "--seconds", "0.01", "--json", *more]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)

wrong = 0
for p in (2, 3, 5):
    for algorithm in model.ALGORITHMS:
        for size in (960, 960 << 10):
            sent = measured(p, size, "--algorithm", algorithm)["wire_bytes"]
            # in a ring, rank 0 sends most
            counted = size * min(p - 1, 2) if algorithm == "ring" else model.work(algorithm, p, size).moved / p
            if sent != counted:
                wrong += 1
                print(p, algorithm, size, "sends", sent, "counted", counted)
for p, size, transport in ((2, 16384, "tcp"), (3, 16384, "tcp"), (3, 16384, "shm"), (3, 16388, "shm"), (9, 2048, "tcp"), (17, 4, "shm")):
    taken, chosen = measured(p, size, "--transport", transport)["algorithm"], model.choose(p, size, transport)
    if taken != chosen:
        wrong += 1
        print(p, size, transport, "takes", taken, "chosen", chosen)
sys.exit(wrong)
EOF
XDG_CACHE_HOME=$work/none python3 "$work/counts.py" "$strata" "$here/../bench" >"$work/out" 2>"$work/err"
check "the model is as the code" test $? = 0
# After tuning, the next run must use the fastest algorithm, also on a worker that has no table.
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
if command -v mpirun >/dev/null; then
    ( # leak detection is off because of MPI itself
        export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0"
        "$strata" bench allreduce --sizes 65536 --peer mpi --json
    ) >"$work/out" 2>"$work/err"
    check "beside the MPI that is here" test $? = 0
    json "r['peer'] == 'mpi' and r['peer_median_us'] > 0"
else
    echo "skipped: bench allreduce beside MPI (Debian: openmpi-bin)"
fi
expect 2 "multiples of 4" bench allreduce --sizes 6
if "$strata" devices | grep -q "^opencl:0.1"; then
    for ops in host tree device; do
        expect 0 "\"cross_device_ops\":\"$ops\"" bench allreduce --devices opencl:0.0,opencl:0.1 --cross-device-ops $ops \
            --sizes 65536 --json
        json "r['devices'] == 2 and 0 < r['min_us'] <= r['median_us'] and r['fold_gb_per_s'] > 0 and r['gb_per_s'] > 0"
    done
fi
expect 2 "multiples of 4" bench allreduce --devices host --sizes 6
expect 2 "no cross-device ops" bench allreduce --devices host --cross-device-ops nccl
expect 4 "opencl:77" bench allreduce --devices host,opencl:77
expect 2 "inproc" bench allreduce --transport carrier
expect 2 "gloo or mpi" bench allreduce --peer nccl
expect 2 "no algorithm" bench allreduce --algorithm tree
finish
