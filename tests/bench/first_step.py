#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the seconds from the start of this process to the end of PyTorch's first training step on one random batch,
including the import of PyTorch: first_step.py mnist|cifar10|imdb [--compile]. The models are those of the samples with
these names."""
import json
import os
import sys
import time

import torch
from torch import nn


def started():
    """When this process was started, on the clock CLOCK_BOOTTIME."""
    with open("/proc/self/stat", encoding="ascii") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
    return ticks / os.sysconf("SC_CLK_TCK")


class Mean(nn.Module):
    def forward(self, x):
        return x.mean(1)


B = 64
MODELS = {
    "mnist": (lambda: nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10)),
              lambda: (torch.rand(B, 784), torch.randint(10, (B,))), nn.CrossEntropyLoss()),
    "cifar10": (lambda: nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3), nn.ReLU(),
                                      nn.MaxPool2d(2), nn.Flatten(), nn.Linear(2304, 64), nn.ReLU(), nn.Linear(64, 10)),
                lambda: (torch.rand(B, 3, 32, 32), torch.randint(10, (B,))), nn.CrossEntropyLoss()),
    "imdb": (lambda: nn.Sequential(nn.Embedding(10000, 16), Mean(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1),
                                   nn.Flatten(0)),
             lambda: (torch.randint(10000, (B, 250)), torch.randint(2, (B,)).float()), nn.BCEWithLogitsLoss()),
}
make, data, loss = MODELS[sys.argv[1]]
model = make()
optimizer = torch.optim.Adam(model.parameters())
x, y = data()


def step(x, y):
    optimizer.zero_grad(set_to_none=True)
    value = loss(model(x), y)
    value.backward()
    optimizer.step()
    return value


value = (torch.compile(step) if "--compile" in sys.argv else step)(x, y).item()
seconds = time.clock_gettime(time.CLOCK_BOOTTIME) - started()
print(json.dumps({"start_to_first_step_s": round(seconds, 4), "loss": value}))
