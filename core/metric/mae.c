/* SPDX-License-Identifier: Apache-2.0
 *
 * mae: the mean of |prediction - label| over all outputs. For binary outputs, the predictions are probabilities. */
#include "core/metric/metric.h"

static strata_status mae_check(const strata_metric_case *c, strata_error *err) {
    if (c->loss->answers == STRATA_ANSWERS_NONE || c->loss->answers == STRATA_ANSWERS_BINARY) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "%s has classes, not numbers", c->loss->name);
}

static strata_tensor *mae_build(const strata_metric_case *c, strata_tensor *outputs, strata_tensor *labels) {
    strata_tensor *predictions = strata_metric_predictions(c, outputs);
    strata_tensor *each = strata_loss_mean(strata_abs(strata_sub(predictions, strata_loss_match(predictions, labels))));
    return strata_reshape(strata_reduce_sum(each, NULL, 0, false), STRATA_SHAPE(1));
}

static const strata_metric_words mae_words = {.n = strata_metric_one_sum, .build = mae_build};
const strata_metric_kind strata_metric_mae = {
    .name = "mae", .words = &mae_words, .check = mae_check, .value = strata_metric_mean_of_sum};
