#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the cycle model of samples/systolic with independent numbers.

    python3 tests/bench/systolic.py BUILD [--compiler PYTHON] [--train STRATA DATA]

BUILD is a build folder of samples/systolic. The plugin compiles products of bf16 without running them:
  1. square products on chip s1 are compared with the roofline of one core of a TPU v2 (peak and bandwidth as in Jouppi et al.,
     CACM 63, 2020, table 3);
  2. square and narrow products on the chips v5e and v4 are compared with the cycles that Google's TPU compiler estimates for
     such a chip, or for one of its cores. PYTHON is an interpreter with the packages jax and libtpu, which can compile without
     a TPU. Without --compiler this part is left out.
  3. the command STRATA trains mnist and cifar10 from the folder DATA with products of bf16 and, on another device, of f32.
The exit code is 1 if the model is faster than the roofline allows, if it differs from the compiler by a factor of more than
1.25 for a square product or 1.5 for a narrow one, or if the mean accuracy with bf16 is more than a point lower."""

import argparse
import json
import pathlib
import re
import subprocess
import sys

SIZES = [128, 256, 512, 1024, 2048, 4096, 8192]
PEAK, BANDWIDTH = 23e12, 350e9  # FLOP/s and B/s of a core: half of a chip's 46 TFLOP/s and 700 GB/s
FAR_SQUARE, FAR_NARROW = 1.25, 1.5  # model and compiler must agree within these factors
SQUARES = [128, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 8192]
NARROW = [(8, 128, 128), (1024, 128, 128), (128, 1024, 128), (8192, 128, 128), (128, 8192, 128)]
TARGETS = {"v5e": ("v5e:2x2", 1500), "v4": ("v4:2x2x1", 1050)}  # of the compiler, and MHz

SEEDS = [1, 2, 3, 4, 5]
EPOCHS = {"mnist": 5, "cifar10": 6}
POINT = 0.01  # of accuracy

COMPILE = r"""
import re, sys
import jax, jax.numpy as jnp
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding
device = topologies.get_topology_desc(platform="tpu", topology_name=sys.argv[1]).devices[0]
def matrix(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=SingleDeviceSharding(device))
for size in sys.argv[2:]:
    m, k, n = map(int, size.split(","))
    done = jax.jit(jnp.dot).lower(matrix(m, k), matrix(k, n)).compile()
    cycles = sum(map(int, re.findall(r'"estimated_cycles":"(\d+)"', done.as_text())))
    print("estimate", size, cycles, done.cost_analysis()["optimal_seconds"])
"""


def model(build, chip, sizes):
    """The cycles that the plugin reports for each product of (M, K) and (K, N)."""
    command = [build / "tests/squares", build / "libstrata_systolic.so", chip, *(f"{m},{k},{n}" for m, k, n in sizes)]
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


def against_the_compiler(build, chip, python):
    target, megahertz = TARGETS[chip]
    sizes = [(n, n, n) for n in SQUARES] + NARROW
    command = ["env", "ALLOW_MULTIPLE_LIBTPU_LOAD=1", "TPU_SKIP_MDS_QUERY=1", python, "-c", COMPILE, target]
    out = subprocess.run([*command, *(f"{m},{k},{n}" for m, k, n in sizes)], check=True, capture_output=True, text=True).stdout
    found = re.findall(r"^estimate \S+ (\d+) (\S+)", out, re.M)
    print(f"\nCycles of products (M, K) (K, N), chip {chip}, beside what Google's compiler (libtpu) estimates for {target}; "
          f"{megahertz} MHz:\n")
    print("| M, K, N | model | compiler | model / compiler | compiler's optimal us |\n|---|---|---|---|---|")
    fine = len(found) == len(sizes)
    for row, (cycles, seconds) in zip(model(build, chip, sizes), found):
        ratio = row["cycles"] / int(cycles)
        size, optimal = f"{row['m']}, {row['k']}, {row['n']}", float(seconds) * 1e6
        print(f"| {size} | {row['cycles']:.0f} | {cycles} | {ratio:.2f} | {optimal:.1f} |")
        far = FAR_SQUARE if row["m"] == row["k"] == row["n"] else FAR_NARROW
        fine = fine and 1 / far <= ratio <= far
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
    fine = against_the_roofline(model(options.build, "s1", [(n, n, n) for n in SIZES]))
    if options.compiler:
        for chip in TARGETS:
            fine = against_the_compiler(options.build, chip, options.compiler) and fine
    else:
        print("\nskipped: the compiler's estimates need --compiler, an interpreter with jax and libtpu")
    if options.train:
        fine = against_f32(options.build, *options.train, options.against) and fine
    sys.exit(not fine)


main()
