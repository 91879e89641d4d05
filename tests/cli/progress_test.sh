#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The line of progress: drawn on stderr when that is a terminal, and never on stdout.
. "$(dirname "$0")/support.sh"
make_data "$work/data"
terminal() { # COMMAND...: runs it with stderr on a terminal that python plays; what it drew is in $work/drawn
    python3 - "$@" >"$work/out" 2>"$work/err" <<'END'
import os, pty, subprocess, sys
ours, theirs = pty.openpty()
run = subprocess.Popen(sys.argv[2:], stdin=subprocess.DEVNULL, stderr=theirs, stdout=sys.stdout)
os.close(theirs)
drawn = b""
while True:
    try:
        part = os.read(ours, 65536)
    except OSError:
        break
    if not part:
        break
    drawn += part
open(sys.argv[1], "wb").write(drawn)
sys.exit(run.wait())
END
    code=$?
    checks=$((checks + 1))
    [ $code = 0 ] || bad "exit code $code on a terminal"
}
terminal "$work/drawn" "$strata" train mnist --device host --data "$work/data" --batch 4 --epochs 20
for text in "epoch " "step " "samples/s" "loss " "accuracy " " left"; do
    check "the line has \"$text\"" grep -qaF "$text" "$work/drawn"
done
check "the line is cleared at the end" sh -c "tail -c 4 '$work/drawn' | od -c | grep -q '033   \[   K'"
terminal "$work/drawn" "$strata" train mnist --device host --data "$work/data" --batch 4 --epochs 6 --json
check "the line is drawn with --json too" grep -qaF "samples/s" "$work/drawn"
terminal "$work/drawn" "$strata" train mnist --device host --data "$work/data" --epochs 2 --json
json 'r["epochs"] == 2'
check "stdout is the line of JSON alone" sh -c "! LC_ALL=C grep -q '$(printf '\033')' '$work/out'"
finish
