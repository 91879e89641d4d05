/* SPDX-License-Identifier: Apache-2.0
 *
 * Every row of the cross-device ops gives the sum and the mean of all operands: whole numbers, whose sum has the same bits in
 * any order. */
#include "core/run/cross_device.h"

#include <criterion/criterion.h>

#include "core/op/element.h"
#include "strata/strategy.h"
#include "tests/support/check.h"

enum { MOST = 17 };

static strata_error err;
#define OK(call) cr_assert_eq((call), STRATA_OK, "%s", err.message)

/* operand r of element e: a whole number in -20..20. */
static double whole(int r, int64_t e) {
    return (double)((e * 7 + r * 13) % 41 - 20);
}

static void check(const strata_cross_device_ops *ops, strata_device *device, strata_dtype dtype, strata_reduction reduction,
                  int n, int64_t elements) {
    strata_array operands[MOST], results[2];
    const void *in[MOST];
    void *out[2], *plan = NULL;
    for (int r = 0; r < n; r++) {
        OK(strata_array_create(dtype, STRATA_SHAPE(elements), &operands[r], &err));
        in[r] = operands[r].data;
        for (int64_t e = 0; e < elements; e++)
            if (strata_dtype_is_float(dtype))
                strata_element_set(dtype, operands[r].data, e, whole(r, e));
            else
                strata_integer_set(dtype, operands[r].data, e, (int64_t)whole(r, e));
    }
    for (int j = 0; j < 2; j++) {
        results[j] = strata_test_full(dtype, STRATA_SHAPE(elements), 7);
        out[j] = results[j].data;
    }
    if (ops->prepare) OK(ops->prepare(device, dtype, reduction, n, elements, &plan, &err));
    for (int times = 0; times < 2; times++) /* a plan is for all steps */
        OK(ops->reduce(plan, dtype, reduction, in, n, elements, out, 2, &err));
    for (int64_t e = 0; e < elements; e++) {
        double want = 0;
        for (int r = 0; r < n; r++) want += whole(r, e);
        if (reduction == STRATA_REDUCE_MEAN) want = (double)((float)want / (float)n);
        uint64_t bits = 0;
        if (strata_dtype_is_float(dtype))
            strata_element_set(dtype, &bits, 0, want);
        else
            strata_integer_set(dtype, &bits, 0, (int64_t)want);
        cr_assert_arr_eq((char *)out[0] + (size_t)e * strata_dtype_bytes(dtype), &bits, strata_dtype_bytes(dtype),
                         "%s: element %lld of %lld, %d operands of %s", ops->name, (long long)e, (long long)elements, n,
                         strata_dtype_name(dtype));
    }
    cr_assert(strata_test_same(&results[0], &results[1]).ok);
    if (ops->destroy) ops->destroy(plan);
    for (int r = 0; r < n; r++) strata_array_finish(&operands[r]);
    for (int j = 0; j < 2; j++) strata_array_finish(&results[j]);
}

Test(cross_device, every_row_adds_all_operands) {
    const strata_dtype dtypes[] = {STRATA_DTYPE_F32, STRATA_DTYPE_F16, STRATA_DTYPE_BF16, STRATA_DTYPE_I32};
    const int64_t sizes[] = {0, 1, 7, 1023, 1024, 1025, 5003};
    strata_device *device = NULL;
    OK(strata_device_open("host", NULL, &device, &err));
    for (int i = 0; strata_cross_device_names[i]; i++) {
        const strata_cross_device_ops *ops = NULL;
        OK(strata_cross_device_find(strata_cross_device_names[i], &ops, &err));
        cr_assert_str_eq(ops->name, strata_cross_device_names[i]);
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
            for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
                for (int n = 1; n <= MOST; n += n < 9 || sizes[s] == 1025 ? 1 : 4) {
                    check(ops, device, dtypes[d], STRATA_REDUCE_SUM, n, sizes[s]);
                    if (strata_dtype_is_float(dtypes[d])) check(ops, device, dtypes[d], STRATA_REDUCE_MEAN, n, sizes[s]);
                }
    }
    strata_device_close(device);
}

Test(cross_device, an_unknown_name_is_refused_with_those_there_are) {
    const strata_cross_device_ops *ops = NULL;
    cr_assert_eq(strata_cross_device_find("nccl", &ops, &err), STRATA_INVALID);
    cr_assert(strstr(err.message, "\"nccl\"") && strstr(err.message, "host, tree, device"), "%s", err.message);
}
