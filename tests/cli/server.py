#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A server for fetch_test.sh: server.py FOLDER. At every path it serves the same 300,000 bytes, which it writes to
FOLDER/body. The first part of the path chooses how: plain; moved (redirects); missing; wrong (changes a byte); deaf
(ignores Range); breaks (closes the connection after 40,000 bytes); once (breaks only the first time); slow. Each request is
appended to FOLDER/log. FOLDER/port contains the port as soon as it listens."""
import http.server
import os
import random
import sys
import time

FOLDER = sys.argv[1]
BODY = random.Random(1).randbytes(300000)
BREAK = 40000
seen = {}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def answer(self, how, first):
        part = BODY[first:]
        if how == "wrong":
            part = part[:-1] + bytes([part[-1] ^ 1])
        self.send_response(206 if first else 200)
        self.send_header("Content-Length", str(len(part)))
        if first:
            self.send_header("Content-Range", f"bytes {first}-{len(BODY) - 1}/{len(BODY)}")
        self.end_headers()
        if how == "breaks" or (how == "once" and seen[how] == 1):
            part = part[:BREAK]
            self.close_connection = True
        if how != "slow":
            self.wfile.write(part)
        for i in range(0, len(part) if how == "slow" else 0, 1000):
            self.wfile.write(part[i:i + 1000])
            time.sleep(0.1)

    def do_GET(self):
        how, given = self.path.split("/")[1], self.headers.get("Range")
        with open(FOLDER + "/log", "a") as log:
            log.write(f"{how} {given}\n")
        seen[how] = seen.get(how, 0) + 1
        if how == "missing":
            self.send_error(404)
        elif how == "moved":
            self.send_response(302)
            self.send_header("Location", "/plain/x")
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            first = int(given[6:].split("-")[0]) if given and how != "deaf" else 0
            if first >= len(BODY):
                self.send_error(416)
            else:
                self.answer(how, first)


with open(FOLDER + "/body", "wb") as file:
    file.write(BODY)
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
with open(FOLDER + "/port.new", "w") as file:
    file.write(str(server.server_address[1]))
os.rename(FOLDER + "/port.new", FOLDER + "/port")
server.serve_forever()
