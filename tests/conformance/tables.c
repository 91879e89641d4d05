/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of all tables, and the values of operands. This file and the tables use no test framework, because `strata
 * plugin-check` runs the same rows. */
#include <math.h>
#include <string.h>

#include "tests/conformance/case.h"
#include "tests/support/check.h"

const op_table *const case_tables[] = {&case_unary, &case_binary,    &case_compare, &case_cast,
                                       &case_shape, &case_products,  &case_window,  &case_softmax,
                                       &case_norm,  &case_recurrent, &case_update,  NULL};

static strata_array random_state(void) {
    return strata_test_array(STRATA_DTYPE_I32, STRATA_SHAPE(STRATA_RNG_WORDS),
                             (double[STRATA_RNG_WORDS]){12345, -678, 7, 0, 0x7ffffffe, 0, 0, 0});
}

static void add_specials(strata_array *array) {
    static const double specials[] = {NAN, INFINITY, -INFINITY, -0.0, 0.0};
    if (!strata_dtype_is_float(array->dtype) || strata_shape_elements(array->shape) < 7) return;
    for (int i = 0; i < 5; i++) strata_element_set(array->dtype, array->data, i + 1, specials[i]);
}

static void make_extreme(strata_array *array, uint64_t seed) {
    static const double extremes[] = {NAN, NAN, INFINITY, -0.0, 0.0, 1, 2};
    enum { N = sizeof extremes / sizeof *extremes };
    if (!strata_dtype_is_float(array->dtype)) return;
    strata_array choices = strata_test_random(STRATA_DTYPE_F32, array->shape, 0, 2 * N, seed + 1);
    for (int64_t i = 0; i < strata_shape_elements(array->shape); i++) {
        const int choice = (int)strata_element_get(STRATA_DTYPE_F32, choices.data, i);
        strata_element_set(array->dtype, array->data, i, choice < N ? extremes[choice] : -INFINITY);
    }
    strata_array_finish(&choices);
}

strata_array case_operand_value(const case_operand *operand, strata_dtype dtype, strata_shape shape, uint64_t seed) {
    if (operand->values == CASE_STATE) return random_state();
    bool is_unsigned = dtype == STRATA_DTYPE_U8 || dtype == STRATA_DTYPE_BOOL;
    double low = is_unsigned && operand->low < 0 ? 0 : operand->low;
    strata_array array = strata_test_random(dtype, shape, low, operand->high, seed);
    if (operand->values == CASE_WHOLE && strata_dtype_is_float(dtype))
        for (int64_t i = 0; i < strata_shape_elements(shape); i++)
            strata_element_set(dtype, array.data, i, floor(strata_element_get(dtype, array.data, i)));
    if (operand->values == CASE_SPECIAL) add_specials(&array);
    if (operand->values == CASE_EXTREME) make_extreme(&array, seed);
    return array;
}
