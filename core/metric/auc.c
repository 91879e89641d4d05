/* SPDX-License-Identifier: Apache-2.0
 *
 * auc: the area under the receiver operating characteristic of a binary output. It is computed as in Keras' AUC, by
 * trapezoids between 200 thresholds: 0 - 1e-7, 1/199 ... 198/199, 1 + 1e-7. A prediction above the threshold is positive. */
#include "core/graph/graph.h"
#include "core/metric/metric.h"

enum { N_THRESHOLDS = 200 };

static strata_status auc_check(const strata_metric_case *c, strata_error *err) {
    if (c->loss->answers == STRATA_ANSWERS_BINARY && strata_shape_elements(c->output) == 1) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "it needs one yes-or-no output; %s has outputs of %s an example", c->loss->name,
                       strata_shape_text(c->output).text);
}

static int64_t auc_n(const strata_metric_case *c) {
    (void)c;
    return 2 * N_THRESHOLDS;
}

/* [0][t]: the number of true positives at threshold t; [1][t]: the number of false positives. */
static strata_tensor *auc_build(const strata_metric_case *c, strata_tensor *outputs, strata_tensor *labels) {
    float thresholds[N_THRESHOLDS];
    for (int t = 0; t < N_THRESHOLDS; t++) thresholds[t] = (float)t / (N_THRESHOLDS - 1);
    thresholds[0] = -1e-7f;
    thresholds[N_THRESHOLDS - 1] = 1 + 1e-7f;
    strata_array view = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(1, N_THRESHOLDS), thresholds);
    strata_graph *graph = outputs->graph;
    int64_t batch = strata_tensor_shape(outputs).dims[0];
    strata_tensor *positive =
        strata_cast(strata_greater(strata_metric_predictions(c, outputs), strata_constant(graph, &view)), STRATA_DTYPE_F32);
    strata_tensor *yes =
        strata_greater(strata_reshape(labels, STRATA_SHAPE(1, batch)), strata_scalar(graph, STRATA_DTYPE_F32, 0.5));
    strata_tensor *is = strata_cast(yes, STRATA_DTYPE_F32);
    strata_tensor *both[] = {is, strata_sub(strata_scalar(graph, STRATA_DTYPE_F32, 1), is)};
    strata_tensor *counts = strata_matmul(strata_concat(both, 2, 0), positive, false, false);
    return strata_reshape(counts, STRATA_SHAPE(auc_n(c)));
}

/* All predictions are above the first threshold, so the counts for it are those of all examples. */
static double auc_value(const strata_metric_case *c, const double *sums, int64_t examples) {
    (void)c, (void)examples;
    const double *right = sums, *wrong = sums + N_THRESHOLDS;
    double area = 0, all_yes = right[0], all_no = wrong[0];
    if (all_yes == 0 || all_no == 0) return 0;
    for (int t = 0; t + 1 < N_THRESHOLDS; t++)
        area += (wrong[t] - wrong[t + 1]) / all_no * (right[t] + right[t + 1]) / all_yes / 2;
    return area;
}

static const strata_metric_words auc_words = {.n = auc_n, .build = auc_build};
const strata_metric_kind strata_metric_auc = {.name = "auc", .words = &auc_words, .check = auc_check, .value = auc_value};
