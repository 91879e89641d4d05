/* SPDX-License-Identifier: Apache-2.0
 *
 * A short list of numbers, the type of several options. */
#ifndef STRATA_NUMBERS_H
#define STRATA_NUMBERS_H

#include "strata/tensor.h"

enum { STRATA_MAX_NUMBERS = 16 };
typedef struct strata_numbers {
    int n;
    double values[STRATA_MAX_NUMBERS];
} strata_numbers;

#endif
