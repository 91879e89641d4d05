/* SPDX-License-Identifier: Apache-2.0
 *
 * binary_crossentropy: the mean of -(y log p + (1 - y) log(1 - p)). p is sigmoid(logit), or the output itself, limited to
 * 1e-7 .. 1 - 1e-7. */
#include <stddef.h>

#include "core/loss/loss.h"

static strata_tensor *from_probabilities(strata_tensor *outputs, strata_tensor *labels) {
    strata_tensor *one = strata_scalar(strata_tensor_graph(outputs), STRATA_DTYPE_F32, 1);
    strata_tensor *p = strata_clip(outputs, 1e-7, 1 - 1e-7);
    strata_tensor *yes = strata_mul(labels, strata_log(p));
    strata_tensor *no = strata_mul(strata_sub(one, labels), strata_log(strata_sub(one, p)));
    return strata_neg(strata_add(yes, no));
}

static strata_tensor *binary_build(const strata_loss_options *opts, strata_tensor *outputs, strata_tensor *labels) {
    labels = strata_loss_smooth(strata_loss_match(outputs, labels), opts->label_smoothing, 2);
    return strata_loss_mean(opts->from_probabilities ? from_probabilities(outputs, labels)
                                                     : strata_sigmoid_cross_entropy(outputs, labels));
}

static strata_tensor *binary_predict(const strata_loss_options *opts, strata_tensor *outputs) {
    return opts->from_probabilities ? outputs : strata_sigmoid(outputs);
}

static double binary_threshold(const strata_loss_options *opts) {
    return opts->from_probabilities ? 0.5 : 0;
}

const strata_loss strata_loss_binary_crossentropy = {
    .name = "binary_crossentropy",
    .answers = STRATA_ANSWERS_BINARY,
    .options = {STRATA_LOSS_SMOOTHING,
                {"from_probabilities", STRATA_OPTION_BOOL, offsetof(strata_loss_options, from_probabilities), 0, 0, false}},
    .check = strata_loss_check_smoothing,
    .build = binary_build,
    .predict = binary_predict,
    .activation = "sigmoid",
    .threshold = binary_threshold,
};
