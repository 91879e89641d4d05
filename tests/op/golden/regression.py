# SPDX-License-Identifier: Apache-2.0
"""The sample `regression` (10 numbers, dense layers with 64, 64 and 1 units, relu, Adam, mse): the losses of 60 steps,
which are 12 epochs of 5 batches of 32 examples in the same order, computed by PyTorch in double precision. Weights and data
are multiples of 1/64, which every format represents exactly."""
import numpy as np
import torch

LIBRARY = "PyTorch"
sizes, examples, batch, epochs = [10, 64, 64, 1], 160, 32, 12


def cases(golden):
    def grid(shape, limit):
        return np.round(golden.random(shape, -limit, limit) * 64).astype(np.float32) / 64

    x = grid((examples, sizes[0]), 1)
    y = np.round((np.sin(3 * x[:, 0]) + 2 * x[:, 1] * x[:, 2] + x[:, 3] ** 2) * 64).astype(np.float32) / 64
    golden.add("x", x)
    golden.add("y", y)
    layers = []
    for i, (wide, units) in enumerate(zip(sizes, sizes[1:])):
        kernel, bias = grid((wide, units), np.sqrt(6 / (wide + units))), grid((units,), 0.25)
        golden.add("parameter_%d" % (2 * i), kernel)
        golden.add("parameter_%d" % (2 * i + 1), bias)
        layer = torch.nn.Linear(wide, units, dtype=torch.float64)
        layer.weight.data, layer.bias.data = torch.tensor(kernel.T,
                                                          dtype=torch.float64), torch.tensor(bias, dtype=torch.float64)
        layers += [layer, torch.nn.ReLU()]
    net = torch.nn.Sequential(*layers[:-1])
    # Strata, like Keras and unlike PyTorch, adds epsilon outside of the bias correction. This epsilon is so small that it
    # makes no difference.
    optimizer = torch.optim.Adam(net.parameters(), lr=0.003, eps=1e-12)
    inputs, answers, losses = torch.tensor(x, dtype=torch.float64), torch.tensor(y, dtype=torch.float64), []
    for _ in range(epochs):
        for first in range(0, examples, batch):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(net(inputs[first:first + batch]).flatten(), answers[first:first + batch])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    golden.add("losses", np.array(losses))
