/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers for tests of ops. They count launches without a device, with the list of launches that the kernel backends use. */
#include "tests/op/op_case.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "backends/kernel/lowering.h"
#include "tests/support/eval.h"

const strata_dtype float_dtypes[3] = {STRATA_DTYPE_F32, STRATA_DTYPE_F16, STRATA_DTYPE_BF16};

enum { MOST_OPERANDS = 8 };

typedef struct built {
    strata_graph *graph;
    strata_tensor *y;
    strata_array values[MOST_OPERANDS];
    strata_test_feed feeds[MOST_OPERANDS];
} built;

/* Builds the op. The caller destroys the graph, which also contains the building error, if there was one. */
static void build(op_case c, built *b) {
    strata_tensor *leaves[MOST_OPERANDS];
    strata_error err = {0};
    cr_assert_leq(c.n_x, MOST_OPERANDS);
    cr_assert_eq(strata_graph_create(&b->graph, &err), STRATA_OK, "%s", err.message);
    for (int i = 0; i < c.n_x; i++) {
        char name[16];
        snprintf(name, sizeof name, "x%d", i);
        b->values[i] = c.x[i];
        leaves[i] = strata_input(b->graph, name, c.x[i].dtype, c.x[i].shape);
        b->feeds[i] = (strata_test_feed){leaves[i], &b->values[i]};
    }
    b->y = c.build(leaves, c.user);
}

strata_array evaluate(op_case c) {
    built b;
    strata_array value = {0};
    strata_error err = {0};
    build(c, &b);
    strata_status status = strata_test_eval(&b.y, 1, b.feeds, c.n_x, &value, &err);
    strata_graph_destroy(b.graph);
    cr_assert_eq(status, STRATA_OK, "%s", err.message);
    return value;
}

void expect_same(op_case c, strata_array want) {
    strata_array got = evaluate(c);
    strata_test_result result = strata_test_same(&got, &want);
    strata_array_finish(&got);
    cr_assert(result.ok, "%s", result.text);
}

void expect_golden(op_case c, const strata_array *want) {
    static const double rounding[STRATA_DTYPE_COUNT] = {
        [STRATA_DTYPE_F32] = 0x1p-23, [STRATA_DTYPE_F16] = 0x1p-10, [STRATA_DTYPE_BF16] = 0x1p-7};
    strata_array got = evaluate(c);
    strata_test_tolerance tolerance = {.relative = rounding[want->dtype]};
    strata_test_result result = strata_test_compare(&got, want, tolerance);
    strata_array_finish(&got);
    cr_assert(result.ok, "%s", result.text);
}

void expect_values(op_case c, strata_dtype dtype, strata_shape shape, const double *want) {
    strata_array array = strata_test_array(dtype, shape, want);
    expect_same(c, array);
    strata_array_finish(&array);
}

void expect_gradient(op_case c) {
    strata_test_result result = strata_test_gradcheck(c.build, c.user, c.x, c.n_x);
    cr_assert(result.ok, "%s", result.text);
}

void expect_rejected(op_case c, const char *words) {
    built b;
    strata_error err = {0};
    build(c, &b);
    strata_status status = strata_graph_check(b.graph, &err);
    strata_graph_destroy(b.graph);
    cr_assert_eq(status, STRATA_INVALID, "it was not rejected");
    cr_assert(strstr(err.message, words), "the message is \"%s\"; it should say \"%s\"", err.message, words);
}

int lower_to(op_case c, strata_launch *out_launches) {
    built b;
    strata_error err = {0};
    strata_lowering lowering = {0};
    build(c, &b);
    strata_status status = strata_graph_check(b.graph, &err);
    cr_assert_eq(status, STRATA_OK, "%s", err.message);
    status = b.y->op->lower(b.y, &lowering, &err);
    int n = lowering.n;
    for (int i = 0; out_launches && i < n && i < MOST_LAUNCHES; i++) out_launches[i] = lowering.launches[i];
    strata_lowering_finish(&lowering);
    strata_graph_destroy(b.graph);
    cr_assert_eq(status, STRATA_OK, "%s", err.message);
    return n;
}
