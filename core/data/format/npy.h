/* SPDX-License-Identifier: Apache-2.0
 *
 * NumPy's .npy files: \x93NUMPY, the version, the header's length, a Python dict literal with descr, fortran_order and shape,
 * and the elements. Source of the format: the documentation of numpy.lib.format. Python code in a file is never run: pickled
 * objects are refused. */
#ifndef STRATA_CORE_DATA_NPY_H
#define STRATA_CORE_DATA_NPY_H

#include "core/base/export.h"
#include "strata/tensor.h"

STRATA_EXPORT_BEGIN

enum { STRATA_NPY_MAX_HEADER = 64 << 10 };

/* Parses bytes[0..n_bytes) into an array that the caller finishes. It reads the versions 1 to 3, C order, little-endian, rank
 * at most 8. The types f4 f2 i4 i8 u1 b1 are kept; f8 is converted to f32, rounded to nearest, and a number that is too large
 * for f32 is an error. The size must be exactly that of the header.
 * name: used in messages.
 * Fails: DATA if the file is malformed, with offset and numbers; UNSUPPORTED for other types, Python objects, big-endian
 * numbers and Fortran order (the message explains how to save the array instead); OUT_OF_MEMORY. */
STRATA_MUST_USE strata_status strata_npy_parse(const char *name, const void *bytes, size_t n_bytes, strata_array *out_array,
                                               strata_error *err);
/* Returns the type and the shape of the elements in the file, and how many bytes they have, without reading the elements. The
 * type is the one before the conversion: "f64" for elements that strata_npy_parse converts to f32. */
STRATA_MUST_USE strata_status strata_npy_describe(const char *name, const void *bytes, size_t n_bytes, const char **out_type,
                                                  strata_shape *out_shape, size_t *out_bytes, strata_error *err);
/* Reads a file, which may be compressed with gzip or xz, and parses it. Fails as strata_npy_parse, and with UNAVAILABLE if the
 * file cannot be read. */
STRATA_MUST_USE strata_status strata_npy_read(const char *path, strata_array *out_array, strata_error *err);

/* Writes a file of version 1.0 through a temporary file (core/base/file.h). Fails: UNSUPPORTED for bf16, which NumPy does not
 * have; as core/base/file.h. */
STRATA_MUST_USE strata_status strata_npy_write(const char *path, const strata_array *array, strata_error *err);

enum { STRATA_NPY_MOST_HEADER = 512 };
/* Writes the header of a file of version 1.0, which the elements follow. Fails as strata_npy_write. */
STRATA_MUST_USE strata_status strata_npy_header(const char *path, const strata_array *array,
                                                char out_header[STRATA_NPY_MOST_HEADER], size_t *out_n_bytes,
                                                strata_error *err);

STRATA_EXPORT_END

#endif
