/* SPDX-License-Identifier: Apache-2.0
 *
 * The validation data of a fit, and the decisions that depend on their loss (validation.c). */
#ifndef STRATA_CORE_MODEL_VALIDATION_H
#define STRATA_CORE_MODEL_VALIDATION_H

#include "core/model/model.h"

/* strata_validation_begin checks the options
 * and allocates memory before training. Without validation data the other functions do nothing. */
STRATA_MUST_USE strata_status strata_validation_begin(strata_model *model, const strata_fit_options *opts, strata_error *err);
/* Uses the metrics of the validation data after epoch `epoch`: updates the best epoch. *out_stop: patience ends the
 * training. */
STRATA_MUST_USE strata_status strata_validation_take(strata_model *model, const strata_fit_options *opts, int epoch,
                                                     const strata_metrics *metrics, bool *out_stop, strata_error *err);
/* Evaluates the validation data, if there are any, and calls strata_validation_take. */
STRATA_MUST_USE strata_status strata_validation_run(strata_model *model, const strata_fit_options *opts, int epoch,
                                                    strata_metrics *out_metrics, bool *out_stop, strata_error *err);
/* Whether patience has already ended the training that this fit would continue. */
bool strata_validation_is_over(const strata_model *model, const strata_fit_options *opts);
/* With restore_best, writes the parameters of the best epoch to the devices. */
STRATA_MUST_USE strata_status strata_validation_restore(strata_model *model, const strata_fit_options *opts, strata_error *err);
void strata_validation_forget(strata_model *model);

#endif
