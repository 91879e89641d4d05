/* SPDX-License-Identifier: Apache-2.0
 *
 * chain: its rule, its reference, and its kernel's launch. That devices give the bits of separate ops is tested in
 * tests/conformance/chain_test.c. */
#include "core/op/chain.h"

#include <criterion/criterion.h>
#include <string.h>

#include "core/op/ops.h"
#include "strata/ops.h"
#include "tests/support/check.h"
#include "tests/support/eval.h"

enum { STEP_0 = STRATA_CHAIN_OPERANDS, STEP_1, STEP_2 };

static strata_graph *new_graph(void) {
    strata_graph *graph = NULL;
    cr_assert_eq(strata_graph_create(&graph, NULL), STRATA_OK);
    return graph;
}

static void expect_refused(strata_dtype dtype, const strata_chain_attrs *attrs, const char *why) {
    strata_graph *graph = new_graph();
    strata_error err = {0};
    strata_tensor *inputs[] = {strata_input(graph, "a", dtype, STRATA_SHAPE(2, 3)),
                               strata_input(graph, "b", dtype, STRATA_SHAPE(3))};
    strata_chain(2, inputs, attrs);
    cr_expect_eq(strata_graph_check(graph, &err), STRATA_INVALID);
    cr_expect(strstr(err.message, why), "%s", err.message);
    strata_graph_destroy(graph);
}

Test(chain, refuses_programs_that_are_none) {
    strata_chain_attrs attrs = {0};
    expect_refused(STRATA_DTYPE_F32, &attrs, "0 steps");
    attrs = (strata_chain_attrs){.n_steps = 1, .steps = {255}};
    expect_refused(STRATA_DTYPE_F32, &attrs, "code 255");
    attrs = (strata_chain_attrs){0};
    strata_chain_add(&attrs, &strata_op_add, (int[]){0, 2, 0});
    expect_refused(STRATA_DTYPE_F32, &attrs, "value 2");
    attrs = (strata_chain_attrs){0};
    strata_chain_add(&attrs, &strata_op_add, (int[]){0, STEP_0, 0});
    expect_refused(STRATA_DTYPE_F32, &attrs, "value 7");
    attrs = (strata_chain_attrs){0};
    strata_chain_add(&attrs, &strata_op_exp, (int[]){1, 0, 0});
    strata_chain_add(&attrs, &strata_op_add, (int[]){0, STEP_0, 0});
    expect_refused(STRATA_DTYPE_F32, &attrs, "one shape");
    attrs = (strata_chain_attrs){0};
    strata_chain_add(&attrs, &strata_op_less, (int[]){0, 1, 0});
    expect_refused(STRATA_DTYPE_F32, &attrs, "its value is bool");
    strata_chain_add(&attrs, &strata_op_neg, (int[]){STEP_0, 0, 0});
    expect_refused(STRATA_DTYPE_F32, &attrs, "step 1, neg");
    attrs = (strata_chain_attrs){0};
    strata_chain_add(&attrs, &strata_op_exp, (int[]){0, 0, 0});
    expect_refused(STRATA_DTYPE_I32, &attrs, "step 0, exp");
}

Test(chain, every_code_is_that_of_one_op) {
    int n = 0;
    for (int code = -1; code < 256; code++) {
        const strata_op *op = strata_chain_op(code);
        if (op) cr_assert_eq(strata_chain_code(op), code, "%s", op->name);
        n += op != NULL;
    }
    cr_assert_gt(n, 30);
    cr_assert_eq(strata_chain_code(&strata_op_matmul), -1);
}

/* sqrt(|a - b|), computed as a chain and as separate ops, with more elements than a block. */
Test(chain, reference_is_that_of_its_steps) {
    static const strata_shape shapes[][2] = {{{1, {1}}, {1, {1}}},
                                             {{2, {0, 3}}, {1, {3}}},
                                             {{2, {370, 19}}, {1, {19}}},
                                             {{2, {3000, 2}}, {2, {3000, 1}}},
                                             {{4, {3, 4, 5, 6}}, {4, {3, 1, 5, 1}}}};
    static const strata_dtype dtypes[] = {STRATA_DTYPE_F32, STRATA_DTYPE_F16, STRATA_DTYPE_BF16};
    for (int d = 0; d < 3; d++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            strata_graph *graph = new_graph();
            strata_error err = {0};
            strata_array values[] = {strata_test_random(dtypes[d], shapes[i][0], -3, 3, 1),
                                     strata_test_random(dtypes[d], shapes[i][1], -3, 3, 2)};
            strata_tensor *x[] = {strata_input(graph, "a", dtypes[d], shapes[i][0]),
                                  strata_input(graph, "b", dtypes[d], shapes[i][1])};
            strata_chain_attrs attrs = {0};
            strata_chain_add(&attrs, &strata_op_sub, (int[]){0, 1, 0});
            strata_chain_add(&attrs, &strata_op_abs, (int[]){STEP_0, 0, 0});
            strata_chain_add(&attrs, &strata_op_sqrt, (int[]){STEP_1, 0, 0});
            strata_tensor *outputs[] = {strata_chain(2, x, &attrs), strata_sqrt(strata_abs(strata_sub(x[0], x[1])))};
            const strata_test_feed feeds[] = {{x[0], &values[0]}, {x[1], &values[1]}};
            strata_array results[2];
            cr_assert_eq(strata_test_eval(outputs, 2, feeds, 2, results, &err), STRATA_OK, "%s", err.message);
            const strata_test_result result = strata_test_same(&results[0], &results[1]);
            cr_expect(result.ok, "%s", result.text);
            for (int k = 0; k < 2; k++) {
                strata_array_finish(&values[k]);
                strata_array_finish(&results[k]);
            }
            strata_graph_destroy(graph);
        }
}
