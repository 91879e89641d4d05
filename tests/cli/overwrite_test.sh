#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# No command overwrites one of its inputs, whatever it is called, and no two outputs are the same file.
. "$(dirname "$0")/support.sh"
cd "$work" || exit 1
on="--device host --epochs 1"

# kept FILE OPTION...: the command with these options ends before it reads anything, and FILE is as before.
kept() {
    kept_file=$1 kept_sum=$(cksum <"$1")
    shift
    expect 2 "would overwrite" "$@"
    check "$*: $kept_file is kept" test "$kept_sum" = "$(cksum <"$kept_file")"
}

awk 'BEGIN { print "a,b,y"; for (i = 0; i < 60; i++) print i % 7 "," i % 5 "," (i % 2 ? "yes" : "no") }' >t.csv
cp t.csv other.csv
expect 0 "saved" train t.csv $on --save m.strata --log run.jsonl --write-model model.json
ln -s t.csv link.csv
ln t.csv hard.csv
mkdir sub
ln -s "$work/t.csv" sub/far.csv
for name in t.csv ./t.csv sub/../t.csv "$work/t.csv" link.csv hard.csv sub/far.csv; do
    kept t.csv train t.csv $on --save $name
    kept t.csv train $name $on --save t.csv
done
for option in save save-best log trace write-model checkpoint tensorboard; do
    kept t.csv train t.csv $on --$option t.csv
    kept other.csv train t.csv $on --validation other.csv --$option other.csv
    kept m.strata train t.csv $on --from m.strata --$option m.strata
    kept model.json train model.json --data t.csv $on --$option model.json
    kept t.csv train model.json --data t.csv $on --$option t.csv
done
kept m.strata predict m.strata t.csv --to m.strata
kept t.csv predict m.strata t.csv --to link.csv
kept t.csv predict m.strata --input t.csv --to hard.csv
checks=$((checks + 1))
"$strata" predict m.strata - --to t.csv <t.csv >out 2>err
[ $? = 2 ] && grep -q "would overwrite -" err || bad "predict - --to the file of standard input"
kept run.jsonl plot run.jsonl --svg run.jsonl
kept m.strata plot m.strata --weights --svg m.strata
kept t.csv plot m.strata --confusion t.csv --svg t.csv
kept m.strata convert m.strata m.strata
kept m.strata export m.strata --c --to m.strata
kept m.strata graph m.strata --to m.strata
kept m.strata compile m.strata --emit stablehlo m.strata
kept t.csv tune t.csv --log t.csv --trials 1
kept t.csv tune t.csv --validation other.csv --log other.csv --trials 1

echo '{"files": [{"name": "list.json", "url": "http://127.0.0.1:1/x", "sha256": "'"$(printf '%064d' 0)"'"}]}' >list.json
kept list.json data fetch list.json --to .

# Files in a folder of data. A log there, which may be continued, is not a part of the data.
mkdir data
cp t.csv data/train.csv
cp t.csv data/test.csv
kept data/test.csv train data $on --save data/test.csv
expect 0 "accuracy" train data $on --log data/log.csv --checkpoint data/ck/ --resume
expect 0 "accuracy" train data $on --log data/log.csv --checkpoint data/ck/ --resume
kept data/train.csv train data $on --checkpoint ./data/ --resume

# Two outputs that are the same file, which may not exist yet.
expect 2 "are the same file" train t.csv $on --save new.strata --save-best ./new.strata
expect 2 "are the same file" train t.csv $on --save new.jsonl --log sub/../new.jsonl
ln -s new.strata dangling.strata
expect 2 "are the same file" train t.csv $on --save new.strata --checkpoint dangling.strata
check "nothing was written" test ! -e new.strata
expect 0 "accuracy" train t.csv $on --checkpoint run/ --tensorboard run
expect 0 "saved" train t.csv $on --save again.strata --log again.jsonl
expect 0 "saved" train t.csv $on --save again.strata --log again.jsonl
finish
