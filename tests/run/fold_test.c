/* SPDX-License-Identifier: Apache-2.0
 *
 * The fold against a plain sum, for every dtype, odd and empty sizes, and any number of operands. */
#include "core/run/fold.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "core/op/element.h"
#include "tests/support/check.h"

enum { MOST = 9 };

static void check_fold(strata_dtype dtype, strata_reduction reduction, int n, int64_t elements) {
    strata_array operands[MOST], results[2];
    const void *in[MOST];
    void *out[2];
    for (int r = 0; r < n; r++) {
        operands[r] = strata_test_random(dtype, STRATA_SHAPE(elements), -50, 50, (uint64_t)(r + 1));
        in[r] = operands[r].data;
    }
    for (int j = 0; j < 2; j++) {
        results[j] = strata_test_full(dtype, STRATA_SHAPE(elements), 7);
        out[j] = results[j].data;
    }
    strata_fold(dtype, reduction, in, n, elements, out, 2);
    for (int64_t e = 0; e < elements; e++) {
        float sum = 0;
        int64_t whole = 0;
        for (int r = 0; r < n; r++) {
            if (strata_dtype_is_float(dtype))
                sum += (float)strata_element_get(dtype, in[r], e);
            else
                whole += strata_integer_get(dtype, in[r], e);
        }
        if (reduction == STRATA_REDUCE_MEAN && n) sum /= (float)n;
        if (!strata_dtype_is_float(dtype)) {
            cr_assert_eq(strata_integer_get(dtype, out[1], e), whole);
            continue;
        }
        uint64_t want = 0;
        strata_element_set(dtype, &want, 0, sum);
        cr_assert_arr_eq((char *)out[0] + (size_t)e * strata_dtype_bytes(dtype), &want, strata_dtype_bytes(dtype),
                         "element %lld of %lld, %d operands", (long long)e, (long long)elements, n);
    }
    cr_assert(strata_test_same(&results[0], &results[1]).ok);
    for (int r = 0; r < n; r++) strata_array_finish(&operands[r]);
    for (int j = 0; j < 2; j++) strata_array_finish(&results[j]);
}

Test(fold, adds_in_replica_order) {
    const strata_dtype dtypes[] = {STRATA_DTYPE_F32, STRATA_DTYPE_F16, STRATA_DTYPE_BF16, STRATA_DTYPE_I32, STRATA_DTYPE_I64};
    const int64_t sizes[] = {0, 1, 7, 2047, 2048, 2049, 5003};
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (int n = 0; n <= MOST; n += n < 3 ? 1 : 3) {
                check_fold(dtypes[d], STRATA_REDUCE_SUM, n, sizes[s]);
                if (strata_dtype_is_float(dtypes[d])) check_fold(dtypes[d], STRATA_REDUCE_MEAN, n, sizes[s]);
            }
}

Test(fold, a_result_may_be_an_operand) {
    float a[3] = {1, 2, 3}, b[3] = {10, 20, 30};
    strata_fold(STRATA_DTYPE_F32, STRATA_REDUCE_SUM, (const void *[]){a, b}, 2, 3, (void *[]){a, b}, 2);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(a[i], 11.0f * (float)(i + 1));
        cr_assert_eq(b[i], a[i]);
    }
}

Test(fold, integers_wrap) {
    int32_t a = INT32_MAX, b = 1, sum;
    strata_fold(STRATA_DTYPE_I32, STRATA_REDUCE_SUM, (const void *[]){&a, &b}, 2, 1, (void *[]){&sum}, 1);
    cr_assert_eq(sum, INT32_MIN);
}
