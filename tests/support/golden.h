/* SPDX-License-Identifier: Apache-2.0
 *
 * Golden numbers: tests/op/golden/<op>.txt, written from NumPy by tests/op/golden/make.py out of tests/op/golden/<op>.py.
 * One array a line: name, dtype, dimensions joined by x ("()" for a scalar), then the values. */
#ifndef STRATA_TESTS_SUPPORT_GOLDEN_H
#define STRATA_TESTS_SUPPORT_GOLDEN_H

#include "strata/tensor.h"

typedef struct strata_golden strata_golden;

/* Reads the op's file. A missing or malformed file, or a name that is not in it, fails the test with a message that says how to
 * make the file. */
strata_golden *strata_golden_load(const char *op);
/* The array called `name`: borrowed, valid until destroy. */
const strata_array *strata_golden_get(const strata_golden *golden, const char *name);
void strata_golden_destroy(strata_golden *golden); /* NULL is fine */

#endif
