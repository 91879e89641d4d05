/* SPDX-License-Identifier: Apache-2.0
 *
 * What tests of training under strategies share: three classes that a small model can learn, and strategies by name. */
#ifndef STRATA_TESTS_STRATEGIES_CASE_H
#define STRATA_TESTS_STRATEGIES_CASE_H

#include "strata/strata.h"

/* n examples of `features` (at least 4) random features with a class of three, made of the first four. Free with
 * test_classes_free; fails the test where it cannot be made. */
typedef struct test_classes {
    strata_array x, y;
    strata_dataset *dataset;
} test_classes;
test_classes test_classes_make(int64_t n, int64_t features);
void test_classes_free(test_classes *classes);

/* The strategy over these devices, NULL-terminated; sharded: each replica updates its shard of the parameters. */
strata_strategy *test_strategy(const char *name, const char *const *devices, bool sharded);

#endif
