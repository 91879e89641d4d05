/* SPDX-License-Identifier: Apache-2.0
 *
 * The description of a training's data and options (training.c). */
#ifndef STRATA_CORE_MODEL_TRAINING_H
#define STRATA_CORE_MODEL_TRAINING_H

#include "strata/model.h"

/* The key of the description in the metadata of a checkpoint. */
#define STRATA_TRAINING_METADATA "strata.training"

/* Describes the data and options of a fit as JSON, which the caller frees. */
STRATA_MUST_USE strata_status strata_training_describe(const strata_model *model, const strata_dataset *dataset,
                                                       const strata_fit_options *opts, char **out_text, strata_error *err);
/* Fails with DATA, naming the first difference, if a training as `now` cannot continue one as `before`. within_epoch: it goes on
 * within an epoch. */
STRATA_MUST_USE strata_status strata_training_compare(const char *before, const char *now, bool within_epoch,
                                                      strata_error *err);

#endif
