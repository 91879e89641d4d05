#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Data that are missing, damaged or do not fit. The exit code must be 3, and the message must name the file and the numbers.
. "$(dirname "$0")/support.sh"
make_data "$work/good"

# fresh NAME: makes a copy of the good data in $data, which the test damages.
fresh() {
    data=$work/$1
    cp -r "$work/good" "$data"
}
train() { # CODE TEXT ARGUMENT...
    train_code=$1 train_text=$2
    shift 2
    expect "$train_code" "$train_text" train mnist --device host --epochs 1 --data "$data" "$@"
}

data=$work/nowhere
train 3 "$work/nowhere: cannot open"
data=$work/good/train-labels-idx1-ubyte
train 3 "is not a folder"

fresh no_labels
rm "$data/train-labels-idx1-ubyte"
train 3 "has none of train-labels-idx1-ubyte"
fresh no_test
rm "$data"/t10k*
train 3 "has none of t10k-images-idx3-ubyte"

fresh folder_as_file
rm "$data/train-images-idx3-ubyte"
mkdir "$data/train-images-idx3-ubyte"
train 3 "it is a folder, not a file"
fresh unreadable
rm "$data/train-images-idx3-ubyte"
ln -s train-images-idx3-ubyte "$data/train-images-idx3-ubyte" # a link to itself, which root cannot open either
train 3 "$data/train-images-idx3-ubyte: cannot"

fresh truncated
head -c 400000 "$work/good/train-images-idx3-ubyte" >"$data/train-images-idx3-ubyte"
train 3 "has 400000 bytes, but its header u8 (600,28,28) needs 470416: it is cut off"
fresh oversized
printf x >>"$data/train-labels-idx1-ubyte"
train 3 "has 609 bytes, but its header u8 (600) needs 608: it is too long"
fresh magic
printf 'P5 28 28 255\n' >"$data/train-images-idx3-ubyte"
train 3 "begins with bytes 50 35 20 32; an IDX file begins with 00 00"
fresh count
cp "$data/t10k-labels-idx1-ubyte" "$data/train-labels-idx1-ubyte"
train 3 "has 600 images, but $data/train-labels-idx1-ubyte has 200 labels"
fresh swapped
cp "$data/train-labels-idx1-ubyte" "$data/train-images-idx3-ubyte"
train 3 "contains u8 (600); images must be u8 (N,28,28)"

fresh label
{ head -c 20 "$work/good/train-labels-idx1-ubyte" && printf '\012' && tail -c +22 "$work/good/train-labels-idx1-ubyte"; } \
    >"$data/train-labels-idx1-ubyte"
train 3 "$data/train-labels-idx1-ubyte: label 12 (counting from 0) is 10; labels must be 0 to 9"

fresh gzipped
gzip "$data"/*-ubyte
train 0 "accuracy"
fresh cut_gzip
gzip "$data"/*-ubyte
head -c 3000 "$data/train-images-idx3-ubyte.gz" >"$work/cut" && mv "$work/cut" "$data/train-images-idx3-ubyte.gz"
train 3 "train-images-idx3-ubyte.gz"
stderr "cut off"
fresh bad_gzip
gzip "$data"/*-ubyte
{ head -c 2000 "$data/train-images-idx3-ubyte.gz" && head -c 64 /dev/zero && tail -c +2065 "$data/train-images-idx3-ubyte.gz"; \
    } \
    >"$work/cut" && mv "$work/cut" "$data/train-images-idx3-ubyte.gz"
train 3 "train-images-idx3-ubyte.gz"

# ---- batches ----
data=$work/good
train 2 '--batch is "0"' --batch 0
train 4 "a batch of" --batch 100000000000
stderr "batch 100000000000 does not fit on host"
stderr "MiB are free"
train 0 "accuracy" --batch 600
train 0 "accuracy" --batch 1000

# ---- a model of the user ----
cat >"$work/small.json" <<'END'
{"input": [28, 28], "layers": [{"layer": "flatten"}, {"layer": "dense", "units": 10}]}
END
model() { # CODE TEXT JSON: the model must fail so
    printf '%s\n' "$3" >"$work/model.json"
    expect "$1" "$2" train "$work/model.json" --device host --epochs 1 --data "$work/good"
}
expect 0 "accuracy" train "$work/small.json" --device host --epochs 1 --data "$work/good"
expect 3 "nowhere.json: cannot open" train "$work/nowhere.json" --device host
model 3 "model.json" '{"input": [28, 28'
model 3 "there is no layer \"conv\"; there are: dense, activation, dropout, flatten" \
    '{"input": [28, 28], "layers": [{"layer": "conv"}]}'
model 3 "the data's elements are (28,28), the model takes (784)" \
    '{"input": [784], "layers": [{"layer": "dense", "units": 10}]}'
model 3 "the largest label is 9; the model's classes are 0..4" \
    '{"input": [28, 28], "layers": [{"layer": "flatten"}, {"layer": "dense", "units": 5}]}'
model 3 "there is no loss \"hinge\"" \
    '{"input": [28, 28], "layers": [{"layer": "flatten"}, {"layer": "dense", "units": 10}], "loss": "hinge"}'
model 3 "the largest label is 9; the model's classes are 0..1" \
    '{"input": [28, 28], "layers": [{"layer": "flatten"}, {"layer": "dense", "units": 1}], "loss": "binary_crossentropy"}'
model 3 "there is one label an example; the model has outputs of (10)" \
    '{"input": [28, 28], "layers": [{"layer": "flatten"}, {"layer": "dense", "units": 10}], "loss": "mse"}'

# ---- a loss that is not finite ----
printf '%s\n' '{"input": [28, 28], "layers": [{"layer": "flatten"}, {"layer": "dense", "units": 32, "activation": "relu"},
    {"layer": "dense", "units": 32, "activation": "relu"}, {"layer": "dense", "units": 10}],
    "optimizer": {"name": "sgd", "learning_rate": 100000}}' >"$work/model.json"
expect 3 "the loss is not finite at epoch 1, step " train "$work/model.json" --device host --epochs 3 --data "$work/good"
stderr "the first tensor that is not is "
stderr ", by op "
expect 3 "is not finite at epoch 1, step " train "$work/model.json" --device host --epochs 3 --data "$work/good" --debug nan
expect 0 "accuracy" train mnist --device host --epochs 1 --data "$work/good" --debug determinism
expect 2 "--debug \"nans\": it must be nan or determinism" train mnist --data "$work/good" --debug nans
finish
