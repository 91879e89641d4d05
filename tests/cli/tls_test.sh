#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Workers with TLS. They train as without it, the transmitted bytes cannot be read, and the message for each kind of wrong
# certificate says what is wrong.
. "$(dirname "$0")/support.sh"
command -v openssl >/dev/null || { echo "skipped: no openssl command"; exit 77; }
cd "$work" || exit 1

authority() { # NAME
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$1.key" -out "$1.pem" -days 2 -subj "/CN=$1" \
        2>/dev/null
}
certificate() { # NAME AUTHORITY SUBJECT-ALTERNATIVE-NAME DAYS
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$1.key" -out "$1.csr" -subj "/CN=$1" 2>/dev/null
    echo "subjectAltName=$3" >"$1.ext"
    openssl x509 -req -in "$1.csr" -CA "$2.pem" -CAkey "$2.key" -CAcreateserial -days "$4" -extfile "$1.ext" -out "$1.pem" \
        2>/dev/null
}
authority ours
authority theirs
certificate good ours "IP:127.0.0.1,DNS:localhost" 2
certificate named ours DNS:worker 2
certificate expired ours "IP:127.0.0.1,DNS:worker" -1
certificate foreign theirs "IP:127.0.0.1" 2
cat good.pem good.key >both.pem
check "certificates were made" test -s expired.pem

two() {
    free_ports 2
    addresses=127.0.0.1:$port,127.0.0.1:$((port + 1))
}

# Over TCP with TLS the losses must be the same.
make_data "$work/data"
train="train mnist --data $work/data --epochs 1 --seed 1 --global-batch 60 --devices host --json"
# shellcheck disable=SC2086 # words
{
expect 0 "" $train
cp out one
export STRATA_TLS_CERT=$work/good.pem STRATA_TLS_KEY=$work/good.key STRATA_TLS_CA=$work/ours.pem
expect 0 "" launch -n 2 -- "$strata" $train --strategy multi_worker_mirrored
}
python3 - one out <<'END' || bad "the losses under TLS are not those of one process"
import json, sys
one, two = (json.loads(open(p).readlines()[-1])["losses"] for p in sys.argv[1:])
assert len(one) == len(two) and all(abs(a - b) <= 1e-5 * abs(a) for a, b in zip(one, two))
END
for transport in tcp shm; do
    expect 0 "" launch -n 3 -- "$strata" cluster check --json --transport $transport
    json "r['tls'] is True and r['transport'] == '$transport' and len(r['pairs']) == 3"
done
expect 0 "met under TLS" launch -n 2 -- "$strata" cluster check --transport tcp
STRATA_TLS_CERT=$work/both.pem STRATA_TLS_KEY='' expect 0 "met under TLS" launch -n 2 -- "$strata" cluster check
unset STRATA_TLS_CERT STRATA_TLS_KEY STRATA_TLS_CA
expect 0 "met under TLS" launch -n 2 -- "$strata" cluster check --tls-cert named.pem --tls-key named.key --tls-ca ours.pem \
    --tls-name worker

# Only TLS 1.3 with a certificate of our authority is accepted. A client of openssl gets the end of its connection.
two
"$strata" cluster check --cluster "$addresses" --task 0 --wait 60 --tls-cert good.pem --tls-key good.key --tls-ca ours.pem \
    >zero 2>&1 &
zero=$!
check "rank 0 listens" python3 - $port <<'END'
import socket, sys, time
end = time.time() + 30
while time.time() < end:
    try:
        sys.exit(socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5).close())
    except OSError:
        time.sleep(0.02)
sys.exit(1)
END
timeout 300 openssl s_client -connect "127.0.0.1:$port" -tls1_2 -cert good.pem -key good.key </dev/null >client 2>&1
check "TLS 1.2 is refused" grep -q "alert protocol version" client
timeout 300 openssl s_client -connect "127.0.0.1:$port" -CAfile ours.pem -verify_ip 127.0.0.1 </dev/null >client 2>&1
check "TLS 1.3 is spoken" grep -q "TLSv1.3" client
check "rank 0's certificate is verified" grep -q "Verify return code: 0 (ok)" client
kill $zero
wait $zero 2>/dev/null

# pair TEXT-OF-RANK-1 OPTIONS-OF-RANK-0 -- OPTIONS-OF-RANK-1: rank 1 is refused at once, or refuses rank 0. Rank 0, whose
# output is checked later, reports it as missing.
pair() {
    text=$1
    shift
    first=""
    while [ "$1" != -- ]; do first="$first $1"; shift; done
    shift
    two
    # shellcheck disable=SC2086 # words
    "$strata" cluster check --cluster "$addresses" --task 0 --wait 5 $first >"zero.$port" 2>&1 &
    began=$(date +%s%N)
    expect 2 "$text" cluster check --cluster "$addresses" --task 1 --wait 600 "$@"
    took=$((($(date +%s%N) - began) / 1000000))
    check "rank 1 knew after $took ms, not only after its 600 s" test $took -lt 300000
}
good="--tls-cert good.pem --tls-key good.key --tls-ca ours.pem"
# shellcheck disable=SC2086 # words
{
pair "its certificate is not accepted: certificate has expired" --tls-cert expired.pem --tls-key expired.key --tls-ca ours.pem \
    -- $good
pair "it does not accept this rank's certificate" $good -- --tls-cert expired.pem --tls-key expired.key --tls-ca ours.pem
stderr "certificate expired"
pair "its certificate is not accepted:" --tls-cert foreign.pem --tls-key foreign.key --tls-ca ours.pem -- $good
stderr "issuer certificate"
pair "it does not accept this rank's certificate" $good -- --tls-cert foreign.pem --tls-key foreign.key --tls-ca ours.pem
stderr "unknown ca"
pair "its certificate is not accepted: IP address mismatch" --tls-cert named.pem --tls-key named.key --tls-ca ours.pem -- $good
pair "its certificate is not accepted: hostname mismatch" $good -- --tls-cert named.pem --tls-key named.key --tls-ca ours.pem \
    --tls-name worker
pair "it does not accept this rank's certificate" --tls-cert named.pem --tls-key named.key --tls-ca ours.pem --tls-name worker \
    -- $good --tls-name worker
pair "it does not use TLS" -- $good
pair "uses TLS and this rank does not" $good --
wait
check "every rank 0 names the absent rank" test "$(cat zero.* | grep -c "1 of 2 ranks did not come")" = "$(ls zero.* | wc -l)"
check "and every one says that it refused a connection, and why" test "$(cat zero.* |
    grep -c "refused: [1-9][0-9]*, the last from 127.0.0.1: its\? .*\(certificate\|TLS\)")" = "$(ls zero.* | wc -l)"

# The secret must be proved with TLS, too.
two
STRATA_SECRET=ours "$strata" cluster check --cluster "$addresses" --task 0 --wait 60 $good >zero 2>&1 &
zero=$!
STRATA_SECRET=other expect 2 "secret" cluster check --cluster "$addresses" --task 1 --wait 60 $good
kill $zero
wait $zero 2>/dev/null

# Certificate files that cannot be used.
expect 2 "the certificate in none.pem cannot be used" cluster check --cluster "$addresses" --task 1 --tls-cert none.pem \
    --tls-ca ours.pem
expect 2 "the key in named.key cannot be used with the certificate in good.pem" cluster check --cluster "$addresses" --task 1 \
    --tls-cert good.pem --tls-key named.key --tls-ca ours.pem
expect 2 "the authorities in good.key cannot be used" cluster check --cluster "$addresses" --task 1 --tls-cert good.pem \
    --tls-key good.key --tls-ca good.key
expect 2 "tls_ca is missing" cluster check --cluster "$addresses" --task 1 --tls-cert good.pem
expect 2 "multi_worker_mirrored" train mnist --tls-cert good.pem
}
finish
