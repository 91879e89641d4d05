/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that several shape rules use (rules.h). */
#include "core/op/rules.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

const strata_attr_words strata_dtype_words[] = {
    {"dtype", (const char *const[]){"f32", "f16", "bf16", "i32", "i64", "u8", "bool", NULL}}, {NULL, NULL}};

/* Writes the names of the allowed dtypes: "f32, f16 or bf16". */
static void list_dtypes(unsigned allowed, char *text, size_t bytes) {
    int left = __builtin_popcount(allowed & STRATA_ANY_DTYPE);
    text[0] = '\0';
    for (int dtype = 0; dtype < STRATA_DTYPE_COUNT; dtype++) {
        if (!(allowed >> dtype & 1)) continue;
        size_t used = strlen(text);
        left--;
        snprintf(text + used, bytes - used, "%s%s", strata_dtype_name((strata_dtype)dtype),
                 left > 1    ? ", "
                 : left == 1 ? " or "
                             : "");
    }
}

strata_status strata_check_dtype(const strata_tensor *tensor, const char *name, unsigned allowed, strata_error *err) {
    if (allowed >> tensor->dtype & 1) return STRATA_OK;
    char text[96];
    list_dtypes(allowed, text, sizeof text);
    return strata_fail(err, STRATA_INVALID, "%s is %s; it must be %s", name, strata_dtype_name(tensor->dtype), text);
}

strata_status strata_check_same_dtype(const strata_tensor *a, const char *a_name, const strata_tensor *b, const char *b_name,
                                      strata_error *err) {
    if (a->dtype == b->dtype) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "%s is %s, %s is %s; they must be of one dtype: use strata_cast", a_name,
                       strata_dtype_name(a->dtype), b_name, strata_dtype_name(b->dtype));
}

strata_status strata_check_rate(double value, const char *name, strata_error *err) {
    if (value >= 0 && value < 1) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "%s is %g; it must be at least 0 and below 1", name, value);
}

strata_status strata_check_not_negative(double value, const char *name, strata_error *err) {
    if (value >= 0 && isfinite(value)) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "%s is %g; it must be at least 0", name, value);
}

strata_status strata_check_alike(const strata_tensor *a, const char *a_name, const strata_tensor *b, const char *b_name,
                                 strata_error *err) {
    STRATA_TRY(strata_check_same_dtype(a, a_name, b, b_name, err));
    if (strata_shape_equal(a->shape, b->shape)) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "%s is %s, %s is %s; they must be equal", a_name, strata_shape_text(a->shape).text,
                       b_name, strata_shape_text(b->shape).text);
}

strata_status strata_check_axis(int64_t axis, int rank, int *out_axis, strata_error *err) {
    if (axis >= -rank && axis < rank) {
        *out_axis = (int)(axis < 0 ? axis + rank : axis);
        return STRATA_OK;
    }
    if (rank == 0) return strata_fail(err, STRATA_INVALID, "axis is %" PRId64 "; a scalar has no axes", axis);
    return strata_fail(err, STRATA_INVALID, "axis is %" PRId64 "; a tensor of rank %d has axes %d to %d", axis, rank, -rank,
                       rank - 1);
}
