#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The progress line. It is printed to stderr if that is a terminal, fits into its width, and is never printed to stdout.
. "$(dirname "$0")/support.sh"
make_data "$work/data"
unset NO_COLOR COLUMNS LC_ALL LC_CTYPE
export TERM=xterm LANG=C.UTF-8
screen() { # CODE OPTION...: runs screen.py, whose exit code must be CODE; what was drawn is in $work/drawn
    wanted=$1
    shift
    python3 "$here/screen.py" "$@" >"$work/out" 2>"$work/err"
    code=$?
    checks=$((checks + 1))
    [ $code = "$wanted" ] || bad "exit code $code on a terminal, not $wanted"
}
terminal() { # COLUMNS TEXT ARGUMENT...: runs strata on a terminal until TEXT was drawn
    columns=$1 text=$2
    shift 2
    screen 130 --interrupt "$text" "$work/drawn" "$columns" "$strata" "$@" --epochs 2000
}
has() { check "at $columns columns the line has \"$1\"" grep -qaF -- "$1" "$work/drawn"; }
lacks() { check "at $columns columns the line does not have \"$1\"" sh -c "! grep -qaF -- '$1' '$work/drawn'"; }
# Before the rate is known, the line has no remaining time, and therefore space for other fields.
lacks_beside_left() {
    check "at $columns columns a line with a time that is left does not have \"$1\"" \
        sh -c "tr '\\r' '\\n' <'$work/drawn' | grep -a ' left' >'$work/lines' && ! grep -qaF -- '$1' '$work/lines'"
}
train="train mnist --device host --data $work/data --batch 4"
# shellcheck disable=SC2086 # words
{
terminal 120 " left" $train
for text in "epoch " "━" "step " "samples/s" "loss " "accuracy " " left" "$(printf '\033')[32m"; do has "$text"; done
terminal 80 " left" $train
for text in "epoch " "━" "step " "loss " "accuracy " " left"; do has "$text"; done
lacks_beside_left "samples/s"
terminal 50 " left" $train
for text in "epoch " "━" "loss " " left"; do has "$text"; done
lacks_beside_left "accuracy "
terminal 12 "epoch " $train
NO_COLOR=1 LC_ALL=C terminal 80 "===" $train
for text in "$(printf '\033')[32m" "━"; do lacks "$text"; done
TERM=dumb screen 0 "$work/drawn" 80 "$strata" $train --epochs 3
check "a terminal that cannot draw gets nothing" test ! -s "$work/drawn"

# The width of the terminal changes during the training.
screen 130 --resize 40 --interrupt "epoch " "$work/drawn" 100 "$strata" $train --epochs 2000
check "the line fits after the terminal became narrower" python3 - "$work/drawn" <<'END'
import re, sys
text = re.sub(r"\033\[[0-9;]*[A-Za-z]", "", open(sys.argv[1], "rb").read().decode())
lines = [line for line in re.split(r"[\r\n]", text) if "epoch " in line and "interrupted" not in line]
assert any(len(line) == 99 for line in lines[:3]) and all(len(line) <= 39 for line in lines[-2:]), lines
END

terminal 100 " left" $train --json
check "stdout has lines of JSON alone" sh -c "! LC_ALL=C grep -q '$(printf '\033')' '$work/out'"
screen 0 "$work/drawn" 80 "$strata" $train --epochs 8 --json
json 'r["epochs"] == 8'
check "the line is cleared at the end" sh -c "tail -c 4 '$work/drawn' | od -c | grep -q '033   \[   J'"
}

# Text on stdout is broken between words for a narrow terminal. If stdout is not a terminal, it is printed unchanged.
fits() { # COLUMNS WORDS ARGUMENT...: no line is longer, and none of the words was broken
    columns=$1 words=$2
    shift 2
    screen 0 --both "$work/drawn" "$columns" "$strata" "$@"
    check "$1 fits into $columns columns" python3 - "$work/drawn" "$columns" "$words" <<'END'
import re, sys
text = re.sub(r"\033\[[0-9;]*[A-Za-z]", "", open(sys.argv[1], "rb").read().decode())
lines = [line for line in text.replace("\r\n", "\n").split("\n") if "\r" not in line]
assert all(len(line) <= int(sys.argv[2]) for line in lines), [line for line in lines if len(line) > int(sys.argv[2])]
assert any(sys.argv[3] in line for line in lines), lines
END
}
fits 50 "compute unit" devices
fits 50 "samples/s  " train mnist --device host --data "$work/data" --epochs 1 --validation-split 0.2
fits 40 "of memory" summary mnist_cnn --device host
fits 60 "loss  " summary mnist --placement --device host
fits 80 "GFLOP/s" summary mnist --times --device host
"$strata" summary mnist_cnn --device host >"$work/out"
check "a file gets rows" grep -q '^conv2d  *conv2d  *(64,26,26,32)  *320 ' "$work/out"

# While kernels are compiled before the first step, the line shows this.
if "$strata" devices --json | grep -q '"vulkan:0"'; then
    XDG_CACHE_HOME=$work/cache terminal 80 " kernels for vulkan:0, once" train mnist --device vulkan:0 --data "$work/data"
else
    echo "skipped: compiling is not shown, as there is no vulkan:0"
fi
finish
