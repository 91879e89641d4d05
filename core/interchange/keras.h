/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the import of Keras' files, for tests. */
#ifndef STRATA_CORE_INTERCHANGE_KERAS_H
#define STRATA_CORE_INTERCHANGE_KERAS_H

#include "strata/model.h"

/* A .keras file in memory, as strata_model_load_keras reads it. weights false: the model is made, and its weights are left
 * out. */
STRATA_MUST_USE strata_status strata_keras_parse(const char *path, const void *bytes, size_t n_bytes, bool weights,
                                                 strata_model **out_model, strata_error *err);

#endif
