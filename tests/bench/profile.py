#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what profiling costs: the samples per second of epochs whose steps are profiled, compared with the epochs before
and after them in the same training.

    python3 tests/bench/record.py profile python3 tests/bench/profile.py [--strata build/release] [--data ../shared/data]
        [--rounds 5] [--device D]

A training has nine epochs with the same number of steps, and profiles epochs 4 to 6. Only the middle one of each three
epochs counts (2, 5 and 8), since programs change at the borders. A ratio compares epochs of one process, because the
addresses of a process's memory change its speed by some per cent. The row "off again" compares epoch 8 with epoch 2, both
without a profile, and shows the accuracy of the ratios. A number is the median of the rounds, followed by their lower and
upper quartile. A training without a profile must compute the same bits."""
import argparse
import json
import pathlib
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
# With the steps of an epoch.
SAMPLES = [("mnist", 64, 900), ("mnist", 1024, 50), ("cifar10", 64, 60)]
EPOCHS, PROFILED = 9, (4, 6)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strata", default=str(ROOT / "build/release"), help="the folder of a build")
    parser.add_argument("--data", default=str(ROOT.parent / "shared/data"), help="a folder with mnist/ and cifar10/")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="")
    parser.add_argument("--only", default="", help="a row, as mnist:64")
    parser.add_argument("--steps", type=int, default=0, help="steps of an epoch, else the sample's")
    opts = parser.parse_args()

    def run(sample, batch, steps, profiled):
        """Returns the samples per second of each epoch, and the hash of the parameters."""
        command = [f"{opts.strata}/strata", "train", sample, "--epochs", str(EPOCHS), "--batch", str(batch), "--seed", "1",
                   "--json", "--data", f"{opts.data}/{sample}", "--steps-per-epoch", str(steps)]
        command += ["--device", opts.device] if opts.device else []
        command += ["--profile", f"{(PROFILED[0] - 1) * steps + 1}:{PROFILED[1] * steps}"] if profiled else []
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        events = [json.loads(line) for line in lines]
        return ([e["samples_per_s"] for e in events if e["event"] == "epoch"],
                next(e["weights_sha256"] for e in events if e["event"] == "result"))

    print("| sample, batch | off, samples/s | off again / off | quartiles | on / off | quartiles |\n|---|---|---|---|---|---|")
    for sample, batch, steps in SAMPLES:
        if opts.only not in ("", f"{sample}:{batch}"):
            continue
        steps = opts.steps or steps
        _, learned = run(sample, batch, steps, False)
        speeds, again, on = [], [], []
        for _ in range(opts.rounds):
            epochs, same = run(sample, batch, steps, True)
            if same != learned:
                raise SystemExit(f"{sample}: what was learned with a profile has other bits")
            before, during, after = epochs[1], epochs[4], epochs[7]
            speeds.append(before)
            again.append(after / before)
            on.append(during / statistics.mean((before, after)))

        def spread(ratios):
            low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
            return f"{middle:.3f} | {low:.3f} to {high:.3f}"

        print(f"| {sample}, {batch} | {statistics.median(speeds):,.0f} | {spread(again)} | {spread(on)} |", flush=True)


if __name__ == "__main__":
    main()
