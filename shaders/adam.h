/* SPDX-License-Identifier: Apache-2.0
 *
 * Adam's formula, for adam.kernel, cpu/adam_product.kernel and cpu/adam_gather.kernel. V is float or a vector of
 * floats. Inputs are the gradient g, the variables' old values old_m, old_v and p, and the step's learning rate `rate`
 * and decay `shrink`. Results are new_m, new_v and p. */
#define ADAM_M(old_m, g) ((old_m) + rate_1 * ((g) - (old_m)))
#define ADAM_V(old_v, g) ((old_v) + rate_2 * ((g) * (g) - (old_v)))
#define ADAM_P(p, new_m, root)           \
    if (DECAY != 0u) p = p - shrink * p; \
    p = p - rate * new_m / (root + epsilon);
#define ADAM_STEP(V)                  \
    EXACT V new_m = ADAM_M(old_m, g); \
    EXACT V new_v = ADAM_V(old_v, g); \
    ADAM_P(p, new_m, SQRT(new_v))
