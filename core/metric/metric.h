/* SPDX-License-Identifier: Apache-2.0
 *
 * Metrics besides loss and accuracy: what each says about itself. A metric is a number of words that the device adds up over
 * batches, and what the host makes of the sums at the end. A new one is core/metric/<name>.c, one row in metrics.c, its
 * test. */
#ifndef STRATA_CORE_METRIC_H
#define STRATA_CORE_METRIC_H

#include "core/loss/loss.h"
#include "strata/metrics.h"

/* What a metric is made for. */
typedef struct strata_metric_case {
    const strata_loss *loss;
    const strata_loss_options *opts;
    /* The shape of one example's outputs. */
    strata_shape output;
    /* The number in a name like top_5_accuracy. */
    int k;
    /* What the user registered; NULL: the metric is built in. */
    const strata_metric_definition *own;
} strata_metric_case;

/* A sum over examples. Metrics that need the same share it. */
typedef struct strata_metric_words {
    int64_t (*n)(const strata_metric_case *c);
    /* outputs (B, ...), labels as the loss takes them -> (n) f32. */
    strata_tensor *(*build)(const strata_metric_case *c, strata_tensor *outputs, strata_tensor *labels);
} strata_metric_words;

typedef struct strata_metric_kind {
    /* With %d where a number belongs. */
    const char *name;
    const strata_metric_words *words;
    /* INVALID for a loss or outputs that it makes no sense for. */
    strata_status (*check)(const strata_metric_case *c, strata_error *err);
    /* From the sums over `examples` of them; NULL: the sums themselves are the result (confusion_matrix). */
    double (*value)(const strata_metric_case *c, const double *sums, int64_t examples);
} strata_metric_kind;

/* Finds the kind of "top_5_accuracy" and its number; INVALID with the list of names. */
STRATA_MUST_USE strata_status strata_metric_find(const char *name, const strata_metric_kind **out_kind, int *out_k,
                                                 strata_error *err);

/* own.c: the kind of a metric of the user's own. `words` must live as long as the kind, and be used by no other. */
void strata_metric_adapt(const strata_metric_definition *own, strata_metric_words *words, strata_metric_kind *out_kind);

/* confusion_matrix.c: classes that answers and labels fall into, 2 for yes-or-no outputs. */
int64_t strata_metric_classes(const strata_metric_case *c);
STRATA_MUST_USE strata_status strata_metric_check_classes(const strata_metric_case *c, strata_error *err);
/* The classes' counts, row the label, column the answer. */
extern const strata_metric_words strata_metric_confusion_words;
/* The outputs as the loss's predictions, (B, n). */
strata_tensor *strata_metric_predictions(const strata_metric_case *c, strata_tensor *outputs);

/* accuracy.c: the sum of the examples' losses and the number of right answers, 0 where the loss does not classify; f32 (2). */
strata_tensor *strata_metric_answer_sums(const strata_loss *loss, const strata_loss_options *opts, strata_tensor *per_example,
                                         strata_tensor *outputs, strata_tensor *labels);

extern const strata_metric_kind strata_metric_accuracy, strata_metric_top_k_accuracy, strata_metric_precision,
    strata_metric_recall, strata_metric_auc, strata_metric_confusion_matrix, strata_metric_mae;
/* loss.c: the loss itself, for each output of a model that has several. */
extern const strata_metric_kind strata_metric_loss;

#endif
