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

PATIENCE = 200  # seconds, which only end a test that hangs

STRATA, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2])


class Server:
    def __init__(self, model, *options):
        command = [STRATA, "serve", str(FOLDER / model), "--device", "host", "--port", "0", "--json", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
        self.port = int(json.loads(self.process.stdout.readline())["url"].rsplit(":", 1)[1])

    def ask(self, method, path, body=None, headers={}):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
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


def until_closed(raw):
    """Returns all bytes up to the end of the connection. The server may also reset it if it has not read all bytes."""
    content = b""
    try:
        while part := raw.recv(65536):
            content += part
    except ConnectionError:
        pass
    return content


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
        equal((a["class"], a["class_index"]), (b["class"], b["class_index"]))
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
    rows = list(table_rows())
    with Server("table.strata", "--wait-ms", "10000", "--batch", "40") as server:
        # The head of every request arrives before the end of any body, so the requests of a round can share a run.
        for first in range(0, 200, 40):
            clients = [socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) for _ in range(40)]
            bodies = [json.dumps({"rows": [row]}).encode() for row in rows[first:first + 40]]
            for client, body in zip(clients, bodies):
                head = f"POST /predict?probabilities=1 HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
                client.sendall(head.encode() + b"Connection: close\r\n\r\n")
            until(lambda: server.metric("strata_announced_requests") == 40)
            for client, body in zip(clients, bodies):
                client.sendall(body)
            answers = [until_closed(client).split(b"\r\n\r\n", 1)[1] for client in clients]
            close([json.loads(answer)["predictions"][0] for answer in answers], expected[first:first + 40])
            for client in clients:
                client.close()
        equal(server.metric("strata_examples_total"), 200)
        equal(server.metric("strata_batches_total"), 5)
        equal(server.metric('strata_requests_total{code="200"}') >= 200, True)
        equal(server.metric("strata_waiting_examples"), 0)


def until(condition):
    """Waits until the condition is true."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def a_client_that_is_alone_does_not_wait():
    row = next(table_rows())
    with Server("table.strata", "--wait-ms", "60000") as server:
        start = time.monotonic()
        for i in range(20):
            equal(server.post({"rows": [row]})[0], 200)  # each in a connection of its own
        client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
        for i in range(20):
            client.request("POST", "/predict", json.dumps({"rows": [row]}))
            equal(json.loads(client.getresponse().read())["predictions"][0]["index"], 0)
        client.close()
        assert time.monotonic() - start < 55
        # Another connection that is open, and one that has sent a part of a head, are not waited for.
        others = [socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) for _ in range(2)]
        others[0].sendall(b"POST /predict HTTP/1.1\r\nHost:")
        equal(server.post({"rows": [row]})[0], 200)
        assert time.monotonic() - start < 55
        for other in others:
            other.close()


def truth_is_a_word_of_the_table():
    for words in ("False True", "FALSE TRUE", "false true", "no yes", "N Y", "0 1", "0 1.0", "off On"):
        no, yes = words.split()
        (FOLDER / "paid.csv").write_text("paid,y\n" + "".join(f"{(no, yes)[i % 2]},{'ab'[i % 2]}\n" for i in range(80)))
        train(None, "paid.csv", "paid.strata")
        with Server("paid.strata") as server:
            for rows in ([{"paid": True}, {"paid": False}], [[True], [False]], [{"paid": yes}, {"paid": no}]):
                code, answer = server.post({"rows": rows})
                equal((code, [p["class"] for p in answer["predictions"]], answer.get("warnings")), (200, ["b", "a"], None))


def truth_is_no_word_of_another_column():
    (FOLDER / "paid.csv").write_text("paid,y\n" + "".join(f"{('red', '1', 'on')[i % 3]},{'ab'[i % 2]}\n" for i in range(80)))
    train(None, "paid.csv", "paid.strata")
    with Server("paid.strata") as server:
        assert '("true" in column "paid")' in server.post({"rows": [{"paid": True}]})[1]["warnings"][0]


def what_is_unknown_is_told():
    row = {"a": 1, "b": 2, "kind": "x"}
    with Server("table.strata") as server:
        equal(set(server.post({"rows": [row | {"label": "red"}]})[1]), {"predictions"})
        code, answer = server.post({"rows": [row | {"kind": "new"}, row | {"b": "2.5", "extra": {"nested": [1]}}]})
        equal((code, len(answer["predictions"]), len(answer["warnings"])), (200, 2, 2))
        assert 'has a word that the training data did not have ("new" in column "kind")' in answer["warnings"][1], answer
        assert '"extra" is no column of the training data' in answer["warnings"][0], answer
        code, answer = server.post({"rows": [row, row | {"b": "two\n"}, row | {"b": "three"}]})
        equal((code, 'request: rows[1]: column "b" has the cell "two' in answer["error"]), (400, True))
        code, answer = server.post({"rows": [row | {"kind": None}]})
        assert '(column "kind" is empty)' in answer["warnings"][0], answer
        equal(server.post({"rows": [{"kind": "x", "b": "2", "a": None}]})[0], 200)  # in any order, null, numbers as texts
        # As in a table: the class is the label.
        (FOLDER / "one.csv").write_text("a,b,kind\n1,2,x\n")
        target = str(FOLDER / "one.out.csv")
        files = [str(FOLDER / "table.strata"), str(FOLDER / "one.csv")]
        subprocess.run([STRATA, "predict", *files, "--device", "host", "--to", target], check=True, capture_output=True)
        with open(target, newline="") as file:
            equal(next(csv.DictReader(file))["class"], server.post({"rows": [row]})[1]["predictions"][0]["class"])


def requests_that_can_be_read_in_two_ways_are_refused():
    """Each request is followed by another one in the same connection, which must not be answered after a 400."""
    good = json.dumps({"rows": [{"a": 1, "b": 1, "kind": "x"}]}).encode()
    length, host, chunked = b"Content-Length: %d\r\n" % len(good), b"Host: x\r\n", b"Transfer-Encoding: chunked\r\n"
    chunk = b"%x\r\n%s\r\n" % (len(good), good)
    line = b"POST /predict HTTP/1.1\r\n"
    after = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    plain = line + host + length + b"\r\n" + good
    accepted = {
        "plain": plain, "a blank line before": b"\r\n" + plain,
        "an absolute target": plain.replace(b"/predict", b"http://x/predict"),
        "chunks": line + host + chunked + b"\r\n" + chunk + b"0\r\n\r\n",
        "an extension": line + host + chunked + b"\r\n" + b"%x;a=b\r\n%s\r\n0\r\n\r\n" % (len(good), good),
        "a trailer": line + host + chunked + b"\r\n" + chunk + b"0\r\nX-Sum: 1\r\n\r\n",
        "a newer version": plain.replace(b"HTTP/1.1", b"HTTP/1.2"),
        "no blank after the colon": plain.replace(b"Host: x", b"Host:x"), "any case": plain.replace(b"Content-L", b"CONTENT-l")}
    refused = {
        "two lengths": line + host + length + length + b"\r\n" + good,
        "two different lengths": line + host + length + b"Content-Length: 3\r\n\r\n" + good,
        "a list of lengths": line + host + b"Content-Length: %d, %d\r\n\r\n" % (len(good), len(good)) + good,
        "a signed length": line + host + b"Content-Length: +%d\r\n\r\n" % len(good) + good,
        "a length in hexadecimal": line + host + b"Content-Length: 0x1\r\n\r\n" + good,
        "no length": line + host + b"Content-Length:\r\n\r\n" + good,
        "a blank before the colon": line + host + b"Content-Length : %d\r\n\r\n" % len(good) + good,
        "length and chunks": line + host + length + chunked + b"\r\n" + chunk + b"0\r\n\r\n",
        "chunks and length": line + host + chunked + length + b"\r\n" + chunk + b"0\r\n\r\n",
        "chunked twice": line + host + chunked + chunked + b"\r\n" + chunk + b"0\r\n\r\n",
        "chunked is not last": line + host + b"Transfer-Encoding: chunked, identity\r\n\r\n" + chunk + b"0\r\n\r\n",
        "xchunked": line + host + b"Transfer-Encoding: xchunked\r\n\r\n" + chunk + b"0\r\n\r\n",
        "chunks of HTTP/1.0": (line + host + chunked).replace(b"1.1", b"1.0") + b"\r\n" + chunk + b"0\r\n\r\n",
        "a chunk too long": line + host + chunked + b"\r\n" + b"3\r\n" + good + b"\r\n0\r\n\r\n",
        "a chunk without its end": line + host + chunked + b"\r\n" + chunk[:-2] + b"0\r\n\r\n",
        "a size 0x1": line + host + chunked + b"\r\n0x" + chunk + b"0\r\n\r\n",
        "a size and a blank": line + host + chunked + b"\r\n" + chunk.replace(b"\r\n", b" \r\n", 1) + b"0\r\n\r\n",
        "chunks with LF": line + host + chunked + b"\r\n" + chunk.replace(b"\r\n", b"\n") + b"0\n\n",
        "a size beyond 64 bits": line + host + chunked + b"\r\n1000000000000000" + chunk + b"0\r\n\r\n",
        "a length after the chunks": line + host + chunked + b"\r\n" + chunk + b"0\r\nContent-Length: 5\r\n\r\n",
        "a continued line": line + host + b"X: a\r\n b\r\n" + length + b"\r\n" + good,
        "a continued length": line + host + b"X: a\r\n\tContent-Length: 3\r\n" + length + b"\r\n" + good,
        "a blank at the beginning": line + b" X: a\r\n" + host + length + b"\r\n" + good,
        "two hosts": line + host + host + length + b"\r\n" + good, "no host": line + length + b"\r\n" + good,
        "a host with a blank": line + b"Host: a b\r\n" + length + b"\r\n" + good,
        "LF": plain.replace(b"\r\n", b"\n"), "one LF": plain.replace(b"\r\n", b"\n", 1), "CR": plain.replace(b"\r\n", b"\r"),
        "LF in a value": line + host + b"X: a\nContent-Length: 3\r\n" + length + b"\r\n" + good,
        "CR in a value": line + host + b"X: a\rContent-Length: 3\r\n" + length + b"\r\n" + good,
        "NUL in a value": line + host + b"X: a\0b\r\n" + length + b"\r\n" + good,
        "no colon": line + host + b"Foo\r\n" + length + b"\r\n" + good,
        "no name": line + host + b": a\r\n" + length + b"\r\n" + good,
        "a blank in a name": line + host + b"X Y: a\r\n" + length + b"\r\n" + good,
        "two blanks": plain.replace(b"POST ", b"POST  "), "a tab": plain.replace(b"POST ", b"POST\t"),
        "bytes beyond ASCII": plain.replace(b"/predict", b"/\xff"),
        "a longer version": plain.replace(b"HTTP/1.1", b"HTTP/1.10"), "four words": plain.replace(b" HTTP", b" x HTTP")}
    with Server("table.strata") as server:
        def codes(sent):
            with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as raw:
                raw.sendall(sent)
                return [code.decode() for code in re.findall(rb"HTTP/1\.1 ([0-9]+) ", until_closed(raw))]
        for name, request in accepted.items():
            equal((name, codes(request + after)), (name, ["200", "200"]))
        for name, request in refused.items():
            equal((name, codes(request + after)), (name, ["400"]))
        equal(codes(line + host + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + chunk + after), ["501"])
        equal(codes(plain.replace(b"HTTP/1.1", b"HTTP/2.0") + after), ["505"])
        equal(codes(line + host + length + b"Expect: luck\r\n\r\n" + good + after), ["417"])
        # A client that waits for leave gets it, unless the body is too large.
        for size, answers in ((len(good), ["100", "200"]), (1 << 25, ["413"])):
            with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as raw:
                head = line + host + b"Connection: close\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n" % size
                raw.sendall(head)
                first = raw.recv(12)
                if first.endswith(b"100"):
                    raw.sendall(good)
                equal([code.decode() for code in re.findall(rb"HTTP/1\.1 ([0-9]+)", first + until_closed(raw))], answers)
        code, content = server.ask("HEAD", "/health")
        equal((code, content), (200, b""))


def wrong_requests_get_an_answer_that_says_what():
    cases = [
        (400, "expected a key", b"{"), (400, "must be an object", b"[1]"), (400, 'has no "rows"', b"{}"),
        (400, "1 to 1048576", b'{"rows": []}'), (400, 'has no column "', b'{"rows": [{"a": 1}]}'),
        (400, "which is not a number", b'{"rows": [{"a": "z", "b": 1, "kind": "x"}]}'),
        (400, 'rows[1]: has no column "kind"', b'{"rows": [{"a": 1, "b": 1, "kind": "x"}, {"a": 1, "b": 2}]}'),
        (400, "has 2 cells, the first row has 3", b'{"rows": [[1, 1, "x"], [1, 2]]}'),
        (400, 'has no column "kind"; is it "Kind"?', b'{"rows": [{"a": 1, "b": 1, "Kind": "x"}]}'),
        (400, "must be a number, a text, true, false or null", b'{"rows": [{"a": 1, "b": 1, "kind": [1]}]}'),
        (400, "UTF-8", b'{"rows": "\xff"}'),
        (400, 'did you mean "rows"', b'{"rowz": []}'), (400, "", b"\0\0\0"), (400, "", b""), (400, "", b"[" * 100000),
        (400, "", b'{"rows": ' + b"[" * 50000 + b"]" * 50000 + b"}"), (400, "", b'{"rows": [{"a": NaN, "b": 1, "kind": "x"}]}'),
        (400, "", b'{"rows": [{"a": 1e999, "b": 1, "kind": "x"}]}'),
        (400, "", b'{"rows": [{"a": -Infinity, "b": 1, "kind": "x"}]}')]
    with Server("table.strata", "--max-request", "0.5", "--idle", "3", "--max-waiting", "300") as server:
        for code, words, body in cases:
            got, answer = server.post(body)
            equal((got, words in answer["error"] or answer["error"]), (code, True))
        for method, path, code in (("GET", "/predict", 405), ("POST", "/health", 405), ("GET", "/etc/passwd", 404)):
            equal(server.ask(method, path)[0], code)
        equal(server.ask("POST", "/predict", b"x" * 600000)[0], 413)

        def chunks():
            for _ in range(10):
                yield b"x" * 100000
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
        connection.request("POST", "/predict", chunks(), encode_chunked=True, headers={"Transfer-Encoding": "chunked"})
        equal(connection.getresponse().status, 413)
        connection.close()
        raw = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
        raw.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n")
        equal(raw.recv(12), b"HTTP/1.1 413")  # although no body was sent
        raw.close()
        # not HTTP, a head without an end, a body that is not sent, and a client that closes the connection
        for sent in (b"\x16\x03\x01\x02\0", b"GET /hea", b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"):
            raw = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
            start = time.monotonic()
            raw.sendall(sent)
            while raw.recv(4096):
                pass
            assert time.monotonic() - start < PATIENCE, f"{sent!r} held a connection"
            raw.close()
        raw = socket.create_connection(("127.0.0.1", server.port))
        raw.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 20\r\n\r\n{\"rows\"")
        raw.close()
        equal(server.ask("GET", "/health")[0], 200)


def raw_bytes_are_answered_or_cut_off():
    good = json.dumps({"rows": [{"a": 1, "b": 1, "kind": "x"}]}).encode()
    head = b"POST /predict HTTP/1.1\r\nHost: x\r\n"
    request = head + b"Content-Length: %d\r\n\r\n" % len(good) + good
    with Server("table.strata", "--max-request", "0.1", "--idle", "4") as server:
        def connect():
            return socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)

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
        assert time.monotonic() - start < PATIENCE
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


def silent_connections_keep_nobody_out():
    row = next(table_rows())
    with Server("table.strata", "--connections", "4", "--idle", "600") as server:
        start = time.monotonic()
        client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
        silent = []
        for i in range(10):
            client.request("POST", "/predict", json.dumps({"rows": [row]}))
            equal(client.getresponse().read() != b"", True)
            silent.append(socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE))
        equal(server.post({"rows": [row]})[0], 200)
        assert time.monotonic() - start < PATIENCE
        sockets = {client.sock}
        client.request("POST", "/predict", json.dumps({"rows": [row]}))
        equal(client.getresponse().status, 200)
        equal({client.sock}, sockets)  # the client that sends requests has kept its connection
        for other in silent:
            other.close()
        client.close()


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
for check in (answers_are_those_of_predict, requests_of_many_clients_share_batches,
              a_client_that_is_alone_does_not_wait, silent_connections_keep_nobody_out, truth_is_a_word_of_the_table,
              truth_is_no_word_of_another_column, what_is_unknown_is_told,
              requests_that_can_be_read_in_two_ways_are_refused, wrong_requests_get_an_answer_that_says_what,
              raw_bytes_are_answered_or_cut_off, arrays_of_numbers, numbers_of_rows_are_read_as_numbers,
              rows_of_words_have_no_header, pictures_are_sent_as_they_are):
    print(check.__name__)
    check()
