# SPDX-License-Identifier: Apache-2.0
#
# Functions for the tests of the command. Each test begins with `. "$(dirname "$0")/support.sh"` and ends with `finish`.
#   STRATA_BUILD_DIR   the folder in which the command was built; ctest and tests/run.sh set it
# $work is a temporary folder of the test, which is removed at the end. $strata is the path of the command.
set -u
here=$(cd "$(dirname "$0")" && pwd)
strata=$STRATA_BUILD_DIR/strata
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
checks=0 failures=0

bad() { # TEXT: reports a failed check, with the output of the last command
    failures=$((failures + 1))
    echo "FAILED: $1"
    [ ! -s "$work/out" ] || sed 's/^/    stdout: /' "$work/out" | head -n 12
    [ ! -s "$work/err" ] || sed 's/^/    stderr: /' "$work/err" | head -n 12
}

# expect CODE TEXT ARGUMENT...: runs the command with these arguments. Its exit code must be CODE, and its output must contain
# TEXT.
expect() {
    expect_code=$1 expect_text=$2
    shift 2
    checks=$((checks + 1))
    tries=0
    while :; do
        "$strata" "$@" >"$work/out" 2>"$work/err" </dev/null
        code=$?
        # LeakSanitizer itself can crash when a driver's thread ends during its check. Then the command runs again.
        tries=$((tries + 1))
        [ $tries -lt 5 ] && grep -q "LeakSanitizer has encountered a fatal error" "$work/err" || break
    done
    if [ $code != "$expect_code" ]; then
        bad "strata $*: exit code $code, not $expect_code"
    elif ! cat "$work/out" "$work/err" | grep -qF -- "$expect_text"; then
        bad "strata $*: the output does not contain \"$expect_text\""
    fi
}

# stderr TEXT, stdout TEXT: this output of the last run must contain TEXT. quiet stdout|stderr: this output must be empty.
stderr() {
    checks=$((checks + 1))
    grep -qF -- "$1" "$work/err" || bad "stderr does not contain \"$1\""
}
stdout() {
    checks=$((checks + 1))
    grep -qF -- "$1" "$work/out" || bad "stdout does not contain \"$1\""
}
quiet() {
    checks=$((checks + 1))
    case $1 in stdout) stream=$work/out ;; *) stream=$work/err ;; esac
    [ ! -s "$stream" ] || bad "$1 is not empty"
}

# json EXPRESSION: a Python expression, in which `r` is the last line of stdout, parsed as JSON. It must be true. No object of
# any line may have a key twice.
json() {
    checks=$((checks + 1))
    python3 - "$work/out" "$1" <<'PYTHON' || bad "this is not true of the last line of stdout, parsed as r: $1"
import json, math, os, sys
def unique(pairs):
    keys = [key for key, _ in pairs]
    assert len(keys) == len(set(keys)), f"a key is twice in one object: {keys}"
    return dict(pairs)
*lines, last = open(sys.argv[1], encoding="utf-8")
for line in [line for line in lines if line.startswith("{")] + [last]:
    r = json.loads(line, object_pairs_hook=unique)
sys.exit(not eval(sys.argv[2]))
PYTHON
}

check() { # DESCRIPTION COMMAND...: the command must succeed
    what=$1
    shift
    checks=$((checks + 1))
    "$@" >"$work/check.log" 2>&1 || bad "$what"
}

# make_data FOLDER: writes a small data set that a model learns in seconds, with 600 training images and 200 test images.
make_data() { python3 "$here/files.py" data "$1" 600 200; }

# free_ports N: sets $port to the first of N consecutive ports that are free now. As in tests/support/ports.h, they are below
# the range from which the kernel chooses ports of outgoing connections, one of which could take a port before a task listens
# on it.
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

# From here on the OpenCL loader loads the shim tests/shims/opencl_shim.c, which calls PoCL. If the shim was not built or PoCL
# is not installed, the test ends and reports that it was skipped.
use_shim() {
    shim=$STRATA_BUILD_DIR/suites/shims/opencl_shim.so
    if [ ! -e "$shim" ] || [ ! -e /etc/OpenCL/vendors/pocl.icd ]; then
        echo "skipped: PoCL is not installed (pocl-opencl-icd), or tests/shims was not built"
        finish
    fi
    mkdir "$work/vendors"
    echo "$shim" >"$work/vendors/shim.icd"
    STRATA_SHIM_DRIVER=$(cat /etc/OpenCL/vendors/pocl.icd)
    export OCL_ICD_VENDORS="$work/vendors" STRATA_SHIM_DRIVER
}

# The same for the Vulkan loader, the shim tests/shims/vulkan_shim.c and lavapipe.
use_vulkan_shim() {
    shim=$STRATA_BUILD_DIR/suites/shims/vulkan_shim.so
    manifest=/usr/share/vulkan/icd.d/lvp_icd.x86_64.json
    if [ ! -e "$shim" ] || [ ! -e "$manifest" ]; then
        echo "skipped: lavapipe is not installed (mesa-vulkan-drivers), or tests/shims was not built"
        finish
    fi
    printf '{"file_format_version": "1.0.0", "ICD": {"library_path": "%s", "api_version": "1.3.0"}}' "$shim" >"$work/shim.json"
    STRATA_SHIM_DRIVER=$(sed -n 's/.*"library_path" *: *"\([^"]*\)".*/\1/p' "$manifest")
    export VK_ICD_FILENAMES="$work/shim.json" VK_DRIVER_FILES="$work/shim.json" STRATA_SHIM_DRIVER
}

# eventually COMMAND...: runs the command again and again until it succeeds. It fails after some minutes, which only ends a test
# that hangs: an idle machine needs a second.
eventually() {
    for _ in $(seq 4000); do
        "$@" >/dev/null 2>&1 && return
        sleep 0.05
    done
    return 1
}

finish() {
    echo "$checks checks, $failures failed"
    [ $failures = 0 ]
    exit
}
