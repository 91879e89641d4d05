#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Parquet files, written by pyarrow. A training must give the same bits as with the CSV of the same table, and errors must
# be named. The module for Parquet is that of this build, or is built with the libraries and headers of pip's pyarrow, which
# are downloaded once for all builds.
. "$(dirname "$0")/support.sh"
fetched=$STRATA_SOURCE_DIR/build/parquet
if [ ! -e "$fetched/complete" ]; then
    rm -rf "$fetched"
    python3 -m venv "$fetched" >/dev/null 2>&1 &&
        "$fetched/bin/pip" -q --retries 1 --timeout 20 install pyarrow >/dev/null 2>&1 &&
        "$fetched/bin/python" -c "import pyarrow; pyarrow.create_library_symlinks()" && touch "$fetched/complete"
fi
python=$fetched/bin/python
if [ ! -e "$fetched/complete" ]; then
    python=python3
    if ! python3 -c "import pyarrow" 2>/dev/null; then
        echo "skipped: Python has no pyarrow, and pip could not fetch it"
        exit 77
    fi
fi
if [ ! -e "$STRATA_BUILD_DIR/libstrata_parquet.so" ]; then
    if ! command -v c++ >/dev/null || ! command -v ninja >/dev/null || [ ! -e "$fetched/complete" ]; then
        echo "skipped: this build has no module for Parquet, and there is no c++, ninja or pyarrow of pip to build one"
        exit 77
    fi
    arrow=$("$python" -c "import pyarrow; print(pyarrow.__path__[0])")
    if ! cmake -G Ninja -S "$STRATA_SOURCE_DIR" -B "$fetched/build" -DSTRATA_PARQUET=ON -DCMAKE_PREFIX_PATH="$arrow" \
        -DSTRATA_TESTS=OFF -DSTRATA_WERROR=ON >"$work/out" 2>"$work/err" ||
        ! cmake --build "$fetched/build" --target strata_parquet >>"$work/out" 2>&1; then
        bad "the module is not built"
        finish
    fi
    export LD_LIBRARY_PATH="$fetched/build${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
fi
"$python" "$here/parquet.py" "$work" || bad "pyarrow writes no files"
cd "$work" || exit 1
on="--device host"

# same CSV PARQUET...: trains on each file. All must give the same bits.
same() {
    expected=
    for file in "$@"; do
        expect 0 "${expected:-weights_sha256}" train "$file" --device host --epochs 2 --json
        expected=$(grep -o '"weights_sha256":"[0-9a-f]*"' out)
    done
}

# shellcheck disable=SC2086 # words
{
same fruit.csv fruit.parquet plain.parquet
same narrow.csv narrow.parquet bytes.parquet
same late.csv late.parquet
expect 0 "4 numbers, 2 columns of words, 2 dates, 425 missing (425 empty), 2 classes; 480 train / 120 test" \
    train fruit.parquet $on --save fruit.strata
expect 0 "" evaluate fruit.strata fruit.parquet $on --json
json 'r["examples"] == 600 and r["accuracy"] > 0.85'
cp out evaluated
expect 0 "" evaluate fruit.strata fruit.csv $on --json
check "it is evaluated as the CSV is" python3 -c "
import json
a, b = (json.loads(open(f).read().splitlines()[-1]) for f in ('evaluated', 'out'))
assert a['loss'] == b['loss'] and a['scores'] == b['scores']"
expect 0 "600 answers in all.csv" predict fruit.strata fruit.csv $on --to all.csv
expect 0 "50 answers in some.csv" predict fruit.strata new.parquet $on --to some.csv # the columns are in another order
check "answers are those for the CSV" sh -c "head -n 51 all.csv | cmp - some.csv"
expect 0 "train with them" tune fruit.parquet --trials 2 --epochs 1 $on
expect 0 "Parquet" inspect fruit.parquet
mkdir both
cp fruit.parquet both/train.parquet
cp plain.parquet both/test.parquet
expect 0 "600 train / 600 test" train both $on --epochs 1
expect 0 'left out "who"' train frame.parquet $on --epochs 1
stdout "1 number, 0 missing, 2 classes" # the index is not taken as the label
expect 0 "2 numbers, 0 missing, 2 classes" train range.parquet $on --epochs 1

# ---- errors, and what they advise ----
expect 3 'column "a" is a list<element: double>; a table has one number, text or date in a cell' train lists.parquet
expect 3 'column "a" is a struct<b: int64>' train parts.parquet
expect 3 'column "a" is a map<' train pairs.parquet
expect 3 "has a header and no rows" train rowless.parquet
expect 3 "nothing.parquet: has no columns" train nothing.parquet
expect 3 'columns 1 and 2 are both named "a"' train twice.parquet
expect 3 'column "a" has in row 2 a date in the year 1143677' train far.parquet
expect 3 'column "a" has in row 2 a NUL in a text' train nul.parquet
expect 3 'column "a" has in row 1 bytes that are not valid UTF-8' train odd.parquet
expect 3 "has 17000 columns; at most 16384 are possible" train wide.parquet
expect 3 "cut.parquet: is no whole Parquet file" train cut.parquet
expect 3 "headless.parquet: is no whole Parquet file" train headless.parquet
expect 3 "CRC checksum verification failed" train flipped.parquet
expect 3 "no-such.parquet: cannot open" train no-such.parquet
gzip -k fruit.parquet
expect 3 "is Parquet, which cannot be read from standard input or compressed" train fruit.parquet.gz
expect 3 'has no column "kind"' evaluate fruit.strata new.parquet $on
expect 3 'has the cell "v", which is not a number' evaluate fruit.strata wrong.parquet $on
stderr "wrong.parquet:2: "
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    expect 3 "damaged$i.parquet: " train damaged$i.parquet $on --epochs 1
done
}
finish
