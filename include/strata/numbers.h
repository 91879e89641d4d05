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

#ifdef __cplusplus
extern "C" {
#endif

/* Whether a number is given: it is not 0, or it is STRATA_ZERO. */
STRATA_API bool strata_number_is_given(double value);
/* The number, or `otherwise` if it is not given. */
STRATA_API double strata_number_or(double value, double otherwise);
/* The number as messages and files show it: 0 for STRATA_ZERO, whose text would be "-0". */
STRATA_API double strata_number_shown(double value);

#ifdef __cplusplus
}
#endif
#endif
