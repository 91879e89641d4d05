# SPDX-License-Identifier: Apache-2.0
"""Runs jobs of the strategy parameter_server in which tasks are lost, and prints what is wrong. The exit code is 1 if anything
is.

usage: launch_lost.py STRATA FOLDER      FOLDER/data has the data set
"""

import concurrent.futures
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

strata, folder = sys.argv[1:]
train = [strata, "train", "mnist", "--data", folder + "/data", "--device", "host", "--batch", "30"]
PATIENCE = 240  # seconds: far longer than any of these jobs takes
# Runs what follows as this task of a job does, unless it is task $1, which does $2 instead.
UNLESS = """case $TF_CONFIG in *'"type":"'"${1%:*}"'","index":'"${1#*:}"'}'*) eval "$2" ;; esac; shift 2; exec "$@\""""
lost_before = ["sh", "-c", UNLESS, "sh"]
wrong = []


def check(job, what, ok, more=""):
    if not ok:
        wrong.append(job)
        print(f"{job}: {what}", *[f"    {line}" for line in more.splitlines()[-15:]], sep="\n")


def find(job, task):
    """The process that is this task of the job whose process is `job`."""
    kind, index = task.split(":")
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            parent = int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[1])
            if parent == job.pid and f'"type":"{kind}","index":{index}}}' in open(f"/proc/{pid}/environ").read():
                return int(pid)
        except (OSError, IndexError):
            pass
    return None


class Job:
    """A job, and what it has printed so far."""

    def __init__(self, words):
        self.run = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                    text=True)
        self.text = ""
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.run.stdout:
            self.text += line

    def wait_for(self, pattern):
        end = time.monotonic() + PATIENCE
        while not re.search(pattern, self.text) and self.run.poll() is None and time.monotonic() < end:
            time.sleep(0.02)

    def end(self):
        try:
            code = self.run.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.run.send_signal(signal.SIGTERM)
            code = "it does not end"
        self.reader.join()
        return code


def launched(name, options, command, code, texts, send=None, never=()):
    """send: (signal, tasks), which is sent in the first epoch. code, texts: what the job must end with and print."""
    job = Job([strata, "launch", "--grace", "1", *options, "--", *command])
    if send:
        job.wait_for("epoch 1/")
        for task in send[1]:
            os.kill(find(job.run, task), send[0])
    ended = job.end()
    check(name, f"its exit code is {ended}, not {code}", ended == code, job.text)
    for text in texts:
        check(name, f'it does not say "{text}"', text in job.text, job.text)
    for text in never:
        check(name, f'it says "{text}"', text not in job.text, job.text)


class Proxy(threading.Thread):
    """Forwards connections to a port of this host, until it is cut: then they close, and nobody gets an answer any more."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.to, self.whole = port, True
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.pairs = []

    def run(self):
        while True:
            near = self.listener.accept()[0]
            self.pairs.append(near)
            if not self.whole:
                continue
            far = socket.create_connection(("127.0.0.1", self.to))
            self.pairs.append(far)
            for a, b in ((near, far), (far, near)):
                threading.Thread(target=self.forward, args=(a, b), daemon=True).start()

    def forward(self, a, b):
        while self.whole:
            try:
                data = a.recv(1 << 16)
                if not data:
                    break
                b.sendall(data)
            except OSError:
                break

    def cut(self):
        self.whole = False
        for pair in self.pairs:
            try:
                pair.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def free_ports(n):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def one_link_is_cut():
    """worker:1 does not reach ps:0 any more, and all other links are well: it is left out, and worker:0 goes on."""
    chief, ps, *workers = free_ports(4)
    proxy = Proxy(ps)
    proxy.start()
    jobs = {}
    for task in ("ps:0", "chief:0", "worker:0", "worker:1"):
        own = proxy.port if task == "worker:1" else ps
        cluster = f"chief=127.0.0.1:{chief};worker=127.0.0.1:{workers[0]},127.0.0.1:{workers[1]};ps=127.0.0.1:{own}"
        jobs[task] = Job([*train, "--epochs", "200", "--wait", "120", "--strategy", "parameter_server", "--cluster", cluster,
                          "--cluster-role", task.split(":")[0], "--task", task])
    jobs["chief:0"].wait_for("epoch 1/")
    proxy.cut()
    codes = {task: job.end() for task, job in jobs.items()}
    text = jobs["chief:0"].text
    well = [codes[task] for task in ("chief:0", "ps:0", "worker:0")]
    check("one link is cut", f"its exit codes are {codes}", well == [0, 0, 0], text)
    check("one link is cut", "worker:1 ends well", codes["worker:1"] != 0, jobs["worker:1"].text)
    check("one link is cut", "worker:1 is not left out", "worker:1 was lost (it is left out" in text, text)
    check("one link is cut", "the link is not named", f"ps:0 at 127.0.0.1:{proxy.port}" in text, text)
    check("one link is cut", "worker:0 is blamed", "worker:0 was lost" not in text, text)
    check("one link is cut", "not all epochs ended", "epoch 200/200" in text, text)


def a_rank_0_is_stopped_while_ranks_gather():
    """The time in which rank 0 is stopped does not count: rank 1 comes after it, and the job is done."""
    ports = free_ports(2)
    cluster = f"127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}"
    words = [*train, "--epochs", "1", "--wait", "15", "--strategy", "multi_worker_mirrored", "--cluster", cluster, "--task"]
    first = Job([*words, "worker:0"])
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:  # until it listens
        try:
            socket.create_connection(("127.0.0.1", ports[0])).close()
            break
        except OSError:
            time.sleep(0.05)
    first.run.send_signal(signal.SIGSTOP)
    time.sleep(16)
    first.run.send_signal(signal.SIGCONT)
    second = Job([*words, "worker:1"])
    codes = [second.end(), first.end()]
    check("rank 0 is stopped while ranks gather", f"the exit codes are {codes}", codes == [0, 0], first.text + second.text)


two = ["--workers", "2", "--ps", "1"]
few, many = [*train, "--epochs", "3", "--wait", "120"], [*train, "--epochs", "300", "--wait", "120"]
# None of these jobs waits for --wait.
jobs = [
    one_link_is_cut,
    a_rank_0_is_stopped_while_ranks_gather,
    lambda: launched("a worker that is killed before it joins", two, [*lost_before, "worker:1", "kill -9 $$", *few], 0,
                     ["worker:1 ended (exit code 137) before it joined", "epoch 3/3"]),
    lambda: launched("workers that fail before they join", ["--workers", "1", "--ps", "1"],
                     [*lost_before, "worker:0", "kill -9 $$", *few], 162, ["worker:0 ended before they joined"]),
    lambda: launched("a worker that fails before it joins", two, [*lost_before, "worker:1", "exit 7", *few], 162,
                     ["worker:1 ended (exit code 7) before it joined"]),
    lambda: launched("a worker that ends well before it joins", two, [*lost_before, "worker:1", "exit 0", *few], 162,
                     ["worker:1 ended (exit code 0) before it joined"]),
    lambda: launched("a server that is killed before it joins", two, [*lost_before, "ps:0", "kill -9 $$", *few], 162,
                     ["ps:0 ended (exit code 137) before the training began"]),
    lambda: launched("a worker that is stopped", two, many, 0, ["epoch 300/300", "worker:1 is stopped (SIGSTOP)"],
                     (signal.SIGSTOP, ["worker:1"])),
    lambda: launched("workers that are killed", two, many, 162, ["no worker is left: all have ended"],
                     (signal.SIGKILL, ["worker:0", "worker:1"])),
    lambda: launched("a chief that is stopped", two, [*many, "--wait", "10"], 137, ["chief:0 is stopped (SIGSTOP)"],
                     (signal.SIGSTOP, ["chief:0"])),
    lambda: launched("a worker that runs on", [*two, "--linger", "1"],
                     ["sh", "-c", """"$@"; case $TF_CONFIG in *'"type":"worker","index":1}'*) sleep 300 ;; esac""", "sh", *few],
                     0, ["worker:1 still runs 1 s after"]),
    lambda: launched("a rank that is stopped", ["-n", "2"],
                     ["sh", "-c", 'if [ "$STRATA_LOCAL_RANK" = 1 ]; then kill -STOP $$; fi'], 137,
                     ["worker 1 is stopped (SIGSTOP)"]),
]
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    for done in [pool.submit(job) for job in jobs]:
        done.result()
sys.exit(bool(wrong))
