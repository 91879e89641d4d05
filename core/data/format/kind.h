/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds out what a file is that is no model file, to say so in an error. */
#ifndef STRATA_CORE_DATA_KIND_H
#define STRATA_CORE_DATA_KIND_H

#include "strata/status.h"

/* Kinds of files that the library reads; UNKNOWN: a model file of strata. */
typedef enum strata_file_kind { STRATA_FILE_UNKNOWN, STRATA_FILE_KERAS, STRATA_FILE_ONNX } strata_file_kind;

/* Called when a file could not be read as a file of the kind `expected`. Returns `status`,
 * but if the file is of another kind it fails with DATA, what the file is, and how to convert it. */
strata_status strata_file_explain(const char *path, const unsigned char *bytes, size_t n_bytes, strata_file_kind expected,
                                  strata_status status, strata_error *err);

#endif
