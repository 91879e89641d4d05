#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does the work of strategies.sh: runs programs alternately, and prints ratios of their speeds and the limits of these
ratios."""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys

HALVES = "opencl:0.0,opencl:0.1"
# task: epochs, the peers' name, what two halves must keep of the whole device, factor over DistributedDataParallel
TASKS = {"mnist": (4, "mnist_mlp", 0.80, 5.0), "cifar10": (2, "cifar10_cnn", 0.90, 2.0)}
BATCH, PARTS = 128, "one,halves,ddp,central,allreduce"


def run(command, env=None):
    """Runs the command and returns the JSON of its last line. After a failure it prints the reason and returns None."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})})
    if done.returncode == 0 and done.stdout.strip():
        line = done.stdout.strip().splitlines()[-1]
        return json.loads(line[line.index("{"):])
    print(f"# {' '.join(command)}: exit code {done.returncode}: {done.stderr.strip()[-300:]}", file=sys.stderr)
    return None


class Bench:
    def __init__(self, options):
        self.o = options
        self.missed = 0
        self.first = ["chrt", "-f", "1"] if subprocess.run(["chrt", "-f", "1", "true"],
                                                           stderr=subprocess.DEVNULL).returncode == 0 else []

    def row(self, what, ours, other, ratio, asked, note=""):
        self.missed += ratio < asked
        print(f"{what:<44} {ours:>12,.6g} {other:>12,.6g} {ratio:>7.3f}  asked {asked:<5} {'reached' if ratio >= asked else 'MISSED'}  {note}", flush=True)

    def train(self, task, *options):
        return self.first + [self.o.strata, "train", task, "--data", os.path.join(self.o.data, task), "--epochs",
                             str(TASKS[task][0]),
                             "--global-batch", str(BATCH), "--seed", "1", "--json", *options]

    def in_turn(self, programs):
        """Returns the results by name of the rounds in which all programs ran."""
        rounds = [{name: run(command) for name, command in programs.items()} for _ in range(self.o.rounds)]
        rounds = [r for r in rounds if all(r.values())]
        if not rounds:
            self.missed += 1
            print(f"# {', '.join(programs)}: not measured")
        return rounds

    def compare(self, what, ours, other, asked):
        """The median of the rounds' ratios of samples per second."""
        rounds = self.in_turn({"ours": ours, "other": other})
        if rounds:
            speeds = [[r[name]["samples_per_s"] for r in rounds] for name in ("ours", "other")]
            ratio = statistics.median(a / b for a, b in zip(*speeds))
            r = rounds[0]["ours"]
            note = f"imbalance {r['imbalance']}, comm_s {r['comm_s']}, hidden {r['comm_hidden']}" if r.get("comm_s") else ""
            self.row(what, *(statistics.median(s) for s in speeds), ratio, asked, note)

    def one(self, task):
        self.compare(f"{task}: mirrored over one device / one_device",
                     self.train(task, "--strategy", "mirrored", "--devices", "opencl:0"),
                     self.train(task, "--device", "opencl:0"), 0.98)

    def halves(self, task):
        self.compare(f"{task}: two halves / whole device", self.train(task, "--strategy", "mirrored", "--devices", HALVES),
                     self.train(task, "--device", "opencl:0"), TASKS[task][2])

    def ddp(self, task):
        if not shutil.which(self.o.torchrun):
            print(f"# skipped: {task} beside DistributedDataParallel (needs torchrun; set STRATA_BENCH_TORCHRUN)")
            return
        self.compare(f"{task}: two halves / torch DDP, 2 gloo ranks",
                     self.train(task, "--strategy", "mirrored", "--devices", HALVES),
                     self.torch_ddp(task), TASKS[task][3])

    def torch_ddp(self, task):
        epochs, name = TASKS[task][:2]
        return self.first + [self.o.torchrun, "--nproc-per-node", "2", os.path.join(self.o.scripts, "torch_train.py"), name,
                             "--ddp", "--batch",
                             str(BATCH), "--epochs", str(epochs)]

    def central(self, task):
        """The bytes that move on the host: the gradients of each replica are read and their sum is written once; the new
        parameters are read once and written to each replica."""
        result = run(self.train(task, "--strategy", "central_storage", "--devices", HALVES))
        summary = run([self.o.strata, "summary", task, "--json"])
        if not result or not summary:
            self.missed += 1
            return print(f"# {task}: central_storage was not measured")
        must = 2 * (2 + 1) * 4 * summary["parameters"]
        moved = result["comm_bytes_per_step"]
        return self.row(f"{task}: central_storage, bytes it must / moved", must, moved, must / moved, 0.99)

    def allreduce(self):
        """Sums 64 MiB between 2 and 4 devices of PoCL, and compares the bytes per second that are read and written with
        memcpy."""
        for n in (2, 4):
            env = {"POCL_DEVICES": " ".join(["pthread"] * n)}
            devices = ",".join(f"opencl:{i}" for i in range(n))
            command = self.first + [self.o.strata, "bench", "allreduce", "--devices", devices, "--sizes", str(64 << 20),
                                    "--json"]
            results = [r for r in (run(command, env) for _ in range(self.o.rounds)) if r]
            if not results:
                self.missed += 1
                print(f"# {n} devices: not measured")
                continue
            middle = sorted(results, key=lambda r: r["fold_ratio"])[len(results) // 2]
            self.row(f"64 MiB, {n} devices: fold / memcpy, GB/s", middle["fold_gb_per_s"], middle["copy_gb_per_s"],
                     middle["fold_ratio"], 0.6,
                     f"with the devices' own copies {middle['ratio']:.2f}")


def main():
    parser = argparse.ArgumentParser()
    for name in ("strata", "data", "scripts", "torchrun"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=PARTS)
    bench = Bench(parser.parse_args())
    only = bench.o.only.split(",")
    for name, known in (("task", TASKS), ("part", PARTS.split(","))):
        for word in bench.o.tasks.split(",") if name == "task" else only:
            if word not in known:
                parser.error(f"there is no {name} {word}; there are: {', '.join(known)}")
    print(f"{'samples/s, global batch 128':<44} {'ours':>12} {'other':>12} {'ratio':>7}")
    for task in bench.o.tasks.split(","):
        for part in ("one", "halves", "ddp", "central"):
            if part in only:
                getattr(bench, part)(task)
    if "allreduce" in only:
        bench.allreduce()
    print(f"# {bench.missed} missed")
    return 1 if bench.missed else 0


if __name__ == "__main__":
    sys.exit(main())
