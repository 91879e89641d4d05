/* SPDX-License-Identifier: Apache-2.0
 *
 * confusion_matrix: element (r, c) is the number of examples of class r that were classified as class c, (classes,
 * classes). Binary outputs have two classes. Precision and recall are computed from the same counts. */
#include "core/graph/graph.h"
#include "core/metric/metric.h"

int64_t strata_metric_classes(const strata_metric_case *c) {
    return c->loss->answers == STRATA_ANSWERS_BINARY ? 2 : c->output.dims[0];
}

strata_status strata_metric_check_classes(const strata_metric_case *c, strata_error *err) {
    enum { MOST = 1024 };
    if (c->loss->answers == STRATA_ANSWERS_NONE)
        return strata_fail(err, STRATA_INVALID, "%s has no right and wrong answers", c->loss->name);
    if (c->loss->answers == STRATA_ANSWERS_BINARY && strata_shape_elements(c->output) != 1)
        return strata_fail(err, STRATA_INVALID, "outputs are %s an example; it needs one yes-or-no output, or classes",
                           strata_shape_text(c->output).text);
    if (strata_metric_classes(c) > MOST)
        return strata_fail(err, STRATA_INVALID, "there are %lld classes; it takes at most %d",
                           (long long)strata_metric_classes(c), MOST);
    return STRATA_OK;
}

strata_tensor *strata_metric_predictions(const strata_metric_case *c, strata_tensor *outputs) {
    return strata_flatten(c->loss->predict ? c->loss->predict(c->opts, outputs) : outputs);
}

static strata_tensor *above(strata_tensor *x, double threshold) {
    strata_tensor *flat = strata_reshape(x, STRATA_SHAPE(strata_tensor_shape(x).dims[0]));
    return strata_cast(strata_greater(flat, strata_scalar(x->graph, STRATA_DTYPE_F32, threshold)), STRATA_DTYPE_I32);
}

static int64_t confusion_n(const strata_metric_case *c) {
    return strata_metric_classes(c) * strata_metric_classes(c);
}

/* The counts are the product of two one-hot matrices: (labels)^T (predicted classes). */
static strata_tensor *confusion_build(const strata_metric_case *c, strata_tensor *outputs, strata_tensor *labels) {
    bool binary = c->loss->answers == STRATA_ANSWERS_BINARY;
    int64_t classes = strata_metric_classes(c);
    strata_tensor *answers = binary ? above(outputs, strata_loss_threshold(c->loss, c->opts)) : strata_argmax(outputs, 1);
    strata_tensor *truths = binary                                            ? above(labels, 0.5)
                            : c->loss->answers == STRATA_ANSWERS_DISTRIBUTION ? strata_argmax(labels, 1)
                                                                              : labels;
    strata_tensor *counts = strata_matmul(strata_one_hot(truths, classes, STRATA_DTYPE_F32),
                                          strata_one_hot(answers, classes, STRATA_DTYPE_F32), true, false);
    return strata_reshape(counts, STRATA_SHAPE(confusion_n(c)));
}

const strata_metric_words strata_metric_confusion_words = {.n = confusion_n, .build = confusion_build};

const strata_metric_kind strata_metric_confusion_matrix = {
    .name = "confusion_matrix", .words = &strata_metric_confusion_words, .check = strata_metric_check_classes};
