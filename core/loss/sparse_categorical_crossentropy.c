/* SPDX-License-Identifier: Apache-2.0
 *
 * sparse_categorical_crossentropy: -log softmax(logits)[label] for integer labels, from logits (B, C). */
#include <stddef.h>

#include "core/loss/loss.h"

static strata_tensor *sparse_build(const strata_loss_options *opts, strata_tensor *outputs, strata_tensor *labels) {
    if (opts->label_smoothing == 0) return strata_sparse_softmax_cross_entropy(outputs, labels);
    int64_t classes = strata_tensor_shape(outputs).dims[1];
    strata_tensor *dense = strata_one_hot(labels, classes, STRATA_DTYPE_F32);
    return strata_softmax_cross_entropy(outputs, strata_loss_smooth(dense, opts->label_smoothing, classes));
}

static strata_tensor *sparse_predict(const strata_loss_options *opts, strata_tensor *outputs) {
    (void)opts;
    return strata_softmax(outputs);
}

const strata_loss strata_loss_sparse_categorical_crossentropy = {
    .name = "sparse_categorical_crossentropy",
    .answers = STRATA_ANSWERS_CLASS,
    .options = {STRATA_LOSS_SMOOTHING},
    .check = strata_loss_check_smoothing,
    .build = sparse_build,
    .predict = sparse_predict,
    .activation = "softmax",
};
