#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The command line: help, and error messages.
. "$(dirname "$0")/support.sh"

expect 2 "usage: strata COMMAND"
expect 0 "usage: strata COMMAND" --help
quiet stderr
expect 0 "usage: strata COMMAND" help
for command in devices train evaluate predict summary inspect data bench launch; do stdout "  $command "; done
for command in devices train evaluate predict summary inspect data bench launch; do
    expect 0 "usage: strata $command" help $command
    expect 0 "usage: strata $command" $command --help
    quiet stderr
done
expect 0 "--learning-rate" help train
for heading in data model training devices distribution output; do
    check "help train has the group $heading" grep -qx "$heading" "$work/out"
    check "the manual has the group $heading" sh -c "'$strata' help man | grep -qx '.I $heading'"
done
check "a group is no option to be completed" sh -c "! '$strata' completion bash | grep -q -- '--  '"

# Lines of help must fit the terminal for every command and width. Only a line of a single word may be longer.
for width in 50 80; do
    for command in "" train tune evaluate predict plot summary bench launch compile data; do
        COLUMNS=$width "$strata" help $command >"$work/out" 2>"$work/err"
        check "strata help $command at $width columns" awk -v w=$width \
            'length($0) > w && NF > 1 { print; bad = 1 } END { exit bad }' "$work/out"
    done
done
expect 0 "strata 0." --version

expect 0 "wrong usage" help exit-codes
for code in 0 2 3 4 5 130 160 161 162 163; do stdout " $code "; done

expect 2 'Did you mean "train"?' trian mnist
quiet stdout
expect 2 'Did you mean "devices"?' help devises
expect 2 '"quux" is not a command' quux
expect 2 '"--verbos" is not an option' --verbos
expect 2 "Did you mean --epochs?" train mnist --epocs 3
expect 2 "train: --json takes no value, but is given as --json=1" train mnist --json=1
expect 2 "Did you mean --learning-rate?" train mnist --learning_rate=1
expect 2 "has no option --nothing-like-it" train mnist --nothing-like-it
expect 2 "has no option -x" train mnist -x
expect 2 "--epochs needs a value" train mnist --epochs
expect 2 "one argument too many" train mnist mnist
expect 2 "one argument too many" devices all
expect 2 "train needs DATA|MODEL.json|NAME" train
expect 2 "evaluate needs MODEL.strata" evaluate
expect 0 'dense  "units": N  ["activation": "..."]' help layers
for layer in $(sed -n 's/^STRATA_LAYER(\(.*\))$/\1/p' "$STRATA_SOURCE_DIR/core/layer/layers.def"); do
    stdout "  $layer"
done
expect 2 "predict needs a FILE" predict model.strata
expect 2 'Did you mean "mnist"?' train mnits
expect 2 "the samples are: mnist, mnist_cnn" train imagenet

# Other names of commands, options at the wrong place or with one dash, and files with strange names.
expect 2 'Did you mean "train"?' fit data.csv
expect 2 'Did you mean "evaluate"?' test model.strata
expect 2 'Did you mean "--version"?' version
expect 2 "options follow the command: strata train ... --device" --device host train mnist
expect 0 "usage: strata train" --help train
expect 2 "train has no option -epochs. Did you mean --epochs, with two dashes?" train mnist -epochs 3
expect 2 '"train" is a command of strata: strata launch ... -- strata train' launch -n 2 train mnist
cd "$work" || exit 1
: >-x.strata
: >m.strata
mkdir folder
expect 2 "predict has no option -x.strata. A file whose name begins with a dash is given as ./-x.strata" predict -x.strata t.csv
expect 3 "./-x.strata: it is empty (0 bytes)" predict ./-x.strata t.csv
expect 3 "-x.strata: it is empty (0 bytes)" predict -- -x.strata t.csv
expect 2 "but a model: strata predict m.strata DATA" m.strata
expect 2 "folder: is no model; give MODEL.json, MODEL.strata or the name of a sample" summary folder
for name in m.pt m.pth m.ckpt; do
    expect 2 "$name: is a file of PyTorch" convert $name m.strata
    expect 2 "$name: is a file of PyTorch" train $name
    : >$name
    expect 3 "$name: is a file of PyTorch" predict $name t.csv
done
expect 2 "m.h5: is a file of Keras; make a model of it first: strata convert m.h5" train m.h5
expect 2 "x.pt: the ending of a model's name gives its format; it must end in .strata, .onnx" convert m.strata x.pt
expect 2 "m.keras: is a file of Keras; make a model of it first: strata convert m.keras" train m.keras

# What is not allowed or not there is no internal error. Root may do everything, so the commands run as another user.
awk 'BEGIN { print "a,y"; for (i = 0; i < 40; i++) print i "," (i % 2 ? "yes" : "no") }' >t.csv
mkdir locked readonly
cp t.csv locked/t.csv
cp t.csv locked.csv
chmod 000 locked locked.csv
chmod 555 readonly
as_user() { "$strata" "$@"; }
if [ "$(id -u)" = 0 ]; then
    as_user() { setpriv --reuid=65534 --regid=65534 --clear-groups "$strata" "$@"; }
    chmod 755 "$work"
fi
denied() { # TEXT ARGUMENT...: a user without permission gets code 3 and this text
    denied_text=$1
    shift
    checks=$((checks + 1))
    HOME=$work as_user "$@" >"$work/out" 2>"$work/err" </dev/null
    code=$?
    { [ $code = 3 ] && grep -qF -- "$denied_text" "$work/err"; } || bad "strata $*: $code, not 3 and \"$denied_text\""
}
if [ "$(id -u)" != 0 ] || setpriv --reuid=65534 --regid=65534 --clear-groups "$strata" --version >/dev/null 2>&1; then
    on="--device host --epochs 1"
    denied "locked.csv: cannot open: Permission denied" train locked.csv
    denied "locked: cannot open this folder: Permission denied" train locked
    denied "locked/t.csv: cannot open: Permission denied" train locked/t.csv
    denied "readonly/ck: cannot make the folder: Permission denied" train t.csv $on --checkpoint readonly/ck --resume
    denied "readonly/lock: cannot open: Permission denied" train t.csv $on --checkpoint readonly --resume
    denied "locked: cannot list: Permission denied" train t.csv $on --checkpoint locked --resume
    for option in save save-best log checkpoint; do
        denied "--$option readonly/m.jsonl: cannot write in readonly/: Permission denied" \
            train t.csv $on --$option readonly/m.jsonl
    done
    denied "readonly/m.json: cannot write in its folder: Permission denied" train t.csv $on --write-model readonly/m.json
    denied "there is no folder nowhere; make it first" train t.csv $on --write-model nowhere/m.json
fi
chmod 755 locked readonly

expect 2 "--device needs" train mnist --device ""

expect 4 'there is no "opencl:77"' train mnist --device opencl:77
stderr "host ("
expect 4 'there is no "hots"' train mnist --device hots
expect 4 'there is no "opencl:2.5"' train mnist --device opencl:2.5

# If the output cannot be written, the exit code must not be 0.
if [ -w /dev/full ]; then
    checks=$((checks + 1))
    "$strata" --help >/dev/full 2>"$work/err" && bad "help into a full device succeeded"
    "$strata" devices >/dev/full 2>"$work/err" && bad "devices into a full device succeeded"
fi
check "options with a number take their range and refuse the rest" python3 "$here/options.py" "$strata"
finish
