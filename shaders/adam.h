/* SPDX-License-Identifier: Apache-2.0
 *
 * Adam's formula, for adam.kernel and cpu/adam_product.kernel. V is float or a vector of it, g the gradient, old_m, old_v and p
 * what the variables contain, rate and shrink the step's rate and decay; new_m, new_v and p are what they become. */
#define ADAM_STEP(V)                                  \
    EXACT V new_m = old_m + rate_1 * (g - old_m);     \
    EXACT V new_v = old_v + rate_2 * (g * g - old_v); \
    if (DECAY != 0u) p = p - shrink * p;              \
    p = p - rate * new_m / (SQRT(new_v) + epsilon);
