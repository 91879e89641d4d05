#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# A folder of PNG files for each class, made from IDX files. It is used for training, evaluation, prediction and plotting,
# with one command each.
. "$(dirname "$0")/support.sh"

idx=${STRATA_TEST_DATA:-}/mnist
if [ ! -e "$idx" ]; then
    make_data "$work/idx"
    idx=$work/idx
fi
python3 - "$idx" "$work/photos" <<'END' || { echo "skipped: $idx has no IDX files that Python reads"; exit 77; }
import gzip, pathlib, struct, sys, zlib

folder, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])

def read(stem):
    path = next(folder.glob(stem + "*"))
    return (gzip.open if path.suffix == ".gz" else open)(path, "rb").read()

def png(rows, columns, pixels):
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    lines = b"".join(b"\0" + pixels[r * columns : (r + 1) * columns] for r in range(rows))
    head = struct.pack(">IIBBBBB", columns, rows, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")

for part, stem, most in (("train", "train", 600), ("test", "t10k", 200)):
    images, labels = read(stem + "-images-idx3-ubyte"), read(stem + "-labels-idx1-ubyte")
    n, rows, columns = struct.unpack(">III", images[4:16])
    for i in range(min(n, most)):
        file = out / part / ("kind-%d" % labels[8 + i]) / ("%d.png" % i)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(png(rows, columns, images[16 + i * rows * columns : 16 + (i + 1) * rows * columns]))
END

photos=$work/photos model=$work/photos.strata
expect 0 '"event":"result"' train "$photos" --device host --epochs 6 --save "$model" --log "$work/run.jsonl" --json
json 'r["test_examples"] == 200 and r["test_accuracy"] > 0.6'
expect 0 "on 200 test examples" evaluate "$model" "$photos/test" --device host
stdout "kind-7"
expect 0 "200 answers" predict "$model" "$photos/test" --device host --probabilities --to "$work/out.csv"
check "each answer is a class" sh -c "[ \$(grep -c 'kind-' '$work/out.csv') -ge 200 ]"
expect 0 "loss" plot "$work/run.jsonl"
expect 0 "kind-3" plot "$model" --confusion "$photos/test" --device host
finish
