/* SPDX-License-Identifier: Apache-2.0
 *
 * The struct that describes a metric other than loss and accuracy. The device adds a few sums ("words") over the batches,
 * and the host computes the metric from them at the end. A new metric needs core/metric/<name>.c, a row in metrics.def and
 * a test. */
#ifndef STRATA_CORE_METRIC_H
#define STRATA_CORE_METRIC_H

#include "core/loss/loss.h"
#include "strata/metrics.h"

/* The loss, the outputs and the options for which a metric is built. */
typedef struct strata_metric_case {
    const strata_loss *loss;
    const strata_loss_options *opts;
    /* The shape of one example's outputs. */
    strata_shape output;
    /* The number in a name like top_5_accuracy. */
    int k;
    /* The user's definition; NULL: the metric is built in. */
    const strata_metric_definition *own;
} strata_metric_case;

/* Sums over examples. Metrics that need the same sums share them. */
typedef struct strata_metric_words {
    int64_t (*n)(const strata_metric_case *c);
    /* Computes the sums (n) f32 of a batch from outputs (B, ...) and labels in the form that the loss takes. */
    strata_tensor *(*build)(const strata_metric_case *c, strata_tensor *outputs, strata_tensor *labels);
} strata_metric_words;

typedef struct strata_metric_kind {
    /* The name, with %d in place of a number: "top_%d_accuracy". */
    const char *name;
    const strata_metric_words *words;
    /* Fails with INVALID if the metric does not make sense for this loss or these outputs. */
    strata_status (*check)(const strata_metric_case *c, strata_error *err);
    /* Computes the metric from the sums over `examples` examples. NULL: the sums themselves are the result
     * (confusion_matrix). */
    double (*value)(const strata_metric_case *c, const double *sums, int64_t examples);
    /* For a metric that sums can only approximate. score computes what it needs of each example of a batch: (2, B) f32, the
     * predictions and then 1 or 0. exact computes the metric from all examples, which it sorts. NULL: the sums are exact. */
    strata_tensor *(*score)(const strata_metric_case *c, strata_tensor *outputs, strata_tensor *labels);
    double (*exact)(strata_scored *examples, int64_t n);
} strata_metric_kind;

/* Finds the kind of "top_5_accuracy" and the number 5. Fails with INVALID and the list of names if there is none. */
STRATA_MUST_USE strata_status strata_metric_find(const char *name, const strata_metric_kind **out_kind, int *out_k,
                                                 strata_error *err);

/* Members of the kinds of metrics that are the mean of one number of each example. */
int64_t strata_metric_one_sum(const strata_metric_case *c);
double strata_metric_mean_of_sum(const strata_metric_case *c, const double *sums, int64_t examples);
strata_status strata_metric_always_fits(const strata_metric_case *c, strata_error *err);

/* own.c: makes the kind of a metric that the user defined. `words` must live as long as the kind, and must not be used by
 * another kind. */
void strata_metric_adapt(const strata_metric_definition *own, strata_metric_words *words, strata_metric_kind *out_kind);

/* confusion_matrix.c: the number of classes; 2 for binary outputs. */
int64_t strata_metric_classes(const strata_metric_case *c);
STRATA_MUST_USE strata_status strata_metric_check_classes(const strata_metric_case *c, strata_error *err);
/* The elements of the confusion matrix, with a row for each label and a column for each predicted class. */
extern const strata_metric_words strata_metric_confusion_words;
/* The predictions (B, n) that the loss computes from the outputs. */
strata_tensor *strata_metric_predictions(const strata_metric_case *c, strata_tensor *outputs);

/* accuracy.c: the sum of the examples' losses and the number of correct predictions, (2) f32. The number is 0 if the loss
 * is not for classification. */
strata_tensor *strata_metric_answer_sums(const strata_loss *loss, const strata_loss_options *opts, strata_tensor *per_example,
                                         strata_tensor *outputs, strata_tensor *labels);

#define STRATA_METRIC(name) extern const strata_metric_kind strata_metric_##name;
#include "core/metric/metrics.def"

#undef STRATA_METRIC
/* loss.c: the loss itself, for each output of a model with several outputs. */
extern const strata_metric_kind strata_metric_loss;

#endif
