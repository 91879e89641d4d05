#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Ctrl-C during training. The step ends, requested files are written, the exit code is 130, and the same command continues
# and ends with the weights of an uninterrupted training. A second Ctrl-C ends the process at once.
. "$(dirname "$0")/support.sh"
make_data "$work/data"

# A shell without job control starts background jobs with SIGINT ignored, but Python does not. The program sends SIGINT
# several times, a tenth of a second apart.
cat >"$work/interrupted.py" <<'END'
import signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
times, seconds = int(sys.argv[1]), float(sys.argv[2])
run = subprocess.Popen(sys.argv[3:], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
for line in run.stdout:
    sys.stdout.buffer.write(line)
    if b"epoch 1/" in line or b'"epoch":1' in line:
        break
time.sleep(seconds)
for _ in range(times):
    run.send_signal(signal.SIGINT)
    time.sleep(0.1)
sys.stdout.buffer.write(run.stdout.read())
sys.stdout.flush()
sys.exit(run.wait(300) % 256)
END
interrupted() { # TIMES SECONDS COMMAND...: interrupts the command TIMES times, SECONDS after its first epoch
    python3 "$work/interrupted.py" "$@" >"$work/out" 2>"$work/err"
    code=$?
}
is() { check "exit code $code, not $1" test "$code" = "$1"; }
sha() { tail -n 1 "$work/out" | grep -o '"weights_sha256":"[0-9a-f]*"'; }

train="train mnist --device host --data $work/data --batch 2 --seed 1"
# shellcheck disable=SC2086 # words
{
interrupted 1 0 "$strata" $train --epochs 1000000
is 130
stderr "interrupted in epoch "
stderr "nothing was saved; --save FILE saves the model, and with --checkpoint FILE training can continue"
check "nothing half-written is left" test -z "$(find "$work" -name '.*.tmp-*')"

interrupted 1 0.05 "$strata" $train --epochs 100000 --save "$work/model.strata" --checkpoint "$work/point" --json
is 130
json 'r["event"] == "interrupted" and r["epoch"] >= 1'
stderr "the same command continues there, from $work/point"
stderr "saved $work/model.strata as it is now"
last=$(($(sed -n 's/.*interrupted in epoch \([0-9]*\) .*/\1/p' "$work/err") + 1)) # on a fast machine many epochs have passed
expect 0 "200 test examples" evaluate "$work/model.strata" --device host --data "$work/data"
expect 0 "continues " $train --epochs $last --checkpoint "$work/point" --save "$work/resumed.strata"
check "the checkpoint is gone" test ! -e "$work/point"
expect 0 "" $train --epochs $last --save "$work/whole.strata"
check "the weights are those of an uninterrupted training" cmp "$work/resumed.strata" "$work/whole.strata"

# With several workers the launcher passes the signal on, and all workers end before the same step.
launch="launch -n 2 -- $strata train mnist --devices host --strategy multi_worker_mirrored --data $work/data --batch 4 --seed 1"
interrupted 1 0 "$strata" $launch --epochs 100000 --json --checkpoint "$work/point" --save "$work/model.strata"
is 130
stderr "the same command continues there"
check "the model of the workers is there" test -s "$work/model.strata"
if grep -q worker "$work/err"; then bad "a worker was said to have failed"; fi
last=$(($(sed -n 's/.*interrupted in epoch \([0-9]*\) .*/\1/p' "$work/err") + 1))
expect 0 "" $launch --epochs $last --json
whole=$(sha)
expect 0 "" $launch --epochs $last --json --checkpoint "$work/point"
check "the workers' weights are those of an uninterrupted job" test "$(sha)" = "$whole"

# After the second Ctrl-C nothing is finished. The test needs a step that takes seconds.
printf '%s' '{"input": [64], "layers": [{"layer": "dense", "units": 4096}, {"layer": "dense", "units": 4096},
              {"layer": "dense", "units": 1}], "loss": "mse"}' >"$work/large.json"
python3 - "$work/large.csv" <<'END'
import sys
with open(sys.argv[1], "w") as f:
    f.write(",".join(f"x{i}" for i in range(64)) + ",y\n")
    for row in range(6000):
        f.write(",".join(["0.5"] * 64) + ",1\n")
END
}
python3 - "$strata" "$work/large.json" "$work/large.csv" <<'END' >"$work/out" 2>"$work/err"
import signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
command = [sys.argv[1], "train", sys.argv[2], "--device", "host", "--data", sys.argv[3], "--label", "y"]
run = subprocess.Popen(command + ["--batch", "4000", "--epochs", "100"],
                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
def wait_for(catches): # waits until the process catches SIGINT, or no longer catches it
    until = time.time() + 300
    while run.poll() is None and time.time() < until:
        caught = [line for line in open(f"/proc/{run.pid}/status") if line.startswith("SigCgt:")]
        if caught and (int(caught[0].split()[1], 16) >> signal.SIGINT - 1 & 1) == catches:
            return
        time.sleep(0.001)
    print("it had ended", run.returncode, run.stderr.read())
wait_for(1)
run.send_signal(signal.SIGINT)
wait_for(0) # it has received the first signal
run.send_signal(signal.SIGINT)
run.wait(300)
print("code", run.returncode) # -2: it did not handle the signal
END
check "a second one ends at once: $(cat "$work/out" "$work/err")" grep -q -- "code -2" "$work/out"
finish
