#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Data of a user, from the file to predictions: tables, texts, pictures and arrays; and their errors.
. "$(dirname "$0")/support.sh"
python3 "$here/own_data.py" "$work"
cd "$work" || exit 1
on="--device host"

# ---- a table whose classes are words ----
{
described="2 numbers, 1 column of words, 12 missing (6 empty, 6 NA), 3 classes; 120 train / 30 test"
expect 0 "$described, shuffled and stratified, seed 0" \
    train flowers.csv $on --save flowers.strata
stdout 'left out "id", which counts the rows'
expect 0 "" train flowers.csv $on --json
json 'r["accuracy"] > 0.9 and r["scores"]["classes"] == ["daisy", "rose", "tulip"]'
json 'sum(map(sum, r["scores"]["confusion_matrix"])) == 30 and all(sum(row) == 10 for row in r["scores"]["confusion_matrix"])'
first=$(grep -o '"weights_sha256":"[0-9a-f]*"' out)
expect 0 "$first" train flowers.csv $on --json
expect 0 "accuracy" evaluate flowers.strata flowers.csv $on
stdout "on 150 test examples" # all rows
stdout "rose"
stdout "AUC "
expect 0 "" evaluate flowers.strata flowers.csv $on --json
json 'r["examples"] == 150 and r["scores"]["auc"] > 0.9 and len(r["scores"]["f1"]) == 3'
json 'all(0.8 < x <= 1 for k in ("precision", "recall", "f1") for x in r["scores"][k])'
expect 0 "150 answers in out.csv" predict flowers.strata flowers.csv $on --probabilities --to out.csv
check "the file has a row for each, and their probabilities" python3 -c "
import csv
rows = list(csv.DictReader(open('out.csv')))
assert len(rows) == 150 and list(rows[0]) == ['index', 'class', 'probability', 'daisy', 'rose', 'tulip']
assert all(abs(sum(float(r[k]) for k in ('daisy', 'rose', 'tulip')) - 1) < 1e-4 for r in rows)
assert all(r['class'] == max(('daisy', 'rose', 'tulip'), key=lambda k: float(r[k])) for r in rows)"
expect 0 "index	class	probability" predict flowers.strata turned.csv $on # other columns, in another order
stderr '1 cell has a word that the training data did not have ("violet" in column "colour")'
cut -f 2 out | head -n 5 >turned.txt.4
expect 0 "" predict flowers.strata flowers.csv $on
check "columns are taken by their names" sh -c "cut -f 2 out | head -n 5 | cmp - turned.txt.4"
expect 0 "rose" predict flowers.strata $on --row 3.1,2.9,red
expect 0 "" predict flowers.strata flowers.csv $on --to answers.json
check "a line of JSON for each" python3 -c "import json; assert len([json.loads(l) for l in open('answers.json')]) == 150"
"$strata" train - $on --epochs 1 <flowers.csv >out 2>err
stdout "120 train / 30 test"
stdout "standard input on "
mkfifo pipe
cat flowers.csv >pipe &
expect 0 "120 train / 30 test" train pipe $on --epochs 1
wait
expect 0 "1 number, 1 column of words" train commas.csv $on --epochs 1 --columns 'a\,b,colour' --label 'kind'
expect 0 "135 train / 15 test" train flowers.csv $on --epochs 1 --test-split 0.1
expect 0 "seed 3" train flowers.csv $on --epochs 1 --seed 3
expect 0 "left out" train flowers.csv $on --epochs 1 --label colour
expect 0 "0 missing, 3 classes; 72 train / 18 test" train levels.csv $on --epochs 1 # "none" is a class like "low" and "high"
expect 0 "2 classes, 30 rows without a label left out (30 none); 48 train / 12 test" train levels.csv $on --epochs 1 --na none
stderr "strata: 30 rows without a label are left out"

# ---- other forms of the table ----
expect 0 "1 number, 1 column of words, 1 date, 0 missing, 2 classes" train orders.csv $on --epochs 60 --save orders.strata
expect 0 "on 200 test examples" evaluate orders.strata orders.csv $on
expect 0 "1 number, 1 column of words, 1 date" train tilde.csv $on --epochs 1 --separator '~'
expect 0 "2 numbers, 0 missing, 3 classes" train rows.data $on --epochs 1 --save rows.strata
expect 0 "on 150 test examples" evaluate rows.strata rows.data $on
expect 0 'learns the number "price"' train houses.csv $on --save houses.strata
stdout "R2 0.9"
expect 0 "R2 0.9" evaluate houses.strata houses.csv $on
expect 0 "" evaluate houses.strata flat.csv $on --json
json 'r["scores"]["r2"] is None and r["scores"]["mae"] > 0' # R2 needs labels that differ
expect 0 "" predict houses.strata $on --row 0.5,0.5 --json
json 'abs(r["value"] - 101500) < 500' # in the unit of the label
expect 0 'learns the number "kind"' train numbers.csv $on --epochs 1 --learn regression
expect 0 "2 classes" train numbers.csv $on --epochs 1

expect 0 "" train plain.csv $on --json
plain=$(grep -o '"weights_sha256":"[0-9a-f]*"' out)
for file in cr trail blanks; do expect 0 "$plain" train $file.csv $on --json; done
expect 0 "accuracy" train plain.csv $on
accuracy=$(grep -o "accuracy .* on 24 test examples" out)
expect 0 "$accuracy" train giant.csv $on
expect 0 'left out "a", which has words that differ in most rows ("' train units.csv $on --epochs 1

# ---- texts ----
expect 0 "1 text, 0 missing, 2 classes; 160 train / 40 test" \
    train reviews.csv --label mood $on --epochs 30 --save reviews.strata
expect 0 "good" predict reviews.strata $on --text "a wonderful lovely film"
expect 0 "on 200 test examples" evaluate reviews.strata reviews.csv $on
expect 0 "200 answers" predict reviews.strata reviews.csv $on --to out.csv
expect 0 "accuracy" train reviews.csv --label mood $on --epochs 1 --model attention
# Texts beside other columns. Neither the text nor the other columns alone determine the class.
expect 0 "1 number, 1 column of words, 1 text, 10 missing (10 empty), 2 classes" \
    train stays.csv $on --epochs 30 --save stays.strata
expect 0 "on 300 test examples" evaluate stays.strata stays.csv $on
expect 0 "" evaluate stays.strata stays.csv $on --json
json 'r["accuracy"] > 0.9'
expect 0 "300 answers" predict stays.strata stays.csv $on --to out.csv
expect 0 "yes" predict stays.strata $on --row "1.1,Bern,the room was great and a street with some light"
expect 0 "no" predict stays.strata $on --row "-1.1,Bern,the room was great and a street with some light"
expect 2 "--text: the model learned from the columns of a table" predict stays.strata $on --text "a great room"
expect 0 "accuracy" train stays.csv $on --epochs 1 --model attention
expect 0 "R2" train stays.csv --label stars --learn regression $on --epochs 1 --save stars.strata
expect 0 "accuracy" train --from stays.strata stays.csv $on --epochs 1
expect 0 "1 text, 0 missing, 2 classes" train stays.csv --columns review --label again $on --epochs 1
expect 2 "--model cnn needs pictures; for these data use --model text" train reviews.csv --label mood $on --model cnn

# ---- pictures ----
expect 0 "60 pictures, grey, of several sizes, resized to 10 x 8, 2 classes; 48 train / 12 test" \
    train photos $on --epochs 8 --save photos.strata
expect 0 "on 60 test examples" evaluate photos.strata photos $on
expect 0 "30 answers" predict photos.strata photos/bright $on --to out.csv
check "a row says which file it is of" python3 -c "
import csv, os
rows = list(csv.DictReader(open('out.csv')))
assert list(rows[0])[:2] == ['index', 'file']
assert sorted(r['file'] for r in rows) == sorted(os.listdir('photos/bright'))"
expect 0 "bright" predict photos.strata photos/bright/3.pgm $on
expect 0 "16 x 16" train photos/ $on --epochs 1 --size 16 --augment --model resnet
expect 3 "is a table, but the model was trained on pictures" evaluate photos.strata flowers.csv $on
expect 0 "a picture" inspect photos/bright/3.pgm

expect 0 "24 pictures, grey, of several sizes" train mixed $on --epochs 1 --save mixed.strata
stdout "left out 1 picture outside of the folders of classes (c.pgm), 1 file that is not a picture"
expect 0 "on 24 test examples" evaluate mixed.strata mixed $on
stderr "left out 1 picture outside of the folders of classes (c.pgm), 1 file that is not a picture"
expect 0 "12 answers" predict mixed.strata mixed/b $on --to out.csv
stderr "strata: left out 1 file that is not a picture (notes.txt)"

# ---- arrays ----
expect 0 "2 numbers, 0 missing, 2 classes; 48 train / 12 test" train x.npy --labels y.npy $on --save arrays.strata
expect 0 "on 60 test examples" evaluate arrays.strata x.npy --labels y.npy $on
expect 0 "index	class" predict arrays.strata x.npy $on
expect 0 "48 train / 12 test" train both.npz $on --epochs 1
expect 0 "40 train / 20 test" train parts.npz $on --epochs 1
expect 3 "x.npy: has only features; give their labels with --labels y.npy" train x.npy $on
expect 3 "its arrays are a, b; name the features x" train odd.npz $on

# ---- the model ----
expect 0 "" train flowers.csv $on --epochs 1 --model mlp \
    --set layers.0.units=16 --set optimizer.learning_rate=3e-4 --write-model m.json
check "--set changes the model" python3 -c "
import json
m = json.load(open('m.json'))
assert m['layers'][0]['units'] == 16 and m['optimizer']['learning_rate'] == 3e-4 and m['layers'][-1]['units'] == 3"
expect 0 "accuracy" train m.json --data flowers.csv $on --epochs 1
expect 0 "accuracy" train mnist --data "$work/mnist" $on --epochs 1 --set layers.1.units=8 --set optimizer.name=sgd
expect 2 "there is no \"layer\" to go into" train flowers.csv $on --set layer.0.units=4
expect 2 "there are 6 here, 0 to 5, and no \"9\"" train flowers.csv $on --set layers.9.units=4
expect 3 '--set: layers[0]: key "unit" is not known; did you mean "units"' train flowers.csv $on --set layers.0.unit=4
expect 2 "it must be PATH=VALUE" train flowers.csv $on --set layers
expect 2 "there are mlp, cnn, resnet, text and attention; did you mean mlp?" train flowers.csv $on --model mpl
expect 2 "needs pictures; for these data use --model mlp" train flowers.csv $on --model cnn

# ---- further options ----
expect 0 "accuracy" train --from flowers.strata flowers.csv $on --epochs 2 --save more.strata
expect 0 "on 150 test examples" evaluate more.strata flowers.csv $on
expect 0 "accuracy" train --from flowers.strata flowers.csv $on --epochs 2 --freeze dense,dense_1 --save frozen.strata
check "frozen layers keep their bits, and the others do not" python3 -c "
import json, struct
def read(path):
    file = open(path, 'rb').read()
    n = struct.unpack('<Q', file[:8])[0]
    head = json.loads(file[8:8 + n])
    return {k: file[8 + n + v['data_offsets'][0]:8 + n + v['data_offsets'][1]] for k, v in head.items() if k != '__metadata__'}
a, b = read('flowers.strata'), read('frozen.strata')
assert a.keys() == b.keys()
assert all((a[k] == b[k]) == k.startswith('dense') for k in a), [k for k in a if a[k] == b[k]]"
expect 0 "on 150 test examples" evaluate frozen.strata flowers.csv $on
expect 0 "accuracy" train --from photos.strata photos $on --epochs 1 --freeze conv2d
expect 0 "accuracy" train --from reviews.strata reviews.csv $on --epochs 1 --freeze embedding
expect 2 'there is no layer "dnese"; did you mean "dense"?' train --from flowers.strata flowers.csv $on --freeze dnese
expect 2 "no layer with parameters is left to train" train --from flowers.strata flowers.csv $on --freeze dense,dense_1,output
expect 2 "name the model with --from" train flowers.csv $on --freeze dense
expect 3 'not one of the 3 classes' train --from flowers.strata typo.csv $on
expect 0 "saved" train mnist --data "$work/mnist" $on --epochs 1 --save mnist.strata
# A model without preprocessing gets the data as they are, and these do not fit it.
expect 3 'column "width" has the cell "", which is not a finite f32 number' train --from mnist.strata flowers.csv $on

# ---- errors, and what they advise ----
expect 3 "nowhere.csv: cannot open" train nowhere.csv $on
expect 3 "ragged.csv:3:4: the record ends after 2 cells" train ragged.csv $on
expect 3 "has a header and no rows" train header.csv $on
expect 3 "is empty" train empty.csv $on
expect 3 'is "a" in all rows; there is nothing to learn' train one_class.csv $on
expect 3 'did you mean "kind"?' train flowers.csv $on --label knid
expect 3 "is not text" train binary.csv $on
expect 3 'infinite.csv:9: column "a" has the cell "inf", which is not a number' train infinite.csv $on
expect 3 'columns 1 and 2 are both named "a"; rename one of them' train twice.csv $on
expect 3 "the first line must name all columns (is it a title?)" train title.csv $on
expect 3 "the header names 1 column (is the first line a title or a comment?)" train remark.csv $on
expect 3 "neither may be empty. Give more elements" train two.csv $on
expect 3 "bad: 7 pictures cannot be read; repair or remove them: bad/a/x" train bad $on
stderr "; ..."
expect 3 "has a folder train, and none that is called test" train half $on
mkdir -p half/val && cp -r half/train/. half/val && rm half/val/a/0.pgm
expect 0 "12 train / 11 test" train half $on --epochs 1
[ -e "$STRATA_BUILD_DIR/libstrata_parquet.so" ] ||
    expect 3 "data.parquet: is a Parquet file, and Strata's module that reads such files cannot" train data.parquet $on
expect 2 "answers are written as .csv or .json" predict flowers.strata flowers.csv --to out.parquet $on
expect 3 "it must be one character" train flowers.csv $on --separator abc
expect 3 "name them (--separator)" train tilde.csv $on
expect 3 "too many for classes" train names.csv $on
expect 3 "has no pictures in folders of classes" train "$work/nothing" $on
expect 3 "gap/a: its pictures are not in folders of classes; give a folder that contains a folder of pictures" train gap/a $on
expect 3 "the folder of a class has no pictures" train gap $on
expect 3 "repair or remove it: gap2/b/1.pgm" train gap2 $on
expect 3 'has no column "colour"' evaluate flowers.strata missing.csv $on
expect 3 'has the cell "wide", which is not a number' evaluate flowers.strata wrong.csv $on
expect 3 "--learn it: it must be classification or regression" train flowers.csv $on --learn it
expect 2 "give the data once" evaluate flowers.strata flowers.csv --data flowers.csv $on
expect 2 "confusion matrix needs classes" plot stars.strata --confusion stays.csv $on
expect 2 "predict takes one FILE" predict flowers.strata flowers.csv --input turned.csv $on
expect 2 "predict takes one FILE" predict flowers.strata --input a --input b $on
expect 2 "use --learning-rate" train flowers.csv --lr 0.1
expect 2 "use --set optimizer.name=sgd" train flowers.csv --optimizer sgd
expect 2 "lists the samples" train --list
expect 2 "strata convert model.onnx MODEL.strata" train model.onnx
expect 3 "is data, and the model comes before them: MODEL.strata flowers.csv" predict flowers.csv flowers.strata
expect 3 "m.json: is a model that is to be trained first" evaluate m.json flowers.csv
expect 2 "is not a command, but a file: strata train flowers.csv" flowers.csv
expect 2 'there is no file and no sample "flower"' train flower
expect 2 "strata train --from flowers.strata DATA" train flowers.strata
expect 0 "strata help COMMAND" help help
}
# The metric mae has the labels' unit, like the scores.
python3 - "$work/unit.csv" <<'END'
import random, sys
random.seed(1)
rows = [(random.gauss(0, 1), random.gauss(0, 1)) for _ in range(120)]
open(sys.argv[1], "w").write("a,b,y\n" + "\n".join(f"{a:.4f},{b:.4f},{1000 + 300 * a + 5 * b:.3f}" for a, b in rows))
END
expect 0 "" train "$work/unit.csv" --device host --epochs 2 --metrics mae --json --validation-split 0 --save "$work/unit.strata"
json 'r["scores"]["mae"] > 20 and abs(r["metrics"]["mae"] / r["scores"]["mae"] - 1) < 1e-5'
expect 0 "" evaluate "$work/unit.strata" "$work/unit.csv" --device host --metrics mae --json
json 'abs(r["metrics"]["mae"] / r["scores"]["mae"] - 1) < 1e-5'

finish
