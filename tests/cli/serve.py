# SPDX-License-Identifier: Apache-2.0
"""Clients of strata serve. usage: serve.py STRATA FOLDER, where FOLDER contains the models. It ends with the first error."""
import concurrent.futures
import csv
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time

STRATA, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2])


class Server:
    def __init__(self, model, *options):
        command = [STRATA, "serve", str(FOLDER / model), "--device", "host", "--port", "0", "--json", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
        self.port = int(json.loads(self.process.stdout.readline())["url"].rsplit(":", 1)[1])

    def ask(self, method, path, body=None, headers={}):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, content

    def post(self, value, path="/predict"):
        code, content = self.ask("POST", path, value if isinstance(value, (bytes, str)) else json.dumps(value))
        return code, json.loads(content)

    def metric(self, name):
        lines = self.ask("GET", "/metrics")[1].decode().splitlines()
        return next(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name + " "))

    def __enter__(self):
        return self

    def __exit__(self, kind, *rest):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(30)
        if kind is None and code != 0:
            sys.exit(f"the server ended with {code}")


def equal(a, b):
    if a != b:
        raise AssertionError(f"{a!r} is not {b!r}")


def predicted(model, data):
    """Returns what strata predict prints for a file."""
    run = subprocess.run([STRATA, "predict", str(FOLDER / model), str(data), "--device", "host", "--json", "--probabilities"],
                         capture_output=True, text=True, check=True)
    return [json.loads(line) for line in run.stdout.splitlines()]


def close(ours, theirs):
    """Checks that answers are equal except for the last digit, because other batch sizes may cause other rounding."""
    equal(len(ours), len(theirs))
    for a, b in zip(ours, theirs):
        equal((a["class"], a["name"]), (b["class"], b["name"]))
        assert all(abs(p - q) < 2e-6 for p, q in zip(a["probabilities"], b["probabilities"])), (a, b)


def table_rows():
    with open(FOLDER / "table.csv", newline="") as file:
        for row in csv.DictReader(file):
            yield {"a": float(row["a"]) if row["a"] else None, "b": float(row["b"]), "kind": row["kind"]}


def answers_are_those_of_predict():
    expected = predicted("table.strata", FOLDER / "table.csv")
    rows = list(table_rows())
    with Server("table.strata") as server:
        equal(server.ask("GET", "/health"), (200, b'{"status":"ok"}'))
        model = json.loads(server.ask("GET", "/model")[1])
        equal([model["model"], model["classes"]], ["table.strata", ["blue", "red"]])
        code, answer = server.post({"rows": rows}, "/predict?probabilities=1")
        equal(code, 200)
        close(answer["predictions"], expected)
        code, answer = server.post({"rows": [[r["a"], r["b"], r["kind"]] for r in rows[:5]]}, "/predict?probabilities=1")
        close(answer["predictions"], expected[:5])
        equal("probabilities" in server.post({"rows": rows[:1]})[1]["predictions"][0], False)
    with open(FOLDER / "texts.csv", newline="") as file:
        texts = [row["text"] for row in csv.DictReader(file)][:20]
    (FOLDER / "lines.txt").write_text("\n".join(texts) + "\n")
    with Server("texts.strata") as server:
        code, answer = server.post({"texts": texts}, "/predict?probabilities=1")
        equal(code, 200)
        close(answer["predictions"], predicted("texts.strata", FOLDER / "lines.txt"))


def requests_of_many_clients_share_batches():
    expected = predicted("table.strata", FOLDER / "table.csv")
    with Server("table.strata", "--wait-ms", "1000", "--batch", "32") as server:
        def one(i_row):
            code, answer = server.post({"rows": [i_row[1]]}, "/predict?probabilities=1")
            equal(code, 200)
            return answer["predictions"][0]
        with concurrent.futures.ThreadPoolExecutor(40) as clients:
            close(list(clients.map(one, enumerate(table_rows()))), expected)
        equal(server.metric("strata_examples_total"), 200)
        batches = server.metric("strata_batches_total")
        assert batches <= 60, f"200 requests took {batches} runs"  # at most one batch a second is not full
        equal(server.metric('strata_requests_total{code="200"}') >= 200, True)
        equal(server.metric("strata_waiting_examples"), 0)


def wrong_requests_get_an_answer_that_says_what():
    cases = [
        (400, "expected a key", b"{"), (400, "must be an object", b"[1]"), (400, 'has no "rows"', b"{}"),
        (400, "1 to 1048576", b'{"rows": []}'), (400, 'has no column "', b'{"rows": [{"a": 1}]}'),
        (400, "which is not a number", b'{"rows": [{"a": "z", "b": 1, "kind": "x"}]}'),
        (400, "has 2 cells, the first row has 3", b'{"rows": [{"a": 1, "b": 1, "kind": "x"}, {"a": 1, "b": 2}]}'),
        (400, "must be a string", b'{"rows": [{"a": 1, "b": 1, "kind": [1]}]}'), (400, "UTF-8", b'{"rows": "\xff"}'),
        (400, 'did you mean "rows"', b'{"rowz": []}'), (400, "", b"\0\0\0"), (400, "", b""), (400, "", b"[" * 100000),
        (400, "", b'{"rows": ' + b"[" * 50000 + b"]" * 50000 + b"}"), (400, "", b'{"rows": [{"a": NaN, "b": 1, "kind": "x"}]}'),
        (400, "", b'{"rows": [{"a": 1e999, "b": 1, "kind": "x"}]}'),
        (400, "", b'{"rows": [{"a": -Infinity, "b": 1, "kind": "x"}]}')]
    with Server("table.strata", "--max-request", "0.5", "--idle", "1", "--max-waiting", "300") as server:
        for code, words, body in cases:
            got, answer = server.post(body)
            equal((got, words in answer["error"] or answer["error"]), (code, True))
        for method, path, code in (("GET", "/predict", 405), ("POST", "/health", 405), ("GET", "/etc/passwd", 404)):
            equal(server.ask(method, path)[0], code)
        equal(server.ask("POST", "/predict", b"x" * 600000)[0], 413)

        def chunks():
            for _ in range(10):
                yield b"x" * 100000
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        connection.request("POST", "/predict", chunks(), encode_chunked=True, headers={"Transfer-Encoding": "chunked"})
        equal(connection.getresponse().status, 413)
        connection.close()
        raw = socket.create_connection(("127.0.0.1", server.port), timeout=20)
        raw.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n")
        equal(raw.recv(12), b"HTTP/1.1 413")  # although no body was sent
        raw.close()
        # not HTTP, a head without an end, a body that is not sent, and a client that closes the connection
        for sent in (b"\x16\x03\x01\x02\0", b"GET /hea", b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"):
            raw = socket.create_connection(("127.0.0.1", server.port), timeout=20)
            start = time.monotonic()
            raw.sendall(sent)
            while raw.recv(4096):
                pass
            assert time.monotonic() - start < 60, f"{sent!r} held a connection"
            raw.close()
        raw = socket.create_connection(("127.0.0.1", server.port))
        raw.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 20\r\n\r\n{\"rows\"")
        raw.close()
        equal(server.ask("GET", "/health")[0], 200)


def until_closed(raw):
    """Returns all bytes up to the end of the connection. The server may also reset it if it has not read all bytes."""
    content = b""
    try:
        while part := raw.recv(65536):
            content += part
    except ConnectionError:
        pass
    return content


def raw_bytes_are_answered_or_cut_off():
    good = json.dumps({"rows": [{"a": 1, "b": 1, "kind": "x"}]}).encode()
    head = b"POST /predict HTTP/1.1\r\nHost: x\r\n"
    request = head + b"Content-Length: %d\r\n\r\n" % len(good) + good
    with Server("table.strata", "--max-request", "0.1", "--idle", "2") as server:
        def connect():
            return socket.create_connection(("127.0.0.1", server.port), timeout=20)

        def codes(sent, is_all=True):
            with connect() as raw:
                raw.sendall(sent)
                if is_all:
                    raw.shutdown(socket.SHUT_WR)
                return [code.decode() for code in re.findall(rb"HTTP/1\.1 ([0-9]+) ", until_closed(raw))]

        # several requests that are sent together are answered in their order, each for itself
        last = request.replace(b"Host: x", b"Host: x\r\nConnection: close")
        equal(codes(request + b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n" + last, is_all=False), ["200"] * 3)
        # after a wrong request the server may close the connection, but it must not treat a body as a request
        for wrong in (head + b"Content-Length: 2\r\n\r\n{}", b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n",
                      head + b"Content-Length: %d\r\n\r\n" % len(request) + request):
            got = codes(request + wrong + last, is_all=False)
            assert got[0] == "200" and got[1] in ("400", "404") and got[2:] in ([], ["200"]), got
        # heads that are too large, because of one line or of many
        for large in (b"X: " + b"y" * 200000 + b"\r\n", b"".join(b"X-%d: y\r\n" % i for i in range(20000))):
            try:
                got = codes(head + large + b"\r\n")
            except OSError:  # the server closed the connection while the head was sent
                got = []
            assert all(code[0] in "45" for code in got), got
        # chunks with sizes that are not numbers or are wrong
        for chunks in (b"zz\r\nabc\r\n0\r\n\r\n", b"ffffffffffffffffff\r\nabc", b"-5\r\nabc\r\n", b"3\r\nabcdef\r\n0\r\n\r\n"):
            got = codes(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)
            assert all(code[0] == "4" for code in got), got
        sizes = b"".join(b"1\r\n%c\r\n" % byte for byte in good) + b"0\r\n\r\n"
        equal(codes(head + b"Transfer-Encoding: chunked\r\n\r\n" + sizes), ["200"])
        # a length that is not a number, and two different lengths
        for line in (b"Content-Length: -1", b"Content-Length: 1x", b"Content-Length: 5\r\nContent-Length: 6"):
            got = codes(head + line + b"\r\n\r\n{}")
            assert all(code[0] == "4" for code in got), (line, got)
        # a body that is not a picture is read as JSON, whatever its type is called
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "\xe9"):
            code, _ = server.ask("POST", "/predict", good, {"Content-Type": kind})
            equal(code, 200)
        code, content = server.ask("POST", "/predict", good, {"Content-Type": "image/png"})
        equal((code, "error" in json.loads(content)), (400, True))

        # Clients that send a byte from time to time: other clients are answered meanwhile, and a client that stops sending
        # is disconnected.
        slow = [connect() for _ in range(20)]
        for i in range(4):
            for raw in slow:
                raw.sendall(request[i:i + 1])
            equal(server.ask("POST", "/predict", good)[0], 200)
            time.sleep(0.2)
        start = time.monotonic()
        for raw in slow:
            until_closed(raw)
            raw.close()
        assert time.monotonic() - start < 60
        equal(server.ask("GET", "/health")[0], 200)


def train(model, data, name):
    what = [str(FOLDER / model), "--data", str(FOLDER / data)] if model else [str(FOLDER / data)]
    run = subprocess.run([STRATA, "train", *what, "--device", "host", "--epochs", "1", "--save", str(FOLDER / name)],
                         capture_output=True, text=True)
    if run.returncode:
        sys.exit(run.stderr)


def values(answers):
    return [v for a in answers for v in (a["values"] if "values" in a else [a["value"]])]


def arrays_of_numbers():
    def numbers(i):
        return [(6 * i + k) % 7 / 7 for k in range(6)]
    train("arrays.json", "pictures.npz", "pictures.strata")
    train(None, "columns.npz", "columns.strata")
    for kind, example in (("pictures", lambda i: [[[v] for v in numbers(i)[r:r + 3]] for r in (0, 3)]), ("columns", numbers)):
        files = [str(FOLDER / f"{kind}.strata"), str(FOLDER / f"{kind}.npz")]
        run = subprocess.run([STRATA, "predict", *files, "--device", "host", "--json"], capture_output=True, text=True,
                             check=True)
        expected = [json.loads(line) for line in run.stdout.splitlines()]
        with Server(f"{kind}.strata") as server:
            code, answer = server.post({"inputs": [example(i) for i in range(40)]})
            equal((code, answer.get("error")), (200, None))
            equal(len(values(answer["predictions"])), len(values(expected)))
            assert max(abs(p - q) for p, q in zip(values(answer["predictions"]), values(expected))) < 1e-5
    wrong = [([[1, 2, 3]], "inputs[0]"), ([[[[1], [2], [3]], [[1], [2], ["x"]]]], "inputs[0][1][2][0]"),
             ([[[[1], [2], [3]], [[4], [5], [1e300]]]], "inputs[0][1][2][0]"), ([], "has 0 examples"), (5, "must be an array")]
    with Server("pictures.strata") as server:
        equal(json.loads(server.ask("GET", "/model")[1])["input"], [2, 3, 1])
        for inputs, words in wrong:
            code, answer = server.post({"inputs": inputs})
            equal((code, words in answer["error"] or answer["error"]), (400, True))


def numbers_of_rows_are_read_as_numbers():
    """The model's table has decimal commas, so its reader would take the text 1.234 for 1234."""
    weights = [0.5 + 0.0173 * i for i in range(150)]
    lines = [f"{w:.3f};{'heavy' if w > 1.5 else 'light'}".replace(".", ",") for w in weights]
    (FOLDER / "weights.csv").write_text("\n".join(["weight;class"] + lines) + "\n")
    train(None, "weights.csv", "weights.strata")
    expected = predicted("weights.strata", FOLDER / "weights.csv")
    with Server("weights.strata") as server:
        for rows in ([{"weight": round(w, 3)} for w in weights], [[round(w, 3)] for w in weights]):
            code, answer = server.post({"rows": rows}, "/predict?probabilities=1")
            equal((code, answer.get("error")), (200, None))
            close(answer["predictions"], expected)


def rows_of_words_have_no_header():
    rows = [[["red", "blue", "green"][i % 3], ["big", "small"][i % 2]] for i in range(60)]
    lines = [f"{colour},{size},{colour == 'red'}" for colour, size in rows]
    (FOLDER / "words.csv").write_text("\n".join(["colour,size,class"] + lines) + "\n")
    train(None, "words.csv", "words.strata")
    with Server("words.strata") as server:
        code, answer = server.post({"rows": rows}, "/predict?probabilities=1")
        equal((code, answer.get("error")), (200, None))
        close(answer["predictions"], predicted("words.strata", FOLDER / "words.csv"))


def pictures_are_sent_as_they_are():
    for name, value in (("dark", 20), ("light", 200)):
        (FOLDER / "photos" / name).mkdir(parents=True)
        for i in range(10):
            pixels = bytes((value + 7 * i + k) % 256 for k in range(64))
            (FOLDER / "photos" / name / f"{i}.pgm").write_bytes(b"P5 8 8 255\n" + pixels)
    train(None, "photos", "photos.strata")
    picture = FOLDER / "photos/light/3.pgm"
    with Server("photos.strata") as server:
        headers = {"Content-Type": "image/x-portable-graymap"}
        code, content = server.ask("POST", "/predict?probabilities=1", picture.read_bytes(), headers)
        equal(code, 200)
        close(json.loads(content)["predictions"], predicted("photos.strata", picture))
        # curl --data-binary sends this type, and some clients none that says picture
        for kind in ("application/x-www-form-urlencoded", "application/octet-stream", "Image/PNG"):
            code, again = server.ask("POST", "/predict?probabilities=1", picture.read_bytes(), {"Content-Type": kind})
            equal((code, again), (200, content))
        # a picture of another format and size is read as predict reads it
        other = pathlib.Path(os.environ["STRATA_SOURCE_DIR"]) / "tests/fuzz/corpus/picture/bmp_palette.bmp"
        code, content = server.ask("POST", "/predict?probabilities=1", other.read_bytes(), headers)
        equal(code, 200)
        close(json.loads(content)["predictions"], predicted("photos.strata", other))
        code, content = server.ask("POST", "/predict", b"\0\0\0\x18ftypheic\0\0\0\0", headers)
        equal((code, "is HEIC, which is not read" in json.loads(content)["error"]), (400, True))
        code, content = server.ask("POST", "/predict", b"P5 8 8 255\nshort", headers)
        error = json.loads(content)["error"]
        equal((code, "/tmp" in error or "strata-picture" in error), (400, False))


def make_arrays():
    """Writes a file of multiples of 1/7, without numpy."""
    import struct
    import zipfile

    def npy(shape):
        n = 1
        for d in shape:
            n *= d
        head = str({"descr": "<f4", "fortran_order": False, "shape": shape}).encode()
        head += b" " * (-(len(head) + 11) % 64) + b"\n"
        return b"\x93NUMPY\x01\0" + struct.pack("<H", len(head)) + head + struct.pack(f"<{n}f", *(i % 7 / 7 for i in range(n)))
    for name, shape in (("pictures", (40, 2, 3, 1)), ("columns", (40, 6))):
        with zipfile.ZipFile(FOLDER / f"{name}.npz", "w") as file:
            file.writestr("x.npy", npy(shape))
            file.writestr("y.npy", npy((40, 2)))


make_arrays()
for check in (answers_are_those_of_predict, requests_of_many_clients_share_batches, wrong_requests_get_an_answer_that_says_what,
              raw_bytes_are_answered_or_cut_off, arrays_of_numbers, numbers_of_rows_are_read_as_numbers,
              rows_of_words_have_no_header, pictures_are_sent_as_they_are):
    print(check.__name__)
    check()
