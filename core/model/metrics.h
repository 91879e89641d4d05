/* SPDX-License-Identifier: Apache-2.0
 *
 * The metrics of a model: the sums that programs compute, and what exact metrics need of each example (metrics.c). */
#ifndef STRATA_CORE_MODEL_METRICS_H
#define STRATA_CORE_MODEL_METRICS_H

#include "core/model/model.h"

/* strata_model_set_metrics copies the list of names. strata_model_choose_metrics finds the metrics when losses and
 * outputs are known. list: replaces the names of the only output; NULL: those are used. */
STRATA_MUST_USE strata_status strata_model_set_metrics(strata_output_spec *output, const char *names, strata_error *err);
STRATA_MUST_USE strata_status strata_model_choose_metrics(strata_model *model, const char *list, strata_error *err);
/* Appends a batch's sums of the metrics to those of loss and accuracy (2). outputs, labels: [n_outputs] */
strata_tensor *strata_model_metric_sums(const strata_model *model, strata_tensor *sums, strata_tensor *const *outputs,
                                        strata_tensor *const *labels);
/* What the exact metrics need of each example, (n, 2, B) for n such metrics; NULL: there is none. */
strata_tensor *strata_model_metric_scores(const strata_model *model, strata_tensor *const *outputs,
                                          strata_tensor *const *labels);
/* The scores of all examples of an epoch or an evaluation. Zero-initialized. */
typedef struct strata_model_scores {
    /* [n] for each exact metric, in their order. */
    strata_scored *lists[STRATA_MAX_METRICS];
    int64_t n, room;
} strata_model_scores;
/* Adds the scores of a part's examples, if its program computes them. */
STRATA_MUST_USE strata_status strata_scores_take(const strata_model *model, strata_model_scores *scores,
                                                 const strata_program_part *part, int slot, strata_error *err);
/* Makes each worker's scores those of all workers. Each worker must call it. */
STRATA_MUST_USE strata_status strata_scores_gather(const strata_model *model, strata_model_scores *scores, strata_error *err);
void strata_scores_finish(strata_model_scores *scores);
/* Computes the metrics from sums such as model->metrics.sums. scores: those of the examples, which it sorts; NULL, or another
 * number of examples: metrics that need them are computed from sums. */
strata_metrics strata_model_metrics(const strata_model *model, const double *sums, int64_t examples,
                                    strata_model_scores *scores);
/* strata_model_reset_sums sets the sums on the devices, and those that replicas have accumulated, to 0. strata_model_read_sums
 * reads the sums to model->metrics.sums. */
STRATA_MUST_USE strata_status strata_model_reset_sums(strata_model *model, strata_error *err);
STRATA_MUST_USE strata_status strata_model_read_sums(strata_model *model, strata_error *err);
/* Writes model->metrics.sums to the devices that have sums. */
STRATA_MUST_USE strata_status strata_model_write_sums(strata_model *model, strata_error *err);

#endif
