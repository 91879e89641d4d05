#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# strata launch: the environment of workers, how their lines are printed, how failures and signals end a job, restarts, and
# hosts. Instead of ssh it calls a shell script.
. "$(dirname "$0")/support.sh"
unset TF_CONFIG STRATA_SECRET STRATA_CLUSTER STRATA_TASK STRATA_RENDEZVOUS STRATA_SSH POCL_MAX_PTHREAD_COUNT POCL_DEVICES

same() { # WHAT EXPECTED FILE
    checks=$((checks + 1))
    [ "$2" = "$(cat "$3")" ] || { bad "$1"; echo "    expected: $2"; echo "    got:      $(cat "$3")"; }
}
lines() { grep "$1" "$work/out" | sort >"$work/sorted"; } # the lines of stdout that match, sorted
cat >"$work/gone.py" <<'END'
import glob, os, sys, time
mark = sys.argv[1].encode()
def alive():
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            words = open(path, "rb").read().split(b"\0")
        except OSError:
            continue
        if mark in words and path != "/proc/%d/cmdline" % os.getpid():
            return path
end = time.time() + 120
while alive() and time.time() < end:
    time.sleep(0.1)
sys.exit(alive())
END
gone() { # DESCRIPTION WORD: soon no process has WORD on its command line
    check "$1" python3 "$work/gone.py" "$2"
}
# The workers sleep in a program with its own name, so that the test can find those that are left over.
mark=$work/sleeper
cat >"$mark" <<'END'
#!/bin/sh
sleep "$1"
:
END
chmod +x "$mark"

# ---- usage ----
expect 2 "launch needs -- COMMAND" launch
expect 2 '-n is "0"; it must be a whole number from 1 to 4096' launch -n 0 -- true
expect 2 "-n needs a value" launch -n
expect 2 'Did you mean --restarts' launch --restart 1 --restrats 1 -- true
expect 2 "give -n or --hosts" launch -n 2 --hosts a -- true
expect 2 '"b:0" must be HOST or HOST:N' launch --hosts a,b:0 -- true
expect 2 '"b:x" must be HOST or HOST:N' launch --hosts a,b:x -- true
expect 2 '"-oProxyCommand=x" must be HOST' launch --hosts -oProxyCommand=x -- true
expect 2 '"" must be HOST' launch --hosts a,,b -- true
expect 2 "beyond 65535" launch -n 2 --port 65535 -- true
expect 2 '"no-such-command" cannot be started: No such file' launch -n 2 -- no-such-command
expect 2 "stdin does not describe a job" launch --agent -- true
expect 0 "strata launch -n 4 --" help launch

# ---- the environment of a worker ----
expect 0 "" launch -n 3 -- sh -c 'echo "$STRATA_LOCAL_RANK of $STRATA_LOCAL_SIZE, start $STRATA_RESTART"'
quiet stderr
lines .
same "each line has its rank" "[0] 0 of 3, start 0
[1] 1 of 3, start 0
[2] 2 of 3, start 0" "$work/sorted"
export STRATA_TASK=worker:7 STRATA_CLUSTER=x:1
expect 0 "unset unset" launch -- sh -c 'echo ${STRATA_TASK-unset} ${STRATA_CLUSTER-unset}'
unset STRATA_TASK STRATA_CLUSTER
expect 0 "" launch -n 3 -- sh -c 'echo "$TF_CONFIG"'
cat >"$work/config.py" <<'END'
import json, sys
seen = {}
for line in open(sys.argv[1]):
    rank, text = line.split(" ", 1)
    seen[int(rank[1:-1])] = json.loads(text)
assert sorted(seen) == [0, 1, 2]
for rank, config in seen.items():
    assert config["task"] == {"type": "worker", "index": rank} and config["cluster"] == seen[0]["cluster"]
workers = seen[0]["cluster"]["worker"]
assert len(set(workers)) == 3 and all(w.startswith("127.0.0.1:") for w in workers)
END
check "TF_CONFIG names three addresses and the own index" python3 "$work/config.py" "$work/out"
expect 0 '"127.0.0.1:7000","127.0.0.1:7001"' launch -n 2 --port 7000 -- sh -c 'echo "$TF_CONFIG"'
expect 0 "a b  'c' \$d" launch -- echo "a b  'c' \$d"

# ---- output for programs: only the chief's lines on stdout, unchanged ----
expect 0 "" launch -n 3 -- sh -c 'echo "{\"rank\": $STRATA_LOCAL_RANK}"; echo note >&2' words --json
same "stdout is the chief's line" '{"rank": 0}' "$work/out"
sort "$work/err" >"$work/sorted"
same "the other ranks' lines are on stderr" '[0] note
[1] note
[1] {"rank": 1}
[2] note
[2] {"rank": 2}' "$work/sorted"

# ---- the secret ----
expect 0 "" launch -n 2 -- sh -c 'echo "secret $STRATA_SECRET"; tr "\0" " " </proc/$PPID/cmdline'
check "both workers have one secret of 64 digits" test "$(grep -o 'secret [0-9a-f]\{64\}' "$work/out" | sort -u | wc -l)" = 1
cp "$work/out" "$work/first"
expect 0 "" launch -n 2 -- sh -c 'echo "secret $STRATA_SECRET"'
check "another job has another secret" test "$(grep -ho 'secret [0-9a-f]\{64\}' "$work/out" "$work/first" | sort -u | wc -l)" \
    = 2
export STRATA_SECRET=mine
expect 0 "secret mine" launch -- sh -c 'echo "secret $STRATA_SECRET"'
unset STRATA_SECRET

# ---- ports: no other process takes them before the workers listen ----
cat >"$work/port.py" <<'EOF'
import json, os, socket

host, port = json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"][0].split(":")
try:
    socket.socket().bind((host, int(port)))
    print("another gets it")
except OSError:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, int(port)))
    listener.listen()
    socket.create_connection((host, int(port)), 5)
    listener.accept()
    print("kept for the worker")
EOF
expect 0 "kept for the worker" launch -- python3 "$work/port.py"

# ---- the cores of each worker ----
if [ "$(nproc)" -ge 2 ]; then
    expect 0 "" launch -n 2 -- sh -c 'echo "$(nproc) $POCL_MAX_PTHREAD_COUNT $(grep Cpus_allowed_list /proc/self/status)"'
    check "two workers have different cores" test "$(cut -d ' ' -f 2- "$work/out" | sort -u | wc -l)" = 2
    check "their cores are all" test "$(awk '{n += $2} END {print n}' "$work/out")" = "$(nproc)"
    check "the driver's limit is the number of cores" test "$(awk '$2 != $3' "$work/out" | wc -l)" = 0
    expect 0 "] $(nproc) none" launch -n 2 --no-bind -- sh -c 'echo "$(nproc) ${POCL_MAX_PTHREAD_COUNT-none}"'
fi
expect 0 "] 1" launch -n $(($(nproc) + 1)) -- nproc
expect 0 "] 1 basic cpu-minimal" launch -n "$(nproc)" -- sh -c 'echo "$(nproc) ${POCL_DEVICES-all}"'
export POCL_DEVICES=cpu
expect 0 "] 1 cpu" launch -n "$(nproc)" -- sh -c 'echo "$(nproc) ${POCL_DEVICES-all}"'
unset POCL_DEVICES
expect 0 "] $(nproc) all" launch -n 1 --no-bind -- sh -c 'echo "$(nproc) ${POCL_DEVICES-all}"'

# ---- how lines are printed ----
cat >"$work/talk.py" <<'END'
import os, sys
rank = os.environ["STRATA_LOCAL_RANK"]
for i in range(400):
    for target in 1, 2:
        os.write(target, (rank * 150).encode())
        os.write(target, (rank * 150 + " %d\n" % i).encode())
os.write(1, b"no newline at the end")
END
expect 0 "" launch -n 4 -- python3 "$work/talk.py"
for stream in out err; do
    check "lines of $stream are whole" test "$(grep -cE '^\[([0-3])\] \1{300} [0-9]+$' "$work/$stream")" = 1600
done
check "a last line without its end is shown" test "$(grep -c '^\[[0-3]\] no newline at the end$' "$work/out")" = 4
check "stdout has nothing else" test "$(wc -l <"$work/out")" = 1604
check "stderr has nothing else" test "$(wc -l <"$work/err")" = 1600
checks=$((checks + 1))
"$strata" launch -n 2 -- yes "$work/line" 2>/dev/null | head -n 1 >/dev/null
gone "workers end when nobody reads" "$work/line"

# ---- failures ----
# Worker 1 fails when the others have set their traps.
cat >"$work/told" <<END
#!/bin/sh
trap 'echo was told; exit 0' TERM
: >"$work/ready.\$STRATA_LOCAL_RANK"
[ \$STRATA_LOCAL_RANK != 1 ] || {
    until [ -e "$work/ready.0" ] && [ -e "$work/ready.2" ]; do sleep 0.02; done
    exit 7
}
"$mark" 600 &
wait
END
chmod +x "$work/told"
expect 7 "worker 1 ended with exit code 7; the others are ended" launch -n 3 -- "$work/told"
check "the others were asked to end" test "$(grep -c 'was told' "$work/out")" = 2
gone "nothing of theirs is left" "$mark"
began=$(date +%s)
expect 7 "worker 1 ended" launch -n 2 --grace 0.5 -- sh -c \
    "trap '' TERM; [ \$STRATA_LOCAL_RANK = 1 ] && exit 7; $mark 600; $mark 600"
check "who does not end is killed" test $(($(date +%s) - began)) -lt 500
gone "nothing of it is left" "$mark"
expect 137 "worker 0 was ended by signal 9 (Killed)" launch -n 2 -- sh -c \
    "[ \$STRATA_LOCAL_RANK = 0 ] && kill -9 \$\$; exec $mark 600"
# Worker 1 ends after launch has noticed that another worker lost it. The end of that other worker must not be reported as
# the cause.
expect 9 "worker 1 ended with exit code 9" launch -n 3 -- sh -c "[ \$STRATA_LOCAL_RANK != 1 ] && exit 162
    until grep -q 'lost another worker' '$work/err'; do sleep 0.02; done; exit 9"
stderr "lost another worker"
expect 162 "lost another worker" launch -n 2 -- sh -c "[ \$STRATA_LOCAL_RANK = 0 ] && exit 162; exec $mark 600"
expect 0 "done" launch -- sh -c "$mark 600 & echo done"
gone "what a worker left behind is ended" "$mark"

# ---- signals; Python starts launch, because a shell would start it with SIGINT ignored ----
cat >"$work/signals.py" <<'END'
import os, signal, subprocess, sys, time
numbers, command = sys.argv[1].split(","), sys.argv[2:]
signal.signal(signal.SIGINT, signal.default_int_handler)
run = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
ready = 0
while ready < 2:
    ready += b"ready" in run.stdout.readline()
for number in numbers:
    run.send_signal(int(number))
    time.sleep(0.5)
sys.stdout.write(run.stdout.read().decode())
print("code", run.wait(300))
END
signalled() { # NUMBERS ARGUMENT...: starts strata launch, sends it the signals once two workers are ready
    numbers=$1
    shift
    checks=$((checks + 1))
    timeout 500 python3 "$work/signals.py" "$numbers" "$strata" launch "$@" >"$work/out" 2>"$work/err" || bad \
        "launch did not end"
}
signalled 2 -n 2 -- sh -c "trap 'echo interrupted; exit 130' INT; echo ready; $mark 600 & wait"
check "Ctrl-C reaches both workers" test "$(grep -c interrupted "$work/out")" = 2
stdout "code 130"
gone "nothing is left after Ctrl-C" "$mark"
signalled 2,2 -n 2 -- sh -c "trap '' INT TERM; echo ready; $mark 600; $mark 600"
stdout "code 130"
gone "a second Ctrl-C kills" "$mark"
signalled 15 -n 2 -- sh -c "trap 'echo ended; exit 0' TERM; echo ready; $mark 600 & wait"
check "SIGTERM reaches both workers" test "$(grep -c ended "$work/out")" = 2
stdout "code 143"
signalled 9 -n 2 -- sh -c "echo ready; exec $mark 600"
stdout "code -9"
gone "workers die with launch" "$mark"
signalled 2 -n 2 --restarts 5 -- sh -c "trap 'exit 160' INT; echo ready; $mark 600 & wait"
stdout "code 130"

# ---- restarts ----
restarted="[ \$STRATA_LOCAL_RANK = 1 ] && [ \$STRATA_RESTART -lt 2 ] && exit 160; sleep 0.2; echo start \$STRATA_RESTART"
expect 0 "start 2" launch -n 2 --restarts 2 -- sh -c "$restarted"
stderr "restart 2 of 2"
expect 160 "restart 1 of 1" launch -n 2 --restarts 1 -- sh -c "$restarted"
expect 160 "ended with exit code 160" launch -n 2 -- sh -c "$restarted"
expect 137 "restart 1 of 1" launch --restarts 1 -- sh -c 'kill -9 $$'
expect 3 "exit code 3" launch --restarts 5 -- sh -c 'exit 3'
checks=$((checks + 1))
grep -q restart "$work/err" && bad "bad data are tried again"

# ---- hosts ----
cat >"$work/ssh" <<END
#!/bin/sh
echo "\$@" >>"$work/ssh.log"
[ "\$1" != -q ] || shift
host=\$1
shift
[ "\$host" != down ] || exit 255
HOST=\$host exec sh -c "\$*"
END
chmod +x "$work/ssh"
export STRATA_SSH="$work/ssh"
cd "$work" || exit 1
expect 0 "" launch --hosts a:2,me@b --port 7000 -- sh -c \
    'echo "$HOST $STRATA_LOCAL_RANK/$STRATA_LOCAL_SIZE $1 $(pwd)"; echo "$TF_CONFIG" >&2; echo "$STRATA_SECRET"' \
    - "it's \"quoted\" \$HOME"
lines HOME
same "ranks go over the hosts in order" "[0] a 0/2 it's \"quoted\" \$HOME $work
[1] a 1/2 it's \"quoted\" \$HOME $work
[2] me@b 0/1 it's \"quoted\" \$HOME $work" "$work/sorted"
stderr '[2] {"cluster":{"worker":["a:7000","a:7001","b:7000"]},"task":{"type":"worker","index":2}}'
check "one secret for all hosts" test "$(grep -oE '^\[.\] [0-9a-f]{64}$' "$work/out" | cut -c 5- | sort -u | wc -l)" = 1
check "the secret is on no command line" test -z "$(grep -E '[0-9a-f]{64}' "$work/ssh.log")"
expect 0 "a:7002" launch --hosts a:2,a --port 7000 -- sh -c 'echo "$TF_CONFIG"'
expect 7 "host b ended with exit code 7; the others are ended" launch --hosts a,b -- sh -c \
    "[ \$HOST = b ] && exit 7; exec $mark 600"
stderr "worker 1 ended with exit code 7"
gone "the other host's worker is ended" "$mark"
expect 255 "host down ended with exit code 255" launch --hosts a,down -- "$mark" 600
expect 255 "restart 1 of 1" launch --hosts down --restarts 1 -- "$mark" 600
expect 0 "fine" launch --ssh "$work/ssh -q" --hosts a -- echo fine
check "the command for ssh may have options" grep -q "^-q a" "$work/ssh.log"
signalled 2 --hosts a,b -- sh -c "trap 'echo interrupted; exit 130' INT; echo ready; $mark 600 & wait"
check "Ctrl-C reaches the workers of both hosts" test "$(grep -c interrupted "$work/out")" = 2
stdout "code 130"
signalled 9 --hosts a,b --grace 0.5 -- sh -c "trap '' TERM; echo ready; $mark 600; $mark 600"
gone "workers on hosts end with launch" "$mark"
finish
