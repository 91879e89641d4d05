#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The line of progress: drawn on stderr when that is a terminal, in its width, and never on stdout.
. "$(dirname "$0")/support.sh"
make_data "$work/data"
unset NO_COLOR COLUMNS LC_ALL LC_CTYPE
export TERM=xterm LANG=C.UTF-8
terminal() { # COLUMNS ARGUMENT...: strata with stderr on a terminal; what it drew is in $work/drawn
    columns=$1
    shift
    python3 "$here/screen.py" "$work/drawn" "$columns" "$strata" "$@" >"$work/out" 2>"$work/err"
    code=$?
    checks=$((checks + 1))
    [ $code = 0 ] || bad "exit code $code on a terminal of $columns columns"
}
has() { check "at $columns columns the line has \"$1\"" grep -qaF -- "$1" "$work/drawn"; }
lacks() { check "at $columns columns the line does not have \"$1\"" sh -c "! grep -qaF -- '$1' '$work/drawn'"; }
train="train mnist --device host --data $work/data --batch 4"
# shellcheck disable=SC2086 # words
{
terminal 120 $train --epochs 20
for text in "epoch " "━" "step " "samples/s" "loss " "accuracy " " left" "$(printf '\033')[32m"; do has "$text"; done
check "the line is cleared at the end" sh -c "tail -c 4 '$work/drawn' | od -c | grep -q '033   \[   J'"
terminal 80 $train --epochs 8
for text in "epoch " "━" "step " "loss " "accuracy " " left"; do has "$text"; done
lacks "samples/s"
terminal 50 $train --epochs 8
for text in "epoch " "━" "loss " " left"; do has "$text"; done
lacks "accuracy "
terminal 12 $train --epochs 4
has "epoch "
NO_COLOR=1 LC_ALL=C terminal 80 $train --epochs 8
has "==="
for text in "$(printf '\033')[32m" "━"; do lacks "$text"; done
TERM=dumb terminal 80 $train --epochs 3
check "a terminal that cannot draw gets nothing" test ! -s "$work/drawn"

# Another width while it runs.
python3 "$here/screen.py" --resize 40 "$work/drawn" 100 "$strata" $train --epochs 12 >"$work/out" 2>"$work/err"
check "the line fits after the terminal became narrower" python3 - "$work/drawn" <<'END'
import re, sys
text = re.sub(r"\033\[[0-9;]*[A-Za-z]", "", open(sys.argv[1], "rb").read().decode())
lines = [line for line in re.split(r"[\r\n]", text) if "epoch " in line]
assert any(len(line) == 99 for line in lines[:3]) and all(len(line) <= 39 for line in lines[-3:]), lines
END

terminal 100 $train --epochs 6 --json
check "the line is drawn with --json too" grep -qaF " left" "$work/drawn"
terminal 80 $train --epochs 2 --json
json 'r["epochs"] == 2'
check "stdout has lines of JSON alone" sh -c "! LC_ALL=C grep -q '$(printf '\033')' '$work/out'"
}

# What compiles kernels says so, before the first step.
if "$strata" devices --json | grep -q '"vulkan:0"'; then
    XDG_CACHE_HOME=$work/cache terminal 80 train mnist --device vulkan:0 --data "$work/data" --epochs 1
    has " kernels for vulkan:0, once ("
else
    echo "skipped: compiling is not shown, as there is no vulkan:0"
fi
finish
