#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Model files. Damaged ones are refused with exit code 3, and a save that fails does not change the old file.
. "$(dirname "$0")/support.sh"
make_data "$work/data"
train="train mnist --device host --data $work/data --epochs 1"
# shellcheck disable=SC2086 # words
expect 0 "saved" $train --save "$work/model.strata"
python3 "$here/files.py" models "$work/model.strata" "$work/damaged"

damaged() { # NAME TEXT
    expect 3 "$2" evaluate "$work/damaged/$1" --device host --data "$work/data"
    stderr "$work/damaged/$1"
    quiet stdout
}
expect 3 "nowhere.strata: cannot open" evaluate "$work/nowhere.strata" --device host --data "$work/data"
expect 3 "it is a folder" evaluate "$work/data" --device host --data "$work/data"
damaged empty "it is empty (0 bytes)"
damaged text "it is a text, not a model file"
damaged huge_header "says that its header has 4611686018427387904 bytes"
damaged cut_header "it is cut off"
damaged cut_data "data_offsets"
damaged longer "the tensors end at data byte"
damaged overlapping "they overlap"
damaged no_model "a safetensors file without a model in it"
damaged extra 'the model has no parameter "spare"'
damaged missing "has no tensor"
damaged reshaped "is needed"
damaged cut_json "strata.model"
damaged other_layer "there is no layer \"convolve\"; there are: dense, activation, dropout, flatten"
damaged huge_layer "is needed"
damaged other_input "is needed"

# A good model, and data that do not fit it.
printf '%s\n' '{"input": [28, 28], "layers": [{"layer": "flatten"}, {"layer": "dense", "units": 12}]}' >"$work/twelve.json"
expect 0 "saved" train "$work/twelve.json" --device host --data "$work/data" --epochs 1 --save "$work/twelve.strata"
expect 0 "accuracy" evaluate "$work/twelve.strata" --device host --data "$work/data"
expect 3 "cannot open" evaluate "$work/model.strata" --device host --data "$work/elsewhere"

# ---- a full disk ----
cp "$work/model.strata" "$work/kept.strata"
checks=$((checks + 1))
# shellcheck disable=SC2086
(ulimit -f 64 && trap '' XFSZ && exec "$strata" $train --seed 5 --save "$work/model.strata") >"$work/out" 2>"$work/err" \
    </dev/null
code=$?
[ $code = 161 ] || bad "saving without room: exit code $code, not 161"
stderr "make room and try again"
check "the old file is whole" cmp "$work/model.strata" "$work/kept.strata"
check "nothing half-written is left" test -z "$(find "$work" -name '.*.tmp-*')"

# If the file cannot be written, this is reported before the training.
# shellcheck disable=SC2086
{
expect 3 "$work/nowhere" $train --save "$work/nowhere/model.strata"
checks=$((checks + 1))
! grep -q "epoch 1" "$work/out" || bad "it trained before it looked at the folder to save in"
expect 3 "$work/data" $train --save "$work/data"
}
finish
