#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Compares the speed of two commits: builds both, runs each command alternately with either, and prints the ratio of the
# medians.
#     bash tests/bench/compare.sh [--record] [--base COMMIT] [--head COMMIT] [--rounds N] [--device ID] [--only TEXT]
#         [--limit PERCENT]
#   --record   write the output into RESULTS.md
#   --base     the commit to compare with (9f9ff74)
#   --head     the commit to compare (HEAD); changes that are not committed are ignored
#   --rounds   how often each commit runs (5); the order of the two changes from round to round
#   --device   the device for training and products (the best one)
#   --only     only rows whose name contains TEXT
#   --limit    a row fails when the head takes longer by more than so many per cent, both by the medians and by the best rounds
#              (3). Where ranks share two cores, the same program is fast in some runs and several times slower in others, so
# the
#              medians of a few rounds may differ for no other reason.
#   STRATA_COMPARE_DIR  the folder in which both are built and kept (build/compare)
#   STRATA_TEST_DATA    folder with mnist/, cifar10/ (../shared/data); a row whose data are missing is left out
# Rows are the commands of the other scripts here: training as in peers.sh and strategies.sh, sums over ranks as in cluster.sh.
# Each commit has its own cache of compiled kernels, which a first round fills that is not counted. No other program should run
# at the same time.
# Exit codes: 0 all rows are within the limit, 1 some are not, 2 wrong arguments, 3 a build or a run failed.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ "${1:-}" != --record ] || { shift; exec python3 tests/bench/record.py compare bash tests/bench/compare.sh "$@"; }
base=9f9ff74 head=HEAD rounds=5 device="" only="" limit=3
while [ $# -gt 0 ]; do
    [ $# -gt 1 ] || { sed -n 's/^#     /usage: /p' "$0" >&2; exit 2; }
    case $1 in
    --base) base=$2 ;;
    --head) head=$2 ;;
    --rounds) rounds=$2 ;;
    --device) device=$2 ;;
    --only) only=$2 ;;
    --limit) limit=$2 ;;
    *) sed -n 's/^#     /usage: /p' "$0" >&2; exit 2 ;;
    esac
    shift 2
done
case $rounds in '' | *[!0-9]* | 0) echo "compare: --rounds is $rounds; it must be 1 or more" >&2; exit 2 ;; esac
root=${STRATA_COMPARE_DIR:-$PWD/build/compare}
data=${STRATA_TEST_DATA:-../shared/data}
mkdir -p "$root"
root=$(cd "$root" && pwd)

# build COMMIT: prints the folder of its program; a commit that was built before is not built again.
build() {
    local commit tree
    commit=$(git rev-parse --verify --short=12 "$1^{commit}") || return 3
    tree=$root/$commit
    if [ ! -x "$tree/build/strata" ]; then
        echo "compare: building $1 ($commit)" >&2
        rm -rf "$tree"
        mkdir -p "$tree/source"
        git archive "$commit" | tar -x -C "$tree/source"
        { cmake -S "$tree/source" -B "$tree/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DSTRATA_TESTS=OFF &&
            cmake --build "$tree/build"; } >"$tree/build.log" 2>&1 ||
            { echo "compare: $1 does not build: $tree/build.log" >&2; return 3; }
    fi
    echo "$tree"
}
base_dir=$(build "$base") || exit 3
head_dir=$(build "$head") || exit 3

# seconds DIR COMMAND...: runs `strata COMMAND...` of that build and prints what it took: "epoch_s" (training) or "median_us"
# (sums) of its JSON line, else the time of the whole process. {strata} in a command is the program.
seconds() {
    local dir=$1 line began ended
    shift
    began=$(date +%s.%N)
    line=$(XDG_CACHE_HOME=$dir/cache "$dir/build/strata" "${@//\{strata\}/$dir/build/strata}" 2>"$dir/run.log" | tail -n 1) || {
        echo "compare: strata $* failed: $(tail -n 1 "$dir/run.log")" >&2
        return 3
    }
    ended=$(date +%s.%N)
    python3 - "$line" "$began" "$ended" <<'END'
import json, sys
line = sys.argv[1]
row = json.loads(line[line.index("{"):]) if "{" in line else {}
print(row.get("epoch_s") or row.get("median_us") or float(sys.argv[3]) - float(sys.argv[2]))
END
}

failed=0
printf '%-34s %12s %12s %8s %8s\n' row "$base" "$head" medians best
# row NAME DATA COMMAND...: DATA is a folder below $data that must be there; "": none
row() {
    local name=$1 needs=$2 i verdict one=() two=()
    shift 2
    case $name in *"$only"*) ;; *) return 0 ;; esac
    if [ -n "$needs" ] && [ ! -d "$data/$needs" ]; then
        printf '%-34s left out: %s is not there\n' "$name" "$data/$needs"
        return 0
    fi
    for ((i = 0; i <= rounds; i++)); do
        local a b
        if ((i % 2)); then
            a=$(seconds "$base_dir" "$@") || exit 3
            b=$(seconds "$head_dir" "$@") || exit 3
        else
            b=$(seconds "$head_dir" "$@") || exit 3
            a=$(seconds "$base_dir" "$@") || exit 3
        fi
        if ((i)); then one+=("$a") two+=("$b"); fi
    done
    verdict=$(python3 - "$name" "$limit" "${one[@]}" "${two[@]}" <<'END'
import statistics, sys
name, limit, times = sys.argv[1], float(sys.argv[2]), [float(x) for x in sys.argv[3:]]
halves = times[: len(times) // 2], times[len(times) // 2 :]
(a, b), (best_a, best_b) = map(statistics.median, halves), map(min, halves)
slower = min(b / a, best_b / best_a) > 1 + limit / 100
print(f"{name:34} {a:12.4g} {b:12.4g} {b / a:8.3f} {best_b / best_a:8.3f}" + ("  SLOWER" if slower else ""))
END
    )
    echo "$verdict"
    case $verdict in *SLOWER) failed=1 ;; esac
}

on=(${device:+--device "$device"})
row "mnist, batch 64" mnist train mnist --data "$data/mnist" --batch 64 --epochs 1 --seed 1 --json "${on[@]}"
row "mnist, batch 1024" mnist train mnist --data "$data/mnist" --batch 1024 --epochs 2 --seed 1 --json "${on[@]}"
row "mnist, batch 64, host" mnist train mnist --data "$data/mnist" --batch 64 --epochs 1 --seed 1 --json --device host
row "digits, batch 64" "" train mnist --batch 64 --epochs 2 --seed 1 --json "${on[@]}"
row "cifar10, batch 64" cifar10 train cifar10 --data "$data/cifar10" --batch 64 --epochs 1 --seed 1 --json "${on[@]}"
row "mnist, 2 workers" mnist launch -n 2 -- "{strata}" train mnist --data "$data/mnist" --global-batch 128 --epochs 1 --seed 1 \
    --json --strategy multi_worker_mirrored
row "all_reduce, 2 ranks, shm, 1 MiB" "" bench allreduce --ranks 2 --transport shm --sizes 1048576 --json
row "all_reduce, 2 ranks, tcp, 1 MiB" "" bench allreduce --ranks 2 --transport tcp --sizes 1048576 --json
row "all_reduce, 4 ranks, shm, 64 KiB" "" bench allreduce --ranks 4 --transport shm --sizes 65536 --json
exit $failed
