/* SPDX-License-Identifier: Apache-2.0
 *
 * A model's texts, between the model and its file. Users see strata_model_set_note. */
#ifndef STRATA_CORE_MODEL_NOTES_H
#define STRATA_CORE_MODEL_NOTES_H

#include "core/data/format/safetensors.h"
#include "strata/model.h"

void strata_model_free_notes(strata_model *model);
/* All metadata "strata.*" of a file but the model itself. */
STRATA_MUST_USE strata_status strata_model_read_notes(strata_model *model, const strata_safetensors *file, strata_error *err);

#endif
