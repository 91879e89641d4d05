/* SPDX-License-Identifier: Apache-2.0
 *
 * NumPy's .npy files: \x93NUMPY, version, header length, a Python dict literal with descr, fortran_order and shape, elements.
 * Format: numpy.lib.format. Never evaluates or unpickles anything. */
#ifndef STRATA_CORE_DATA_NPY_H
#define STRATA_CORE_DATA_NPY_H

#include "core/base/export.h"
#include "strata/tensor.h"

STRATA_EXPORT_BEGIN

enum { STRATA_NPY_MAX_HEADER = 64 << 10 };

/* Parses bytes[0..n_bytes) into an array that the caller finishes. Versions 1 to 3; C order; f4 f2 i4 i8 u1 b1 as they are, f8
 * as f32 (rounded to nearest; too large for f32 is an error); little-endian; rank at most 8. The size must be exactly that of
 * the header.
 * name: used in messages.
 * Fails: DATA when malformed, with offset and numbers; UNSUPPORTED for other dtypes, Python objects, big-endian and Fortran
 * order (the message says how to save it instead); OUT_OF_MEMORY. */
STRATA_MUST_USE strata_status strata_npy_parse(const char *name, const void *bytes, size_t n_bytes, strata_array *out_array,
                                               strata_error *err);
/* The type and shape that the file has, before a conversion: "f64" for elements that are read as f32. Elements are not read. */
STRATA_MUST_USE strata_status strata_npy_describe(const char *name, const void *bytes, size_t n_bytes, const char **out_type,
                                                  strata_shape *out_shape, size_t *out_bytes, strata_error *err);
/* The same as parse on a file, plain, .gz or .xz. Fails also: UNAVAILABLE when it can't be read. */
STRATA_MUST_USE strata_status strata_npy_read(const char *path, strata_array *out_array, strata_error *err);

/* Writes version 1.0, by way of a temporary file (core/base/file.h). Fails: UNSUPPORTED for bf16, which NumPy doesn't have; as
 * core/base/file.h. */
STRATA_MUST_USE strata_status strata_npy_write(const char *path, const strata_array *array, strata_error *err);

STRATA_EXPORT_END

#endif
