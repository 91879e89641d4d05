/* SPDX-License-Identifier: Apache-2.0
 *
 * Chains (several element-wise ops in one kernel) on each device. An expression that is compiled to chains must have the
 * bits of the same expression compiled op by op. Activations that are composed of ops must need the expected number of
 * launches. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/layer/layer.h"
#include "strata/ops.h"
#include "tests/conformance/devices.h"
#include "tests/conformance/run_case.h"

static const strata_dtype f32 = STRATA_DTYPE_F32;

/* ---- launches ---- */

/* Returns the number of launches in one run of the case. */
static uint64_t launches_of(run_case *run, bool fusion) {
    strata_array values[RUN_OUTPUTS] = {0};
    strata_error err = {0};
    run->fusion = fusion;
    const uint64_t before = strata_device_get_counters(run->device).launches;
    cr_assert_eq(run_case_on_device(run, values, &err), STRATA_OK, "%s: %s", run->device->info.id, err.message);
    const uint64_t after = strata_device_get_counters(run->device).launches;
    for (int i = 0; i < run->n_outputs; i++) strata_array_finish(&values[i]);
    return after - before;
}

static void count_softsign(strata_device *device) {
    const strata_shape shape = STRATA_SHAPE(33, 65);
    run_case run;
    run_case_begin(&run, device);
    strata_tensor *x = run_case_leaf(&run, strata_test_random(f32, shape, -3, 3, 1), false);
    strata_tensor *y = strata_activation_apply("softsign", x), *dx = NULL;
    strata_tensor *dy = run_case_leaf(&run, strata_test_random(f32, shape, -1, 1, 2), false);
    run_case_output(&run, y, strata_test_tolerance_of(f32, 4));
    run.fusion = true;
    cr_expect_eq(launches_of(&run, true), 1, "%s: softsign forward", device->info.id);
    cr_expect_eq(launches_of(&run, false), 3, "%s: softsign op by op", device->info.id);
    strata_gradients(y, dy, &x, 1, &dx);
    run_case_output(&run, dx, strata_test_tolerance_of(f32, 16));
    cr_expect_eq(launches_of(&run, true), 2, "%s: softsign forward and backward", device->info.id);
    int wrong = 0;
    const strata_test_result result = run_case_check(&run, &wrong);
    cr_expect(result.ok, "%s, output %d: %s", device->info.id, wrong, result.text);
    run_case_end(&run);
}

Test(conformance_chain, softsign_of_primitives_is_a_launch_each_way) {
    conformance_each_device(&(strata_device_options){.no_tune = true}, count_softsign);
}

/* ---- bits ---- */

/* Shapes of an expression's operands. They broadcast to `shapes[0]`. */
typedef struct broadcast_row {
    int n;
    strata_shape shapes[5];
} broadcast_row;

static const broadcast_row broadcasts[] = {
    {3, {{1, {1}}, {1, {1}}, {0}}},
    {4, {{1, {1023}}, {1, {1023}}, {1, {1}}, {0}}},
    {5, {{2, {37, 19}}, {2, {37, 19}}, {1, {19}}, {2, {37, 1}}, {0}}},
    {5, {{3, {5, 7, 33}}, {2, {7, 33}}, {3, {5, 1, 33}}, {3, {5, 7, 1}}, {1, {33}}}},
    {4, {{4, {3, 4, 5, 6}}, {4, {3, 1, 5, 1}}, {4, {1, 4, 1, 6}}, {0}}}, /* too many axes for one chain kernel */
    {4, {{2, {61, 77}}, {2, {61, 77}}, {1, {77}}, {2, {61, 1}}, {0}}},
    {3, {{2, {0, 9}}, {1, {9}}, {2, {0, 1}}}},
};

typedef strata_tensor *unary_builder(strata_tensor *x);
typedef strata_tensor *binary_builder(strata_tensor *a, strata_tensor *b);

static strata_tensor *leaky(strata_tensor *x) {
    return strata_leaky_relu(x, 0.1);
}
static strata_tensor *elu(strata_tensor *x) {
    return strata_elu(x, 1.5);
}
static strata_tensor *smaller(strata_tensor *a, strata_tensor *b) {
    return strata_where(strata_less(a, b), a, b);
}
static strata_tensor *unless_equal(strata_tensor *a, strata_tensor *b) {
    return strata_where(strata_not_equal(a, b), b, strata_neg(a));
}

/* Ops of one operand: every row of elementwise.def, first those that integers have as well. */
static unary_builder *const unaries[] = {
#define UNARY_NUMBER(code, name, expression) strata_##name,
#include "core/op/elementwise.def"
#define UNARY_FLOAT(code, name, expression) strata_##name,
#include "core/op/elementwise.def"
    leaky,
    elu,
};
enum {
#define UNARY_NUMBER(code, name, expression) +1
    INTEGER_UNARY = 0
#include "core/op/elementwise.def"
    ,
    INTEGER_BINARY = 7 /* integers have the first rows of the next table */
};
static binary_builder *const binaries[] = {
    strata_add, strata_sub,   strata_mul, strata_min, strata_max,
    smaller,    unless_equal, strata_div, strata_pow, strata_sigmoid_cross_entropy,
};

enum { VALUES = 16 };

/* Returns a leaf of the shape. view: returns a view instead, which is all but the first row of a leaf that has one more row. */
static strata_tensor *operand(run_case *run, strata_shape shape, strata_dtype dtype, bool view, uint64_t seed) {
    int64_t begin[STRATA_MAX_RANK] = {1};
    strata_shape whole = shape;
    if (view && shape.rank) whole.dims[0]++;
    strata_tensor *leaf = run_case_leaf(run, strata_test_random(dtype, whole, -3, 4, seed), false);
    return view && shape.rank ? strata_slice(leaf, begin, shape.dims) : leaf;
}

/* Adds a random expression of the operands. Some of its values are also outputs, and some are read several times. */
static void add_expression(run_case *run, const broadcast_row *row, strata_dtype dtype, uint64_t *state) {
    const bool real = strata_dtype_is_float(dtype);
    const int n_unary = real ? (int)(sizeof unaries / sizeof *unaries) : INTEGER_UNARY;
    const int n_binary = real ? (int)(sizeof binaries / sizeof *binaries) : INTEGER_BINARY;
    /* In every program but the first one of a device, Oclgrind reports that a kernel which reads an output reads
     * uninitialised memory. */
    const bool oclgrind = strstr(run->device->info.driver, "Oclgrind");
    strata_tensor *values[VALUES];
    int n = 0;
    for (; n < row->n; n++) values[n] = operand(run, row->shapes[n], dtype, n == 1, strata_test_next(state));
    while (n < VALUES) {
        strata_tensor *a = values[strata_test_next(state) % (uint64_t)n], *b = values[strata_test_next(state) % (uint64_t)n];
        if (strata_test_next(state) % 3 == 0)
            values[n++] = unaries[strata_test_next(state) % (uint64_t)n_unary](a);
        else
            values[n++] = binaries[strata_test_next(state) % (uint64_t)n_binary](a, b);
    }
    for (int i = row->n; i < n; i++)
        if (i == n - 1 || (strata_test_next(state) % 5 == 0 && !oclgrind))
            run_case_output(run, values[i], strata_test_tolerance_of(dtype, 1));
}

static const strata_dtype dtypes[] = {STRATA_DTYPE_F32, STRATA_DTYPE_F16, STRATA_DTYPE_BF16, STRATA_DTYPE_I32,
                                      STRATA_DTYPE_I64};

/* Replaces every NaN by the same one. It is not specified which operand's NaN an instruction returns, and with which sign. */
static void unify_nan(strata_array *array) {
    const int64_t n = strata_shape_elements(array->shape);
    for (int64_t i = 0; strata_dtype_is_float(array->dtype) && i < n; i++)
        if (isnan(strata_element_get(array->dtype, array->data, i))) strata_element_set(array->dtype, array->data, i, NAN);
}

static void compare_bits(strata_device *device) {
    uint64_t state = 7;
    int failures = 0;
    uint64_t fused = 0, separate = 0;
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        if (!(conformance_dtypes(device->info.dtypes) >> dtypes[d] & 1)) continue;
        run_case run;
        run_case_begin(&run, device);
        for (size_t b = 0; b < sizeof broadcasts / sizeof *broadcasts; b++)
            for (int trial = 0; trial < (conformance_small() ? 1 : 3); trial++)
                add_expression(&run, &broadcasts[b], dtypes[d], &state);
        strata_array chained[RUN_OUTPUTS] = {0}, alone[RUN_OUTPUTS] = {0};
        strata_error err = {0};
        run.fusion = true;
        cr_assert_eq(run_case_on_device(&run, chained, &err), STRATA_OK, "%s: %s", device->info.id, err.message);
        run.fusion = false;
        cr_assert_eq(run_case_on_device(&run, alone, &err), STRATA_OK, "%s: %s", device->info.id, err.message);
        for (int i = 0; i < run.n_outputs; i++) {
            unify_nan(&chained[i]);
            unify_nan(&alone[i]);
            const strata_test_result result = strata_test_same(&chained[i], &alone[i]);
            if (!result.ok && failures++ < 5)
                cr_expect(result.ok, "%s %s, output %d: %s", device->info.id, strata_dtype_name(dtypes[d]), i, result.text);
            strata_array_finish(&chained[i]);
            strata_array_finish(&alone[i]);
        }
        fused += launches_of(&run, true);
        separate += launches_of(&run, false);
        run_case_end(&run);
    }
    if (conformance_computes(device)) cr_expect_lt(fused, separate * 3 / 4, "%s: chains were made", device->info.id);
}

Test(conformance_chain, chains_have_the_bits_of_separate_ops) {
    conformance_each_device(&(strata_device_options){.no_tune = true}, compare_bits);
}
