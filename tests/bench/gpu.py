#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the speed of training, matrix products and convolutions on a GPU with PyTorch (cuDNN, cuBLAS) on the same card.
It prints a row for each comparison.

    python3 tests/bench/gpu.py [--strata build/release/strata] [--data ../shared/data] [--devices vulkan:0,opencl:0]
                               [--batches 64,1024] [--tasks mnist,cifar10,cifar10_resnet] [--only train,matmul,conv2d]

PyTorch keeps the whole data set on the card and gathers batches there. It trains first step by step (eager), and then with
the step captured as a CUDA graph and replayed, which is the fastest way that its users have; the faster of the two counts.
PyTorch computes f32 with its own settings unless --tf32 no is given: convolutions in TF32 (10 bits of mantissa), products
in f32. Strata multiplies in f32. It needs PyTorch with CUDA and a card.
Exit codes: 0 success; 3 something needed is missing."""
import argparse
import json
import statistics
import subprocess
import sys
import time

ASKED = 0.70
EPOCHS = {64: 3, 1024: 6}
parser = argparse.ArgumentParser()
parser.add_argument("--strata", default="build/release/strata")
parser.add_argument("--data", default="../shared/data")
parser.add_argument("--devices", default="vulkan:0,opencl:0")
parser.add_argument("--batches", default="64,1024")
parser.add_argument("--tasks", default="mnist,cifar10,cifar10_resnet")
parser.add_argument("--only", default="train,matmul,conv2d")
parser.add_argument("--sizes", default="256,512,1024,2048,4096")
parser.add_argument("--precision", default="f32")
parser.add_argument("--tf32", choices=["yes", "no"], default="yes")
parser.add_argument("--card", default="cuda", help="PyTorch's device; cpu is for trying this script out")
o = parser.parse_args()

try:
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
except ImportError:
    print("gpu: PyTorch is missing (pip install torch)", file=sys.stderr)
    sys.exit(3)
HAS_CUDA = o.card != "cpu"
if HAS_CUDA and not torch.cuda.is_available():
    print("gpu: PyTorch sees no CUDA card", file=sys.stderr)
    sys.exit(3)
torch.backends.cudnn.allow_tf32 = o.tf32 == "yes"
torch.backends.cudnn.benchmark = True
CARD = torch.device(o.card)


def strata(*words):
    """Runs the command and returns the JSON lines that it prints. After a failure it prints the reason and returns []."""
    done = subprocess.run([o.strata, *words, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        print(f"  strata {' '.join(words)}: exit code {done.returncode}: {done.stderr.strip()[-400:]}", file=sys.stderr)
        return []
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def finish():
    if HAS_CUDA:
        torch.cuda.synchronize()


def captured(work):
    """Captures the work as a CUDA graph, so that launches cost nothing, and returns a function that replays it."""
    if not HAS_CUDA:
        return work
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(12):
            work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def row(what, ours, theirs, unit, note=""):
    verdict = "reached" if ours / theirs >= ASKED else "MISSED"
    print(f"{what:<44} {ours:>12,.4g} {theirs:>12,.4g} {unit:<10} {ours / theirs:>6.2f}  {verdict}  {note}", flush=True)


# ---- training ---------------------------------------------------------------------------------------------------------
class Shortcut(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.body = nn.Sequential(conv(inside, outside, 3, 2), nn.ReLU(), conv(outside, outside, 3, 1))
        self.shortcut = conv(inside, outside, 1, 2)

    def forward(self, x):
        return F.relu(self.body(x) + self.shortcut(x))


def conv(inside, outside, size, stride):
    return nn.Sequential(nn.Conv2d(inside, outside, size, stride, size // 2, bias=False), nn.BatchNorm2d(outside, momentum=0.1))


def model(task):
    if task == "mnist":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    if task == "cifar10":
        return nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
                             nn.Flatten(), nn.Linear(2304, 64), nn.ReLU(), nn.Linear(64, 10))
    return nn.Sequential(conv(3, 32, 3, 1), nn.ReLU(), Shortcut(32, 64), Shortcut(64, 128), nn.AdaptiveAvgPool2d(1),
                         nn.Flatten(),
                         nn.Linear(128, 10))


def crop_and_flip(x):
    """Moves each picture by up to 4 pixels in each direction, and mirrors half of them."""
    n = x.shape[0]
    at = torch.randint(0, 9, (2, n, 1, 1, 1), device=CARD)
    mirrored = torch.randint(0, 2, (n, 1, 1, 1), device=CARD)
    wide = F.pad(x, (4, 4, 4, 4))
    column = torch.arange(32, device=CARD).view(1, 1, 1, 32)
    columns = at[0] + torch.where(mirrored == 1, 31 - column, column)
    rows = at[1] + torch.arange(32, device=CARD).view(1, 1, 32, 1)
    which, channel = torch.arange(n, device=CARD).view(n, 1, 1, 1), torch.arange(3, device=CARD).view(1, 3, 1, 1)
    return wide[which, channel, rows, columns]


def torch_rates(task, batch, examples):
    """Returns the examples per second of PyTorch: step by step, and with the step captured as a CUDA graph."""
    torch.manual_seed(1)
    x = torch.rand(examples, *((1, 28, 28) if task == "mnist" else (3, 32, 32)), device=CARD)
    y = torch.randint(0, 10, (examples,), device=CARD)
    rates = {}
    for how in ("eager", "graph") if HAS_CUDA else ("eager",):
        net = model(task).to(CARD)
        if task != "mnist":
            net = net.to(memory_format=torch.channels_last)
        kinds = dict(fused=True, capturable=HAS_CUDA)
        opt = torch.optim.AdamW(net.parameters(),
                                **kinds) if task == "cifar10_resnet" else torch.optim.Adam(net.parameters(), **kinds)
        index = torch.zeros(batch, dtype=torch.long, device=CARD)

        def step():
            opt.zero_grad(set_to_none=True)
            bx = x[index]
            if task == "cifar10_resnet":
                bx = crop_and_flip(bx)
            if task != "mnist":
                bx = bx.contiguous(memory_format=torch.channels_last)
            with torch.autocast(o.card, dtype=torch.bfloat16, enabled=o.precision == "bf16"):
                loss = F.cross_entropy(net(bx), y[index])
            loss.backward()
            opt.step()

        run = captured(step) if how == "graph" else step
        steps = max(20, min(300, examples // batch))
        times = []
        for _ in range(3):
            start = time.perf_counter()
            order = torch.randperm(examples, device=CARD)
            for i in range(steps):
                index.copy_(order[i * batch % (examples - batch):][:batch])
                run()
            finish()
            times.append((time.perf_counter() - start) / steps)
        rates[how] = batch / statistics.median(times)
    return rates


def train():
    for task in o.tasks.split(","):
        for batch in map(int, o.batches.split(",")):
            theirs = torch_rates(task, batch, 60000 if task == "mnist" else 20000)
            best = max(theirs.values())
            for device in o.devices.split(","):
                folder = f"{o.data}/{'mnist' if task == 'mnist' else 'cifar10'}"
                lines = strata("train", task, "--data", folder, "--device", device, "--batch", str(batch), "--epochs",
                               str(EPOCHS.get(batch, 3)), "--seed", "1", "--precision", o.precision)
                if lines:
                    rates = ", ".join(f"{how} {rate:,.0f}" for how, rate in theirs.items())
                    row(f"{task}, batch {batch}, {device}", lines[-1]["samples_per_s"], best, "samples/s",
                        f"PyTorch {rates}; loss {lines[-1]['loss']:.4g}, first step {lines[-1]['first_step_s']:.2f} s")


# ---- products and convolutions ----------------------------------------------------------------------------------------
def seconds(work):
    """Returns the median time of ten runs, each of which does the work many times."""

    def ten():
        for _ in range(10):
            work()

    run, times = captured(ten), []
    for _ in range(12):
        finish()
        start = time.perf_counter()
        run()
        finish()
        times.append((time.perf_counter() - start) / 10)
    return statistics.median(times)


def matmul():
    for device in o.devices.split(","):
        for line in strata("bench", "matmul", "--device", device, "--sizes", o.sizes, "--mnist", "--seconds", "0.3"):
            m, n, k = line["m"], line["n"], line["k"]
            a, b = torch.randn(m, k, device=CARD), torch.randn(k, n, device=CARD)
            theirs = 2e-9 * m * n * k / seconds(lambda: a @ b)
            row(f"matmul {m}x{n}x{k}, {device}", line["gflops"], theirs, "GFLOP/s",
                f"{line['gflops'] / line['peak_gflops']:.2f} of the peak")


def conv2d():
    for device in o.devices.split(","):
        for line in strata("bench", "conv2d", "--device", device, "--batch", "256", "--seconds", "0.3"):
            batch, height, width, channels = line["x"]
            size, stride, filters = line["filter"][0], line["stride"], line["filter"][3]
            pad = size // 2 if line["same"] else 0
            x = torch.randn(batch, channels, height, width, device=CARD).to(memory_format=torch.channels_last)
            f = torch.randn(filters, channels, size, size, device=CARD).to(memory_format=torch.channels_last)
            dy = torch.randn_like(F.conv2d(x, f, stride=stride, padding=pad))

            def gradient(which):
                mask = [which == "input grad", which == "filter grad", False]
                return torch.ops.aten.convolution_backward(dy, x, f, None, [stride] * 2, [pad] * 2, [1, 1], False, [0, 0], 1,
                                                           mask)

            output = line["output"]
            t = seconds(lambda: F.conv2d(x, f, stride=stride, padding=pad) if output == "forward" else gradient(output))
            row(f"{line['layer']}, {output}, {device}", line["gflops"], line["mflop"] * 1e-3 / t, "GFLOP/s",
                f"{line['gflops'] / line['peak_gflops']:.2f} of the peak")


print(f"# {torch.cuda.get_device_name() if HAS_CUDA else o.card}, PyTorch {torch.__version__}, cuDNN's TF32 {o.tf32}, precision {o.precision}")
print(f"# {'':<42} {'Strata':>12} {'PyTorch':>12}            ratio  asked {ASKED}")
for part in o.only.split(","):
    {"train": train, "matmul": matmul, "conv2d": conv2d}[part]()
