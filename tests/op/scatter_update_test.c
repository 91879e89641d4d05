/* SPDX-License-Identifier: Apache-2.0
 *
 * scatter_update: which rows it sets, an optimizer's step for some rows, and which operands it refuses. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/op/op_case.h"
#include "tests/support/eval.h"

static strata_error err;

/* Writes the values of the variable 0, 1 .. 9 after the rows `ids` were set. A row has two elements, and row 0 begins at
 * element 1. */
static void set_rows(strata_dtype index, const double *ids, float out_values[10]) {
    strata_graph *graph = NULL;
    strata_variable variable = strata_test_variable("v", STRATA_DTYPE_F32, STRATA_SHAPE(10));
    strata_array value = strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(10), (double[]){0, 1, 2, 3, 4, 5, 6, 7, 8, 9}),
                 result;
    strata_array indices = strata_test_array(index, STRATA_SHAPE(3), ids);
    strata_array rows = strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(3, 2), (double[]){10, 11, 20, 21, 30, 31});
    cr_assert_eq(strata_graph_create(&graph, &err), STRATA_OK);
    strata_tensor *i = strata_input(graph, "indices", index, STRATA_SHAPE(3));
    strata_tensor *r = strata_input(graph, "rows", STRATA_DTYPE_F32, STRATA_SHAPE(3, 2));
    strata_tensor *y = strata_scatter_update(strata_variable_read(graph, &variable), 1, 4, i, r, NULL);
    strata_test_feed feeds[] = {{&variable, &value}, {i, &indices}, {r, &rows}};
    cr_assert_eq(strata_test_eval(&y, 1, feeds, 3, &result, &err), STRATA_OK, "%s", err.message);
    memcpy(out_values, value.data, 10 * sizeof(float));
    strata_graph_destroy(graph);
    strata_array *all[] = {&value, &indices, &rows, &result};
    for (int k = 0; k < 4; k++) strata_array_finish(all[k]);
}

Test(scatter_update, sets_rows_and_leaves_the_others) {
    const strata_dtype dtypes[] = {STRATA_DTYPE_I32, STRATA_DTYPE_I64};
    const float want[] = {0, 20, 21, 3, 4, 5, 6, 10, 11, 9};
    for (int d = 0; d < 2; d++) {
        float values[10];
        set_rows(dtypes[d], (double[]){3, 0, 4}, values);
        cr_assert_arr_eq(values, want, sizeof want);
        set_rows(dtypes[d], (double[]){3, 0, -1}, values);
        cr_assert_arr_eq(values, want, sizeof want);
    }
}

/* SGD with momentum changes rows 2 and 0. Row 1 and its velocity do not change. */
Test(scatter_update, brings_back_the_rows_that_an_optimizer_changed) {
    strata_graph *graph = NULL;
    strata_variable variables[2];
    strata_array values[2], words = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(STRATA_STEP_WORDS), 0), results[2];
    strata_array gradients = strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(3, 1), (double[]){4, 8, 100});
    strata_array indices = strata_test_array(STRATA_DTYPE_I32, STRATA_SHAPE(3), (double[]){2, 0, -1});
    strata_tensor *read[2], *rows[2], *updated[2];
    ((float *)words.data)[STRATA_STEP_LEARNING_RATE] = 0.5f;
    cr_assert_eq(strata_graph_create(&graph, &err), STRATA_OK);
    strata_tensor *ids = strata_input(graph, "ids", STRATA_DTYPE_I32, STRATA_SHAPE(3));
    strata_tensor *g = strata_input(graph, "g", STRATA_DTYPE_F32, STRATA_SHAPE(3, 1));
    strata_tensor *step_words = strata_input(graph, "step", STRATA_DTYPE_F32, STRATA_SHAPE(STRATA_STEP_WORDS));
    for (int i = 0; i < 2; i++) {
        variables[i] = strata_test_variable(i ? "velocity" : "parameters", STRATA_DTYPE_F32, STRATA_SHAPE(3, 1));
        values[i] = strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(3, 1), (double[]){1 + i, 2 + i, 3 + i});
        read[i] = strata_variable_read(graph, &variables[i]);
        rows[i] = strata_gather(read[i], ids, 0);
    }
    strata_tensor *step = strata_sgd(rows[0], rows[1], g, step_words, NULL, 0.5, false);
    updated[0] = strata_scatter_update(read[0], 0, 3, ids, step, NULL);
    updated[1] = strata_scatter_update(read[1], 0, 3, ids, rows[1], step);
    strata_test_feed feeds[] = {
        {&variables[0], &values[0]}, {&variables[1], &values[1]}, {ids, &indices}, {g, &gradients}, {step_words, &words}};
    cr_assert_eq(strata_test_eval(updated, 2, feeds, 5, results, &err), STRATA_OK, "%s", err.message);
    const float parameters[] = {1 - 0.5f * 9, 2, 3 - 0.5f * 6}, velocity[] = {9, 3, 6};
    cr_assert_arr_eq(values[0].data, parameters, sizeof parameters);
    cr_assert_arr_eq(values[1].data, velocity, sizeof velocity);
    strata_graph_destroy(graph);
    strata_array *all[] = {&values[0], &values[1], &words, &results[0], &results[1], &gradients, &indices};
    for (int k = 0; k < 7; k++) strata_array_finish(all[k]);
}

static strata_tensor *of_no_variable(strata_tensor *const *x, const void *user) {
    (void)user;
    return strata_scatter_update(x[0], 0, 2, x[1], x[0], NULL);
}

Test(scatter_update, rejects_what_is_no_variable) {
    strata_array x[] = {strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(2), 0),
                        strata_test_full(STRATA_DTYPE_I32, STRATA_SHAPE(2), 0)};
    expect_rejected((op_case){of_no_variable, NULL, x, 2}, "it must come from strata_variable_read");
    strata_array_finish(&x[0]);
    strata_array_finish(&x[1]);
}

/* Expects that an update is refused. It sets three of n_rows rows, which begin at element `first` of a variable of 10
 * elements, to `rows` (r, 2). update: the operand `update` is the read of the variable, which is not allowed. */
static void refuses(int64_t first, int64_t n_rows, int64_t r, bool update, const char *words) {
    strata_graph *graph = NULL;
    strata_variable variable = strata_test_variable("v", STRATA_DTYPE_F32, STRATA_SHAPE(10));
    cr_assert_eq(strata_graph_create(&graph, &err), STRATA_OK);
    strata_tensor *read = strata_variable_read(graph, &variable);
    strata_scatter_update(read, first, n_rows, strata_input(graph, "i", STRATA_DTYPE_I32, STRATA_SHAPE(3)),
                          strata_input(graph, "r", STRATA_DTYPE_F32, STRATA_SHAPE(r, 2)), update ? read : NULL);
    cr_assert_eq(strata_graph_check(graph, &err), STRATA_INVALID);
    cr_assert_not_null(strstr(err.message, words), "%s", err.message);
    strata_graph_destroy(graph);
}

Test(scatter_update, rejects_rows_that_do_not_fit) {
    refuses(0, 5, 2, false, "indices are (3), rows are (2,2); there must be a row for each");
    refuses(1, 5, 3, false, "5 rows of 2 elements from 1 on; the variable is (10)");
    refuses(-1, 2, 3, false, "from -1 on");
    refuses(0, 5, 3, true, "rows are none of the ranges that read changes");
}
