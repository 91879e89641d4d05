/* SPDX-License-Identifier: Apache-2.0
 *
 * Model files and checkpoints as parts of other files use them (file.c, checkpoint.c). */
#ifndef STRATA_CORE_MODEL_FILE_H
#define STRATA_CORE_MODEL_FILE_H

#include "core/model/model.h"

/* file.c */
#define STRATA_MODEL_METADATA    "strata.model"
#define STRATA_CHECKPOINT_PREFIX "checkpoint/" /* the names of tensors that are not parameters begin with this */
/* As strata_model_load_checkpoint. *out_over: the file is the last checkpoint of a training that has ended. */
STRATA_MUST_USE strata_status strata_checkpoint_load(strata_model *model, const char *path, int *out_epochs, bool *out_over,
                                                     strata_error *err);
/* Writes a model file with additional tensors. */
STRATA_MUST_USE strata_status strata_model_write(strata_model *model, const char *path, const strata_named_array *extra,
                                                 int n_extra, strata_error *err);
/* Reads the parameters and states of a file, which must be those of the model. out: (all_size). */
STRATA_MUST_USE strata_status strata_model_take_parameters(const strata_model *model, const strata_safetensors *file,
                                                           float *out, strata_error *err);

#endif
