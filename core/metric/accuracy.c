/* SPDX-License-Identifier: Apache-2.0
 *
 * accuracy: the fraction of correctly classified examples. An example is correct if its largest logit is that of its
 * label, or, for binary outputs, if its outputs are on the correct side of the threshold. */
#include "core/metric/metric.h"

strata_tensor *strata_metric_answer_sums(const strata_loss *loss, const strata_loss_options *opts, strata_tensor *per_example,
                                         strata_tensor *outputs, strata_tensor *labels) {
    switch (loss->answers) {
        case STRATA_ANSWERS_CLASS:
            return strata_classification_sums(per_example, outputs, labels);
        case STRATA_ANSWERS_DISTRIBUTION:
            return strata_classification_sums(per_example, outputs, strata_argmax(labels, 1));
        case STRATA_ANSWERS_BINARY:
            outputs = strata_flatten(outputs);
            return strata_binary_sums(per_example, outputs, strata_loss_match(outputs, labels),
                                      strata_loss_threshold(loss, opts));
        case STRATA_ANSWERS_NONE:
            break;
    }
    strata_tensor *sum = strata_reshape(strata_reduce_sum(per_example, NULL, 0, false), STRATA_SHAPE(1));
    return strata_pad(sum, (int64_t[]){0}, (int64_t[]){1}, 0);
}

static strata_tensor *build(const strata_metric_case *c, strata_tensor *outputs, strata_tensor *labels) {
    strata_tensor *losses = c->loss->build(c->opts, outputs, labels);
    strata_tensor *sums = strata_metric_answer_sums(c->loss, c->opts, losses, outputs, labels);
    return strata_slice(sums, (int64_t[]){1}, (int64_t[]){1});
}

static strata_status check(const strata_metric_case *c, strata_error *err) {
    if (c->loss->answers != STRATA_ANSWERS_NONE) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "with %s there is no right or wrong", c->loss->name);
}

static const strata_metric_words words = {.n = strata_metric_one_sum, .build = build};
const strata_metric_kind strata_metric_accuracy = {
    .name = "accuracy", .words = &words, .check = check, .value = strata_metric_mean_of_sum};
