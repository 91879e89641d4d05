# SPDX-License-Identifier: Apache-2.0
#
# What the tests of the command share; each begins with `. "$(dirname "$0")/support.sh"` and ends with `finish`.
#   STRATA_BUILD_DIR   where the command was built (set by ctest and tests/run.sh)
# A folder of its own is in $work and removed at the end. Commands run on the host unless a test says otherwise.
set -u
here=$(cd "$(dirname "$0")" && pwd)
strata=$STRATA_BUILD_DIR/strata
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
checks=0 failures=0

bad() {
    failures=$((failures + 1))
    echo "FAILED: $1"
    [ ! -s "$work/out" ] || sed 's/^/    stdout: /' "$work/out" | head -n 12
    [ ! -s "$work/err" ] || sed 's/^/    stderr: /' "$work/err" | head -n 12
}

# expect CODE TEXT ARGUMENT...: runs the command; its exit code must be CODE and TEXT must stand in what it printed.
expect() {
    expect_code=$1 expect_text=$2
    shift 2
    checks=$((checks + 1))
    tries=0
    while :; do
        "$strata" "$@" >"$work/out" 2>"$work/err" </dev/null
        code=$?
        # The leak checker's own crash, which happens among a driver's threads, says nothing of the command.
        tries=$((tries + 1))
        [ $tries -lt 5 ] && grep -q "LeakSanitizer has encountered a fatal error" "$work/err" || break
    done
    if [ $code != "$expect_code" ]; then
        bad "strata $*: exit code $code, not $expect_code"
    elif ! cat "$work/out" "$work/err" | grep -qF -- "$expect_text"; then
        bad "strata $*: nothing says \"$expect_text\""
    fi
}

# stderr TEXT, stdout TEXT: what the last run must also have said there; `quiet stdout|stderr`: that it said nothing there.
stderr() {
    checks=$((checks + 1))
    grep -qF -- "$1" "$work/err" || bad "the message lacks \"$1\""
}
stdout() {
    checks=$((checks + 1))
    grep -qF -- "$1" "$work/out" || bad "the output lacks \"$1\""
}
quiet() {
    checks=$((checks + 1))
    case $1 in stdout) stream=$work/out ;; *) stream=$work/err ;; esac
    [ ! -s "$stream" ] || bad "$1 should be empty"
}

# json EXPRESSION: Python over the last line of stdout, as `r`; must be true.
json() {
    checks=$((checks + 1))
    tail -n 1 "$work/out" | python3 -c "import json, sys; r = json.loads(sys.stdin.read()); sys.exit(not ($1))" ||
        bad "the line of JSON does not fulfil: $1"
}

check() { # DESCRIPTION COMMAND...
    what=$1
    shift
    checks=$((checks + 1))
    "$@" >"$work/check.log" 2>&1 || bad "$what"
}

# A small data set that is learned in seconds: 600 images to train on, 200 to test.
make_data() { python3 "$here/files.py" data "$1" 600 200; }

# free_ports N: $port is the first of N ports in a row that are free now. They lie below those that the kernel gives to outgoing
# connections, one of which could take a port before the task that it is for listens on it; as in tests/support/ports.h.
free_ports() {
    port=$(python3 - "$1" <<'END'
import random, socket, sys

def is_free(port):
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(("127.0.0.1", port))
            s.listen()
        except OSError:
            return False
    return True

n = int(sys.argv[1])
while True:
    first = random.randrange(10000, 30000 - n)
    if all(is_free(first + i) for i in range(n)):
        break
print(first)
END
    )
}

# Has OpenCL load tests/shims/opencl_shim.c over PoCL from here on; ends the test, skipped, where either is not there.
use_shim() {
    shim=$STRATA_BUILD_DIR/suites/shims/opencl_shim.so
    if [ ! -e "$shim" ] || [ ! -e /etc/OpenCL/vendors/pocl.icd ]; then
        echo "skipped: PoCL (pocl-opencl-icd) or tests/shims is not there"
        finish
    fi
    mkdir "$work/vendors"
    echo "$shim" >"$work/vendors/shim.icd"
    STRATA_SHIM_DRIVER=$(cat /etc/OpenCL/vendors/pocl.icd)
    export OCL_ICD_VENDORS="$work/vendors" STRATA_SHIM_DRIVER
}

finish() {
    echo "$checks checks, $failures failed"
    [ $failures = 0 ]
    exit
}
