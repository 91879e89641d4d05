/* SPDX-License-Identifier: Apache-2.0
 *
 * loss: the mean of the losses of one output, for a model with several outputs. It is not in the list of names, because
 * such a model always has it. */
#include "core/metric/metric.h"

static strata_tensor *build(const strata_metric_case *c, strata_tensor *outputs, strata_tensor *labels) {
    return strata_reshape(strata_reduce_sum(c->loss->build(c->opts, outputs, labels), NULL, 0, false), STRATA_SHAPE(1));
}

static const strata_metric_words words = {.n = strata_metric_one_sum, .build = build};
const strata_metric_kind strata_metric_loss = {
    .name = "loss", .words = &words, .check = strata_metric_always_fits, .value = strata_metric_mean_of_sum};
