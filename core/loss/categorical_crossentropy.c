/* SPDX-License-Identifier: Apache-2.0
 *
 * categorical_crossentropy: -sum_c labels_c log softmax(logits)_c, from logits (B, C) and probabilities (B, C). */
#include <stddef.h>

#include "core/loss/loss.h"

static strata_tensor *dense_build(const strata_loss_options *opts, strata_tensor *outputs, strata_tensor *labels) {
    int64_t classes = strata_tensor_shape(outputs).dims[1];
    return strata_softmax_cross_entropy(outputs, strata_loss_smooth(labels, opts->label_smoothing, classes));
}

static strata_tensor *dense_predict(const strata_loss_options *opts, strata_tensor *outputs) {
    (void)opts;
    return strata_softmax(outputs);
}

const strata_loss strata_loss_categorical_crossentropy = {
    .name = "categorical_crossentropy",
    .answers = STRATA_ANSWERS_DISTRIBUTION,
    .options = {STRATA_LOSS_SMOOTHING},
    .check = strata_loss_check_smoothing,
    .build = dense_build,
    .predict = dense_predict,
    .activation = "softmax",
};
