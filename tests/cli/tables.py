# SPDX-License-Identifier: Apache-2.0
"""Writes tables in different dialects for tables_test.sh to a folder. The files are always the same."""
import os
import random
import sys
import zipfile

work = sys.argv[1]
rng = random.Random(7)


def put(name, content):
    path = f"{work}/{name}"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(content)


def rows(name, head, lines, separator=","):
    put(name, "".join(separator.join(line) + "\n" for line in ([head] if head else []) + lines))


def german(number, digits=2, grouped=False):
    text = f"{number:,.{digits}f}" if grouped else f"{number:.{digits}f}"
    return text.translate(str.maketrans(",.", ".,"))


# A share with a decimal comma determines a price, which has groups of thousands in one of the files.
shares = [rng.uniform(0, 99) for _ in range(60)]
for name, grouped in (("plain.csv", False), ("grouped.csv", True)):
    rows(name, ["share", "price"], [[german(s), german(1000 * s, 0, grouped)] for s in shares], ";")

# Numbers with a decimal point, and the same as another locale writes them. Three digits after the comma could be thousands.
measures = [(rng.uniform(50, 99), rng.uniform(1, 9)) for _ in range(60)]
train = [(w, h, w / h) for w, h in measures]
rows("point.csv", ["weight", "height", "y"], [[f"{v:.2f}" for v in row] for row in train])
rows("comma.csv", ["weight", "height", "y"], [[german(v) for v in row] for row in train], ";")
rows("point3.csv", ["weight", "height", "y"], [[f"{v:.3f}" for v in row] for row in train])
rows("doubt.csv", ["weight", "height", "y"], [[german(v, 3) for v in row] for row in train[:5]], ";")
rows("mixed.csv", ["weight", "height", "y"], [[f"{w:.2f}", german(h), f"{y:.2f}"] for w, h, y in train], ";")
flowers = [[german(rng.gauss(4, 1), 1), german(rng.gauss(2, 1), 1), "yes" if i % 2 else "no"] for i in range(40)]
rows("bare.csv", None, flowers, ";")
rows("bare.tsv", None, flowers, "\t")

# pandas.DataFrame(x).to_csv(index=False) writes 0,1,2,... as the header.
numbers = [[f"{rng.gauss(0, 1):.2f}", f"{rng.gauss(0, 1):.2f}"] for _ in range(30)]
rows("words.csv", ["0", "1", "label"], [n + ["yes" if i % 3 else "no"] for i, n in enumerate(numbers)])
rows("digits.csv", ["0", "1", "2"], [n + [str(i % 2)] for i, n in enumerate(numbers)])
rows("number.csv", ["0", "1", "2"], [n + [f"{i * 1.5 + 0.25:.2f}"] for i, n in enumerate(numbers)])
rows("pixels.csv", [str(i) for i in range(6)],
     [[str(rng.randrange(50, 256)) for _ in range(5)] + [str(i % 2)] for i in range(30)])
rows("sums.csv", None, [["0", "1", "1"], ["1", "1", "0"], ["1", "0", "1"], ["0", "0", "0"]] * 8)

days = [f"{2020 + i // 300}-{1 + i // 28 % 12:02d}-{1 + i % 28:02d}" for i in range(60)]
early = ["early" if i < 30 else "late" for i in range(60)]
rows("days.csv", ["d", "y"], [[d, y] for d, y in zip(days, early)])
rows("bad_day.csv", ["d", "y"], [["2020-02-30" if i == 17 else d, y] for i, (d, y) in enumerate(zip(days, early))])
rows("no_day.csv", ["d", "y"], [["unknown" if i == 17 else d, y] for i, (d, y) in enumerate(zip(days, early))])
rows("few_days.csv", ["d", "y"],
     [["2020-13-01" if i == 2 else d, y] for i, (d, y) in enumerate(zip(days[27:33], early[27:33]))])
rows("open_days.csv", ["d", "y"], [[f"{1 + i % 12}/{1 + i // 12}/2020", y] for i, y in enumerate(early)])
rows("slashes.csv", ["d", "e", "y"],
     [[f"{1 + i % 12}/{1 + i // 12}/2020", f"{13 + i % 12}/{1 + i // 12}/2020", y] for i, y in enumerate(early)])

# The word determines the class. Each country occurs in six rows.
rows("countries.csv", ["country", "y"], [[f"country {i % 195}", "ab"[i % 195 * 7 % 13 % 2]] for i in range(1170)])
rows("many.csv", ["w", "x", "y"], [[f"w{i // 2}", str(i % 5), "ab"[i % 2]] for i in range(2400)])

rows("signs.csv", ["a", "y"], [[str(i), "+-"[i % 2]] for i in range(40)])
rows("nones.csv", ["a", "y"], [[str(i), ["None", "low", "", "high"][i % 4]] for i in range(40)])
rows("marks.csv", ["a", "y"], [["-999" if i % 8 == 0 else "NA" if i % 8 == 1 else str(i), "ab"[i % 2]] for i in range(40)])
rows("quotes.csv", ["a", "b", "y"], [[f"'{i},{i}'", str(i), "ab"[i % 2]] for i in range(40)])

good, bad = "这个电影很好看我喜欢它的故事", "剧情无聊演员差劲浪费时间真糟"
texts = []
for i in range(120):
    own = [good, bad][i % 2]
    texts.append(["".join(rng.choice(own if rng.random() < 0.6 else "今天气音乐房间人们一二三四五") for _ in range(15)), "好差"[i % 2]])
rows("chinese.csv", ["text", "label"], texts)

points = [[f"{rng.gauss(i % 2 * 3, 1):.3f}", "ab"[i % 2]] for i in range(120)]
for name, part in (("train", points[:80]), ("val", points[80:100]), ("test", points[100:])):
    rows(f"parts/{name}.csv", ["x", "y"], part)
for name, files in (("one.zip", ["parts/train.csv"]), ("two.zip", ["parts/train.csv", "parts/test.csv"])):
    with zipfile.ZipFile(f"{work}/{name}", "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            archive.write(f"{work}/{file}", file)
