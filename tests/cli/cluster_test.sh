#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# strata cluster check: it prints the cluster that was resolved, which tasks answer, and what each pair of workers measures;
# and errors when tasks do not come.
. "$(dirname "$0")/support.sh"

for transport in tcp shm; do
    expect 0 "" launch -n 3 -- "$strata" cluster check --json --transport $transport
    check "rank 0 alone prints" test "$(wc -l <"$work/out")" = 1
    json "r['resolver'] == 'TF_CONFIG' and r['world'] == 3 and r['transport'] == '$transport' and r['rendezvous'] == r['ranks'][0]['address']"
    json "[x['rank'] for x in r['ranks']] == [0, 1, 2] and len({x['process'] for x in r['ranks']}) == 3"
    json "all(x['host'] and x['cores'] > 0 and 'strata ' + x['version'] == '$("$strata" --version)' for x in r['ranks'])"
    json "[(p['from'], p['to']) for p in r['pairs']] == [(0, 1), (0, 2), (1, 2)]"
    json "all(0 < p['latency_us'] < 1e5 and p['there_mb_s'] > 1 and p['back_mb_s'] > 1 for p in r['pairs'])"
done
expect 0 "all answer, over shm" launch -n 2 -- "$strata" cluster check
stdout "TF_CONFIG: 2 workers, meeting at 127.0.0.1:"
stdout "there MB/s"
expect 0 "nothing names a cluster: 1 worker" cluster check

# Parameter servers are ranks after the workers. An evaluator connects to nobody.
expect 0 "" launch --workers 2 --ps 2 -- "$strata" cluster check --json
json "[x['task'] for x in r['ranks']] == ['chief:0', 'worker:0', 'worker:1', 'ps:0', 'ps:1'] and len(r['pairs']) == 10"
expect 0 "all answer, over shm" launch --workers 1 --ps 1 --evaluator -- "$strata" cluster check
stdout "TF_CONFIG: 1 chief, 1 worker, 1 parameter server, meeting at 127.0.0.1:"
stdout "rank 2    ps:0       127.0.0.1:"
stdout "there is nothing to check"

# Without space in /dev/shm, as in many containers, ranks use tcp. If shm was requested, that is an error.
small() { sh -c 'trap "" XFSZ; ulimit -f 64; "$@" >"$0.out" 2>"$0.err"' "$work/small" "$strata" "$@"; }
checks=$((checks + 1))
small launch -n 2 -- "$strata" cluster check || bad "no memory to share ends a job"
check "it goes on over tcp" grep -q "all answer, over tcp" "$work/small.out"
checks=$((checks + 1))
small launch -n 2 -- "$strata" cluster check --transport shm && bad "shm without memory"
check "and says why not" grep -q "in /dev/shm: File too large; choose the transport tcp" "$work/small.err"

free_ports 3
# A host name that does not exist. Connections from other hosts need a secret.
expect 2 'the address of "nobody.invalid" is not known' cluster check --cluster nobody.invalid:1,nobody.invalid:2 --task 0 \
    --wait 0.5
expect 2 "(STRATA_SECRET), or say that it is insecure on purpose (--insecure)" cluster check --cluster \
    "0.0.0.0:$port,127.0.0.1:1" --task 0 --wait 0.5
expect 163 "1 of 2 ranks did not come" cluster check --cluster "0.0.0.0:$port,127.0.0.1:1" --task 0 --wait 0.5 --insecure
expect 2 'no network interface "nic7"' cluster check --cluster "127.0.0.1:$port,127.0.0.1:1" --task 1 --wait 0.5 --interface \
    nic7

# Ranks that do not come are named. The table of all ranks was printed before.
three="127.0.0.1:$port,127.0.0.1:$((port + 1)),127.0.0.1:$((port + 2))"
expect 163 "2 of 3 ranks did not come within 0.5 s: ranks 1, 2" cluster check --cluster "$three" --task worker:0 --wait 0.5
stdout "rank 2    worker:2   127.0.0.1:$((port + 2))"
expect 163 "waited 0.5 s for rank 0" cluster check --cluster "$three" --task worker:1 --wait 0.5
"$strata" cluster check --cluster "$three" --task worker:1 --wait 60 >"$work/other.out" 2>&1 &
expect 163 "1 of 3 ranks did not come within 4 s: rank 2" cluster check --cluster "$three" --task worker:0 --wait 4
wait $!
check "the other worker ends with 163 too" test $? = 163
check "and says the same" grep -q "1 of 3 ranks did not come within 4 s: rank 2" "$work/other.out"

expect 2 'there is: strata cluster check' cluster chek
expect 2 "cluster needs check" cluster
expect 2 "no transport" cluster check --transport carrier --cluster "$three" --task 0
expect 2 "--task" cluster check --cluster "$three"
finish
