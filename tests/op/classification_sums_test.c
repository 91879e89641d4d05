/* SPDX-License-Identifier: Apache-2.0
 *
 * classification_sums: the sums from which the metrics of classifiers are computed. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "strata/ops.h"
#include "tests/support/eval.h"

static strata_graph *graph;

static void open_graph(void) {
    cr_assert_eq(strata_graph_create(&graph, NULL), STRATA_OK);
}
static void close_graph(void) {
    strata_graph_destroy(graph);
}

TestSuite(classification_sums, .init = open_graph, .fini = close_graph);

static strata_tensor *constant(strata_dtype dtype, strata_shape shape, void *data) {
    strata_array view = strata_array_view(dtype, shape, data);
    return strata_constant(graph, &view);
}

Test(classification_sums, sums_losses_and_counts_right_answers) {
    float losses[3] = {0.5f, 1.25f, 2.0f};
    float logits[12] = {0, 3,   1, 2, /* ties: the first maximum counts */ 5, 5, 0, 0, /* NaN counts as the largest value */ 9,
                        0, NAN, 1};
    int32_t labels[3] = {1, 1, 2};
    strata_tensor *sums = strata_classification_sums(constant(STRATA_DTYPE_F32, STRATA_SHAPE(3), losses),
                                                     constant(STRATA_DTYPE_F32, STRATA_SHAPE(3, 4), logits),
                                                     constant(STRATA_DTYPE_I32, STRATA_SHAPE(3), labels));
    strata_array result = {0};
    strata_error err = {0};
    cr_assert_eq(strata_test_eval(&sums, 1, NULL, 0, &result, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(((float *)result.data)[0], 3.75f);
    cr_assert_eq(((float *)result.data)[1], 2.0f);
    strata_array_finish(&result);
}

Test(classification_sums, rejects_labels_of_another_length) {
    float losses[3] = {0}, logits[6] = {0};
    int32_t labels[2] = {0};
    strata_classification_sums(constant(STRATA_DTYPE_F32, STRATA_SHAPE(3), losses),
                               constant(STRATA_DTYPE_F32, STRATA_SHAPE(3, 2), logits),
                               constant(STRATA_DTYPE_I32, STRATA_SHAPE(2), labels));
    strata_error err = {0};
    cr_assert_eq(strata_graph_check(graph, &err), STRATA_INVALID);
    cr_assert(strstr(err.message, "labels (2)"), "%s", err.message);
}
