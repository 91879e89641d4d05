/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/strategies/strategies_case.h"

#include <criterion/criterion.h>

#include "tests/support/check.h"

test_classes test_classes_make(int64_t n, int64_t features) {
    strata_error err = {0};
    test_classes c = {.x = strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(n, features), -1, 1, 11)};
    cr_assert_eq(strata_array_create(STRATA_DTYPE_I32, STRATA_SHAPE(n), &c.y, &err), STRATA_OK, "%s", err.message);
    for (int64_t i = 0; i < n; i++) {
        const float *row = (const float *)c.x.data + i * features;
        ((int32_t *)c.y.data)[i] = row[0] > 0.3f ? 0 : row[1] + row[2] * row[3] > 0 ? 1 : 2;
    }
    cr_assert_eq(strata_dataset_from_arrays(&c.x, &c.y, 0, &c.dataset, &err), STRATA_OK, "%s", err.message);
    return c;
}

void test_classes_free(test_classes *classes) {
    strata_dataset_destroy(classes->dataset);
    strata_array_finish(&classes->x);
    strata_array_finish(&classes->y);
}

strata_strategy *test_strategy(const char *name, const char *const *devices, bool sharded) {
    strata_error err = {0};
    strata_strategy *strategy = NULL;
    strata_strategy_options opts = {.devices = devices,
                                    .shard_optimizer = sharded ? STRATA_SHARD_OPTIMIZER_YES : STRATA_SHARD_OPTIMIZER_NO};
    while (devices[opts.n_devices]) opts.n_devices++;
    cr_assert_eq(strata_strategy_create(name, &opts, &strategy, &err), STRATA_OK, "%s", err.message);
    return strategy;
}
