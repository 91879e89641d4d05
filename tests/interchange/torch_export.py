#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs under a Python that has torch, and knows nothing of Strata: exports a residual network and a small transformer by
torch.onnx, with what torch itself predicts.

usage: torch_export.py FOLDER    writes NAME.onnx, NAME.x.npy, NAME.y.npy; resnet.safetensors is the first one's state dict, as
raw parts in NAME.weights.npz"""

import pathlib
import sys

import numpy
import torch
from torch import nn

FOLDER = pathlib.Path(sys.argv[1])


class Block(nn.Module):
    def __init__(self, channels, filters, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, filters, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(filters)
        self.conv2 = nn.Conv2d(filters, filters, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(filters)
        self.down = nn.Sequential()
        if stride != 1 or channels != filters:
            self.down = nn.Sequential(nn.Conv2d(channels, filters, 1, stride, bias=False), nn.BatchNorm2d(filters))

    def forward(self, x):
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) + self.down(x))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        self.blocks = nn.Sequential(Block(8, 8, 1), Block(8, 16, 2), Block(16, 16, 1))
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        return self.head(torch.flatten(nn.functional.adaptive_avg_pool2d(self.blocks(self.stem(x)), 1), 1))


class Transformer(nn.Module):
    """Layers of nn.MultiheadAttention, as nn.TransformerEncoderLayer computes them while training."""

    def __init__(self, width=16, heads=4, steps=10, vocabulary=30):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.position = nn.Parameter(torch.randn(1, steps, width) * 0.1)
        self.attention = nn.ModuleList(nn.MultiheadAttention(width, heads, batch_first=True) for _ in range(2))
        self.feed = nn.ModuleList(nn.Sequential(nn.Linear(width, 32), nn.GELU(), nn.Linear(32, width)) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(4))
        self.head = nn.Linear(width, 4)
        self.register_buffer("mask", torch.full((steps, steps), float("-inf")).triu(1))

    def forward(self, tokens):
        x = self.embed(tokens) + self.position
        for i in range(2):
            y = self.attention[i](x, x, x, attn_mask=self.mask, need_weights=False)[0]
            x = self.norms[2 * i](x + y)
            x = self.norms[2 * i + 1](x + self.feed[i](x))
        return torch.softmax(self.head(x.mean(1)), -1)


def export(name, model, x):
    # Moving statistics that are not 0 and 1.
    model.train()
    with torch.no_grad():
        for _ in range(3):
            model(torch.randn(8, *x.shape[1:]) * 2 + 1 if x.dtype == torch.float32 else x)
    model.eval()
    model.requires_grad_(True)
    y = model(x).detach().numpy()
    torch.onnx.export(
        model,
        x,
        str(FOLDER / f"{name}.onnx"),
        opset_version=17,
        input_names=["input"],
        output_names=["output"],
        dynamic_axes={"input": {0: "batch"}, "output": {0: "batch"}},
    )
    numpy.save(FOLDER / f"{name}.x.npy", x.numpy())
    numpy.save(FOLDER / f"{name}.y.npy", y)
    numpy.savez(FOLDER / f"{name}.weights.npz", **{k: v.numpy() for k, v in model.state_dict().items()})


torch.manual_seed(0)
torch.set_num_threads(1)
export("resnet", ResNet(), torch.randn(6, 3, 20, 20))
export("transformer", Transformer(), torch.randint(0, 30, (6, 10)))
print("torch", torch.__version__)
