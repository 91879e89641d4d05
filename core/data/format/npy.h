/* SPDX-License-Identifier: Apache-2.0
 *
 * NumPy's .npy files: \x93NUMPY, the version, the header's length, a Python dict literal with descr, fortran_order and shape,
 * and the elements. Source of the format: the documentation of numpy.lib.format. Python code in a file is never run: pickled
 * objects are refused. */
#ifndef STRATA_CORE_DATA_NPY_H
#define STRATA_CORE_DATA_NPY_H

#include "strata/formats.h"

enum { STRATA_NPY_MAX_HEADER = 64 << 10 };

/* As strata_npy_parse and strata_npy_read_exact: parses bytes in memory. out_exact: may be NULL. */
STRATA_MUST_USE strata_status strata_npy_parse_exact(const char *name, const void *bytes, size_t n_bytes,
                                                     strata_array *out_array, double **out_exact, strata_error *err);

enum { STRATA_NPY_MOST_HEADER = 512 };
/* Writes the header of a file of version 1.0, which the elements follow. Fails: UNSUPPORTED for bf16, which NumPy lacks. */
STRATA_MUST_USE strata_status strata_npy_header(const char *path, const strata_array *array,
                                                char out_header[STRATA_NPY_MOST_HEADER], size_t *out_n_bytes,
                                                strata_error *err);

#endif
