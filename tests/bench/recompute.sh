#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Measures what `--recompute auto` costs: a step of a model with 12 layers of attention in half the memory for activations,
# beside the same step with all values kept.
#     sh tests/bench/recompute.sh [--record] [--device opencl:0] [--batch 8] [--rounds 5]
#   --record: write the output into RESULTS.md
#   STRATA_BUILD_DIR  the folder in which `strata` was built (build/)
# The two programs are measured alternately, in each round once, and the shortest times are compared. The sum over the nodes,
# each measured by itself, varies less on a busy machine than a step.
# Exit codes: 0 at most half the memory and 1.35 times the time, 1 more, 3 something needed is missing.
set -eu
cd "$(dirname "$0")/../.."
[ "${1:-}" != --record ] || { shift; exec python3 tests/bench/record.py recompute sh tests/bench/recompute.sh "$@"; }
build=${STRATA_BUILD_DIR:-build}
[ -x "$build/strata" ] || { echo "recompute: $build/strata is missing; build first, or set STRATA_BUILD_DIR" >&2; exit 3; }
exec python3 - "$build/strata" "$@" <<'END'
import argparse
import json
import os
import subprocess
import sys
import tempfile

parser = argparse.ArgumentParser()
parser.add_argument("strata")
parser.add_argument("--device", default="opencl:0")
parser.add_argument("--batch", default="8")
parser.add_argument("--rounds", type=int, default=5)
o = parser.parse_args()

WORDS, TOKENS, CHANNELS, HIDDEN, BLOCKS = 128, 8000, 128, 512, 12
attention = [{"layer": "layer_norm"}, {"layer": "multi_head_attention", "heads": 4}]
feed = [{"layer": "layer_norm"}, {"layer": "dense", "units": HIDDEN, "activation": "gelu"},
        {"layer": "dense", "units": CHANNELS}]
model = {"input": [WORDS], "input_dtype": "i32", "loss": "sparse_categorical_crossentropy", "layers":
         [{"layer": "embedding", "vocabulary": TOKENS, "units": CHANNELS}]
         + [{"layer": "residual", "layers": layers} for _ in range(BLOCKS) for layers in (attention, feed)]
         + [{"layer": "global_average_pool"}, {"layer": "dense", "units": 2}]}
file = tempfile.NamedTemporaryFile("w", suffix=".json")
json.dump(model, file)
file.flush()


def summary(*options):
    done = subprocess.run([o.strata, "summary", file.name, "--json", "--batch", o.batch, "--device", o.device, *options],
                          stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def activations(*options):
    """The bytes at the moment when a step needs most, besides the gradients of the parameters (the pack)."""
    return sum(v["bytes"] for v in summary("--memory", *options)["values"] if v["op"] != "pack")


kept = activations()
recompute = ["--recompute", f"auto:{summary()['step_memory_bytes'] - kept // 2}"]
less = activations(*recompute)
reports = ([], [])
for _ in range(o.rounds):
    for taken, options in zip(reports, ([], recompute)):
        taken.append(summary("--times", *options))


def least(which, name):
    return min(report[name] for report in reports[which])


ratios = [least(1, name) / least(0, name) for name in ("step_us", "nodes_us", "step_flops")]
print("| step | activations, MiB | ms, least | nodes one by one | GFLOP |")
print("|---|---|---|---|---|")
for i, (name, memory) in enumerate((("all values kept", kept), (" ".join(recompute), less))):
    print(f"| {name} | {memory / 2**20:.1f} | {least(i, 'step_us') / 1e3:.1f} | {least(i, 'nodes_us') / 1e3:.1f} | "
          f"{least(i, 'step_flops') / 1e9:.2f} |")
print(f"| ratio | {less / kept:.3f} | " + " | ".join(f"{ratio:.3f}" for ratio in ratios) + " |")
print(f"\nbatches of {o.batch} on {o.device}, {o.rounds} rounds in turn, load {os.getloadavg()[0]:.1f} on "
      f"{os.cpu_count()} cores")
sys.exit(less > 0.5 * kept or ratios[0] > 1.35)
END
