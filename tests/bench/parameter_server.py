#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The strategy parameter_server on this machine: beside multi_worker_mirrored, with a slow worker, and what it learns.

    python3 tests/bench/record.py parameter_server python3 tests/bench/parameter_server.py [--strata build/release/strata]
        [--data ../shared/data] [--rounds 5] [--only TEXT]

Rows alternate with what they are compared with; the figures are medians. TensorFlow's are those of tf_parameter_server.py on
another machine with two cores (batch 64, 2 workers and 1 server), as TensorFlow is not installed here: they say the order of
magnitude alone. Synchronous steps have the batches of
all workers, so an epoch has fewer updates than asynchronously; of two epochs the second is measured. Exit code 1: a ratio is
below what was asked for."""
import argparse
import json
import os
import pathlib
import signal
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

    def train(self, task, *more, epochs=2):
        data = {"mnist": "mnist", "imdb": "imdb", "imdb_sparse": "imdb"}[task]
        sparse = ["--set", "layers.0.sparse=true"] if task == "imdb_sparse" else []
        return [self.opts.strata, "train", data, "--data", f"{self.opts.data}/{data}", "--batch", "64", "--epochs", str(epochs),
                "--seed", "1", "--json", *sparse, *more]

    def run(self, command, slow=None):
        """The chief's result. slow: the number of a worker that is stopped nine tenths of the time."""
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

    def servers(self, task, workers, n_servers, *more, slow=None, epochs=2):
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
    """Stops the process whose TF_CONFIG says that it is this worker, for 9 of 10 parts of 50 ms."""
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
    for workers in (1, 2, 4, 8):
        row(f"mnist, {workers} workers + 1 server", f"{jobs.alternate(lambda w=workers: jobs.servers('mnist', w, 1))[0]:,.0f}")


def stragglers(jobs):
    free, together = jobs.alternate(lambda: jobs.servers("mnist", 4, 1, slow=3),
                                    lambda: jobs.servers("mnist", 4, 1, "--sync", slow=3))
    row("mnist, 4 workers, one slowed by 10: asynchronous / synchronous", f"{free:,.0f}", f"{together:,.0f}",
        free / together, 3)


def accuracy(jobs):
    for task, epochs in (("mnist", 5), ("imdb_sparse", 2)):
        sync = jobs.servers(task, 4, 1, "--sync", epochs=epochs)["test_accuracy"]
        for name, more in (("staleness 4", ("--staleness", "4")), ("asynchronous", ())):
            ours = jobs.servers(task, 4, 1, *more, epochs=epochs)["test_accuracy"]
            row(f"{task.split('_')[0]}, 4 workers, accuracy: {name} - synchronous + 1", f"{ours:.4f}", f"{sync:.4f}",
                ours - sync + 1, 0.99)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("--strata", default=str(root / "build/release/strata"))
    parser.add_argument("--data", default=str(root / "../shared/data"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="speed, stragglers or accuracy")
    jobs = Jobs(parser.parse_args())
    print("| what | samples/s, or accuracy | other | ratio | asked for |\n|---|---|---|---|---|")
    for part in (speed, stragglers, accuracy):
        if jobs.opts.only in part.__name__:
            part(jobs)
    print(f"\n{missed} missed")
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
