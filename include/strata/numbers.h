/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers in options: how zero is written, and a short list of numbers. */
#ifndef STRATA_NUMBERS_H
#define STRATA_NUMBERS_H

#include "strata/tensor.h"

/* In a struct of options a field of type double that is 0 is not given: it means the default that its comment names.
 * STRATA_ZERO means the number 0 itself:
 *
 *     strata_optimizer optimizer = {.name = "adamw", .weight_decay = STRATA_ZERO};
 *
 * It is the negative zero of IEEE 754, which equals 0 and computes like 0. In JSON and in Python a 0 that is written means
 * 0. */
#define STRATA_ZERO (-0.0)

enum { STRATA_MAX_NUMBERS = 16 };
typedef struct strata_numbers {
    int n;
    double values[STRATA_MAX_NUMBERS];
} strata_numbers;

#endif
