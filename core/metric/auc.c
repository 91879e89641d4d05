/* SPDX-License-Identifier: Apache-2.0
 *
 * auc: the area under the receiver operating characteristic of a binary output. From all predictions it is exact. From sums,
 * which have a fixed size, it is computed as in Keras' AUC, by trapezoids between 200 thresholds: 0 - 1e-7, 1/199 ... 198/199,
 * 1 + 1e-7, where a prediction above the threshold is positive. */
#include <math.h>
#include <stdlib.h>

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
/* 1 where the label is positive, else 0, (1, B). */
static strata_tensor *is_positive(strata_tensor *labels) {
    strata_tensor *half = strata_scalar(labels->graph, STRATA_DTYPE_F32, 0.5);
    labels = strata_reshape(labels, STRATA_SHAPE(1, strata_tensor_shape(labels).dims[0]));
    return strata_cast(strata_greater(labels, half), STRATA_DTYPE_F32);
}

static strata_tensor *auc_build(const strata_metric_case *c, strata_tensor *outputs, strata_tensor *labels) {
    float thresholds[N_THRESHOLDS];
    for (int t = 0; t < N_THRESHOLDS; t++) thresholds[t] = (float)t / (N_THRESHOLDS - 1);
    thresholds[0] = -1e-7f;
    thresholds[N_THRESHOLDS - 1] = 1 + 1e-7f;
    strata_array view = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(1, N_THRESHOLDS), thresholds);
    strata_graph *graph = outputs->graph;
    strata_tensor *positive =
        strata_cast(strata_greater(strata_metric_predictions(c, outputs), strata_constant(graph, &view)), STRATA_DTYPE_F32);
    strata_tensor *is = is_positive(labels);
    strata_tensor *both[] = {is, strata_sub(strata_scalar(graph, STRATA_DTYPE_F32, 1), is)};
    strata_tensor *counts = strata_matmul(strata_concat(both, 2, 0), positive, false, false);
    return strata_reshape(counts, STRATA_SHAPE(auc_n(c)));
}

/* All predictions are above the first threshold, so the counts for it are those of all examples. */
static double auc_value(const strata_metric_case *c, const double *sums, int64_t examples) {
    (void)c, (void)examples;
    const double *right = sums, *wrong = sums + N_THRESHOLDS;
    double area = 0, all_yes = right[0], all_no = wrong[0];
    if (all_yes == 0 || all_no == 0) return NAN;
    for (int t = 0; t + 1 < N_THRESHOLDS; t++)
        area += (wrong[t] - wrong[t + 1]) / all_no * (right[t] + right[t + 1]) / all_yes / 2;
    return area;
}

static strata_tensor *auc_score(const strata_metric_case *c, strata_tensor *outputs, strata_tensor *labels) {
    strata_tensor *predictions = strata_metric_predictions(c, outputs);
    strata_tensor *both[] = {strata_reshape(predictions, STRATA_SHAPE(1, strata_tensor_shape(outputs).dims[0])),
                             is_positive(labels)};
    return strata_concat(both, 2, 0);
}

static int by_score(const void *a, const void *b) {
    const float x = ((const strata_scored *)a)->score, y = ((const strata_scored *)b)->score;
    return (x > y) - (x < y);
}

double strata_auc(strata_scored *examples, int64_t n) {
    double right = 0, before = 0, n_class = 0;
    for (int64_t i = 0; i < n; i++)
        if (isnan(examples[i].score)) return NAN;
    qsort(examples, (size_t)n, sizeof *examples, by_score);
    for (int64_t i = 0, k; i < n; i = k) {
        double same_class = 0, same_others = 0;
        for (k = i; k < n && examples[k].score == examples[i].score; k++)
            *(examples[k].is_class > 0 ? &same_class : &same_others) += 1;
        right += same_class * (before + same_others / 2);
        before += same_others;
        n_class += same_class;
    }
    return n_class > 0 && before > 0 ? right / (n_class * before) : NAN;
}

static const strata_metric_words auc_words = {.n = auc_n, .build = auc_build};
const strata_metric_kind strata_metric_auc = {
    .name = "auc", .words = &auc_words, .check = auc_check, .value = auc_value, .score = auc_score, .exact = strata_auc};
