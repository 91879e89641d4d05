#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Two workers, each in its own network namespace. They are checked and trained over a link of 1 Mbit/s with jitter and with
# a full queue. When the link goes down, both must end in time with an error that names the other one. Needs root, and a
# kernel that has namespaces.
. "$(dirname "$0")/support.sh"

skip() {
    echo "skipped: $1"
    exit 77
}
[ "$(id -u)" = 0 ] || skip "not root, so there are no network namespaces"
command -v ip >/dev/null && command -v tc >/dev/null || skip "no ip and tc (iproute2)"
a=strata-$$-a b=strata-$$-b
remove() {
    ip netns del $a
    ip netns del $b
} 2>/dev/null
trap 'remove; rm -rf "$work"' EXIT
{ ip netns add $a && ip netns add $b && ip link add s0 netns $a type veth peer name s0 netns $b; } 2>"$work/err" ||
    skip "no network namespaces: $(tail -n 1 "$work/err")"
ip -n $a addr add 10.231.77.1/24 dev s0
ip -n $b addr add 10.231.77.2/24 dev s0
for space in $a $b; do ip -n $space link set lo up; done
link() { # up or down
    for space in $a $b; do ip -n $space link set s0 "$1"; done
}
slow() { # parameters of tc
    for space in $a $b; do ip netns exec $space tc qdisc replace dev s0 root "$@" 2>/dev/null || return 1; done
}
link up

export STRATA_SECRET=between-two-spaces
where="--cluster 10.231.77.1:2222,10.231.77.2:2222"
# With its own /dev/shm a namespace behaves like another machine.
worker() { # SPACE ARGUMENT...
    space=$1
    shift
    # shellcheck disable=SC2016 # for the inner shell
    exec ip netns exec "$space" sh -c 'mount -t tmpfs tmpfs /dev/shm && exec "$@"' sh "$strata" "$@"
}
# both CODE TEXT ARGUMENT...: runs both workers. Each must end with CODE, and worker 0 must print TEXT.
both() {
    both_code=$1 both_text=$2
    shift 2
    (worker $b "$@" $where --task 1) >"$work/other" 2>&1 </dev/null &
    (worker $a "$@" $where --task 0) >"$work/out" 2>"$work/err" </dev/null
    zero=$?
    wait $!
    one=$?
    checks=$((checks + 1))
    { [ $zero = "$both_code" ] && [ $one = "$both_code" ] && cat "$work/out" "$work/err" | grep -qF -- "$both_text"; } ||
        bad "strata $*: exit codes $zero and $one, and worker 1 says: $(tail -n 1 "$work/other")"
}

# shellcheck disable=SC2086 # words
{
both 0 '"transport":"tcp"' cluster check --json
# Ranks on several hosts use other algorithms than the same number of ranks on one host.
three="--cluster 10.231.77.1:2222,10.231.77.1:2223,10.231.77.2:2222"
for at in "$a 1" "$b 2"; do
    (worker ${at% *} bench allreduce --sizes 12000 --json $three --task ${at#* }) >"$work/other" 2>&1 </dev/null &
done
expect 0 '"algorithm":"one_shot"' bench allreduce --ranks 3 --transport tcp --sizes 12000 --json
(worker $a bench allreduce --sizes 12000 --json $three --task 0) >"$work/out" 2>"$work/err" </dev/null
wait
json "r['transport'] == 'tcp' and r['algorithm'] == 'halving_doubling'"
if slow netem rate 1mbit delay 20ms 10ms; then
    least=15000
elif slow tbf rate 1mbit burst 16kb latency 10s; then # its queue alone delays what follows a large message by seconds
    least=0
    echo "skipped: this kernel has no netem, so the slow link has no jitter"
else
    least=""
    echo "skipped: this kernel has neither netem nor tbf, so there is no slow link"
fi
if [ -n "$least" ]; then
    both 0 '"transport":"tcp"' cluster check --json
    json "r['pairs'][0]['latency_us'] > $least and 0.02 < r['pairs'][0]['there_mb_s'] < 0.3"
    make_data "$work/data"
    both 0 "and 1 other worker," train mnist --data "$work/data" --epochs 1 --global-batch 600 --devices host --strategy \
        multi_worker_mirrored
    for space in $a $b; do ip netns exec $space tc qdisc del dev s0 root; done
fi

# ---- the link goes down while they train ----
rm -f "$work/out" # a background process truncates its file only when it runs
train="train linear --epochs 1000000 --devices host --strategy multi_worker_mirrored"
(worker $b $train $where --task 1) >"$work/other" 2>&1 </dev/null &
one=$!
(worker $a $train $where --task 0) >"$work/out" 2>"$work/err" </dev/null &
zero=$!
check "they train" eventually grep -q "epoch 2/" "$work/out"
link down
began=$(date +%s)
wait $zero
code_zero=$?
wait $one
code_one=$?
took=$(($(date +%s) - began))
check "a cut link ends worker 0 with 162, not $code_zero" test $code_zero = 162
check "and worker 1 with 162, not $code_one" test $code_one = 162
check "soon, not after $took s" test $took -le 300
stderr "rank 1 (host"
stderr "link is cut"
check "worker 1 names rank 0" grep -q "rank 0" "$work/other"
}
finish
