#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the strategy parameter_server on this machine: its speed compared with multi_worker_mirrored, with a slow
worker, and the accuracy that it reaches.

    python3 tests/bench/record.py parameter_server python3 tests/bench/parameter_server.py [--strata build/release/strata]
        [--data ../shared/data] [--rounds 5] [--only TEXT]

Each program runs alternately with the one that it is compared with, and the numbers are medians. TensorFlow's numbers are
those of tf_parameter_server.py on another machine with two cores (batch 64, 2 workers and 1 server), because TensorFlow is
not installed here; they only show the order of magnitude. `links` and `fold` measure without a model, with
build/release/suites/bench_push_pull. `model` fits the model of cluster/README.md to 1 and 8 workers and compares its
prediction for 2 and 4. A synchronous step contains the batches of all workers, so its epoch has fewer updates than an
asynchronous one. Each job has six epochs, and the median of those after the first is measured: an epoch of imdb takes less than
a tenth of a second.
Exit code 1: a ratio is below its limit."""
import argparse
import json
import math
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time

TENSORFLOW = {"mnist": (("as its tutorials write it", 10200, 15), ("10 steps a closure", 25300, 6)), "imdb": (("", 8400, 20),)}
missed = 0


def row(name, value, other="", ratio=None, asked=None):
    global missed
    low = asked is not None and ratio < asked
    missed += low
    print(f"| {name} | {value} | {other} | {'' if ratio is None else f'{ratio:.2f}'} | "
          f"{'' if asked is None else f'{asked:.2f}'}{' missed' if low else ''} |", flush=True)


class Jobs:
    def __init__(self, opts):
        self.opts = opts
        self.seed = 1

    def train(self, task, *more, epochs=6):
        data = task.split("_")[0]
        sparse = ["--set", "layers.0.sparse=true"] if task == "imdb_sparse" else []
        return [self.opts.strata, "train", data, "--data", f"{self.opts.data}/{data}", "--batch", "64", "--epochs", str(epochs),
                "--seed", str(self.seed), "--json", *sparse, *more]

    def run(self, command, slow=None):
        """Returns the result of the chief. slow: the number of a worker that is stopped for nine tenths of the time."""
        job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        done, stops = threading.Event(), []
        thread = threading.Thread(target=hinder, args=(job.pid, slow, done, stops)) if slow is not None else None
        if thread:
            thread.start()
        out, err = job.communicate()
        done.set()
        if thread:
            thread.join()
            if len(stops) < 10:
                sys.exit(f"worker:{slow} was stopped {len(stops)} times only: the row would compare nothing")
        if job.returncode:
            sys.exit(f"{' '.join(command)}: exit code {job.returncode}\n{err[-2000:]}")
        return json.loads(out.splitlines()[-1])

    def servers(self, task, workers, n_servers, *more, slow=None, epochs=6):
        launch = [self.opts.strata, "launch", "--workers", str(workers), "--ps", str(n_servers), "--"]
        return self.run(launch + self.train(task, "--strategy", "parameter_server", *more, epochs=epochs), slow)

    def mirrored(self, task, workers):
        launch = [self.opts.strata, "launch", "-n", str(workers), "--"]
        return self.run(launch + self.train(task, "--strategy", "multi_worker_mirrored"))

    def alternate(self, *calls):
        rounds = [[call()["samples_per_s"] for call in calls] for _ in range(self.opts.rounds)]
        return [statistics.median(r[i] for r in rounds) for i in range(len(calls))]


def children(pid):
    tasks = pathlib.Path(f"/proc/{pid}/task/{pid}/children")
    found = [int(c) for c in tasks.read_text().split()] if tasks.exists() else []
    return found + [g for c in found for g in children(c)]


def hinder(launch, worker, done, stops):
    """Stops the process whose TF_CONFIG contains this worker, for 9 of 10 parts of 50 ms."""
    pid = None
    while pid is None and not done.is_set():
        for child in children(launch):
            try:
                text = pathlib.Path(f"/proc/{child}/environ").read_bytes().split(b"TF_CONFIG=", 1)[1].split(b"\0")[0]
                task = json.loads(text)["task"]
            except (OSError, IndexError, ValueError, KeyError):
                continue
            if task == {"type": "worker", "index": worker}:
                pid = child
        time.sleep(0.02)
    try:
        while not done.is_set():
            os.kill(pid, signal.SIGSTOP)
            stops.append(pid)
            time.sleep(0.045)
            os.kill(pid, signal.SIGCONT)
            time.sleep(0.005)
    except (ProcessLookupError, TypeError):
        pass  # it has ended; the caller counts the stops


def speed(jobs):
    for task, asked in (("mnist", 0.6), ("imdb_sparse", 1.0)):
        plain = task.split("_")[0]
        ours, mirrored = jobs.alternate(lambda t=task: jobs.servers(t, 2, 1), lambda t=plain: jobs.mirrored(t, 2))
        sparse = ", sparse rows" if task != plain else ""
        row(f"{plain}{sparse}, 2 workers + 1 server, beside multi_worker_mirrored", f"{ours:,.0f}", f"{mirrored:,.0f}",
            ours / mirrored, asked)
        for how, figure, times in TENSORFLOW[plain]:
            row(f"{plain}, beside TensorFlow's {how}".rstrip(), f"{ours:,.0f}", f"{figure:,}", ours / figure, times)


def size(jobs):
    """A batch of 64 texts uses about 2,400 different words. That is a quarter of the sample's vocabulary, so what was asked for
    is out of reach there. The training data have about 88,000 different words."""
    bf16, all_words = ("--compress", "bf16"), ("--set", "layers.0.vocabulary=88000")
    for name, more, asked in (("imdb", (), 20), ("imdb with a vocabulary of 88,000, all words of the data", all_words, 20)):
        dense, sparse, narrow = (jobs.servers(task, 2, 1, *more, *wire, epochs=1)["server_bytes_per_step"]
                                 for task, wire in (("imdb", ()), ("imdb_sparse", ()), ("imdb_sparse", bf16)))
        what = f"{name}, bytes that a batch pushes and pulls: dense"
        row(f"{what} / sparse rows", f"{sparse:,.0f}", f"{dense:,.0f}", dense / sparse, asked)
        row(f"{what} in f32 / sparse rows in bf16 (--compress bf16)", f"{narrow:,.0f}", f"{dense:,.0f}", dense / narrow)


def push_pull(jobs, *command):
    program = pathlib.Path(jobs.opts.strata).parent / "suites/bench_push_pull"
    out = subprocess.run([program, *command], capture_output=True, text=True, check=True, timeout=120).stdout
    return [json.loads(line) for line in out.splitlines()]


def links(jobs):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    for m in push_pull(jobs, "links", f"127.0.0.1:{port}"):
        for what in ("push", "pull"):
            rate, message = (m["bytes"] / m[f"{k}_s"] / 1e9 for k in (what, "message"))
            row(f"{what} of {m['bytes'] >> 10} KiB beside a message of the all_reduce transport shm, GB/s", f"{rate:.2f}",
                f"{message:.2f}", rate / message, 0.8)


def fold(jobs):
    runs = [push_pull(jobs, "fold")[0] for _ in range(jobs.opts.rounds)]
    ours, copied = (statistics.median(r[k] for r in runs) / 1e9 for k in ("fold_bytes_per_s", "memcpy_bytes_per_s"))
    row("the sum of 8 workers' gradients on 2 servers beside memcpy, GB/s", f"{ours:.1f}", f"{copied:.1f}", ours / copied, 0.5)


def model(jobs):
    """The seconds per batch of a worker are known from 1 worker, those of the cores from 8; both predict 2 and 4 workers."""
    counts, cores = (1, 2, 4, 8), len(os.sched_getaffinity(0))
    rates = dict(zip(counts, jobs.alternate(*(lambda w=w: jobs.servers("mnist", w, 1) for w in counts))))
    alone, busy = 64 / rates[1], cores * 64 / rates[8]
    for w in counts:
        said = 64 * min(w / alone, cores / busy)
        row(f"mnist, {w} workers + 1 server, beside the model of cluster/README.md", f"{rates[w]:,.0f}", f"{said:,.0f}",
            rates[w] / said)
    moved = jobs.servers("mnist", 1, 1, epochs=1)["server_bytes_per_step"]
    for gbit in (1, 10, 100):
        needed = [math.ceil(w * (moved / 2 * 8 / (gbit * 1e9)) / alone) for w in (8, 64, 512)]
        row(f"mnist, servers for 8, 64, 512 workers with cores of their own and {gbit} Gbit/s both ways",
            ", ".join(map(str, needed)))


def stragglers(jobs):
    free, together = jobs.alternate(lambda: jobs.servers("mnist", 4, 1, slow=3),
                                    lambda: jobs.servers("mnist", 4, 1, "--sync", slow=3))
    row("mnist, 4 workers, one slowed by 10: asynchronous / synchronous", f"{free:,.0f}", f"{together:,.0f}",
        free / together, 3)


def accuracy(jobs):
    """The accuracy after the samples' epochs, as the mean of three seeds. A synchronous step contains a batch of each of the
    four workers. So there are two asynchronous runs to compare with: with as many examples in a batch, and with a quarter
    of them, which makes as many updates with as many examples each."""
    for task, epochs in (("mnist", 5), ("imdb_sparse", 2), ("cifar10", 1)):
        def mean(*more, t=task, e=epochs):
            found = []
            for jobs.seed in (1, 2, 3):
                found.append(jobs.servers(t, 4, 1, *more, epochs=e)["test_accuracy"])
            jobs.seed = 1
            return statistics.mean(found)

        if jobs.opts.task not in task:
            continue
        others = (("synchronous", mean("--sync")), ("synchronous with batches of 16", mean("--sync", "--batch", "16")))
        for name, more in (("staleness 4", ("--staleness", "4")), ("asynchronous", ())):
            ours, plain = mean(*more), mean(*more, "--old-gradients", "plain")
            for other, sync in others:
                row(f"{task.split('_')[0]}, 4 workers, accuracy: {name} - {other} + 1", f"{ours:.4f}", f"{sync:.4f}",
                    ours - sync + 1, 0.99)
            row(f"{task.split('_')[0]}, 4 workers, accuracy: {name} beside old gradients plain", f"{ours:.4f}", f"{plain:.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("--strata", default=str(root / "build/release/strata"))
    parser.add_argument("--data", default=str(root / "../shared/data"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="speed, size, links, fold, model, stragglers or accuracy")
    parser.add_argument("--task", default="", help="of accuracy: mnist, imdb or cifar10")
    jobs = Jobs(parser.parse_args())
    print("| what | samples/s, or accuracy | other | ratio | asked for |\n|---|---|---|---|---|")
    for part in (speed, size, links, fold, model, stragglers, accuracy):
        if jobs.opts.only in part.__name__:
            part(jobs)
    print(f"\n{missed} missed")
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
