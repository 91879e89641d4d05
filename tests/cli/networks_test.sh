#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The samples with convolutions and with texts, trained on small files in the original layouts. They train, save, evaluate
# and predict.
. "$(dirname "$0")/support.sh"
python3 - "$work" <<'END_OF_PYTHON'
import os, random, struct, sys
work, rng = sys.argv[1], random.Random(5)
def put(name, data):
    os.makedirs(os.path.dirname(work + "/" + name), exist_ok=True)
    open(work + "/" + name, "wb").write(data if isinstance(data, bytes) else data.encode())
def record(label):  # one bright plane, the others dark: a model learns three classes at once
    planes = [bytes(rng.randrange(200, 256) if label % 3 == p else rng.randrange(40) for _ in range(1024)) for p in range(3)]
    return bytes([label]) + b"".join(planes)
put("cifar/data_batch_1.bin", b"".join(record(i % 3) for i in range(120)))
put("cifar/test_batch.bin", b"".join(record(i % 3) for i in range(30)))
put("short/data_batch_1.bin", record(1)[:-1])
put("short/test_batch.bin", record(1))
kind, cruel, rest = ["wonderful", "lovely", "great"], ["dull", "awful", "bad"], ["film", "the", "a", "story", "and", "plot"]
def text(good):
    words = [rng.choice(kind if good else cruel)] * 3 + [rng.choice(rest) for _ in range(6)]
    rng.shuffle(words)
    return " ".join(words)
def table(n, head, names):
    rows = [f'"{text(i % 2)}",{names[i % 2]}' for i in range(n)]
    return head + "\n" + "\n".join(rows) + "\n"
put("imdb/imdb_train.csv", table(300, "review,sentiment", ("negative", "positive")))
put("imdb/imdb_test.csv", table(60, "review,sentiment", ("negative", "positive")))
put("news/covid_train.csv", table(300, "tweet,label", ("fake", "real")))
put("news/covid_test.csv", table(60, "tweet,label", ("fake", "real")))
put("mail/train.csv", table(300, "body,kind", ("ham", "spam")))
put("mail/test.csv", table(60, "body,kind", ("ham", "spam")))
put("mail/spam.csv", table(60, "body,kind", ("spam", "spam")))
put("mail/gap.csv", 'body,kind\n"two\nlines",ham\n,spam\n' + "more,ham\n" * 5)
put("gap.txt", "a film\n\na story\n")
put("lines.txt", "a wonderful great lovely film\nan awful dull story\n")
END_OF_PYTHON
python3 "$here/files.py" data "$work/digits" 120 40
python3 "$here/files.py" images "$work/digits"

# ---- pictures ----
expect 0 "saved" train mnist_cnn --device host --data "$work/digits" --epochs 1 --batch 40 --save "$work/cnn.strata"
expect 0 "on 40 test examples" evaluate "$work/cnn.strata" --device host --data "$work/digits"
expect 0 "index" predict "$work/cnn.strata" --device host --input "$work/digits/images.npy"
check "a line for each picture" test "$(wc -l <"$work/out")" = 6
expect 0 "parameters      34826 " summary mnist_cnn
expect 0 "saved" train cifar10 --device host --data "$work/cifar" --epochs 4 --batch 20 --seed 1 --save "$work/cifar.strata"
expect 0 "" evaluate "$work/cifar.strata" --device host --data "$work/cifar" --json
json 'r["examples"] == 30 and r["accuracy"] > 0.9'
{ printf 'P6 64 48 255\n' && python3 -c 'import sys; sys.stdout.buffer.write(bytes([20, 230, 20]) * (64 * 48))'; } \
    >"$work/green.ppm"
# the second plane is the second class
expect 0 "automobile" predict "$work/cifar.strata" --device host --input "$work/green.ppm"
expect 0 "" predict "$work/cifar.strata" --device host --input "$work/green.ppm" --json
json 'r["class"] == "automobile" and r["class_index"] == 1 and r["probability"] > 0.5'
mkdir "$work/few"
for file in data_batch_1 test_batch; do head -c $((6 * 3073)) "$work/cifar/$file.bin" >"$work/few/$file.bin"; done
expect 0 "" train cifar10_resnet --device host --data "$work/few" --epochs 2 --batch 4 --seed 1 --save "$work/resnet.strata" \
    --json
json 'r["sample"] == "cifar10_resnet" and r["steps"] == 4 and all(0 < l < 20 for l in r["losses"])'
cp "$work/out" "$work/first"
expect 0 "" train cifar10_resnet --device host --data "$work/few" --epochs 2 --batch 4 --seed 1 --json
json "r['weights_sha256'] == json.loads(open('$work/first').read().splitlines()[-1])['weights_sha256']"
expect 0 "on 6 test examples" evaluate "$work/resnet.strata" --device host --data "$work/few"
(cd "$work" && "$STRATA_BUILD_DIR/samples/cifar10_resnet" "$work/few" 1) >"$work/out" 2>"$work/err"
stdout "accuracy"
expect 3 "strata data fetch cifar10 --to DIR" train cifar10 --device host
expect 3 "data_batch_1.bin" train cifar10 --device host --data "$work/short"
expect 3 "data_batch" train cifar10 --device host --data "$work/imdb"
expect 0 "CIFAR-10 records" inspect "$work/cifar/data_batch_1.bin"
stdout "(120,32,32,3)"
(cd "$work" && "$STRATA_BUILD_DIR/samples/cifar10" "$work/cifar" "$STRATA_SOURCE_DIR/samples/cifar10/model.json" 1) \
    >"$work/out" 2>"$work/err"
stdout "accuracy"
(cd "$work" && "$STRATA_BUILD_DIR/samples/mnist_cnn" "$work/digits" 1) >"$work/out" 2>"$work/err"
stdout "epoch 1 of 1"

# ---- texts ----
expect 0 "saved" train imdb --device host --data "$work/imdb" --epochs 40 --seed 1 --save "$work/imdb.strata"
expect 0 "" evaluate "$work/imdb.strata" --device host --data "$work/imdb" --json
json 'r["examples"] == 60 and r["accuracy"] > 0.9'
expect 0 "positive" predict "$work/imdb.strata" --device host --text "a wonderful great lovely film"
expect 0 "" train "$STRATA_SOURCE_DIR/samples/imdb/lstm.json" --device host --data "$work/imdb" --epochs 20 --seed 1 \
    --set optimizer.learning_rate=0.01 --json
json 'r["accuracy"] > 0.9'
expect 0 "" predict "$work/imdb.strata" --device host --input "$work/lines.txt" --json
json 'r["index"] == 1 and r["class"] == "negative" and r["class_index"] == 0 and r["probability"] > 0.5'
expect 3 "$work/gap.txt:2: this text contains no word" predict "$work/imdb.strata" --device host --input "$work/gap.txt"
expect 3 "this must be a folder or a tar archive" train imdb --device host --data "$work/mail/train.csv"
expect 2 "--text needs a LINE" predict "$work/imdb.strata" --device host --text ""
expect 3 "" predict "$work/imdb.strata" --device host --text "..."
expect 0 "" train imdb --device host --data "$work/imdb" --epochs 1 --subwords --json
json 'r["sample"] == "imdb" and r["steps"] == 5'
expect 3 "strata data fetch imdb --to DIR" train imdb --device host
expect 3 "imdb" train imdb --device host --data "$work/cifar"
expect 0 "saved" train fake_news --device host --data "$work/news" --epochs 15 --seed 1 --save "$work/news.strata"
expect 0 "" evaluate "$work/news.strata" --device host --data "$work/news" --json
json 'r["accuracy"] > 0.9'
expect 0 "real" predict "$work/news.strata" --device host --text "the lovely wonderful great story"
expect 0 "" train fake_news --device host --data "$work/mail" --columns body --label kind --epochs 15 --seed 1 --save \
    "$work/mail.strata" --json
json 'r["accuracy"] > 0.9'
expect 0 "spam" predict "$work/mail.strata" --device host --text "the lovely wonderful great story"
expect 0 "ham" predict "$work/mail.strata" --device host --text "dull awful bad plot"
expect 0 "spam" predict "$work/mail.strata" --device host --input "$work/mail/spam.csv" # the label column is not used as text
expect 0 "on 60 test examples" train fake_news --device host --data "$work/mail/train.csv" --columns body --label kind \
    --epochs 1
stdout "240 train / 60 test, shuffled and stratified, seed 0"
# one text has no words
expect 0 "1 missing" train fake_news --device host --data "$work/mail/gap.csv" --columns body --label kind --epochs 1
printf '%s\n' '{"input": [16], "input_dtype": "i32", "loss": "binary_crossentropy", "layers": [{"layer": "embedding", "vocabulary": 14, "units": 8},
    {"layer": "global_average_pool"}, {"layer": "dense", "units": 1}], "optimizer": {"name": "adam", "learning_rate": 0.05}}' >"$work/own.json"
expect 0 "" train "$work/own.json" --device host --data "$work/mail" --columns body --label kind --epochs 20 --save \
    "$work/own.strata" --json
json 'r["accuracy"] > 0.9' # with as many words as its embedding has rows
expect 0 "ham" predict "$work/own.strata" --device host --text "dull awful bad plot"
expect 3 "needs --data FILE.csv of texts" train "$work/own.json" --device host
expect 3 '"kind"' train fake_news --device host --data "$work/mail" --columns body --label kin --epochs 1
expect 3 "has no covid_train.csv" train fake_news --device host --data "$work/imdb"
expect 0 "body" inspect "$work/mail/train.csv"
stdout "text"
(cd "$work" && "$STRATA_BUILD_DIR/samples/fake_news" mail/train.csv mail/test.csv body kind) >"$work/out" 2>"$work/err"
stdout "accuracy"
(cd "$work" && "$STRATA_BUILD_DIR/samples/imdb" "$work/imdb" "a lovely film") >"$work/out" 2>"$work/err"
stdout "is kind with probability"

# ---- a model over several devices ----
"$STRATA_BUILD_DIR/samples/attention" "$work/imdb" >"$work/out" 2>"$work/err"
stdout "accuracy"
"$STRATA_BUILD_DIR/samples/pipeline" "$work/few" "$STRATA_SOURCE_DIR/samples/cifar10_resnet/model.json" >"$work/out" \
    2>"$work/err"
stdout "stage 1: F0 B0 F1 B1 F2 B2 F3 B3"
stdout "accuracy"
finish
