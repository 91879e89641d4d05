/* SPDX-License-Identifier: Apache-2.0
 *
 * The description of a training's data and options (training.c). */
#ifndef STRATA_CORE_MODEL_TRAINING_H
#define STRATA_CORE_MODEL_TRAINING_H

#include "strata/model.h"

/* The key of the description in the metadata of a checkpoint. */
#define STRATA_TRAINING_METADATA "strata.training"
/* What a user can do about a checkpoint of a training with other data or options. */
#define STRATA_TRAINING_ADVICE                                                                                               \
    "to begin again, give another checkpoint or remove this one; to train its model further on purpose, load it as a model " \
    "(strata train --from)"

/* The description of the model's training: of the fit that runs, of the last one, or of the checkpoint that was loaded. NULL:
 * there is none. It is made when it is needed for the first time, from model->fitted. Valid until the next fit. */
STRATA_MUST_USE strata_status strata_training_of(strata_model *model, const char **out_text, strata_error *err);
/* Fails with DATA, naming the first difference, if the fit that has begun cannot continue the training whose checkpoint was
 * loaded. Another batch can, also within an epoch, since examples are counted. */
STRATA_MUST_USE strata_status strata_training_compare(strata_model *model, strata_error *err);

#endif
