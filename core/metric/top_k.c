/* SPDX-License-Identifier: Apache-2.0
 *
 * top_K_accuracy: the fraction of examples whose label is among the K largest logits. Logits that are equal to the K-th
 * largest all count, as in TensorFlow's in_top_k. */
#include <math.h>

#include "core/graph/graph.h"
#include "core/metric/metric.h"

static strata_status top_k_check(const strata_metric_case *c, strata_error *err) {
    if (c->loss->answers != STRATA_ANSWERS_CLASS && c->loss->answers != STRATA_ANSWERS_DISTRIBUTION)
        return strata_fail(err, STRATA_INVALID, "%s has no classes", c->loss->name);
    if (c->k >= 1) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "the number is %d; it must be at least 1", c->k);
}

/* A prediction is correct if fewer than K logits are larger than the logit of the label. */
static strata_tensor *top_k_build(const strata_metric_case *c, strata_tensor *outputs, strata_tensor *labels) {
    strata_graph *graph = outputs->graph;
    const int last[] = {1};
    if (c->loss->answers == STRATA_ANSWERS_DISTRIBUTION) labels = strata_argmax(labels, 1);
    strata_tensor *is_label = strata_cast(strata_one_hot(labels, c->output.dims[0], STRATA_DTYPE_I32), STRATA_DTYPE_BOOL);
    strata_tensor *nothing = strata_scalar(graph, STRATA_DTYPE_F32, -HUGE_VAL); /* of a label out of range all are above */
    strata_tensor *logit = strata_reduce_max(strata_where(is_label, outputs, nothing), last, 1, true);
    strata_tensor *above = strata_reduce_sum(strata_cast(strata_greater(outputs, logit), STRATA_DTYPE_F32), last, 1, false);
    strata_tensor *right = strata_less(above, strata_scalar(graph, STRATA_DTYPE_F32, c->k));
    return strata_reshape(strata_reduce_sum(strata_cast(right, STRATA_DTYPE_F32), NULL, 0, false), STRATA_SHAPE(1));
}

static const strata_metric_words top_k_words = {.n = strata_metric_one_sum, .build = top_k_build};
const strata_metric_kind strata_metric_top_k_accuracy = {
    .name = "top_%d_accuracy", .words = &top_k_words, .check = top_k_check, .value = strata_metric_mean_of_sum};
