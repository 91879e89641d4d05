/* SPDX-License-Identifier: Apache-2.0
 *
 * loss: the mean of the losses of one output, for a model with several outputs. It is not in the list of names, because
 * such a model always has it. */
#include "core/metric/metric.h"

static int64_t one_word(const strata_metric_case *c) {
    (void)c;
    return 1;
}

static strata_tensor *build(const strata_metric_case *c, strata_tensor *outputs, strata_tensor *labels) {
    return strata_reshape(strata_reduce_sum(c->loss->build(c->opts, outputs, labels), NULL, 0, false), STRATA_SHAPE(1));
}

static strata_status check(const strata_metric_case *c, strata_error *err) {
    (void)c;
    (void)err;
    return STRATA_OK;
}

static double value(const strata_metric_case *c, const double *sums, int64_t examples) {
    (void)c;
    return sums[0] / (double)examples;
}

static const strata_metric_words words = {.n = one_word, .build = build};
const strata_metric_kind strata_metric_loss = {.name = "loss", .words = &words, .check = check, .value = value};
