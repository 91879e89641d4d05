#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints what Google's TPU compiler estimates for a training step of each sample. It needs no TPU.

    python3 tests/bench/tpu.py STRATA LIBTPU [--batch N] [--samples a,b] [--targets v5e:2x2,...] [--limit S] [--precise]

STRATA is the command, LIBTPU is libtpu.so of the package libtpu. Each sample is compiled for one core of each target and,
with `--strategy tpu`, for all its cores, with the sum of the gradients inside of the program. --batch is the batch of one
core. Programs are compiled with --fast, so that products of f32 are computed as products of bf16, or with --precise in full
precision, for which the compiler needs minutes if there are convolutions. The column MXU is the step's FLOPs relative to
what the published bf16 peak of the chip could compute in that time. "untimed" counts ops that the compiler added and for
which it estimates no time: the step's time is that of all other ops, and "none" if it estimates no time at all. The exit
code is 1 if a step could not be compiled."""

import argparse
import json
import os
import subprocess
import sys

SAMPLES = "linear,regression,mnist,imdb,fake_news,mnist_cnn,cifar10,cifar10_resnet"
CORES = {"v4:2x2x1": 8, "v5e:2x2": 4, "v6e:2x4": 8}
ROW = "{:<16}{:<10}{:>6}{:>8}{:>12}{:>9}{:>10}{:>8}{:>10}{:>11}{:>9}"


def number(value, scale, form):
    return "none" if value is None else form.format(value / scale)


def compile_step(options, sample, target, replicas):
    """Returns the text of the row. After a failure it prints a message and returns None."""
    batch = options.batch * replicas
    command = [options.strata, "compile", sample, "--batch", str(batch), "--plugin", f"pjrt:{options.libtpu}",
               "--target", target, "--json"]
    command += ([] if options.precise else ["--fast"]) + (["--strategy", "tpu"] if replicas > 1 else [])
    environment = dict(os.environ, TPU_SKIP_MDS_QUERY="1")
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=options.limit)
    except subprocess.TimeoutExpired:
        print(f"{sample} for {target}: not compiled in {options.limit} s")
        return None
    if done.returncode:
        print(f"{sample} for {target}: {done.stderr.strip().splitlines()[-1][:300]}")
        return None
    e = json.loads(done.stdout)
    if e["replicas"] != replicas:
        print(f"{sample} for {target}: {e['replicas']} replicas; {replicas} were expected")
        return None
    return ROW.format(sample, target, replicas, batch, number(e["step_us"], 1, "{:.1f}"),
                      number(e["untimed_ops"], 1, "{:.0f}"), number(e["flops"], 1e6, "{:.1f}"),
                      number(e["mxu_share"], 0.01, "{:.2f}"), number(e["hbm_bytes"], 1e6, "{:.2f}"),
                      number(e["argument_bytes"] + e["temporary_bytes"], 1e6, "{:.2f}"), number(e["code_bytes"], 1e3, "{:.0f}"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("strata")
    parser.add_argument("libtpu")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--samples", default=SAMPLES)
    parser.add_argument("--targets", default=",".join(CORES))
    parser.add_argument("--limit", type=float, default=600)
    parser.add_argument("--precise", action="store_true")
    options = parser.parse_args()
    print(ROW.format("sample", "target", "cores", "batch", "us a step", "untimed", "MFLOP", "MXU %", "HBM MB", "memory MB",
                     "code kB"))
    failed = False
    for sample in options.samples.split(","):
        for target in options.targets.split(","):
            for replicas in (1, CORES[target]):
                row = compile_step(options, sample, target, replicas)
                failed |= row is None
                if row:
                    print(row, flush=True)
    sys.exit(failed)


main()
