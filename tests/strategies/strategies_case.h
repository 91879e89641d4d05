/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers for tests of strategies: examples of three classes that a small model can learn, and strategies by name. */
#ifndef STRATA_TESTS_STRATEGIES_CASE_H
#define STRATA_TESTS_STRATEGIES_CASE_H

#include "strata/strata.h"

/* n examples with `features` random features, at least 4. The first four determine which of three classes the example has. Free
 * it with test_classes_free. It fails the running test when memory runs out. */
typedef struct test_classes {
    strata_array x, y;
    strata_dataset *dataset;
} test_classes;
test_classes test_classes_make(int64_t n, int64_t features);
void test_classes_free(test_classes *classes);

/* Creates the strategy for these devices; NULL ends the list. sharded: each replica updates only its shard of the parameters.
 * */
strata_strategy *test_strategy(const char *name, const char *const *devices, bool sharded);

#endif
