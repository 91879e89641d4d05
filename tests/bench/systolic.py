#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the cycle model of samples/systolic with numbers that it did not come from.

    python3 tests/bench/systolic.py BUILD [--compiler PYTHON] [--train STRATA DATA]

BUILD is a build folder of samples/systolic. Square products of bf16 are compiled by the plugin, not run:
  1. chip s1 beside the roofline of one core of a TPU v2 (peak and bandwidth as in Jouppi et al., CACM 63, 2020, table 3);
  2. chip v5e beside the cycles that Google's TPU compiler estimates for that chip. PYTHON is an interpreter with the packages
     jax and libtpu, which compile ahead of time without a TPU. Left out without it.
  3. STRATA, the command, trains mnist and cifar10 of the folder DATA with products of bf16 and, on another device, of f32.
Exits with 1 where the model is faster than the roofline allows, its trend is not the compiler's, or the mean accuracy is more
than a point lower.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys

SIZES = [128, 256, 512, 1024, 2048, 4096, 8192]
PEAK, BANDWIDTH = 23e12, 350e9  # FLOP/s and B/s of a core: half of a chip's 46 TFLOP/s and 700 GB/s
LARGE, FAR = 2048, 1.25  # from this size on model and compiler must agree within this factor

SEEDS = [1, 2, 3, 4, 5]
EPOCHS = {"mnist": 5, "cifar10": 6}
POINT = 0.01  # of accuracy

COMPILE = r"""
import re, sys
import jax, jax.numpy as jnp
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding
device = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2").devices[0]
for n in map(int, sys.argv[1:]):
    x = jax.ShapeDtypeStruct((n, n), jnp.bfloat16, sharding=SingleDeviceSharding(device))
    done = jax.jit(jnp.dot).lower(x, x).compile()
    cycles = sum(map(int, re.findall(r'"estimated_cycles":"(\d+)"', done.as_text())))
    print("estimate", n, cycles, done.cost_analysis()["optimal_seconds"])
"""


def model(build, chip):
    """What the plugin says of each product."""
    sizes = [f"{n},{n},{n}" for n in SIZES]
    command = [build / "tests/squares", build / "libstrata_systolic.so", chip, *sizes]
    out = subprocess.run(command, check=True, capture_output=True, text=True)
    return [json.loads(line) for line in out.stdout.splitlines()]


def against_the_roofline(rows):
    print("Utilisation of the array by squares of n, chip s1, beside the roofline of a TPU v2 core (23 TFLOP/s, 350 GB/s):\n")
    print("| n | FLOP a byte | roofline | model | model / roofline | bytes / least |\n|---|---|---|---|---|---|")
    fine = True
    for row in rows:
        n = row["n"]
        intensity, least = n / 3, 6 * n * n  # a, b and c once, two bytes an element
        roof = min(1, intensity * BANDWIDTH / PEAK)
        fine = fine and row["utilisation"] <= roof * 1.01
        print(f"| {n} | {intensity:.0f} | {roof:.3f} | {row['utilisation']:.3f} | {row['utilisation'] / roof:.2f} "
              f"| {row['bytes'] / least:.2f} |")
    return fine


def against_the_compiler(rows, python):
    command = ["env", "ALLOW_MULTIPLE_LIBTPU_LOAD=1", python, "-c", COMPILE, *map(str, SIZES)]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = {int(n): (int(cycles), float(s)) for n, cycles, s in re.findall(r"^estimate (\d+) (\d+) (\S+)", out, re.M)}
    print("\nCycles by squares of n, chip v5e, beside what Google's compiler (libtpu) estimates for a v5e; 1500 MHz:\n")
    print("| n | model | compiler | model / compiler | growth, model | growth, compiler | compiler's optimal us |")
    print("|---|---|---|---|---|---|---|")
    fine, before = True, None
    for row in rows:
        cycles, seconds = found[row["n"]]
        known = cycles > 0
        ratio = row["cycles"] / cycles if known else 0
        growth = [f"{now / then:.2f}" if then else "-" for now, then in zip((row["cycles"], cycles), before or (0, 0))]
        print(f"| {row['n']} | {row['cycles']:.0f} | {cycles if known else '-'} | {f'{ratio:.2f}' if known else '-'} "
              f"| {growth[0]} | {growth[1] if known else '-'} | {seconds * 1e6:.1f} |")
        if row["n"] >= LARGE:
            fine = fine and 1 / FAR <= ratio <= FAR
        before = (row["cycles"], cycles)
    return fine


def against_f32(build, strata, data, device):
    print(f"\nAccuracy on test examples after training, means of {len(SEEDS)} seeds (least - most), in %:\n")
    print(f"| | epochs | f32, {device} | bf16, systolic:0 | difference | samples/s, systolic:0 |\n|---|---|---|---|---|---|")
    fine = True
    for name, epochs in EPOCHS.items():
        means, texts, speeds = [], [], []
        for where in (device, "systolic:0"):
            found = []
            for seed in SEEDS:
                plugin = build / "libstrata_systolic.so"
                command = [strata, "train", name, "--data", data / name, "--plugin", plugin, "--device", where]
                command += ["--seed", str(seed), "--epochs", str(epochs), "--json"]
                out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                result = json.loads(out.splitlines()[-1])
                found.append(result["accuracy"])
                speeds.append(result["samples_per_s"])
            means.append(sum(found) / len(found))
            texts.append(f"{100 * means[-1]:.2f} ({100 * min(found):.1f} - {100 * max(found):.1f})")
        fine = fine and means[1] > means[0] - POINT
        speed = max(speeds[-len(SEEDS) :])
        print(f"| {name} | {epochs} | {texts[0]} | {texts[1]} | {100 * (means[1] - means[0]):+.2f} | {speed:.0f} |")
    return fine


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--compiler", metavar="PYTHON", help="an interpreter with jax and libtpu")
    parser.add_argument("--train", nargs=2, type=pathlib.Path, metavar=("STRATA", "DATA"))
    parser.add_argument("--against", default="opencl:0", metavar="DEVICE", help="what trains in f32")
    options = parser.parse_args()
    fine = against_the_roofline(model(options.build, "s1"))
    if options.compiler:
        fine = against_the_compiler(model(options.build, "v5e"), options.compiler) and fine
    else:
        print("\nskipped: the compiler's estimates need --compiler, an interpreter with jax and libtpu")
    if options.train:
        fine = against_f32(options.build, *options.train, options.against) and fine
    sys.exit(not fine)


main()
