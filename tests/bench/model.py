#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Predicts the time of an all_reduce and of a training step from a few constants (alpha, beta, gamma; cluster/README.md has
the formulas). It measures a few sizes and numbers of ranks on this machine, predicts the others and compares; it does so
also over links whose speed tc limits, in network namespaces. Then it prints a table of up to 1,000 ranks, each on its
own host.

    python3 tests/bench/model.py --strata build/release/strata [--rounds 3] [--latency-us 10] [--no-links]

The exit code is 1 if the median error of a part is larger than --tolerance. If `chrt` is permitted, all runs have priority
over other processes of the machine."""
import argparse
import itertools
import json
import math
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

HERE = os.path.dirname(os.path.abspath(__file__))
ALGORITHMS_C = os.path.join(HERE, "../../cluster/collective/algorithms.c")
CORES = len(os.sched_getaffinity(0))
MOST_RANKS = 8  # the largest number of ranks that is measured
FIT_SIZES, OTHER_SIZES = (4, 16 << 10, 256 << 10, 4 << 20), (4 << 10, 64 << 10, 1 << 20)
BATCH = 128  # the batch of the training that is measured
BUCKET, MOST_BUCKETS = 256 << 10, 8  # bytes of a bucket of gradients, and most buckets (strategies/README.md)
RESNET50 = 25557032 * 4  # bytes of the gradients of ResNet-50
LINKS_GBIT = (1, 10, 100)  # speeds of links in the table
BACKWARD = 2 / 3  # share of the backward pass in a step, during which gradients may be exchanged


# ---- the work of each algorithm in cluster/collective/ ----


@dataclass
class Work:
    hops: int  # exchanges of which each waits for the one before it
    messages: int  # messages of all ranks together
    moved: int  # bytes that all ranks send
    folded: int  # bytes that all ranks read when they add, and bytes that they copy
    link: float  # bytes that are transmitted one after the other
    starts: int = 1  # how many of these transmissions use a link that was idle before
    carried: float = 0  # bytes of the busiest link; 0: as many as `link`


def segment_bytes(transport, p):
    """The size of the largest message, from transport/tcp.c and transport/memory.c."""
    return 256 << 10 if transport == "tcp" else min(256 << 10, max(4 << 10, (2 << 20) // (2 * p) // 4096 * 4096))


def one_shot(p, s, segment, transport):
    k = max(1, math.ceil(s / segment))
    moved = p * s if transport == "shm" else p * (p - 1) * s  # in shared memory all ranks read the same copy
    return Work(k, p * (p - 1) * k, moved, p * p * s, (p - 1) * s)


def two_shot(p, s, segment, transport):
    k = max(1, math.ceil(s / p / segment))  # exchange i transmits segment i and the sum of segment i - 1
    return Work(k + 1, 2 * p * (p - 1) * k, 2 * (p - 1) * s, p * s, 2 * s * (p - 1) / p)


def ring(p, s, segment, transport):
    k = max(1, math.ceil(s / segment))
    # The first segment needs 2 (p-1) hops, and each further segment one more. Where sums and results use the same link, each
    # segment beyond the p segments that are in transit needs two.
    slots = k + 1 if p == 2 else k + p - 3 + max(p, k)
    return Work(slots, 2 * (p - 1) * k, 2 * (p - 1) * s, p * s, slots * s / k, 2 * (p - 1), s if p == 2 else 2 * s)


def halving_doubling(p, s, segment, transport):
    block = math.ceil(s / p)
    w = Work(0, 0, 0, 3 * p * s, 0)  # in, fold, out
    for step in (1 << i for i in range((p - 1).bit_length())):
        there, back = sum(1 for i in range(p) if i & step) * block, min(step, p - step) * block
        k = max(1, math.ceil(there / segment)) + max(1, math.ceil(back / segment))
        w.hops += k
        w.messages += p * k
        w.moved += p * (there + back)
        w.folded += 2 * p * there  # packed, unpacked
        w.link += there + back
    return w


ALGORITHMS = {"one_shot": one_shot, "two_shot": two_shot, "ring": ring, "halving_doubling": halving_doubling}


def work(algorithm, p, s, transport="tcp"):
    return ALGORITHMS[algorithm](p, s, segment_bytes(transport, p), transport)


def choices():
    """Reads the rows of `choices` in algorithms.c, so that the table exists only once: (only for several hosts, only without
    shared memory, most ranks, most bytes, most bytes of a slice, algorithm)."""
    limits = {"SIZE_MAX": math.inf, "INT32_MAX": math.inf}

    def number(text):
        value, shift = (text.split("<<") + ["0"])[:2]
        return limits[text] if text in limits else int(value) << int(shift)

    with open(ALGORITHMS_C) as f:
        rows = re.findall(r'\{(true|false), (true|false), (\w+), ([^,{}]+), ([^,{}]+), ROW_(\w+)\}', f.read())
    return [(h == "true", b == "true", number(p), number(s), number(n), a) for h, b, p, s, n, a in rows]


def choose(p, s, transport="tcp", several_hosts=False, table=choices()):
    return next(a for several, sends_bytes, most_p, most_s, most_slice, a in table
                if several_hosts >= several and not (sends_bytes and transport == "shm")
                and p <= most_p and s <= most_s and s // p <= most_slice)


# ---- the model ----


@dataclass
class Constants:
    alpha: float  # us for each hop, until the waiting rank continues
    message: float  # us of a core for each message
    beta: float  # us of a core for each byte that is sent and received
    gamma: float  # us of a core for each byte that is added or copied

    def __str__(self):
        return f"alpha {self.alpha:5.1f} us  message {self.message:5.1f} us  beta {self.beta * 1e3:.3f} ns/B  gamma {self.gamma * 1e3:.3f} ns/B"


def cores_at_work(p, w, cores, transport):
    """How many cores work at the same time: at most the number of messages that are sent at the same time. A rank that
    sleeps stays on its core, so of three ranks on two cores two share one. In shared memory a waiting rank first yields,
    so all cores are busy."""
    busy = min(p, cores) if transport == "shm" else p / math.ceil(p / cores)
    return min(busy, w.messages / w.hops)


def columns(p, w, cores, transport="tcp"):
    at_work = cores_at_work(p, w, cores, transport)
    return [w.hops, w.messages / at_work, w.moved / at_work, w.folded / at_work]


def on_one_machine(c, p, w, transport):
    return sum(x * y for x, y in zip(columns(p, w, CORES, transport), (c.alpha, c.message, c.beta, c.gamma)))


def over_links(c, p, w, us_per_byte, cores, burst=0, rest_us=0):
    """The cost over links of the ranks' own. The ranks share `cores` (p: each has one). A link that tc limits transmits
    `burst` bytes at once after a pause, but at most what its rate allows in the time `rest_us` until the next sum."""
    hops, messages, moved, folded = columns(p, w, cores)
    at_work = hops * c.alpha + messages * c.message + folded * c.gamma
    on_link = max((w.link - w.starts * burst) * us_per_byte, (w.carried or w.link) * us_per_byte - rest_us)
    return at_work + max(on_link, moved * c.beta)


def solve(a, b):
    """Solves a x = b by Gauss-Jordan elimination. Returns None if a is singular."""
    n, rows = len(b), [row[:] + [y] for row, y in zip(a, b)]
    for i in range(n):
        pivot = max(range(i, n), key=lambda r: abs(rows[r][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        if abs(rows[i][i]) < 1e-9:
            return None
        for r in range(n):
            if r != i:
                factor = rows[r][i] / rows[i][i]
                rows[r] = [x - factor * y for x, y in zip(rows[r], rows[i])]
    return [rows[i][n] / rows[i][i] for i in range(n)]


def fit(points):
    """Finds constants >= 0 with the least squares of relative errors. It tries all choices of constants that are 0, and
    takes the best one without a negative constant. points: (columns, us)."""
    best, found = math.inf, None
    scaled = [[x / us for x in row] for row, us in points]
    norms = [math.sqrt(sum(row[i] ** 2 for row in scaled)) for i in range(4)]
    for n in range(1, 5):
        for used in itertools.combinations(range(4), n):
            rows = [[row[i] / norms[i] for i in used] for row in scaled]
            x = solve([[sum(r[i] * r[j] for r in rows) for j in range(n)] for i in range(n)], [sum(r[i] for r in rows) for i in range(n)])
            if x is None or min(x) < 0:
                continue
            error = sum((sum(a * b for a, b in zip(r, x)) - 1) ** 2 for r in rows)
            if error < best:
                best, found = error, [x[used.index(i)] / norms[i] if i in used else 0 for i in range(4)]
    return Constants(*found)


class Machine:
    """The constants for ranks that each have a core, and for ranks that share cores."""

    def __init__(self, own, shared):
        self.own, self.shared = own or shared, shared or own

    def of(self, p):
        return self.own if p <= CORES else self.shared


def fit_ranks():
    own, shared = {2, min(CORES, 4)}, {CORES + 1, 2 * CORES}
    return [sorted(p for p in ranks if 2 <= p <= MOST_RANKS and (p <= CORES) == is_own) for ranks, is_own in ((own, True), (shared, False))]


# ---- measuring ----


def may_run_first():
    return shutil.which("chrt") and subprocess.run(["chrt", "-f", "1", "true"], stderr=subprocess.DEVNULL,
                                                   check=False).returncode == 0


FIRST = ["chrt", "-f", "1"] if may_run_first() else []


def last_json(text):
    lines = [line for line in text.splitlines() if "{" in line]
    rows = [json.loads(line[line.index("{"):]) for line in lines]
    return [row for row in rows if row.get("event", "result") == "result"]  # a training also prints its epochs


def run_all(commands, **more):
    """Runs the commands at the same time and returns what each printed. All must succeed."""
    running = [subprocess.Popen(FIRST + c, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more) for c in commands]
    said = [p.communicate() for p in running]
    for p, (_, err) in zip(running, said):
        if p.returncode:
            raise RuntimeError(f"{' '.join(p.args)}: exit code {p.returncode}: {err.strip()[-300:]}")
    return [out for out, _ in said]


class Here:
    """The ranks are processes of this host."""

    name, epochs, images = "this machine, shm", 3, 9600

    def __init__(self, strata):
        self.strata = strata

    def prepare(self):
        pass

    def bench(self, p, transport, algorithm, sizes, seconds):
        command = [self.strata, "bench", "allreduce", "--ranks", str(p), "--transport", transport, "--algorithm", algorithm,
                   "--sizes",
                   ",".join(map(str, sizes)), "--seconds", str(seconds), "--json"]
        return {r["bytes"]: r["median_us"] for r in last_json(run_all([command])[0])}

    def train(self, p, arguments):
        """The time in us of a step of the slowest of p workers, or of the chief if only the chief prints it."""
        return slowest(last_json(run_all([[self.strata, "launch", "-n", str(p), "--", self.strata, "train", "mnist", *arguments,
                                           "--json"]])[0]))


def slowest(results):
    return max(r["epoch_s"] / (r["steps"] / r["epochs"]) for r in results) * 1e6


class Links:
    """Each rank is in a network namespace, whose veth is connected to a bridge. tc limits the speed in both directions."""

    def __init__(self, strata, n):
        self.strata, self.n, self.id = strata, n, f"strata-{os.getpid()}-"
        self.spaces = []
        try:
            self.space("switch")
            self.ip("switch", "link", "add", "br0", "type", "bridge")
            self.ip("switch", "link", "set", "br0", "up")
            for k in range(n):
                self.space(k)
                run(["ip", "link", "add", "s0", "netns", self.id + str(k), "type", "veth", "peer", "name", f"p{k}", "netns",
                     self.id + "switch"])
                self.ip("switch", "link", "set", f"p{k}", "master", "br0")
                self.ip("switch", "link", "set", f"p{k}", "up")
                self.ip(k, "addr", "add", f"10.231.78.{k + 1}/24", "dev", "s0")
                for link in ("lo", "s0"):
                    self.ip(k, "link", "set", link, "up")
        except BaseException:
            self.close()
            raise

    def space(self, name):
        run(["ip", "netns", "add", self.id + str(name)])
        self.spaces.append(self.id + str(name))

    def ip(self, name, *arguments):
        run(["ip", "-n", self.id + str(name), *arguments])

    def shaped(self, mbit):
        return Shaped(self, mbit)

    def close(self):
        for space in self.spaces:
            subprocess.run(["ip", "netns", "del", space], check=False)

    def job(self, p, arguments):
        """Returns what the ranks print. Each has its own /dev/shm, so that ranks do not share memory, and its share of the
        cores, as `strata launch` assigns it."""
        cores = sorted(os.sched_getaffinity(0))
        cluster = ",".join(f"10.231.78.{k + 1}:2222" for k in range(p))
        commands = []
        for k in range(p):
            share = cores[k * CORES // p:max((k + 1) * CORES // p, k * CORES // p + 1)]
            commands.append(["taskset", "-c", ",".join(map(str, share)), "ip", "netns", "exec", self.id + str(k), "sh", "-c",
                             'mount -t tmpfs tmpfs /dev/shm && exec "$@"', "sh", self.strata, *arguments, "--cluster", cluster,
                             "--task", str(k), "--json"])
        one = str(max(1, CORES // p))
        return [last_json(text) for text in run_all(commands,
                                                    env={**os.environ, "STRATA_SECRET": self.id, "POCL_MAX_PTHREAD_COUNT": one,
                                                                   "POCL_CPU_MAX_CU_COUNT": one, "LP_NUM_THREADS": one})]


class Shaped:
    """Links with a limited rate. The token bucket is as large as a millisecond of data: a smaller one needs timers more
    often than the kernel has them, and a larger one lets whole messages pass at once after a pause."""

    def __init__(self, links, mbit):
        self.links, self.mbit, self.name, self.burst = links, mbit, f"{mbit} Mbit/s", mbit * 125
        self.epochs, self.images = 2, 3200

    def prepare(self):
        for space, link in [(str(k), "s0") for k in range(self.links.n)] + [("switch", f"p{k}") for k in range(self.links.n)]:
            run(["ip", "netns", "exec", self.links.id + space, "tc", "qdisc", "replace", "dev", link, "root", "tbf", "rate",
                 f"{self.mbit}mbit", "burst",
                 str(self.burst), "latency", "500ms"])

    def predict(self, machine, p, w, rest_us):
        return over_links(machine.of(p), p, w, self.us_per_byte, CORES, self.burst, rest_us)

    def bench(self, p, transport, algorithm, sizes, seconds):
        results = self.links.job(p, ["bench", "allreduce", "--transport", transport, "--algorithm", algorithm, "--sizes",
                                     ",".join(map(str, sizes)),
                                     "--seconds", str(seconds)])
        return {r["bytes"]: r["median_us"] for r in results[0]}

    def train(self, p, arguments):
        return slowest([r for said in self.links.job(p, ["train", "mnist", *arguments]) for r in said])


def missing_for_links():
    """Why this process cannot make such links. None: it can."""
    if os.getuid():
        return "not root"
    if not shutil.which("ip") or not shutil.which("tc"):
        return "no ip and tc (iproute2)"
    trial = f"strata-{os.getpid()}-trial"
    try:
        run(["ip", "netns", "add", trial])
        run(["ip", "-n", trial, "link", "add", "s0", "type", "veth", "peer", "name", "s1"])
        run(["ip", "netns", "exec", trial, "tc", "qdisc", "add", "dev", "s0", "root", "tbf", "rate", "1mbit", "burst", "16kb",
             "latency", "1s"])
        run(["ip", "-n", trial, "link", "add", "br0", "type", "bridge"])
    except RuntimeError as e:
        return str(e)
    finally:
        subprocess.run(["ip", "netns", "del", trial], stderr=subprocess.DEVNULL, check=False)
    return None


def run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stdout.strip()}")
    return done.stdout


def rounds_of(n, measurements):
    """measurements: {key: function that returns {more of the key: us}}. Runs all of them in each round, and returns the
    medians."""
    found = {}
    for _ in range(n):
        for key, measure in measurements.items():
            for more, us in measure().items():
                found.setdefault((*key, more), []).append(us)
    return {key: statistics.median(values) for key, values in found.items()}


# ---- comparing ----


class Report:
    def __init__(self, tolerance):
        self.tolerance, self.missed, self.parts = tolerance, 0, []

    def part(self, name, rows):
        """rows: (name, [(column, measured us, predicted us)])."""
        print(f"\n{name}: ms measured / predicted (error)")
        errors = []
        for what, cells in rows:
            text = ""
            for column, measured, predicted in cells:
                errors.append(predicted / measured - 1)
                text += f"  {column:>5} {measured / 1e3:8.3f} /{predicted / 1e3:8.3f} ({errors[-1]:+4.0%})"
            print(f"  {what:<28}{text}")
        middle, largest = statistics.median(map(abs, errors)), max(map(abs, errors))
        within = sum(abs(e) <= self.tolerance for e in errors)
        self.missed += middle > self.tolerance
        verdict = (f"{len(errors)} predictions, median error {middle:.0%}, {within} within {self.tolerance:.0%}, largest {largest:.0%}: "
                   f"{'MISSED' if middle > self.tolerance else 'reached'}")
        self.parts.append(f"{name}: {verdict}")
        print(f"  {verdict}", flush=True)


def readable(n):
    for unit in ("", "K", "M"):
        if n < 1024 or unit == "M":
            return f"{n:g}{unit}"
        n /= 1024


def table_rows(measured, skipped, predict):
    """measured: {(p, algorithm, size): us}"""
    keys = sorted({k[:2] for k in measured}, key=lambda k: (k[0], list(ALGORITHMS).index(k[1])))
    rows = [(f"{p} ranks {a}", [(readable(k[2]), measured[k],
                                 predict(*k)) for k in measured if k[:2] == (p, a) and k not in skipped]) for p, a in keys]
    return [row for row in rows if row[1]]


def study_here(here, transport, ranks, rounds, report):
    """Fits the constants to a few points, compares the prediction of the others, and returns the constants. In shared memory
    it covers only the algorithms that these numbers of ranks use; over TCP it covers all."""
    sizes = FIT_SIZES + OTHER_SIZES
    taken = {choose(p, s, transport) for p in ranks for s in sizes} if transport == "shm" else ALGORITHMS
    measurements = {(p, a): lambda p=p, a=a: here.bench(p, transport, a, sizes, 0.05) for p in ranks for a in taken}
    measured = rounds_of(rounds, measurements)
    fitted = []
    points = set()
    for some in fit_ranks():
        chosen = [k for k in measured if k[0] in some and k[2] in FIT_SIZES]
        points.update(chosen)
        fitted.append(fit([(columns(p, work(a, p, s, transport), CORES, transport),
                            measured[p, a, s]) for p, a, s in chosen]) if chosen else None)
    machine = Machine(*fitted)
    print(f"\n{transport}, from {len(points)} points: ranks {' and '.join(str(p) for r in fit_ranks() for p in r)}, {', '.join(map(readable, FIT_SIZES))} bytes")
    print(f"  a core for each rank:  {machine.own}\n  ranks share {CORES} cores:  {machine.shared}")
    report.part(f"{transport} on this machine", table_rows(measured, points, lambda p, a, s: on_one_machine(machine.of(p), p, work(a, p, s, transport), transport)))
    return machine


def study_links(links, machine, sizes, ranks, rounds, report):
    """Takes the time of a byte from the largest sum of two ranks, and predicts everything else."""
    measurements = {(p, a): lambda p=p, a=a: links.bench(p, "tcp", a, sizes, 0.05) for p in ranks for a in ALGORITHMS}
    measured = rounds_of(rounds, measurements)
    point = (2, "two_shot", max(sizes))
    w = work("two_shot", 2, point[2])
    own = over_links(machine.of(2), 2, w, 0, CORES) - w.moved / 2 * machine.of(2).beta
    links.us_per_byte = (measured[point] - own + bench_rest(machine, 2)) / w.link
    print(f"\n{links.name}: beta {links.us_per_byte * 1e3:.2f} ns/B, {links.us_per_byte * links.mbit / 8:.3f} of what the rate says, from {readable(point[2])} "
          "between 2 ranks")
    report.part(f"{links.name} between namespaces",
                table_rows(measured, {point}, lambda p, a, s: links.predict(machine, p, work(a, p, s), bench_rest(machine, p))))


def bench_rest(machine, p):
    """The time in us between two sums of `strata bench allreduce`, in which the ranks exchange how long the sum took."""
    return 2 * on_one_machine(machine.of(p), p, work("one_shot", p, 8), "tcp")


# ---- training ----


class Compute:
    """Times of a worker without the sum: us for each step and us for each example, for a worker with its own core and for
    two workers on each core."""

    def __init__(self, measured):
        """measured: {(workers, examples a worker): us}"""
        self.lines = {}
        for workers in {w for w, _ in measured}:
            (m, less), (n, us) = sorted((batch, us) for (w, batch), us in measured.items() if w == workers)
            example = max(0.0, (us - less) / (n - m))
            self.lines[workers] = (max(0.0, us - n * example), example)

    def of(self, p, examples):
        step, example = self.lines[CORES if p <= CORES else 2 * CORES]
        turns = 1 if p <= CORES else math.ceil(p / CORES) / 2
        return turns * (step + example * examples)

    def __str__(self):
        return ";  ".join(f"{w} workers on {CORES} cores {step:.0f} us a step and {example:.2f} us an example" for w, (step, example) in self.lines.items())


def buckets(n_bytes):
    return max(1, min(MOST_BUCKETS, int(n_bytes / BUCKET)))


def exposed(compute_us, n, bucket_us):
    """The time in us of the sums of n buckets that is not hidden, if all but the last are exchanged during the backward
    pass."""
    return max(bucket_us, n * bucket_us - BACKWARD * compute_us * (n - 1) / n)


def study_training(here, data, n_bytes, ranks, rounds, report, predictions):
    """predictions: {place: function (p, bytes, us between two sums) -> us of an all_reduce}. n_bytes: the bytes of a step's
    sum. data: a folder of images for each place. The time of a step without its sum is fitted to a few numbers of workers
    and batches on this machine, so it includes the cost of waiting for each other in every step. Returns a Compute."""
    fitted = list(itertools.product((CORES, 2 * CORES), (BATCH // 2, BATCH // MOST_RANKS)))  # workers, examples each
    tested = {place: [p for p in ranks if place is not here or p not in (CORES, 2 * CORES)] for place in predictions}

    def step(place, p, examples):
        return place.train(p, ["--data", os.path.join(data, str(place.images)), "--seed", "1", "--no-tune", "--strategy",
                               "multi_worker_mirrored", "--epochs", str(place.epochs), "--global-batch",
                               str(examples)])

    measured = {}
    for _ in range(rounds):
        for p, examples in fitted:
            measured.setdefault((p, examples), []).append(step(here, p, p * examples))
        for place, some in tested.items():
            place.prepare()
            for p in some:
                measured.setdefault((place, p), []).append(step(place, p, BATCH))
    measured = {k: statistics.median(v) for k, v in measured.items()}
    compute = Compute({(p, n): measured[p, n] - predictions[here](p, n_bytes, 0) for p, n in fitted})
    print(f"\nmnist besides its sum, from batches of {BATCH // 2} and {BATCH // MOST_RANKS} a worker: {compute}")
    rows = []
    for place, all_reduce in predictions.items():
        alone = {p: compute.of(p, BATCH / p) for p in ranks}
        rows.append((place.name,
                     [(f"{p} w.", measured[place, p], alone[p] + all_reduce(p, n_bytes, alone[p])) for p in tested[place]]))
    report.part(f"a step of mnist, {BATCH} examples over all workers", rows)
    return compute


# ---- beyond this machine ----


def far(machine, latency_us):
    """Constants for ranks on their own hosts: a hop takes what it takes here between two cores, plus the latency of the
    link. The cost of a message cannot be measured separately there, so its upper limit is used: the cost with shared
    cores."""
    message = max(machine.own.message, min(machine.own.alpha, machine.shared.message))
    return Constants(max(0.0, machine.own.alpha - message) + latency_us, message, machine.own.beta, machine.own.gamma)


def print_table(machine, models, latency_us, header):
    c = far(machine, latency_us)
    print(f"\nHosts of their own, one rank each, a wire of {latency_us:g} us: {c}\n"
          "For each link: ms of a step's sums, their algorithm (* another is predicted to take less than 0.8 of it: the last word), ms of a step, and the\n"
          "share that is left of the ranks' speed alone: with nothing hidden, and with sums hidden behind the backward pass.")
    for name, (n_bytes, compute_us) in models.items():
        n = buckets(n_bytes)
        print(f"\n{name}: {n_bytes / 1e6:.1f} MB in {n} bucket{'s' * (n > 1)}, {compute_us / 1e3:.1f} ms of work a step\n ranks" +
              "".join(f" | {f'{gbit} Gbit/s':<58}" for gbit in LINKS_GBIT))
        for p in (2, 4, 8, 16, 32, 64, 128, 256, 512, 1000):
            cells = [cell(c, p, n_bytes / n, n, compute_us, 8e-3 / gbit * header) for gbit in LINKS_GBIT]
            print(f" {p:5d}" + "".join(f" | {text:<58}" for text in cells).rstrip())


def cell(c, p, bucket_bytes, n, compute_us, us_per_byte):
    each = {a: over_links(c, p, work(a, p, bucket_bytes), us_per_byte, p) for a in ALGORITHMS}
    chosen, best = choose(p, bucket_bytes, several_hosts=True), min(each, key=each.get)
    us, better = each[chosen], each[best] < 0.8 * each[chosen]
    steps = (compute_us + n * us, compute_us + exposed(compute_us, n, us))
    return (f"{n * us / 1e3:8.1f} {chosen + '*' * better:<17}{steps[0] / 1e3:8.1f} {compute_us / steps[0]:4.0%} {compute_us / steps[1]:4.0%}"
            f"{' ' + best if better else ''}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strata", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--latency-us", type=float, default=10, help="of a wire and its switches, one way; for the table (10)")
    parser.add_argument("--step-ms", default="cifar10=55,resnet50=100",
                        help="of models that are not measured here: a step of one rank; for the table")
    parser.add_argument("--tolerance", type=float, default=0.2)
    parser.add_argument("--no-links", action="store_true", help="no network namespaces")
    o = parser.parse_args()
    began = time.time()
    report, here = Report(o.tolerance), Here(o.strata)
    ranks = sorted({2, 3, 4, 6, MOST_RANKS})
    machines = {t: study_here(here, t, ranks, o.rounds, report) for t in ("tcp", "shm")}
    predictions = {here: lambda p, s, rest_us: on_one_machine(machines["shm"].of(p), p, work(choose(p, s, "shm"), p, s, "shm"),
                                                              "shm")}
    header, links = 1.0, None
    try:
        why = "--no-links" if o.no_links else missing_for_links()
        if not why:
            links = Links(o.strata, MOST_RANKS)
            for mbit, sizes in ((1000, (128 << 10, 256 << 10, 512 << 10, 1 << 20)), (100, (64 << 10, 128 << 10, 256 << 10))):
                place = links.shaped(mbit)
                place.prepare()
                study_links(place, machines["tcp"], sizes, (2, 4, MOST_RANKS), max(1, o.rounds - 1), report)
                predictions[place] = lambda p, s, rest_us, place=place: place.predict(machines["tcp"], p, work(choose(p, s, several_hosts=True), p, s), rest_us)
                header = place.us_per_byte * mbit / 8
        else:
            print(f"\nskipped: links of 1 Gbit/s and 100 Mbit/s ({why})")
        sums = {name: json.loads(run([o.strata, "summary", name, "--json"]))["parameters"] * 4 for name in ("mnist", "cifar10")}
        with tempfile.TemporaryDirectory() as folder:
            for n in {place.images for place in predictions}:
                run([sys.executable, os.path.join(HERE, "../cli/files.py"), "data", os.path.join(folder, str(n)), str(n),
                     "200"])
            compute = study_training(here, folder, sums["mnist"], ranks, max(1, o.rounds - 1), report, predictions)
    finally:
        if links:
            links.close()
    given = {name: float(ms) * 1e3 for name, ms in (pair.split("=") for pair in o.step_ms.split(","))}
    models = {"mnist": (sums["mnist"], compute.of(1, BATCH)), "cifar10": (sums["cifar10"], given["cifar10"]),
              "resnet50": (RESNET50, given["resnet50"])}
    print_table(machines["tcp"], models, o.latency_us, header)
    print()
    for part in report.parts:
        print(f"# {part}")
    print(f"# {report.missed} missed, {time.time() - began:.0f} s")
    return 1 if report.missed else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the namespaces are removed
    try:
        sys.exit(main())
    except RuntimeError as error:
        sys.exit(f"model: {error}")
