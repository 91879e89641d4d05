#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does the work of mesh.sh: runs programs alternately, and prints ratios of their speeds, of measured and predicted bubbles and
bytes, and the limits of these ratios."""
import argparse
import json
import os
import statistics
import sys
import tempfile

from strategies import HALVES, Bench, run

BATCH, MICROBATCHES, UNITS, PARTS = 128, 8, 4096, "pipeline,bubble,tensor,bytes"
STAGES = ("--strategy", "model_parallel", "--devices", HALVES, "--mesh", "stage=2", "--microbatches", str(MICROBATCHES))
TENSOR = ("--strategy", "model_parallel", "--devices", HALVES, "--mesh", "tensor=2")


class Mesh(Bench):
    def train(self, model, *options):
        data = "cifar10" if model.startswith("cifar10") else "mnist"
        steps = ("--steps-per-epoch", str(self.o.steps)) if self.o.steps and "--steps-per-epoch" not in options else ()
        return self.first + [self.o.strata, "train", model, "--data", os.path.join(self.o.data, data), "--epochs",
                             str(self.o.epochs), "--global-batch", str(BATCH), "--seed", "1", "--json", *steps, *options]

    def pipeline(self):
        """Two stages, each on half of the cores, beside all cores, which compute the batch at once."""
        for task in ("cifar10", "cifar10_resnet"):
            self.compare(f"{task}: 2 stages / whole device", self.train(task, *STAGES),
                         self.train(task, "--device", "opencl:0"), 0.80)

    def bubble(self):
        """How long stages wait, beside (p - 1) / (m + p - 1), which assumes that both stages need the same time."""
        for task in ("cifar10", "cifar10_resnet"):
            results = [r["ours"] for r in self.in_turn({"ours": self.train(task, *STAGES)})]
            report = run([self.o.strata, "summary", task, "--mesh", "stage=2", "--microbatches", str(MICROBATCHES), "--json"])
            if not results or not report:
                self.missed += not report
                continue
            measured = statistics.median(r.get("bubble", 0) for r in results)
            self.row(f"{task}: bubble, predicted / measured", report["bubble"], measured,
                     report["bubble"] / measured if measured else 0, 0.9)

    def tensor(self, model):
        self.compare(f"mnist, {UNITS} units: tensor=2 / whole device", self.train(model, *TENSOR),
                     self.train(model, "--device", "opencl:0"), 0.85)

    def bytes(self, model):
        """The bytes of the exchanges. Each of the two devices' values is read, and the result is written for both. Two runs
        with different numbers of steps have the same evaluation, whose bytes do not count."""
        few, many = (run(self.train(model, *TENSOR, "--steps-per-epoch", str(n))) for n in (4, 8))
        report = run([self.o.strata, "summary", model, "--mesh", "tensor=2", "--batch", str(BATCH), "--json"])
        if not few or not many or not report:
            self.missed += 1
            return print("# bytes of tensor=2: not measured")
        predicted = 4 * sum(x["bytes"] for x in report["exchanges"])
        sent = [r["comm_bytes_per_step"] * r["steps"] for r in (few, many)]
        moved = (sent[1] - sent[0]) / (many["steps"] - few["steps"])
        return self.row("tensor=2: bytes of exchanges, predicted / moved", predicted, moved, predicted / moved if moved else 0,
                        1)

    def wide_model(self, folder):
        """Writes mnist's model with more units, and returns its path."""
        layers = [{"layer": "flatten"}, {"layer": "dense", "units": UNITS, "activation": "relu"},
                  {"layer": "dense", "units": 10}]
        path = os.path.join(folder, "wide.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"label": "mnist", "input": [28, 28], "layers": layers, "optimizer": {"name": "adam"},
                       "loss": "sparse_categorical_crossentropy"}, file)
        return path


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--strata", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--only", default=PARTS)
    bench = Mesh(parser.parse_args())
    only = bench.o.only.split(",")
    for word in only:
        if word not in PARTS.split(","):
            parser.error(f"there is no part {word}; there are: {PARTS}")
    print(f"{'samples/s, global batch 128':<44} {'ours':>12} {'other':>12} {'ratio':>7}")
    with tempfile.TemporaryDirectory() as folder:
        model = bench.wide_model(folder)
        for part in only:
            getattr(bench, part)(*([model] if part in ("tensor", "bytes") else []))
    print(f"# {bench.missed} missed")
    return 1 if bench.missed else 0


if __name__ == "__main__":
    sys.exit(main())
