/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads golden numbers: results that NumPy computed. tests/op/golden/OP.py computes those of one test, and
 * tests/op/golden/make.py writes them to tests/op/golden/OP.txt. A line of such a file contains one array: its name, its dtype,
 * its dimensions joined by x ("()" for a scalar), and then its values. */
#ifndef STRATA_TESTS_SUPPORT_GOLDEN_H
#define STRATA_TESTS_SUPPORT_GOLDEN_H

#include "strata/tensor.h"

typedef struct strata_golden strata_golden;

/* Reads the op's file. A missing or malformed file fails the test with a message that explains how to make the file. */
strata_golden *strata_golden_load(const char *op);
/* Returns the array called `name`, which stays valid until destroy. A name that is not in the file fails the test, as above. */
const strata_array *strata_golden_get(const strata_golden *golden, const char *name);
/* NULL is fine. */
void strata_golden_destroy(strata_golden *golden);

#endif
