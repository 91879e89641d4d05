#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the host backend as a plugin with the built-in one: both train mnist alternately, and must have the same losses.

usage: plugin.py BUILD_DIR MNIST_DIR [PAIRS]

BUILD_DIR contains the command `strata` and suites/plugins/libstrata_host_plugin.so. It prints a table of samples per
second, of the processor time of a run, and of the machine's load. The exit code is 1 if the losses differ, or if the
plugin's best run is more than 2 % slower than the built-in backend's by both measures. The best runs are compared, since
other programs of the machine can only make a run slower, and they change the processor time less than the elapsed time."""
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys


def train(build, data, device, options=""):
    """Samples per second of two epochs of mnist, the processor time of the whole run, and the loss of the last step."""
    plugin = f"{build}/suites/plugins/libstrata_host_plugin.so{options}"
    command = [f"{build}/strata", "train", "mnist", "--data", data, "--epochs", "2", "--seed", "1", "--batch", "64",
               "--plugin", plugin, "--device", device, "--json"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return result["samples_per_s"], after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, result["losses"][-1]


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    build, data = (str(pathlib.Path(path).resolve()) for path in sys.argv[1:3])
    pairs = int(sys.argv[3]) if len(sys.argv) > 3 else 9
    kinds = [("built in", "host", ""), ("plugin, arenas", "host-plugin:0", ""),
             ("plugin, own plan", "host-plugin:0", ",memory=own")]
    speeds, work, losses = {name: [] for name, _, _ in kinds}, {name: [] for name, _, _ in kinds}, set()
    for _ in range(pairs):
        for name, device, options in kinds:
            speed, seconds, loss = train(build, data, device, options)
            speeds[name].append(speed)
            work[name].append(seconds)
            losses.add(loss)
    print("| the host backend | samples/s, best | median | of the built-in one's best | CPU s, least | of the built-in one's |")
    print("|---|---|---|---|---|---|")
    best, least = max(speeds["built in"]), min(work["built in"])
    for name, _, _ in kinds:
        print(f"| {name} | {max(speeds[name]):.0f} | {statistics.median(speeds[name]):.0f} | {max(speeds[name]) / best:.3f} "
              f"| {min(work[name]):.2f} | {min(work[name]) / least:.3f} |")
    print(f"\nmnist, batches of 64, {pairs} runs of each in turn, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; "
          f"losses of all runs: {', '.join(map(str, sorted(losses)))}")
    slow = [name for name, _, _ in kinds if max(speeds[name]) < 0.98 * best and min(work[name]) > 1.02 * least]
    if slow or len(losses) > 1:
        sys.exit(f"more than 2 % slower: {', '.join(slow)}" if slow else "the losses differ")


if __name__ == "__main__":
    main()
