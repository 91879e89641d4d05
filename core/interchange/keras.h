/* SPDX-License-Identifier: Apache-2.0
 *
 * The internal function of the import of Keras' files that tests call. */
#ifndef STRATA_CORE_INTERCHANGE_KERAS_H
#define STRATA_CORE_INTERCHANGE_KERAS_H

#include "strata/model.h"

/* Reads a .keras file in memory, like strata_model_load_keras. If weights is false, the model is made without its
 * weights. */
STRATA_MUST_USE strata_status strata_keras_parse(const char *path, const void *bytes, size_t n_bytes, bool weights,
                                                 strata_model **out_model, strata_error *err);

#endif
