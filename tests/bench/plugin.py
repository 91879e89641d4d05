#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The host backend as a plugin beside the built-in one: mnist, in turn, with the same losses.

usage: plugin.py BUILD_DIR MNIST_DIR [PAIRS]

BUILD_DIR has the command `strata` and suites/plugins/libstrata_host_plugin.so. Prints a table; the exit code is 1 when the
losses differ, or the plugin's best run is more than 2 % slower than the built-in backend's. Best runs are compared, since other
programs of the machine only ever take time away.
"""
import json
import pathlib
import statistics
import subprocess
import sys


def train(build, data, device, options=""):
    """Samples a second of two epochs of mnist, and the loss of the last step."""
    plugin = f"{build}/suites/plugins/libstrata_host_plugin.so{options}"
    command = [f"{build}/strata", "train", "mnist", "--data", data, "--epochs", "2", "--seed", "1", "--batch", "64",
               "--plugin", plugin, "--device", device, "--json"]
    result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
    return result["samples_per_s"], result["losses"][-1]


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    build, data = (str(pathlib.Path(path).resolve()) for path in sys.argv[1:3])
    pairs = int(sys.argv[3]) if len(sys.argv) > 3 else 9
    kinds = [("built in", "host", ""), ("plugin, arenas", "host-plugin:0", ""),
             ("plugin, own plan", "host-plugin:0", ",memory=own")]
    speeds, losses = {name: [] for name, _, _ in kinds}, set()
    for _ in range(pairs):
        for name, device, options in kinds:
            speed, loss = train(build, data, device, options)
            speeds[name].append(speed)
            losses.add(loss)
    print("| the host backend | samples/s, best | median | best, of the built-in one's |")
    print("|---|---|---|---|")
    best = max(speeds["built in"])
    for name, _, _ in kinds:
        print(f"| {name} | {max(speeds[name]):.0f} | {statistics.median(speeds[name]):.0f} | {max(speeds[name]) / best:.3f} |")
    print(f"\nmnist, batches of 64, {pairs} runs of each in turn; losses of all runs: {', '.join(map(str, sorted(losses)))}")
    slow = [name for name, _, _ in kinds if max(speeds[name]) < 0.98 * best]
    if slow or len(losses) > 1:
        sys.exit(f"more than 2 % slower: {', '.join(slow)}" if slow else "the losses differ")


if __name__ == "__main__":
    main()
