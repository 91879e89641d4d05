/* SPDX-License-Identifier: Apache-2.0
 *
 * dropout: in training, each element becomes 0 with probability `rate`; the others are multiplied by 1 / (1 - rate)
 * (Srivastava et al. 2014). */
#include "core/layer/layer.h"

static strata_status dropout_check(const void *options, strata_error *err) {
    double rate = ((const strata_dropout_options *)options)->rate;
    if (rate >= 0 && rate < 1) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "rate is %g; it must be at least 0 and below 1", rate);
}

static strata_tensor *dropout_build(const void *options, strata_layer_context *context, strata_tensor *x) {
    double rate = ((const strata_dropout_options *)options)->rate;
    if (!strata_layer_is_training(context) || rate == 0) return x;
    uint32_t stream = 0;
    strata_tensor *rng = strata_layer_rng(context, &stream);
    return strata_dropout(x, rng, stream, rate);
}

const strata_layer_kind strata_layer_dropout = {
    .name = "dropout",
    .keeps_mask = true,
    STRATA_LAYER_OPTIONS(strata_dropout_options),
    .options = {{"rate", STRATA_OPTION_NUMBER, offsetof(strata_dropout_options, rate), 0, 1, true}},
    .check = dropout_check,
    .build = dropout_build,
};
