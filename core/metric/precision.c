/* SPDX-License-Identifier: Apache-2.0
 *
 * precision = true positives / (true positives + false positives); recall = true positives / (true positives + false
 * negatives). For a binary output there is one positive class. With more classes, each of them is the positive class
 * once, and the result is the mean over the classes that are the label or the prediction of an example, as scikit-learn's
 * average="macro". A class whose denominator is 0 counts as 0. */
#include "core/metric/metric.h"

static double count(const double *counts, int64_t classes, int64_t first, int64_t step) {
    double all = 0;
    for (int64_t i = 0; i < classes; i++) all += counts[first + i * step];
    return all;
}

/* The fraction of correct predictions among the counts first, first + step, ..., which are a row or a column of the
 * matrix. */
static double share(const double *counts, int64_t classes, int64_t class, int64_t first, int64_t step) {
    const double all = count(counts, classes, first, step);
    return all > 0 ? counts[class * classes + class] / all : 0;
}

static double over_classes(const strata_metric_case *c, const double *counts, bool rows) {
    int64_t classes = strata_metric_classes(c), from = c->loss->answers == STRATA_ANSWERS_BINARY ? 1 : 0;
    double sum = 0, n = 0;
    for (int64_t k = from; k < classes; k++) {
        if (count(counts, classes, k * classes, 1) + count(counts, classes, k, classes) == 0) continue;
        sum += rows ? share(counts, classes, k, k * classes, 1) : share(counts, classes, k, k, classes);
        n++;
    }
    return n > 0 ? sum / n : 0;
}

static double precision_value(const strata_metric_case *c, const double *sums, int64_t examples) {
    (void)examples;
    return over_classes(c, sums, false);
}

static double recall_value(const strata_metric_case *c, const double *sums, int64_t examples) {
    (void)examples;
    return over_classes(c, sums, true);
}

const strata_metric_kind strata_metric_precision = {.name = "precision",
                                                    .words = &strata_metric_confusion_words,
                                                    .check = strata_metric_check_classes,
                                                    .value = precision_value};
const strata_metric_kind strata_metric_recall = {
    .name = "recall", .words = &strata_metric_confusion_words, .check = strata_metric_check_classes, .value = recall_value};
