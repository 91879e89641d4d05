#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what fit costs in Python: the same model, data and steps run alternately in Python and by the command, and the
samples per second are compared.

    python3 tests/bench/record.py python python3 tests/bench/python.py [--strata build/release] [--rounds 5]

It needs numpy. Of each run the best of five epochs counts. The ratio is that of the medians of all rounds."""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOOP = """
import sys, strata
model = strata.Model.read_json(sys.argv[1]).compile(device=sys.argv[2] or None)
history = model.fit(strata.Dataset.mnist(None, "train", 1).keep_bytes(), epochs=5, batch_size=int(sys.argv[3]), verbose=0)
print(60000 / min(history.epoch_seconds))
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strata", default=str(ROOT / "build/release"), help="the folder of a build")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="")
    opts = parser.parse_args()
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "include/python"), "STRATA_LIBRARY": f"{opts.strata}/libstrata.so"}
    model = str(ROOT / "samples/mnist/model.json")

    def command(batch):
        run = [f"{opts.strata}/strata", "train", "mnist", "--epochs", "5", "--batch", str(batch), "--json"]
        run += ["--device", opts.device] if opts.device else []
        lines = subprocess.run(run, capture_output=True, text=True, check=True).stdout.splitlines()
        return max(e["samples_per_s"] for e in map(json.loads, lines) if e["event"] == "epoch")

    def package(batch):
        run = [sys.executable, "-c", LOOP, model, opts.device, str(batch)]
        return float(subprocess.run(run, env=environment, capture_output=True, text=True, check=True).stdout)
    print("| mnist, batch | command, samples/s | Python, samples/s | Python / command |\n|---|---|---|---|")
    for batch in (64, 1024):
        rounds = [(command(batch), package(batch)) for _ in range(opts.rounds)]
        ours, theirs = (statistics.median(r[i] for r in rounds) for i in (0, 1))
        print(f"| {batch} | {ours:,.0f} | {theirs:,.0f} | {theirs / ours:.3f} |", flush=True)


if __name__ == "__main__":
    main()
