#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# strata serve: its answers are those of strata predict, it joins the requests of many clients to one batch, and it handles
# requests that are wrong, too large, slow or not HTTP (serve.py).
. "$(dirname "$0")/support.sh"

# Data: a table of numbers, words and missing values, and texts.
python3 - "$work" <<'END'
import random, sys
random.seed(1)
with open(sys.argv[1] + "/table.csv", "w") as table:
    table.write("a,b,kind,label\n")
    for i in range(200):
        label = random.choice(["red", "blue"])
        a = "" if i % 20 == 0 else f"{random.gauss(1 if label == 'red' else -1, 1):.3f}"
        table.write(f'{a},{random.random():.3f},{random.choice(["x", "y, z"])!r},{label}\n'.replace("'", '"'))
with open(sys.argv[1] + "/texts.csv", "w") as texts:
    texts.write("text,label\n")
    for i in range(200):
        label = random.choice(["good", "bad"])
        words = [random.choice(["film", "story", "actor", "scene", label]) for _ in range(12)]
        texts.write(" ".join(words + [label]) + f",{label}\n")
END
expect 0 "accuracy" train "$work/table.csv" --device host --epochs 3 --save "$work/table.strata"
expect 0 "accuracy" train "$work/texts.csv" --label label --device host --epochs 2 --save "$work/texts.strata"
cat >"$work/arrays.json" <<'END'
{"input": [2, 3, 1], "layers": [{"layer": "flatten"}, {"layer": "dense", "units": 4, "activation": "tanh"},
 {"layer": "dense", "units": 2}], "loss": "mse"}
END
python3 "$here/serve.py" "$strata" "$work" >"$work/out" 2>"$work/err"
code=$?
checks=$((checks + 1))
if [ $code != 0 ]; then
    bad "serve.py: exit code $code"
    tail -n 25 "$work/err"
fi

expect 3 "nothing.strata: cannot open" serve "$work/nothing.strata"
expect 2 "must be a whole number from 0 to 65535" serve "$work/table.strata" --port 65536
expect 2 'is not an address; give for example 127.0.0.1' serve "$work/table.strata" --device host --host nowhere --port 0
finish
