/* SPDX-License-Identifier: Apache-2.0
 *
 * Metrics in your own graphs. A metric consists of sums and a value. A graph computes the sums over the examples of a batch;
 * the program adds them up over batches, replicas and workers; the host computes the metric's value from the totals:
 *
 *     const strata_metric auc = {.name = "auc", .loss = "binary_crossentropy"};
 *     strata_replica_return(replica, strata_metric_sums(&auc, outputs, labels));          in a replica's function, or any graph
 *     strata_strategy_reduce(strategy, &sums, STRATA_REDUCE_SUM, STRATA_NO_AXIS, ...);    added to the total in f64
 *     strata_metric_value(&auc, STRATA_SHAPE(1), totals, n_examples, &value, &err);
 *
 * A model that is compiled computes the same for fit and evaluate (strata_compile_options). */
#ifndef STRATA_METRICS_H
#define STRATA_METRICS_H

#include "strata/losses.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct strata_metric {
    /* "accuracy", "top_5_accuracy" (or another number), "precision", "recall", "auc", "mae" or "confusion_matrix"; the formulas
     * are in core/metric/<name>.c. Since sums have a fixed size, auc is that of 200 thresholds, as Keras' AUC; fit and evaluate
     * compute it exactly. */
    const char *name;
    /* The name and the options of the model's loss, which determine the meaning of outputs and labels (strata/losses.h). */
    const char *loss;
    strata_loss_options loss_options;
} strata_metric;

/* The metric's sums over the examples of a batch, f32 (n), of outputs (B, output...) and labels as the loss takes them. n
 * depends only on the metric and on the shape of the outputs. Errors poison the graph: INVALID for an unknown name, or for a
 * metric that is not defined for the loss. */
STRATA_API strata_tensor *strata_metric_sums(const strata_metric *metric, strata_tensor *outputs, strata_tensor *labels);
/* Computes the value from sums over n_examples examples. output: the shape of one example's outputs.
 * Fails: INVALID as above, for 0 examples, and for confusion_matrix, whose sums are already the result: counts (classes,
 * classes), where row l, column p is the number of examples with label l and prediction p. */
STRATA_API STRATA_MUST_USE strata_status strata_metric_value(const strata_metric *metric, strata_shape output,
                                                             const double *sums, int64_t n_examples, double *out_value,
                                                             strata_error *err);

/* The prediction of an example, and whether its label is the class that is predicted. */
typedef struct strata_scored {
    float score, is_class;
} strata_scored;
/* The exact AUC: the share of the pairs of an example of the class and an example of others in which the first has the higher
 * score; equal scores count half. NaN: there are no such pairs, or a score is NaN. Sorts the examples. */
STRATA_API double strata_auc(strata_scored *examples, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
