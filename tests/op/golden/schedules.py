# SPDX-License-Identifier: Apache-2.0
"""Learning rates for t = 0 .. 24 from the schedules of Keras 3."""
import keras
import numpy as np

LIBRARY = "Keras"


def cases(golden):
    s = keras.optimizers.schedules

    def add(name, schedule):
        golden.add(name, np.array([float(schedule(t)) for t in range(25)]))

    add("step", s.PiecewiseConstantDecay([5, 11], [0.1, 0.05, 0.01]))
    add("exponential", s.ExponentialDecay(0.1, 7, 0.5))
    add("staircase", s.ExponentialDecay(0.1, 7, 0.5, staircase=True))
    add("cosine", s.CosineDecay(0.1, 20))
    add("cosine_end", s.CosineDecay(0.1, 20, alpha=0.2))
    add("cosine_warmup", s.CosineDecay(0.01, 15, alpha=0.05, warmup_target=0.1, warmup_steps=6))
    add("polynomial", s.PolynomialDecay(0.1, 15, 0.001))
    add("polynomial_power", s.PolynomialDecay(0.1, 15, 0.001, power=2.5))
    add("polynomial_cycle", s.PolynomialDecay(0.1, 8, 0.001, power=2, cycle=True))
