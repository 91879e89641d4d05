#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Ctrl-C while training: the step ends, exit code 130, and the file that was to be saved is as before.
. "$(dirname "$0")/support.sh"
make_data "$work/data"
echo "old" >"$work/model.strata"

# A shell without job control starts background jobs with SIGINT ignored; python does not.
interrupted() { # ARGUMENT...: starts strata, interrupts it after its first epoch, prints its exit code
    python3 - "$strata" "$@" <<'END' >"$work/code" 2>"$work/err"
import signal, subprocess, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
run = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
for line in run.stdout:
    if b"epoch 1/" in line:
        break
run.send_signal(signal.SIGINT)
run.stdout.read()
print(run.wait(60))
END
}
interrupted train mnist --device host --data "$work/data" --epochs 1000000 --save "$work/model.strata"
check "exit code 130, not $(cat "$work/code")" test "$(cat "$work/code")" = 130
stderr "interrupted in epoch"
stderr "nothing was saved"
check "the old file stays" test "$(cat "$work/model.strata")" = old
check "nothing half-written is left" test -z "$(find "$work" -name '.*.tmp-*')"
finish
