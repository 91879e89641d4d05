/* SPDX-License-Identifier: Apache-2.0
 *
 * Metrics of predictions in addition to loss and accuracy: for each class, and for numbers in their own unit. */
#ifndef STRATA_SAMPLES_SCORES_H
#define STRATA_SAMPLES_SCORES_H

#include "samples.h"

/* Zero-initialize; finish when done. */
typedef struct scores {
    int64_t n;         /* how many examples were compared */
    int64_t n_classes; /* 0: the labels are numbers */
    /* [n_classes][n_classes] How many examples have this label (row) and this answer (column). */
    int64_t *confusion;
    /* The area under the receiver operating characteristic curve: that of class 1 if there are two classes, otherwise the mean
     * over the classes of the area for one class against the others. NaN: a class is missing, or there are too many classes. */
    double auc;
    /* For numbers: coefficient of determination, mean absolute error, root of the mean squared error, over all labels. */
    double r2, mae, rmse;
} scores;
void scores_finish(scores *scores);
/* Predicts all examples of a dataset with labels with a compiled model, and compares predictions and labels. preprocessing:
 * converts standardised numbers back to the labels' unit; NULL: they are not standardised. */
STRATA_MUST_USE strata_status scores_measure(strata_model *model, const strata_dataset *dataset,
                                             const strata_preprocessing *preprocessing, int64_t batch, scores *out,
                                             strata_error *err);
/* Converts the metric mae, which a model computes of standardised numbers, to the labels' unit. If several labels have
 * different units, it is not changed. */
void metrics_in_units(const strata_preprocessing *preprocessing, strata_metrics *metrics);
/* Prints a table of precision, recall and F1 for each class, their means, AUC and the confusion matrix; for numbers R2 and the
 * errors. */
void print_scores(const scores *scores, const sample *sample, const strata_preprocessing *preprocessing);
/* Prints ",\"scores\":{...}", a part of a JSON object. */
void print_scores_json(const scores *scores, const sample *sample, const strata_preprocessing *preprocessing);
/* Prints for example "R2 0.52, mean absolute error 41.2"; prints nothing for classes. */
void print_number_scores(const scores *scores);
/* Prints a hint if the answers are not better than the same answer for all examples. */
void print_hint(const scores *scores, const sample *sample, const strata_preprocessing *preprocessing);

#endif
