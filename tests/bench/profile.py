#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What profiling costs: the same training in turn with no step profiled and with every step, as samples a second.

    python3 tests/bench/record.py profile python3 tests/bench/profile.py [--strata build/release] [--data ../shared/data]
        [--rounds 5] [--device D]

Each run takes the best epoch of five; a ratio is that of the medians of all rounds, and its spread that of the rounds. The
training without a profile runs twice a round: how far these two are apart is what a ratio cannot tell. Both must learn the
same bits."""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SAMPLES = [("mnist", 64), ("mnist", 1024), ("cifar10", 64)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strata", default=str(ROOT / "build/release"), help="the folder of a build")
    parser.add_argument("--data", default=str(ROOT.parent / "shared/data"), help="a folder with mnist/ and cifar10/")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="")
    parser.add_argument("--only", default="", help="a row, as mnist:64")
    parser.add_argument("--steps", type=int, default=0, help="steps an epoch has at most")
    opts = parser.parse_args()

    def run(sample, batch, profiled, folder):
        """Samples a second, and the hash of what was learned."""
        command = [f"{opts.strata}/strata", "train", sample, "--epochs", "5", "--batch", str(batch), "--seed", "1", "--json",
                   "--data", f"{opts.data}/{sample}"]
        command += ["--device", opts.device] if opts.device else []
        command += ["--steps-per-epoch", str(opts.steps)] if opts.steps else []
        command += ["--trace", f"{folder}/trace.json"] if profiled else []
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        events = [json.loads(line) for line in lines]
        return (max(e["samples_per_s"] for e in events if e["event"] == "epoch"),
                next(e["weights_sha256"] for e in events if e["event"] == "result"))

    print("| sample, batch | off, samples/s | off again / off | on, samples/s | on / off | rounds |\n|---|---|---|---|---|---|")
    for sample, batch in SAMPLES:
        if opts.only not in ("", f"{sample}:{batch}"):
            continue
        rounds = []
        with tempfile.TemporaryDirectory() as folder:
            for number in range(opts.rounds):
                order = [False, True, False] if number % 2 else [False, False, True]
                runs = [run(sample, batch, profiled, folder) for profiled in order]
                if len({learned for _, learned in runs}) != 1:
                    raise SystemExit(f"{sample}: what was learned with a profile has other bits")
                off = [speed for (speed, _), profiled in zip(runs, order) if not profiled]
                rounds.append((*off, runs[order.index(True)][0]))
        first, again, on = (statistics.median(r[i] for r in rounds) for i in range(3))
        ratios = sorted(r[2] / statistics.mean(r[:2]) for r in rounds)
        off = statistics.mean((first, again))
        print(f"| {sample}, {batch} | {off:,.0f} | {again / first:.3f} | {on:,.0f} | {on / off:.3f} | {ratios[0]:.3f} to "
              f"{ratios[-1]:.3f} |", flush=True)


if __name__ == "__main__":
    main()
