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

for wrong in "--epochs -1" "--epochs 0" "--epochs 1.5" "--epochs x" "--epochs 99999999999999999999" "--batch 0" "--batch -5" \
    "--learning-rate 0" "--learning-rate nan" "--learning-rate 1x" "--seed -1" \
    "--patience 0" "--keep 0" "--accumulate 0" "--check-every 0" "--steps-per-epoch 0" "--log-every 0"; do
    # shellcheck disable=SC2086 # an option and its value
    expect 2 "${wrong%% *} is \"${wrong#* }\"" train mnist --device host $wrong
done
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
finish
