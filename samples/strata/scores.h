/* SPDX-License-Identifier: Apache-2.0
 *
 * Metrics of predictions in addition to loss and accuracy: for each class, and for numbers in their own unit. */
#ifndef STRATA_SAMPLES_SCORES_H
#define STRATA_SAMPLES_SCORES_H

#include "samples.h"

/* Zero-initialize; finish when done. */
typedef struct scores {
    int64_t n;         /* examples */
    int64_t n_classes; /* 0: numbers are predicted */
    /* [n_classes][n_classes] examples by label and answer. */
    int64_t *confusion;
    /* Mean over examples of a label of the area under the curve of true and false answers: of the one class where there are
     * two, else over classes of each against the others. NaN: a class is missing, or there are too many. */
    double auc;
    /* Of numbers: coefficient of determination, mean absolute error, root of the mean squared error, over all labels. */
    double r2, mae, rmse;
} scores;
void scores_finish(scores *scores);
/* Predicts all of `dataset`, which has labels, with a compiled model, and compares. preprocessing: NULL, or what restores
 * labels that are numbers. */
STRATA_MUST_USE strata_status scores_measure(strata_model *model, const strata_dataset *dataset,
                                             const strata_preprocessing *preprocessing, int64_t batch, scores *out,
                                             strata_error *err);
/* A table of the classes with precision, recall, F1, their means, AUC and the confusion matrix; or R2 and errors. */
void print_scores(const scores *scores, const sample *sample, const strata_preprocessing *preprocessing);
/* ",\"scores\":{...}" */
void print_scores_json(const scores *scores, const sample *sample, const strata_preprocessing *preprocessing);
/* "R2 0.52, mean absolute error 41.2", for a line; nothing for classes. */
void print_number_scores(const scores *scores);
/* Says so where answers are no better than one and the same for all. */
void print_hint(const scores *scores, const sample *sample, const strata_preprocessing *preprocessing);

#endif
