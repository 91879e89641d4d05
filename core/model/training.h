/* SPDX-License-Identifier: Apache-2.0
 *
 * The description of a training's data and options (training.c). */
#ifndef STRATA_CORE_MODEL_TRAINING_H
#define STRATA_CORE_MODEL_TRAINING_H

#include "core/base/export.h"
#include "strata/model.h"

/* The key of the description in the metadata of a checkpoint. */
#define STRATA_TRAINING_METADATA "strata.training"

/* Describes the data and options of a fit as JSON, which the caller frees. */
STRATA_MUST_USE strata_status strata_training_describe(const strata_dataset *dataset, const strata_fit_options *opts,
                                                       char **out_text, strata_error *err);
/* Fails with DATA, naming the first difference, if a training as `now` cannot continue one as `before`. Another batch can, also
 * within an epoch, since examples are counted. */
STRATA_MUST_USE strata_status strata_training_compare(const char *before, const char *now, strata_error *err);

STRATA_EXPORT_BEGIN

/* The batch of the training whose checkpoint was loaded, until a fit has begun; 0: none was loaded, or it is not known. */
int64_t strata_training_batch_before(const strata_model *model);

STRATA_EXPORT_END

#endif
