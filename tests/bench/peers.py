#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does the work of peers.sh: runs programs alternately, checks that they reach the same accuracy, and prints ratios of
their times."""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ONEDNN = "--xla_cpu_use_onednn=true --xla_cpu_experimental_onednn_fusion_type=dot"
# task: the peers' name for it, how far test accuracies may lie apart, MiB of data in Strata
TASKS = {"mnist": ("mnist_mlp", 0.012, 52.3), "cifar10": ("cifar10_cnn", 0.06, 61.6), "imdb": ("imdb", 0.03, 111.6)}
# row: task, batch, epochs of Strata and of the peers (a rate is the median of the epochs behind the first), times the best peer
SPEED = {
    "mnist-64": ("mnist", 64, 5, 3, 1.5),
    "mnist-1": ("mnist", 1, 2, 2, 1.5),
    "mnist-1024": ("mnist", 1024, 9, 9, 1.3),
    "cifar10-64": ("cifar10", 64, 2, 2, 2.2),
    "cifar10-1024": ("cifar10", 1024, 2, 2, 1.6),
    "imdb-64": ("imdb", 64, 5, 4, 3.5),
}
# row: what the whole step must reach of the device's multiply-adds in the seconds beside it
PEAK = {"mnist-64": 0.65, "cifar10-64": 0.85}
HALVES = "opencl:0.0,opencl:0.1"
HOST, MIRRORED, EIGHT, DDP = 0.7, 0.85, 0.60, 6.0  # asked of ratios
START, MEMORY, FIRST_START = 0.35, 150, 5.0  # asked of s, MiB and s; less is better


def jax_options(task, batch):
    """The fastest settings of jax_train.py, which its docstring lists."""
    if task == "cifar10":
        return ["--conv", "mixed+hybrid9", "--pool", "fused"]
    return ["--flat", "no"] if batch == 1024 else []


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
        self.rows = json.load(open(options.keep)) if os.path.exists(options.keep) else {}
        git = ["git", "-C", HERE, "rev-parse", "--short=9", "HEAD"]
        self.commit = subprocess.run(git, stdout=subprocess.PIPE, text=True).stdout.strip()

    def row(self, name, what, ours, other, peer, asked, less=False, notes="", ratio=None):
        """Adds a row to the table. `asked` is the limit of `ratio` if that is given, else of ours / other, or of ours if
        `other` is None."""
        value = ratio or (ours / other if other else ours)
        reached = value <= asked if less else value >= asked
        self.rows[name] = {"what": what, "ours": ours, "other": other, "peer": peer, "value": value, "asked": asked,
                           "less": less, "reached": reached, "notes": notes, "commit": self.commit}
        with open(self.o.keep, "w", encoding="utf-8") as file:
            json.dump(self.rows, file, indent=1)

    def table(self, names):
        """Prints the rows with these names. Returns how many are beyond their limit or are missing."""
        print(f"{'work':<42} {'ours':>9} {'best other':>10} {'':<26} {'ratio':>6} {'asked':>6} {'to reach':>9}")
        missed = 0
        for name in [n for n in self.rows if n.split(",")[0] in names]:
            r = self.rows[name]
            show = lambda v: f"{v:,.0f}" if v >= 1000 else f"{v:.3g}"
            other = show(r["other"]) if r["other"] else ""
            ratio = f"{r['value']:.2f}" if r["other"] else ""
            reach = show(r["asked"] * (r["other"] or 1))
            asked, verdict = r["asked"] if r["other"] else "", "reached" if r["reached"] else "MISSED"
            print(f"{r['what']:<42} {show(r['ours']):>9} {other:>10} {r['peer']:<26} {ratio:>6} {asked:>6} "
                  f"{'<= ' if r['less'] else ''}{reach:>9}  {verdict}  {r['commit']}{r['notes']}")
            missed += not r["reached"]
        absent = [n for n in names if n not in [kept.split(",")[0] for kept in self.rows]]
        print(f"# {missed} missed" + (f"; not measured: {', '.join(absent)}" if absent else ""))
        return missed + len(absent)

    def strata(self, task, batch, epochs, *options):
        options = options or ("--device", self.o.device)
        data = os.path.join(self.o.data, task)
        sizes = ["--epochs", str(epochs), "--batch", str(batch)]
        return [self.o.strata, "train", task, "--data", data, *sizes, "--json", *options]

    def peers(self, task, batch, epochs):
        """{name: (command, environment)} of each peer that --peers names."""
        name, tail = TASKS[task][0], ["--epochs", str(epochs), "--batch", str(batch)]
        bin_of = lambda python: os.path.join(self.o.peers, python, "bin/python")
        script = lambda python, file: [bin_of(python), os.path.join(self.o.scripts, file), name, *tail]
        tf, torch = script("tf", "tf_train.py"), script("pt", "torch_train.py")
        jax = script("jax", "jax_train.py") + jax_options(task, batch)
        every = {"JAX": (jax, {}), "JAX oneDNN": (jax, {"XLA_FLAGS": ONEDNN}), "TF fit": (tf, {}),
                 "TF XLA": (tf + ["--loop", "custom"], {}),
                 "torch eager": (torch, {}), "torch compile": (torch + ["--compile"], {})}
        wanted = self.o.peer_names.split(",")
        return {n: c for n, c in every.items() if n in wanted}

    def in_turn(self, programs, with_peak=False):
        """Runs each program once in each round and returns the results by name. A peer that is far slower than the others in
        the first round is not run again. Programs that have a seed get another one in each round: the accuracy of cifar10
        after two epochs differs by some hundredths between seeds, so only medians over seeds can be compared. with_peak: the
        results of "strata" contain the peak that was measured before and after them, "peak_gflops"."""
        results = {name: [] for name in programs}
        for round_number in range(self.o.rounds):
            for name, (command, env) in programs.items():
                if round_number and name != "strata" and name not in self.near(results):
                    continue
                with_own = with_peak and name == "strata"
                before = self.peak() if with_own else None
                seed = ["--seed", str(round_number + 1)] if command[0] == self.o.strata or name.startswith("JAX") else []
                result = run(command + seed, env)
                if result and with_own:
                    result["peak_gflops"] = (before + self.peak()) / 2
                if result:
                    results[name].append(result)
        return {name: r for name, r in results.items() if r}

    @staticmethod
    def near(results):
        """The peers that are within a third of the best one."""
        speed = {n: statistics.median(r["samples_per_s"] for r in rs) for n, rs in results.items() if rs and n != "strata"}
        return [n for n, s in speed.items() if s > 0.67 * max(speed.values())]

    @staticmethod
    def rates(results):
        return {n: statistics.median(r["samples_per_s"] for r in rs) for n, rs in results.items()}

    def peak(self):
        """GFLOP/s of multiply-adds alone, as the mean of a second. A training's rate is a mean over an epoch, which is lower
        when the clock slows down or other programs use the cores, and so is this peak. The best of many short runs would
        not be."""
        command = [self.o.strata, "bench", "matmul", "--device", self.o.device, "--sizes", "64", "--seconds", "1", "--json"]
        return run(command)["mean_peak_gflops"]

    def speed(self, name):
        task, batch, epochs, peer_epochs, asked = SPEED[name]
        programs = {"strata": (self.strata(task, batch, epochs), {}), **self.peers(task, batch, peer_epochs)}
        results = self.in_turn(programs, name in PEAK)
        rates = self.rates(results)
        ours = rates.pop("strata")
        best = max(rates, key=rates.get)
        accuracy = {n: statistics.median(r["accuracy"] for r in rs) for n, rs in results.items()}
        others = [a for n, a in accuracy.items() if n != "strata"]
        least, most = min(others) - TASKS[task][1], max(others) + TASKS[task][1]
        print(f"# {name}: test accuracy " + ", ".join(f"{n} {a:.4f}" for n, a in accuracy.items()) + "; samples/s "
              + ", ".join(f"{n} {v:,.0f}" for n, v in rates.items()))
        learned = "" if least <= accuracy["strata"] <= most or epochs != peer_epochs else "  LEARNS DIFFERENTLY"
        self.row(name, f"{task}, batch {batch}, samples/s", ours, rates[best], best, asked, notes=learned)
        if name in PEAK:
            flops = run([self.o.strata, "summary", task, "--json", "--batch", str(batch)])["step_flops"]
            what, gflops = f"{task}, batch {batch}, GFLOP/s of a step", flops / batch / 1e9
            peak = statistics.median(r["peak_gflops"] for r in results["strata"])
            share = statistics.median(r["samples_per_s"] * gflops / r["peak_gflops"] for r in results["strata"])
            self.row(name + ",peak", what, ours * gflops, peak, "multiply-adds alone", PEAK[name], ratio=share)

    def host(self, name):
        programs = {"strata": (self.strata("mnist", 64, 5, "--device", "host"), {}),
                    "opencl": (self.strata("mnist", 64, 5), {})}
        self.ratio(name, "mnist, batch 64, host backend, samples/s", programs, "opencl", self.o.device, HOST)

    def ratio(self, name, what, programs, other, peer, asked):
        rates = self.rates(self.in_turn(programs))
        self.row(name, what, rates["strata"], rates[other], peer, asked)

    def together(self, *options, epochs=6):
        return self.strata("mnist", 128, epochs, *options)

    def mirrored(self, name):
        programs = {"strata": (self.together("--strategy", "mirrored", "--devices", HALVES), {}), "one": (self.together(), {})}
        self.ratio(name, "mnist, two sub-devices, batch 128", programs, "one", "one device", MIRRORED)

    def launched(self, n):
        return [self.o.strata, "launch", "-n", str(n), "--", *self.together("--strategy", "multi_worker_mirrored")]

    def workers(self, name):
        programs = {"strata": (self.launched(8), {}), "one": (self.together(), {})}
        self.ratio(name, "mnist, 8 workers, batch 128", programs, "one", "one process", EIGHT)

    def ddp(self, name):
        torchrun = os.path.join(self.o.peers, "pt/bin/torchrun")
        script = os.path.join(self.o.scripts, "torch_train.py")
        peer = [torchrun, "--nproc-per-node", "2", script, "mnist_mlp", "--ddp", "--batch", "128"]
        programs = {"strata": (self.launched(2), {}), "ddp": (peer, {})}
        self.ratio(name, "mnist, 2 workers, batch 128", programs, "ddp", "torch DDP, 2 ranks", DDP)

    def start(self, name):
        """Seconds from the start of the process to the end of the first step, without the time of loading data, which
        depends on the files."""
        for task in TASKS:
            command = self.strata(task, 64, 1)
            run(command)  # fills the caches
            times = [r["start_to_first_step_s"] - r["data_s"] for r in (run(command) for _ in range(self.o.rounds)) if r]
            what = f"{task}, start to first step, data apart, s"
            self.row(f"{name},{task}", what, statistics.median(times), None, "", START, less=True)

    def memory(self, name):
        for task, (_, _, data) in TASKS.items():
            peaks = [r["peak_rss_mib"] for r in (run(self.strata(task, 64, 1)) for _ in range(self.o.rounds)) if r]
            what = f"{task}, peak RSS besides data, MiB"
            self.row(f"{name},{task}", what, statistics.median(peaks) - data, None, "", MEMORY, less=True)

    def first_start(self, name):
        times = []
        for _ in range(self.o.rounds):
            folder = tempfile.mkdtemp()
            result = run(self.strata("mnist", 64, 1), {"XDG_CACHE_HOME": folder, "POCL_CACHE_DIR": folder})
            shutil.rmtree(folder, ignore_errors=True)
            times += [result["start_to_first_step_s"]] if result else []
        self.row(name, "mnist, first start, nothing cached, s", statistics.median(times), None, "", FIRST_START, less=True)


ROWS = {**dict.fromkeys(SPEED, Bench.speed), "host": Bench.host, "mirrored": Bench.mirrored,
        "8-workers": Bench.workers, "ddp": Bench.ddp,
        "start": Bench.start, "memory": Bench.memory, "first-start": Bench.first_start}


def main():
    parser = argparse.ArgumentParser()
    for name in ("strata", "scripts", "peers", "data", "keep"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--only", default=",".join(ROWS))
    parser.add_argument("--peer-names", default="JAX,JAX oneDNN,TF fit,TF XLA,torch eager,torch compile")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="opencl:0")
    parser.add_argument("--kept", action="store_true")
    bench = Bench(parser.parse_args())
    names = bench.o.only.split(",")
    for name in names:
        if name not in ROWS:
            parser.error(f"there is no row {name}; there are: {', '.join(ROWS)}")
        if not bench.o.kept:
            ROWS[name](bench, name)
    return 1 if bench.table(names) else 0


if __name__ == "__main__":
    sys.exit(main())
