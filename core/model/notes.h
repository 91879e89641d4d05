/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading a model's notes from its file. The public functions are strata_model_set_note and strata_model_note. */
#ifndef STRATA_CORE_MODEL_NOTES_H
#define STRATA_CORE_MODEL_NOTES_H

#include "core/data/format/safetensors.h"
#include "strata/model.h"

void strata_model_free_notes(strata_model *model);
/* Reads all metadata "strata.*" of a file except the model itself. */
STRATA_MUST_USE strata_status strata_model_read_notes(strata_model *model, const strata_safetensors *file, strata_error *err);

#endif
