#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The work of peers.sh: runs programs in turn, checks that they learn the same, prints ratios."""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
# task: the peers' name for it, epochs by batch, how far test accuracies may lie apart, bytes of data in Strata and in the peers
TASKS = {
    "mnist": ("mnist_mlp", {64: 3, 1: 1, 1024: 6}, 0.012, 47.0e6 + 7.8e6, 4 * 47.0e6 + 4 * 7.8e6),
    "cifar10": ("cifar10_cnn", {64: 3, 1: 1, 1024: 4}, 0.06, 61.5e6 + 3.1e6, 4 * 61.5e6 + 4 * 3.1e6),
    "imdb": ("imdb", {64: 4, 1: 1, 1024: 8}, 0.03, 2 * 25e6 + 67e6, 2 * 25e6 + 67e6),
}
# what is asked: task and batch -> factor
ASKED = {("mnist", 64): 2.0, ("cifar10", 64): 1.6, ("imdb", 64): 4.0}
OTHER_BATCH, MEMORY, START, FIRST_START = 1.2, 4.0, 3.0, 2.0


def run(command, env=None):
    """The JSON of the command's last line, or None after saying why there is none."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})})
    if done.returncode == 0 and done.stdout.strip():
        return json.loads(done.stdout.strip().splitlines()[-1])
    print(f"  {' '.join(command)}: exit code {done.returncode}: {done.stderr.strip()[-300:]}", file=sys.stderr)
    return None


class Bench:
    def __init__(self, options):
        self.o = options
        self.missed = 0

    def row(self, what, ours, theirs, peer, factor, unit, larger_is_better=True):
        ratio = (ours / theirs if larger_is_better else theirs / ours) if ours and theirs else 0
        verdict = "reached" if ratio >= factor else "MISSED"
        self.missed += ratio < factor
        print(f"{what:<34} {ours:>12,.4g} {theirs:>12,.4g} {unit:<10} {peer:<14} {ratio:>6.2f}x  asked {factor:.1f}x  {verdict}", flush=True)

    def ours(self, task, epochs, batch):
        return [self.o.strata, "train", task, "--data", os.path.join(self.o.data, task), "--device", self.o.device, "--epochs",
                str(epochs), "--batch", str(batch), "--seed", "1", "--json"]

    def peers(self, task, epochs, batch):
        name, tail = TASKS[task][0], ["--epochs", str(epochs), "--batch", str(batch)]
        tf = [os.path.join(self.o.peers, "tf/bin/python"), os.path.join(self.o.scripts, "tf_train.py"), name] + tail
        torch = [os.path.join(self.o.peers, "pt/bin/python"), os.path.join(self.o.scripts, "torch_train.py"), name] + tail
        return {"TF fit": tf, "TF XLA": tf + ["--loop", "custom"], "torch eager": torch, "torch compile": torch + ["--compile"]}

    def compare(self, task, batch):
        """All programs in turn, so many rounds; medians. A peer that is far behind is run in the first round only."""
        epochs = TASKS[task][1].get(batch, 3)
        programs = {"strata": self.ours(task, epochs, batch), **self.peers(task, epochs, batch)}
        results = {name: [] for name in programs}
        for round_number in range(self.o.rounds):
            for name, command in programs.items():
                if round_number and name != "strata" and name not in self.near(results):
                    continue
                result = run(command)
                if result:
                    results[name].append(result)
        return {name: r for name, r in results.items() if r}

    @staticmethod
    def near(results):
        """The peers within a third of the best one."""
        speed = {n: statistics.median(r["samples_per_s"] for r in rs) for n, rs in results.items() if rs and n != "strata"}
        return [n for n, s in speed.items() if s > 0.67 * max(speed.values())]

    def learned(self, task, results):
        """Whether all reach the same accuracy in the same epochs; says it where they do not."""
        accuracy = {n: statistics.median(r["accuracy"] for r in rs) for n, rs in results.items()}
        peers = [a for n, a in accuracy.items() if n != "strata"]
        same = "strata" in accuracy and peers and min(peers) - TASKS[task][2] <= accuracy["strata"] <= max(peers) + TASKS[task][2]
        print(f"# {task}: test accuracy " + ", ".join(f"{n} {a:.4f}" for n, a in accuracy.items()) + ("" if same else "  DIFFERENT"))
        return same

    def speed(self, task, batch):
        results = self.compare(task, batch)
        if "strata" not in results or len(results) < 2:
            self.missed += 1
            return print(f"{task}, batch {batch}: not measured")
        self.missed += not self.learned(task, results)
        speeds = {n: statistics.median(r["samples_per_s"] for r in rs) for n, rs in results.items()}
        ours = speeds.pop("strata")
        best = max(speeds, key=speeds.get)
        self.row(f"{task}, batch {batch}", ours, speeds[best], best, ASKED.get((task, batch), OTHER_BATCH), "samples/s")
        if batch == 64 and "memory" in self.o.only:
            self.memory(task, results)
        return None

    def memory(self, task, results):
        own, other = (b / 1048576 for b in TASKS[task][3:])
        ours = statistics.median(r["peak_rss_mib"] for r in results["strata"])
        peers = {n: statistics.median(r["peak_rss_mib"] for r in rs) for n, rs in results.items() if n != "strata"}
        least = min(peers, key=peers.get)
        self.row(f"{task}, peak RSS without data", max(ours - own, 1), max(peers[least] - other, 1), least, MEMORY, "MiB", False)

    def first_step(self, task, cold):
        """Seconds from the start of the process to the end of the first step, data apart (the peer's are one random batch); cold: with nothing cached."""
        folder = tempfile.mkdtemp()
        env = {"XDG_CACHE_HOME": folder, "POCL_CACHE_DIR": folder, "TORCHINDUCTOR_CACHE_DIR": folder} if cold else {}
        ours = run(self.ours(task, 1, 64), env)
        script = [os.path.join(self.o.peers, "pt/bin/python"), os.path.join(HERE, "first_step.py"), task]
        peer = run(script + (["--compile"] if cold else []), env)
        shutil.rmtree(folder, ignore_errors=True)
        return ours and ours["start_to_first_step_s"] - ours["data_s"], peer and peer["start_to_first_step_s"]

    def start(self, task):
        for cold, peer, factor in ((False, "torch eager", START), (True, "torch compile", FIRST_START)):
            if not cold:
                run(self.ours(task, 1, 64))  # fills the caches
            pairs = [p for p in (self.first_step(task, cold) for _ in range(self.o.rounds)) if p[0] and p[1]]
            if not pairs:
                self.missed += 1
                print(f"{task}, start to first step: not measured")
                continue
            ours, theirs = (statistics.median(p[i] for p in pairs) for i in (0, 1))
            self.row(f"{task}, start to first step" + (", nothing cached" if cold else ""), ours, theirs, peer, factor, "s", False)


def main():
    parser = argparse.ArgumentParser()
    for name in ("strata", "scripts", "peers", "data"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--tasks", default="mnist,cifar10,imdb")
    parser.add_argument("--batches", default="64,1,1024")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="opencl:0")
    parser.add_argument("--only", default="speed,memory,start")
    bench = Bench(parser.parse_args())
    print(f"{'work':<34} {'strata':>12} {'peer':>12} {'unit':<10} {'best peer':<14} {'ratio':>7}")
    for task in bench.o.tasks.split(","):
        if task not in TASKS:
            parser.error(f"there is no task {task}; there are: {', '.join(TASKS)}")
        if "speed" in bench.o.only or "memory" in bench.o.only:
            for batch in map(int, bench.o.batches.split(",")):
                bench.speed(task, batch)
        if "start" in bench.o.only:
            bench.start(task)
    print(f"# {bench.missed} missed")
    return 1 if bench.missed else 0


if __name__ == "__main__":
    sys.exit(main())
