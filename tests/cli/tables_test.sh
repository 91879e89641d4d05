#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# How tables are written: separators, headers, decimal commas, thousands, dates and missing values are found, reported,
# settled by options, saved in the model and checked against later tables.
. "$(dirname "$0")/support.sh"
python3 "$here/tables.py" "$work"
cd "$work" || exit 1
on="--device host"
once="$on --epochs 1"

# ---- numbers ----
# With a decimal comma in one column, the point in the other one divides thousands: both files have the same numbers.
expect 0 "" train plain.csv $on --epochs 2 --json
plain=$(grep -o '"weights_sha256":"[0-9a-f]*"' out)
expect 0 "$plain" train grouped.csv $on --epochs 2 --json
expect 0 "read with --header yes --separator ';' --quote '\"' --decimal , --thousands ." \
    train grouped.csv $once --save grouped.strata
printf 'share\n"12,34"\n' >share.csv
expect 0 "" predict grouped.strata share.csv $on
cp out comma
printf 'share\n12.34\n' >share.csv
expect 0 "" predict grouped.strata share.csv $on
stderr "the numbers are read with a decimal point, although the training data had a decimal comma"
expect 0 "$(tail -n 1 comma)" predict grouped.strata share.csv $on
expect 0 "" train point.csv $on --epochs 20 --save point.strata
expect 0 "" evaluate point.strata point.csv $on
score=$(grep -o "R2 .*" out)
expect 0 "$score" evaluate point.strata comma.csv $on
expect 0 "" train point3.csv $once --save point3.strata
expect 3 "doubt.csv:2: column \"weight\" has the cell" predict point3.strata doubt.csv $on
stderr "Say how this table is written (--decimal . or --decimal ,)"
expect 3 "doubt.csv:2:" train --from point3.strata doubt.csv $on --epochs 1
expect 0 "" predict point3.strata doubt.csv $on --decimal ,
expect 3 "numbers have a decimal point in line 2, column \"weight\"" train mixed.csv $once
stderr "and a decimal comma in line 2, column \"height\""
expect 3 "--decimal \"x,\": it must be . or ," train point.csv $once --decimal x,
expect 3 "cannot be both before the fraction and between thousands" train point.csv $once --decimal . --thousands .

# ---- headers and separators ----
for file in bare.csv bare.tsv; do expect 0 "2 numbers, 0 missing, 2 classes; 32 train / 8 test" train $file $once; done
stdout "read with --header no --separator tab --quote '\"' --decimal , --thousands none"
expect 0 "2 numbers, 0 missing, 2 classes; 24 train / 6 test" train words.csv $once
expect 0 "2 numbers, 0 missing, 2 classes; 24 train / 6 test" train digits.csv $once --save digits.strata
expect 0 "2 numbers, 0 missing; learns the number \"2\"; 24 train / 6 test" train number.csv $once
expect 0 "5 numbers, 0 missing, 2 classes; 24 train / 6 test" train pixels.csv $once
expect 0 "26 train / 6 test" train sums.csv $once
expect 0 "3 classes" train words.csv $once --header no
expect 0 "on 30 test examples" evaluate digits.strata digits.csv $on
expect 0 "30 examples" plot digits.strata --confusion digits.csv --header yes --decimal . $on
expect 0 "2 numbers, 0 missing" train quotes.csv $once --quote "'" --thousands none --columns b,a --decimal ,
expect 3 "--header \"maybe\": it must be yes or no" train words.csv $once --header maybe

# ---- dates ----
expect 0 "columns: \"d\" date YYYY-MM-DD" train days.csv $once --save days.strata
for file in bad_day no_day; do
    expect 3 "$file.csv:19: column \"d\" has the cell" train $file.csv $once
    expect 3 "$file.csv:19: column \"d\" has the cell" predict days.strata $file.csv $on
done
expect 3 "few_days.csv:4: column \"d\" has the cell \"2020-13-01\"" train few_days.csv $once
stderr "there is no such day"
expect 0 "column \"d\" is read as MM/DD/YYYY; all its dates could be DD/MM/YYYY, too (--dates dmy)" train open_days.csv $once
expect 0 "\"d\" date DD/MM/YYYY" train open_days.csv $once --dates dmy
expect 0 "\"d\" date DD/MM/YYYY, \"e\" date DD/MM/YYYY" train slashes.csv $once

# ---- words, classes and missing values ----
expect 0 "columns: \"country\" words (195)" train countries.csv $on --epochs 30 --save countries.strata
expect 0 "accuracy 100.00 %" evaluate countries.strata countries.csv $on
expect 0 "" train many.csv $once --save many.strata --columns w,x
stdout 'column "w" has 1200 words: the 1024 most frequent have a feature each, the other 176, in 352 cells, share one'
printf 'w,x\nw1199,1\nw5,1\n' >known.csv
expect 0 "" predict many.strata known.csv $on
check "a rare word is not called unknown" sh -c '! grep -q "a word that the training data did not have" err'
printf 'w,x\nnew,1\n' >new.csv
expect 0 "" predict many.strata new.csv $on
stderr "1 cell has a word that the training data did not have"
expect 0 "2 classes; 32 train / 8 test" train signs.csv $once
expect 0 "3 classes, 10 rows without a label left out (10 empty)" train nones.csv $once --save nones.strata
expect 0 "2 classes, 20 rows without a label left out (10 None, 10 empty)" train nones.csv $once --na None
expect 0 "on 30 test examples" evaluate nones.strata nones.csv $on
expect 0 "1 number, 5 missing (5 NA)" train marks.csv $once
expect 0 "1 number, 10 missing (5 -999, 5 NA)" train marks.csv $once --na NA,-999 --save marks.strata
stdout "--na 'NA,-999'"
expect 0 "read with" train nones.csv $once --na ''
stdout "--na ''"
printf 'a\n-999\nNA\n' >later.csv
expect 0 "" predict marks.strata later.csv $on
check "-999 is missing in a later table, too" [ "$(sed -n 2p out | cut -f 2-)" = "$(sed -n 3p out | cut -f 2-)" ]
expect 0 "1 text, 0 missing, 2 classes" train chinese.csv $on --epochs 20
stdout "accuracy 100.00 %"

# ---- parts and archives ----
expect 0 "1 number, 0 missing, 2 classes; 80 train / 20 test" train parts $once
stdout "validation: 20 of parts/val.csv"
stdout "val_accuracy"
expect 0 "64 train / 16 test" train one.zip $once --save one.strata
expect 0 "on 80 test examples" evaluate one.strata one.zip $on
expect 3 "two.zip: is a zip archive of several tables (parts/train.csv, parts/test.csv)" train two.zip $once
finish
