# SPDX-License-Identifier: Apache-2.0
"""Writes tables, texts, pictures and arrays for own_data_test.sh to a folder. The files are always the same."""
import os
import random
import struct
import sys
import zipfile

from files import data, npy

work = sys.argv[1]
rng = random.Random(11)


def put(name, content):
    path = f"{work}/{name}"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content if isinstance(content, bytes) else content.encode())


def table(name, head, rows, separator=","):
    put(name, "\n".join(separator.join(map(str, row)) for row in ([head] if head else []) + rows) + "\n")


# Three classes, sorted, as they often are in files. Every 25th number of each column is missing.
places = {"daisy": (0, 0, "white"), "rose": (3, 3, "red"), "tulip": (0, 4, "red")}
flowers = []
for kind, (x, y, colour) in places.items():
    for i in range(50):
        flowers.append([len(flowers) + 1, f"{x + rng.gauss(0, 0.5):.2f}", f"{y + rng.gauss(0, 0.5):.2f}", colour, kind])
for i in range(0, 150, 25):
    flowers[i][1] = ""
    flowers[i + 7][2] = "NA"
head = ["id", "width", "length", "colour", "kind"]
table("flowers.csv", head, flowers)
table("turned.csv", ["colour", "more", "length", "width"],
      [["violet" if i == 4 else f[3], "-", f[2], f[1]] for i, f in enumerate(flowers[:5])])
table("typo.csv", head, flowers[:100] + [[101, 1, 1, "red", "roze"]])
table("missing.csv", ["id", "width", "length", "kind"], [f[:3] + f[4:] for f in flowers])
table("wrong.csv", head, [[1, "wide", 1, "red", "rose"]])
table("rows.data", None, [[f[1] or "0.5", f[2] if f[2] != "NA" else "0.5", f[4]] for f in flowers])

orders = []
for i in range(200):
    price, colour = rng.uniform(1, 99), rng.choice(["rot", "blau"])
    orders.append([f"{rng.randrange(1, 28):02d}.{rng.randrange(1, 12):02d}.2024", colour, f"{price:.2f}".replace(".", ","),
                   "viel" if price > 50 else "wenig"])
table("orders.csv", ["Datum", "Farbe", "Preis", "Klasse"], orders, ";")
table("tilde.csv", ["when", "colour", "price", "kind"], [[a, b, c.replace(",", "."), d] for a, b, c, d in orders], "~")

pairs = [(rng.uniform(-1, 1), rng.uniform(-1, 1)) for _ in range(400)]
table("houses.csv", ["a", "b", "price"], [[f"{a:.5f}", f"{b:.5f}", f"{100000 + 2000 * a + 1000 * b:.2f}"] for a, b in pairs])
table("levels.csv", ["a", "level"], [[i % 3 + 0.1, ["none", "low", "high"][i % 3]] for i in range(90)])
table("flat.csv", ["a", "b", "price"], [[f"{a:.5f}", f"{b:.5f}", "100000.1"] for a, b in pairs[:30]])
table("numbers.csv", ["a", "kind"], [[f"{rng.uniform(-1, 1):.3f}", rng.choice([3, 70])] for _ in range(60)])

words = {"good": ["wonderful", "lovely", "great", "moving"], "bad": ["dull", "awful", "boring", "weak"]}
reviews = []
for i in range(200):
    mood = ["good", "bad"][i % 2]
    some = [rng.choice(words[mood]) for _ in range(2)] + [rng.choice(["film", "plot", "actor", "scene", "story", "music"])
                                                         for _ in range(9)]
    rng.shuffle(some)
    reviews.append([f'"{" ".join(some)}, {i}"', mood])
table("reviews.csv", ["review", "mood"], reviews)

# Hotel stays. The review and the stars together determine whether the guest comes again, but neither alone does.
stays = []
for i in range(300):
    liked, many = rng.random() < 0.5, rng.random() < 0.5
    said = rng.choice(["great", "lovely"] if liked else ["awful", "loud"])
    words = ["the", "room", "and", "a", "street", "with", "some", "light", "was", said]
    rng.shuffle(words)
    stars = "" if i % 30 == 0 else f"{(1 if many else -1) + rng.gauss(0, 0.2):.2f}"
    stays.append([i + 1, stars, rng.choice(["Bern", "Basel"]), " ".join(words), "yes" if liked == many else "no"])
table("stays.csv", ["id", "stars", "town", "review", "again"], stays)


def picture(name, columns, rows, light):
    put(name, b"P5 %d %d 255\n" % (columns, rows) + bytes(min(255, light + rng.randrange(60)) for _ in range(columns * rows)))


for i in range(30):
    picture(f"photos/dark/{i}.pgm", 10 + i % 2, 8, 0)
    picture(f"photos/bright/{i}.pgm", 10, 8, 150)
os.makedirs(f"{work}/nothing")
picture("gap/a/1.pgm", 4, 4, 9)
os.makedirs(f"{work}/gap/b")
picture("gap2/a/1.pgm", 4, 4, 9)
put("gap2/b/1.pgm", "no picture")

xs = [(i % 2 * 2 + rng.random(), rng.random()) for i in range(60)]
x = npy("<f4", (60, 2), struct.pack("<120f", *(v for pair in xs for v in pair)))
y = npy("<i8", (60,), struct.pack("<60q", *(i % 2 * 7 - 3 for i in range(60))))
put("x.npy", x)
put("y.npy", y)


def part(first, n):
    return (npy("<f4", (n, 2), struct.pack(f"<{2 * n}f", *(v for pair in xs[first:first + n] for v in pair))),
            npy("<i8", (n,), struct.pack(f"<{n}q", *(i % 2 * 7 - 3 for i in range(first, first + n)))))


def archive(name, arrays):
    with zipfile.ZipFile(f"{work}/{name}", "w") as file:
        for key, content in arrays.items():
            file.writestr(key + ".npy", content)


archive("both.npz", {"x": x, "y": y})
archive("odd.npz", {"a": x, "b": y})
(train_x, train_y), (test_x, test_y) = part(0, 40), part(40, 20)
archive("parts.npz", {"x_train": train_x, "y_train": train_y, "x_test": test_x, "y_test": test_y})
archive("three.npz", {"x_train": train_x, "y_train": train_y, "x_val": x, "y_val": y, "x_test": test_x, "y_test": test_y,
                      "ids": y})
archive("two.npz", {"x_train": train_x, "y_train": train_y, "x_val": test_x, "y_val": test_y})

# Times in seconds since 1970 as labels: the f32 numbers nearest to them are 128 seconds apart.
times = [1.7e9 + 20 * a + 5 * b for a, b in xs]
archive("times.npz", {"x": x, "y": npy("<f8", (60,), struct.pack("<60d", *times))})
put("times.csv", "a,b,y\n" + "".join(f"{a},{b},{t}\n" for (a, b), t in zip(xs, times)))

# Tables as people write them: lines that end with CR or with a comma, a blank before a quote, numbers near the limits of a
# double.
plain = [[f"{a:.3f}", f"{b:.3f}", "up" if a + b > 0 else "down"] for a, b in pairs[:120]]
table("plain.csv", ["a", "b", "kind"], plain)
put("cr.csv", "\r".join([",".join(row) for row in [["a", "b", "kind"]] + plain]))
table("trail.csv", ["a", "b", "kind", ""], [row + [""] for row in plain])
table("blanks.csv", ["a", ' "b"', "kind"], [[a, f'  "{b}"', f' "{kind}"'] for a, b, kind in plain])
table("giant.csv", ["a", "b", "kind"], [[a + "e300", b + "e-300", kind] for a, b, kind in plain])
table("infinite.csv", ["a", "b", "kind"], [["inf" if i == 7 else a, b, kind] for i, (a, b, kind) in enumerate(plain)])
table("units.csv", ["a", "b", "kind"], [[a + " cm", b, kind] for a, b, kind in plain])
table("twice.csv", ["a", "a", "kind"], plain)
table("title.csv", ["My table", "", ""], [["a", "b", "kind"]] + plain)
table("remark.csv", ["# made by hand"], [["a", "b", "kind"]] + plain)
table("two.csv", ["a", "kind"], [[1, "x"], [2, "y"]])
for i in range(12):
    picture(f"mixed/a/{i}.pgm", 4 + i, 6, 0)
    picture(f"mixed/b/{i}.pgm", 6, 4 + i, 150)
    picture(f"half/train/{'ab'[i % 2]}/{i}.pgm", 6, 6, 0)
    picture(f"bad/{'ab'[i % 2]}/{i}.pgm", 6, 6, 0)
put("mixed/b/notes.txt", "not a picture")
put("mixed/c.pgm", "in no folder of a class")
put("mixed/.hidden", "")
for i in range(7):
    put(f"bad/a/x{i}.png", b"\x89PNG" if i % 2 else b"")
table("commas.csv", ['"a,b"', "b", "colour", "kind"], [[a, b, "red" if "7" in a else "blue", kind] for a, b, kind in plain])
put("ragged.csv", "a,b,kind\n1,2,x\n3,4\n")
put("header.csv", "a,kind\n")
put("empty.csv", "")
table("one_class.csv", ["a", "kind"], [[i, "a"] for i in range(30)])
table("names.csv", ["a", "name"], [[i * i, f"name{i}"] for i in range(40)])
put("binary.csv", bytes(range(256)))
put("data.parquet", b"PAR1" + bytes(40))
put("model.onnx", b"\x08\x07")
data(f"{work}/mnist", 100, 50)
